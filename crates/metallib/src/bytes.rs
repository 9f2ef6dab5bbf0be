//! Bounds-checked little-endian reads that track their position in the file.

use crate::Error;

/// A part of the file and its absolute position; every read advances it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bytes<'a> {
    data: &'a [u8],
    offset: u64,
}

impl<'a> Bytes<'a> {
    pub(crate) fn new(data: &'a [u8], offset: u64) -> Self {
        Self { data, offset }
    }

    /// Absolute position of the next byte.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    pub(crate) fn remaining(&self) -> u64 {
        self.data.len() as u64
    }

    pub(crate) fn as_slice(&self) -> &'a [u8] {
        self.data
    }

    /// The next `size` bytes as a separate part.
    pub(crate) fn part(&mut self, size: u64, what: &'static str) -> Result<Bytes<'a>, Error> {
        let split = usize::try_from(size)
            .ok()
            .and_then(|size| self.data.split_at_checked(size));
        let Some((head, tail)) = split else {
            return Err(Error::Truncated {
                what,
                offset: self.offset,
                expected: size,
                available: self.remaining(),
            });
        };
        let part = Bytes::new(head, self.offset);
        self.data = tail;
        self.offset += size;
        Ok(part)
    }

    pub(crate) fn array<const N: usize>(
        &mut self,
        what: &'static str,
    ) -> Result<&'a [u8; N], Error> {
        let Some((head, tail)) = self.data.split_first_chunk::<N>() else {
            return Err(Error::Truncated {
                what,
                offset: self.offset,
                expected: N as u64,
                available: self.remaining(),
            });
        };
        self.data = tail;
        self.offset += N as u64;
        Ok(head)
    }

    pub(crate) fn u8(&mut self, what: &'static str) -> Result<u8, Error> {
        self.array::<1>(what).map(|[byte]| *byte)
    }

    pub(crate) fn u16(&mut self, what: &'static str) -> Result<u16, Error> {
        self.array(what).map(|bytes| u16::from_le_bytes(*bytes))
    }

    pub(crate) fn u32(&mut self, what: &'static str) -> Result<u32, Error> {
        self.array(what).map(|bytes| u32::from_le_bytes(*bytes))
    }

    pub(crate) fn u64(&mut self, what: &'static str) -> Result<u64, Error> {
        self.array(what).map(|bytes| u64::from_le_bytes(*bytes))
    }

    /// A NUL-terminated UTF-8 string; the NUL is consumed but not returned.
    pub(crate) fn c_str(&mut self, what: &'static str) -> Result<&'a str, Error> {
        let offset = self.offset;
        let Some(length) = self.data.iter().position(|&byte| byte == 0) else {
            return Err(Error::Text {
                what,
                offset,
                expected: "a terminating NUL byte",
            });
        };
        let text = std::str::from_utf8(&self.data[..length]).map_err(|_| Error::Text {
            what,
            offset,
            expected: "UTF-8",
        })?;
        self.data = &self.data[length + 1..];
        self.offset += length as u64 + 1;
        Ok(text)
    }
}

/// A range inside a named part of the file, checked against it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Span {
    pub(crate) what: &'static str,
    pub(crate) named_at: u64,
    pub(crate) start: u64,
    pub(crate) size: u64,
}

impl Span {
    /// The bytes of `container` in this span.
    pub(crate) fn within<'a>(
        self,
        container: Bytes<'a>,
        name: &'static str,
    ) -> Result<Bytes<'a>, Error> {
        let range = usize::try_from(self.start)
            .ok()
            .zip(
                self.start
                    .checked_add(self.size)
                    .and_then(|end| usize::try_from(end).ok()),
            )
            .and_then(|(start, end)| container.data.get(start..end));
        match range {
            Some(data) => Ok(Bytes::new(data, container.offset + self.start)),
            None => Err(Error::OutOfBounds {
                what: self.what,
                named_at: self.named_at,
                start: self.start,
                size: self.size,
                container: name,
                limit: container.remaining(),
            }),
        }
    }
}
