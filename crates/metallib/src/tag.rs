//! Tags: a four-byte name, a length, a payload; and groups of tags that end with `ENDT`.

use crate::bytes::Bytes;
use crate::error::GroupProblem;
use crate::tag_name::TagName;
use crate::{Error, Result};

/// One tag, its payload borrowed from the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tag<'a> {
    /// The name.
    pub name: TagName,
    /// The position of the tag (of its name) in the file.
    pub offset: u64,
    /// The bytes after the length.
    pub payload: &'a [u8],
}

impl<'a> Tag<'a> {
    /// The payload as a part whose errors have the right offsets. The length field has two bytes.
    pub(crate) fn bytes(&self) -> Bytes<'a> {
        Bytes::new(self.payload, self.offset + 6)
    }

    /// The payload, if it has exactly the size of its type.
    pub(crate) fn exactly<const N: usize>(&self) -> Result<&'a [u8; N]> {
        self.payload.try_into().map_err(|_| Error::TagSize {
            tag: self.name,
            offset: self.offset,
            expected: N as u64,
            found: self.payload.len() as u64,
        })
    }

    pub(crate) fn u64(&self) -> Result<u64> {
        self.exactly().map(|bytes| u64::from_le_bytes(*bytes))
    }
}

/// Iterates over the tags of a group, in file order and up to `ENDT`; ends after the first error.
#[derive(Debug, Clone)]
pub struct Tags<'a> {
    rest: Option<Bytes<'a>>,
    what: &'static str,
    start: u64,
}

impl<'a> Tags<'a> {
    /// `rest`: the bytes after the group's size field, if it has one.
    pub(crate) fn new(rest: Bytes<'a>, what: &'static str) -> Self {
        Self {
            start: rest.offset(),
            rest: Some(rest),
            what,
        }
    }

    /// No tags: the group is absent.
    pub(crate) fn none() -> Self {
        Self {
            rest: None,
            what: "",
            start: 0,
        }
    }

    fn read(&self, mut rest: Bytes<'a>) -> Result<Option<(Tag<'a>, Bytes<'a>)>> {
        if rest.remaining() < 4 {
            let problem = GroupProblem::NoEnd {
                end: rest.offset() + rest.remaining(),
            };
            return Err(Error::Group {
                what: self.what,
                offset: self.start,
                problem,
            });
        }
        let offset = rest.offset();
        let name = TagName(*rest.array("a tag's name")?);
        if name == TagName::END {
            return Ok(None);
        }
        let size = rest.u16("a tag's length")?;
        let payload = rest.part(size.into(), "a tag's payload")?;
        Ok(Some((
            Tag {
                name,
                offset,
                payload: payload.as_slice(),
            },
            rest,
        )))
    }
}

impl<'a> Iterator for Tags<'a> {
    type Item = Result<Tag<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        let rest = self.rest.take()?;
        match self.read(rest) {
            Ok(Some((tag, rest))) => {
                self.rest = Some(rest);
                Some(Ok(tag))
            }
            Ok(None) => None,
            Err(error) => Some(Err(error)),
        }
    }
}

/// Splits off the group at the front of `bytes`: a u32 size that includes itself, then tags. Returns what follows the
/// size.
pub(crate) fn take_group<'a>(bytes: &mut Bytes<'a>, what: &'static str) -> Result<Bytes<'a>> {
    let offset = bytes.offset();
    let size = bytes.u32(what)?;
    match size.checked_sub(4) {
        Some(inner @ 4..) => bytes.part(inner.into(), what),
        _ => Err(Error::Group {
            what,
            offset,
            problem: GroupProblem::TooSmall(size),
        }),
    }
}
