//! The header of a safetensors file: JSON of a fixed form, parsed strictly.
//!
//! No JSON library is used: such libraries make their values comparable with numbers, which makes `assert_eq!(v, [])`
//! ambiguous in every program that links them.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::ops::Range;

use crate::Dtype;
use crate::ops::elements;

/// The description of a file's arrays.
#[derive(Debug, Default)]
pub(super) struct Header {
    pub(super) metadata: BTreeMap<String, String>,
    pub(super) entries: BTreeMap<String, Entry>,
    /// Total number of bytes of all arrays.
    pub(super) bytes: u64,
}

/// The description of one array.
#[derive(Debug, Default)]
pub(super) struct Entry {
    /// The format's name for the type.
    pub(super) kind: String,
    pub(super) shape: Vec<usize>,
    /// The array's bytes, counted from the end of the header.
    pub(super) offsets: Range<u64>,
}

/// The format's names for types.
const NAMES: [(&str, Dtype); 14] = [
    ("F32", Dtype::F32),
    ("F16", Dtype::F16),
    ("BF16", Dtype::Bf16),
    ("U32", Dtype::U32),
    ("U8", Dtype::U8),
    ("I8", Dtype::I8),
    ("I16", Dtype::I16),
    ("I32", Dtype::I32),
    ("I64", Dtype::I64),
    ("U16", Dtype::U16),
    ("U64", Dtype::U64),
    ("BOOL", Dtype::Bool),
    ("F8_E4M3", Dtype::U8),
    ("F8_E8M0", Dtype::U8),
];

pub(super) const METADATA: &str = "__metadata__";

impl Entry {
    pub(super) fn dtype(&self) -> Option<Dtype> {
        let of_name = NAMES.iter().find(|(name, _)| *name == self.kind);
        of_name.map(|&(_, dtype)| dtype)
    }
}

impl Header {
    /// Parses the text, and checks that the arrays fill their shapes and are contiguous.
    pub(super) fn read(text: &[u8]) -> Result<Self, String> {
        let text = std::str::from_utf8(text).map_err(|error| error.to_string())?;
        let mut header = Self::default();
        let mut reader = Reader { text, rest: text };
        reader.object(|reader, name| {
            let is_new = if name == METADATA {
                let metadata = &mut header.metadata;
                reader.object(|reader, key| {
                    let value = reader.string()?;
                    match metadata.insert(key.clone(), value) {
                        None => Ok(()),
                        Some(_) => Err(format!("duplicate key {key:?}")),
                    }
                })?;
                true
            } else {
                let entry = reader.entry()?;
                header.entries.insert(name.clone(), entry).is_none()
            };
            match is_new {
                true => Ok(()),
                false => Err(format!("duplicate name {name:?}")),
            }
        })?;
        reader.end()?;
        header.bytes = header.check()?;
        Ok(header)
    }

    fn check(&self) -> Result<u64, String> {
        let mut entries: Vec<_> = self.entries.iter().collect();
        entries.sort_by_key(|(_, entry)| (entry.offsets.start, entry.offsets.end));
        let mut end = 0;
        for (name, Entry { shape, offsets, .. }) in &entries {
            if offsets.start != end || offsets.end < offsets.start {
                let Range { start, end: stop } = offsets;
                return Err(format!(
                    "{name:?} has the offsets {start} and {stop}, expected a start of {end}"
                ));
            }
            end = offsets.end;
            // The size of a type that MLX lacks does not matter.
            let Some(dtype) = self.entries[*name].dtype() else {
                continue;
            };
            let bytes = elements(shape).and_then(|count| count.checked_mul(dtype.size()));
            if bytes.and_then(|bytes| u64::try_from(bytes).ok()) != Some(end - offsets.start) {
                let found = end - offsets.start;
                return Err(format!(
                    "{name:?} has {found} bytes, which is wrong for {dtype} {shape:?}"
                ));
            }
        }
        Ok(end)
    }
}

/// The text of a header for contiguous arrays in this order.
pub(super) fn text<'a>(
    metadata: &BTreeMap<String, String>,
    arrays: impl Iterator<Item = (&'a str, Dtype, &'a [usize])>,
) -> String {
    let mut parts = Vec::new();
    if !metadata.is_empty() {
        let pairs = metadata
            .iter()
            .map(|(key, value)| format!("{}:{}", quoted(key), quoted(value)));
        let pairs: Vec<_> = pairs.collect();
        parts.push(format!("{}:{{{}}}", quoted(METADATA), pairs.join(",")));
    }
    let mut offset = 0;
    for (name, dtype, shape) in arrays {
        let kind = NAMES.iter().find(|&&(_, other)| other == dtype);
        let (kind, _) = kind.expect("every type has a name");
        let start = offset;
        let count = elements(shape).expect("the array exists");
        offset += count * dtype.size();
        parts.push(format!(
            r#"{}:{{"dtype":"{kind}","shape":{shape:?},"data_offsets":[{start},{offset}]}}"#,
            quoted(name),
        ));
    }
    let mut text = format!("{{{}}}", parts.join(","));
    // The data after the header must start at a multiple of 8 bytes.
    while !text.len().is_multiple_of(8) {
        text.push(' ');
    }
    text
}

