//! The 88 bytes at the start of the file.

use std::fmt;

use crate::bytes::{Bytes, Span};
use crate::{Error, Result};

/// Size of the header in bytes; the same in every known version (container 2.3 to 2.9).
pub(crate) const HEADER_SIZE: u64 = 88;

/// A major and a minor number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    /// The number before the point.
    pub major: u16,
    /// The number after the point.
    pub minor: u16,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

macro_rules! known_values {
    ($(#[$doc:meta])* $name:ident: $raw:ty { $($(#[$variant_doc:meta])* $variant:ident = $value:literal, $text:literal;)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum $name {
            $($(#[$variant_doc])* $variant,)*
            /// A value that this crate does not know.
            Other($raw),
        }

        impl From<$raw> for $name {
            fn from(value: $raw) -> Self {
                match value {
                    $($value => Self::$variant,)*
                    other => Self::Other(other),
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                match self {
                    $(Self::$variant => f.write_str($text),)*
                    Self::Other(value) => write!(f, "unknown ({value:#x})"),
                }
            }
        }
    };
}
pub(crate) use known_values;

known_values! {
    /// The family of systems the library was built for (offset 4).
    Platform: u16 {
        /// iOS and related systems.
        Ios = 0x0001, "iOS";
        /// macOS.
        MacOs = 0x8001, "macOS";
    }
}

known_values! {
    /// The purpose of the file (offset 10).
    LibraryKind: u8 {
        /// Entry points for pipelines.
        Executable = 0, "executable";
        /// Core Image kernels.
        CoreImage = 1, "Core Image";
        /// A dynamic library.
        Dynamic = 2, "dynamic";
        /// Symbols of another library.
        SymbolCompanion = 3, "symbol companion";
    }
}

known_values! {
    /// The system the library was built for (offset 11).
    TargetOs: u8 {
        /// Not stated; old tools did not write it.
        Unstated = 0x00, "unstated";
        /// macOS.
        MacOs = 0x81, "macOS";
        /// iOS.
        Ios = 0x82, "iOS";
        /// tvOS.
        TvOs = 0x83, "tvOS";
        /// watchOS.
        WatchOs = 0x84, "watchOS";
        /// bridgeOS.
        BridgeOs = 0x85, "bridgeOS";
        /// Mac Catalyst.
        MacCatalyst = 0x86, "Mac Catalyst";
        /// The iOS simulator.
        IosSimulator = 0x87, "iOS simulator";
        /// The tvOS simulator.
        TvOsSimulator = 0x88, "tvOS simulator";
        /// The watchOS simulator.
        WatchOsSimulator = 0x89, "watchOS simulator";
    }
}

/// The position of a part of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Section {
    /// First byte, from the start of the file.
    pub offset: u64,
    /// Number of bytes. The function list's excludes its u32 count.
    pub size: u64,
}

/// The decoded header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// The family of systems.
    pub platform: Platform,
    /// Version of the container format.
    pub container_version: Version,
    /// The purpose of the file.
    pub kind: LibraryKind,
    /// The system that the library was built for.
    pub os: TargetOs,
    /// The oldest version of `os` that loads the library: its deployment target.
    pub os_version: Version,
    /// The size of the whole file; equal to the input's.
    pub file_size: u64,
    /// The list of functions.
    pub function_list: Section,
    /// Function constants, vertex attributes and similar data, one group per function.
    pub public_metadata: Section,
    /// Debug information, one group per function.
    pub private_metadata: Section,
    /// The functions' LLVM modules.
    pub bitcode: Section,
}

impl Header {
    pub(crate) fn parse(file: &[u8]) -> Result<Self> {
        if !file.starts_with(b"MTLB") {
            return Err(Error::Magic {
                found: file[..file.len().min(4)].to_vec(),
            });
        }
        let whole = Bytes::new(file, 0);
        let mut bytes = Bytes::new(file, 0).part(HEADER_SIZE, "the header")?;
        bytes.part(4, "the magic")?;
        let version = |bytes: &mut Bytes<'_>| {
            Ok(Version {
                major: bytes.u16("a version")?,
                minor: bytes.u16("a version")?,
            })
        };
        let platform = bytes.u16("the platform")?.into();
        let container_version = version(&mut bytes)?;
        let kind = bytes.u8("the library's type")?.into();
        let os = bytes.u8("the target system")?.into();
        let os_version = version(&mut bytes)?;
        let file_size = bytes.u64("the file size")?;
        if file_size != whole.remaining() {
            return Err(Error::FileSize {
                stored: file_size,
                actual: whole.remaining(),
            });
        }
        let mut section = |what, prefix: u64| -> Result<Section> {
            let named_at = bytes.offset();
            let section = Section {
                offset: bytes.u64(what)?,
                size: bytes.u64(what)?,
            };
            // The prefix is the function list's count, which its size does not include.
            let size = section.size.saturating_add(prefix);
            Span {
                what,
                named_at,
                start: section.offset,
                size,
            }
            .within(whole, "the file")?;
            Ok(section)
        };
        Ok(Self {
            platform,
            container_version,
            kind,
            os,
            os_version,
            file_size,
            function_list: section("the function list", 4)?,
            public_metadata: section("the public metadata", 0)?,
            private_metadata: section("the private metadata", 0)?,
            bitcode: section("the bitcode", 0)?,
        })
    }
}
