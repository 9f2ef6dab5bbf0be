use std::fmt;

use half::{bf16, f16};
use mlx_overlay_sys::ElementKind;

use crate::{Error, Result};

/// For each type: its name here, its kind in the bridge, the Rust type, its text, and its description.
macro_rules! types {
    ($($name:ident $type:ty, $text:literal, $about:literal;)*) => {
        /// The type of an array's elements.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Dtype {
            $(#[doc = $about] $name,)*
        }

        impl Dtype {
            /// Size of an element in bytes.
            pub const fn size(self) -> usize {
                match self {
                    $(Self::$name => size_of::<$type>(),)*
                }
            }

            pub(crate) fn raw(self) -> ElementKind {
                match self {
                    $(Self::$name => ElementKind::$name,)*
                }
            }

            pub(crate) fn from_raw(raw: ElementKind) -> Result<Self> {
                match raw {
                    $(ElementKind::$name => Ok(Self::$name),)*
                    _ => Err(Error::Mlx(format!("no element type has the number {}", raw.repr))),
                }
            }
        }

        impl fmt::Display for Dtype {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self {
                    $(Self::$name => $text,)*
                })
            }
        }

        $(
            impl sealed::Sealed for $type {}
            impl Element for $type {
                const DTYPE: Dtype = Dtype::$name;
            }
        )*
    };
}

types! {
    F32 f32, "f32", "32-bit float.";
    F16 f16, "f16", "16-bit float of IEEE 754.";
    Bf16 bf16, "bf16", "16-bit float with the range of a 32-bit one.";
    U32 u32, "u32", "32-bit unsigned integer.";
    U8 u8, "u8", "8-bit unsigned integer: the scales of block floats.";
    I8 i8, "i8", "8-bit integer.";
    I16 i16, "i16", "16-bit integer.";
    I32 i32, "i32", "32-bit integer.";
    I64 i64, "i64", "64-bit integer.";
    U16 u16, "u16", "16-bit unsigned integer.";
    U64 u64, "u64", "64-bit unsigned integer.";
    Bool bool, "bool", "True or false, a byte each.";
}

impl Dtype {
    /// Whether this is a floating-point type.
    pub fn is_float(self) -> bool {
        matches!(self, Self::F32 | Self::F16 | Self::Bf16)
    }

    /// Whether this is an integer type; `bool` is not.
    pub fn is_integer(self) -> bool {
        !self.is_float() && self != Self::Bool
    }

    /// Whether these bytes are valid elements of the type. Only `bool` has invalid bytes.
    pub(crate) fn allows(self, bytes: &[u8]) -> bool {
        self != Self::Bool || bytes.iter().all(|&byte| byte <= 1)
    }
}

mod sealed {
    pub trait Sealed {}
}

/// A Rust type for an array's elements: `f32`, [`struct@f16`], [`struct@bf16`], the integers of 8 to 64 bits, `bool`.
///
/// Sealed: each type is plain memory without padding, and every bit pattern is a valid value, except for `bool`, whose
/// bytes are checked.
pub trait Element: sealed::Sealed + Copy + Send + Sync + fmt::Debug + 'static {
    /// The type as a value.
    const DTYPE: Dtype;
}