fn quoted(text: &str) -> String {
    let mut quoted = String::from('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if c < ' ' => write!(quoted, "\\u{:04x}", u32::from(c)).expect("it is a string"),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

struct Reader<'a> {
    text: &'a str,
    rest: &'a str,
}

impl Reader<'_> {
    /// `{"name": member, ..}`.
    fn object(
        &mut self,
        mut member: impl FnMut(&mut Self, String) -> Result<(), String>,
    ) -> Result<(), String> {
        self.expect('{')?;
        if self.takes('}') {
            return Ok(());
        }
        loop {
            let name = self.string()?;
            self.expect(':')?;
            member(self, name)?;
            if !self.takes(',') {
                return self.expect('}');
            }
        }
    }

    fn entry(&mut self) -> Result<Entry, String> {
        let mut entry = Entry::default();
        let mut seen = Vec::new();
        self.object(|reader, key| {
            match key.as_str() {
                "dtype" => entry.kind = reader.string()?,
                "shape" => {
                    let number = |n| usize::try_from(n).map_err(|_| format!("{n} is too large"));
                    entry.shape = reader
                        .numbers()?
                        .into_iter()
                        .map(number)
                        .collect::<Result<_, _>>()?;
                }
                "data_offsets" => match reader.numbers()?[..] {
                    [start, end] => entry.offsets = start..end,
                    _ => return Err("data_offsets must have two numbers".to_owned()),
                },
                _ => {
                    return Err(format!(
                        "unknown field {key:?}, expected dtype, shape or data_offsets"
                    ));
                }
            }
            seen.push(key);
            Ok(())
        })?;
        seen.sort_unstable();
        if seen == ["data_offsets", "dtype", "shape"] {
            Ok(entry)
        } else {
            Err(format!(
                "an array has the fields {seen:?}, expected dtype, shape and data_offsets"
            ))
        }
    }

    fn numbers(&mut self) -> Result<Vec<u64>, String> {
        let mut numbers = Vec::new();
        self.expect('[')?;
        if self.takes(']') {
            return Ok(numbers);
        }
        loop {
            self.skip_blanks();
            let digits = self.rest.len()
                - self
                    .rest
                    .trim_start_matches(|c: char| c.is_ascii_digit())
                    .len();
            let (number, rest) = self.rest.split_at(digits);
            numbers.push(
                number
                    .parse()
                    .map_err(|_| self.unexpected("a number below 2^64"))?,
            );
            self.rest = rest;
            if !self.takes(',') {
                self.expect(']')?;
                return Ok(numbers);
            }
        }
    }

    fn string(&mut self) -> Result<String, String> {
        self.expect('"')?;
        let mut string = String::new();
        loop {
            match self.next()? {
                '"' => return Ok(string),
                '\\' => {
                    let c = self.escaped()?;
                    string.push(c);
                }
                c if c < ' ' => return Err(self.unexpected("the end of a string")),
                c => string.push(c),
            }
        }
    }

    fn escaped(&mut self) -> Result<char, String> {
        Ok(match self.next()? {
            c @ ('"' | '\\' | '/') => c,
            'b' => '\u{8}',
            'f' => '\u{c}',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'u' => {
                let unit = self.unit()?;
                // Characters beyond 16 bits are two units.
                let second = match unit {
                    0xd800..0xdc00 if self.rest.starts_with("\\u") => {
                        self.rest = &self.rest[2..];
                        Some(self.unit()?)
                    }
                    _ => None,
                };
                let units = [Some(unit), second].into_iter().flatten();
                let mut decoded = char::decode_utf16(units);
                match (decoded.next(), decoded.next()) {
                    (Some(Ok(c)), None) => c,
                    _ => return Err(self.unexpected("a character")),
                }
            }
            _ => return Err(self.unexpected("an escape")),
        })
    }

    /// The four digits after `\u`.
    fn unit(&mut self) -> Result<u16, String> {
        let digits = self
            .rest
            .get(..4)
            .filter(|d| d.bytes().all(|b| b.is_ascii_hexdigit()));
        let digits = digits.ok_or_else(|| self.unexpected("four hexadecimal digits"))?;
        self.rest = &self.rest[4..];
        Ok(u16::from_str_radix(digits, 16).expect("four such digits are 16 bits"))
    }

    fn next(&mut self) -> Result<char, String> {
        let mut chars = self.rest.chars();
        let next = chars.next().ok_or_else(|| self.unexpected("more"))?;
        self.rest = chars.as_str();
        Ok(next)
    }

    fn takes(&mut self, c: char) -> bool {
        self.skip_blanks();
        match self.rest.strip_prefix(c) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn expect(&mut self, c: char) -> Result<(), String> {
        if self.takes(c) {
            Ok(())
        } else {
            Err(self.unexpected(&format!("`{c}`")))
        }
    }

    fn end(&mut self) -> Result<(), String> {
        self.skip_blanks();
        if self.rest.is_empty() {
            Ok(())
        } else {
            Err(self.unexpected("the end"))
        }
    }

    fn skip_blanks(&mut self) {
        self.rest = self.rest.trim_start_matches([' ', '\t', '\n', '\r']);
    }

    fn unexpected(&self, expected: &str) -> String {
        let at = self.text.len() - self.rest.len();
        format!("expected {expected} at byte {at} of its header")
    }
}
