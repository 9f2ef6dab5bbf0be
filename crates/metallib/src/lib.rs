//! Reads Apple's `.metallib` container without Apple's tools, on any system.
//!
//! The container has one LLVM module per function, a list of the functions with their types, versions and SHA-256
//! checksums, and metadata. [`Library::parse`] takes the file's bytes, reads the header, and borrows everything else
//! lazily: nothing is copied, and bitcode pages that are not used are never touched.
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let file = std::fs::read("mlx.metallib")?;
//! let library = metallib::Library::parse(&file)?;
//! for function in library.functions() {
//!     println!("{}", function?.name);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! It is better to map large files than to read them. Mapping is `unsafe` (another process may change the file), so it
//! is left to the caller, or to `map_file` of the feature `mmap`; without that feature the crate forbids unsafe code.
//!
//! Apple does not document the format. The layout here was derived from MLX's official libraries (container versions
//! 2.7, 2.8 and 2.9) and from files of older tools (2.3, 2.4). Names of fields and values that those files do not use
//! follow the public findings of the MetalLibraryArchive project. A tag that the crate does not know is kept and can be
//! shown. A version that it does not know is read like the known ones; only what does not fit is an error.
//!
//! # Hostile files Every read is bounds-checked, and every error reports what was expected at which offset. Time is
//! linear in the file's size, even if ranges overlap ([`Error::Overlap`]). [`Library::verify`], the one function that
//! allocates in proportion to the input, stays below the file's size.
#![cfg_attr(not(feature = "mmap"), forbid(unsafe_code))]
#![deny(unsafe_code)]
#![warn(missing_docs)]

mod bytes;
mod constant;
mod error;
mod function;
mod header;
#[cfg(feature = "mmap")]
mod map;
mod tag;
mod tag_name;
mod verify;

pub use constant::{Constant, ConstantType, Constants};
pub use error::{Error, GroupProblem};
pub use function::{Bitcode, Function, FunctionKind, Functions};
pub use header::{Header, LibraryKind, Platform, Section, TargetOs, Version};
#[cfg(feature = "mmap")]
pub use map::map_file;
pub use tag::{Tag, Tags};
pub use tag_name::TagName;
pub use verify::Verification;

use bytes::{Bytes, Span};

/// The result type of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// A library, borrowed from the bytes of its file.
#[derive(Debug, Clone)]
pub struct Library<'a> {
    file: &'a [u8],
    header: Header,
    count: u32,
    extension: Option<Bytes<'a>>,
    reflection: Option<Bytes<'a>>,
}

impl<'a> Library<'a> {
    /// Reads the header and the extension behind the function list.
    ///
    /// # Errors
    /// If `file` is not a metallib or is truncated, or if a section is outside it.
    pub fn parse(file: &'a [u8]) -> Result<Self> {
        let header = Header::parse(file)?;
        let mut library = Self {
            file,
            header,
            count: 0,
            extension: None,
            reflection: None,
        };
        let (count, list) = library.function_list()?;
        // A function takes at least the size of its group and ENDT.
        let possible = list.remaining() / 8;
        if u64::from(count) > possible {
            let Section { offset, size } = library.header.function_list;
            return Err(Error::FunctionCount {
                offset,
                claimed: count,
                size,
                possible,
            });
        }
        library.count = count;
        library.find_extension(list.offset() + list.remaining())?;
        Ok(library)
    }

    /// The content of the first 88 bytes: container version, target system, deployment target, sections.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The number of functions.
    pub fn len(&self) -> u32 {
        self.count
    }

    /// Whether the library has no functions, like the compiler's output for an empty source.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The functions, in file order.
    pub fn functions(&self) -> Functions<'a> {
        // `parse` has read the list, so this cannot fail.
        let list = self
            .function_list()
            .map_or(Bytes::new(&[], 0), |(_, list)| list);
        Functions::new(self.clone(), list, self.count)
    }

    /// The header extension's tags, known or not: `UUID`, `RLST`, `HDYN` and others. Old versions have none.
    pub fn extension_tags(&self) -> Tags<'a> {
        self.extension
            .map_or_else(Tags::none, |tags| Tags::new(tags, "the header extension"))
    }

    /// The library's UUID, if the extension has one.
    ///
    /// # Errors
    /// If the extension cannot be read, or the tag is not 16 bytes long.
    pub fn uuid(&self) -> Result<Option<[u8; 16]>> {
        self.extension_tag(*b"UUID")?
            .map(|tag| tag.exactly().copied())
            .transpose()
    }

    /// The install name (`HDYN`, `NAME`) that newer tools write, for example `mlx.metallib`.
    ///
    /// # Errors
    /// If the extension or the part that it names cannot be read.
    pub fn install_name(&self) -> Result<Option<&'a str>> {
        let Some(part) = self.extension_part(*b"HDYN", "the dynamic header")? else {
            return Ok(None);
        };
        for tag in Tags::new(part, "the dynamic header") {
            let tag = tag?;
            if tag.name == TagName(*b"NAME") {
                return tag.bytes().c_str("the install name").map(Some);
            }
        }
        Ok(None)
    }

    /// Whether the file has a reflection list; [`Function::reflection`] returns the entries.
    pub fn has_reflection(&self) -> bool {
        self.reflection.is_some()
    }

    /// The newest Metal Shading Language version of any function: a system must support it to load every function.
    /// Walks the function list.
    ///
    /// # Errors
    /// If a function cannot be read.
    pub fn language_version(&self) -> Result<Option<Version>> {
        self.functions().try_fold(None, |newest, function| {
            Ok(newest.max(function?.language_version))
        })
    }

    /// The count, and the groups after it.
    fn function_list(&self) -> Result<(u32, Bytes<'a>)> {
        let Section { offset, size } = self.header.function_list;
        let mut list = self.section(Section {
            offset,
            size: size.saturating_add(4),
        })?;
        Ok((list.u32("the number of functions")?, list))
    }

    fn section(&self, Section { offset, size }: Section) -> Result<Bytes<'a>> {
        Span {
            what: "a section",
            named_at: 24,
            start: offset,
            size,
        }
        .within(Bytes::new(self.file, 0), "the file")
    }

    /// The extension is between the function list and the public metadata, if there is room for one.
    fn find_extension(&mut self, list_end: u64) -> Result<()> {
        let Some(size) = self
            .header
            .public_metadata
            .offset
            .checked_sub(list_end)
            .filter(|&size| size > 0)
        else {
            return Ok(());
        };
        self.extension = Some(self.section(Section {
            offset: list_end,
            size,
        })?);
        self.reflection = self.extension_part(*b"RLST", "the reflection list")?;
        Ok(())
    }

    fn extension_tag(&self, name: [u8; 4]) -> Result<Option<Tag<'a>>> {
        self.extension_tags()
            .find(|tag| !matches!(tag, Ok(tag) if tag.name.0 != name))
            .transpose()
    }

    /// The part of the file to which an extension tag points by offset and size.
    fn extension_part(&self, name: [u8; 4], what: &'static str) -> Result<Option<Bytes<'a>>> {
        let Some(tag) = self.extension_tag(name)? else {
            return Ok(None);
        };
        tag.exactly::<16>()?;
        let mut bytes = tag.bytes();
        let named_at = bytes.offset();
        let span = Span {
            what,
            named_at,
            start: bytes.u64(what)?,
            size: bytes.u64(what)?,
        };
        span.within(Bytes::new(self.file, 0), "the file").map(Some)
    }
}
