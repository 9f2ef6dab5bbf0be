use std::fmt;

use half::{bf16, f16};
use mlx_overlay_sys::ElementKind;

/// The type of an array's elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Dtype {
    /// 32-bit float.
    F32,
    /// 16-bit float of IEEE 754.
    F16,
    /// 16-bit float with the range of a 32-bit one.
    Bf16,
    /// 32-bit unsigned integer.
    U32,
    /// 8-bit unsigned integer: the scales of block floats.
    U8,
}

impl Dtype {
    /// Whether it is one of the floating-point types.
    pub fn is_float(self) -> bool {
        matches!(self, Self::F32 | Self::F16 | Self::Bf16)
    }

    pub(crate) fn raw(self) -> ElementKind {
        match self {
            Self::F32 => ElementKind::F32,
            Self::F16 => ElementKind::F16,
            Self::Bf16 => ElementKind::Bf16,
            Self::U32 => ElementKind::U32,
            Self::U8 => ElementKind::U8,
        }
    }

    pub(crate) fn from_raw(raw: ElementKind) -> Self {
        match raw {
            ElementKind::F16 => Self::F16,
            ElementKind::Bf16 => Self::Bf16,
            ElementKind::U32 => Self::U32,
            ElementKind::U8 => Self::U8,
            _ => Self::F32,
        }
    }
}

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::U32 => "u32",
            Self::U8 => "u8",
        })
    }
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for f32 {}
    impl Sealed for half::f16 {}
    impl Sealed for half::bf16 {}
    impl Sealed for u32 {}
    impl Sealed for u8 {}
}

/// A Rust type that an array's elements can have: `f32`, [`struct@f16`], [`struct@bf16`], `u32`, `u8`.
///
/// Sealed: each is plain memory, without padding, of which every bit pattern is a value.
pub trait Element: sealed::Sealed + Copy + Send + Sync + fmt::Debug + 'static {
    /// The same type, as a value.
    const DTYPE: Dtype;
}

impl Element for f32 {
    const DTYPE: Dtype = Dtype::F32;
}
impl Element for f16 {
    const DTYPE: Dtype = Dtype::F16;
}
impl Element for bf16 {
    const DTYPE: Dtype = Dtype::Bf16;
}
impl Element for u32 {
    const DTYPE: Dtype = Dtype::U32;
}
impl Element for u8 {
    const DTYPE: Dtype = Dtype::U8;
}
