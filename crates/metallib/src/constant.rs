//! Function constants: `[[function_constant(index)]]`.

use std::fmt;

use crate::Result;
use crate::bytes::Bytes;
use crate::header::known_values;

known_values! {
    /// The type of a function constant: the scalars of Metal's type codes (`MTLDataType`).
    ConstantType: u8 {
        /// `float`.
        Float = 0x03, "float";
        /// `half`.
        Half = 0x10, "half";
        /// `int`.
        Int = 0x1d, "int";
        /// `uint`.
        UInt = 0x21, "uint";
        /// `short`.
        Short = 0x25, "short";
        /// `ushort`.
        UShort = 0x29, "ushort";
        /// `char`.
        Char = 0x2d, "char";
        /// `uchar`.
        UChar = 0x31, "uchar";
        /// `bool`.
        Bool = 0x35, "bool";
        /// `long`.
        Long = 0x51, "long";
        /// `ulong`.
        ULong = 0x55, "ulong";
    }
}

/// One function constant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Constant<'a> {
    /// The name in the source.
    pub name: &'a str,
    /// Its type.
    pub kind: ConstantType,
    /// The index by which the host sets it.
    pub index: u16,
    /// The byte after the index; 1 in every known file; its meaning is not known.
    pub flag: u8,
}

impl fmt::Display for Constant<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: {} [[function_constant({})]]",
            self.name, self.kind, self.index
        )
    }
}

/// Iterates over the constants of a function; ends after the first error.
#[derive(Debug, Clone)]
pub struct Constants<'a> {
    rest: Bytes<'a>,
    left: u16,
}

impl<'a> Constants<'a> {
    pub(crate) fn new(mut payload: Bytes<'a>) -> Result<Self> {
        let left = payload.u16("the number of function constants")?;
        Ok(Self {
            rest: payload,
            left,
        })
    }

    pub(crate) fn none() -> Self {
        Self {
            rest: Bytes::new(&[], 0),
            left: 0,
        }
    }

    fn read(&mut self) -> Result<Constant<'a>> {
        Ok(Constant {
            name: self.rest.c_str("a function constant's name")?,
            kind: self.rest.u8("a function constant's type")?.into(),
            index: self.rest.u16("a function constant's index")?,
            flag: self.rest.u8("a function constant's flag")?,
        })
    }
}

impl<'a> Iterator for Constants<'a> {
    type Item = Result<Constant<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.left == 0 {
            return None;
        }
        let constant = self.read();
        self.left = if constant.is_ok() { self.left - 1 } else { 0 };
        Some(constant)
    }
}
