//! A reader of GGUF files, the format of llama.cpp: metadata, and tensors in quantized blocks.
//!
//! No value in a file is trusted: a length beyond the end, or a name that occurs twice, is an error that names the
//! file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

/// A file in memory.
#[derive(Debug)]
pub struct Gguf {
    path: PathBuf,
    bytes: Vec<u8>,
    metadata: BTreeMap<String, Value>,
    tensors: BTreeMap<String, Entry>,
}

/// A value of the metadata.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// Any of the eight types of integers.
    Integer(i128),
    /// 32 or 64 bits.
    Float(f64),
    /// One byte, 0 or 1.
    Bool(bool),
    /// UTF-8.
    Text(String),
    /// Values of one type.
    List(List),
}

/// The position of a list in the file. It is not copied: as separate values, one-byte elements would take 32 times as
/// much memory.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct List {
    /// The type of its elements, as GGUF's number.
    kind: u32,
    count: usize,
    start: usize,
    end: usize,
}

/// The format of a tensor's elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// float32.
    F32,
    /// float16.
    F16,
    /// Blocks of 32: scale and minimum in float16, 4 bits per weight.
    Q4_1,
    /// Blocks of 32: scale in float16, 8 bits per weight, signed.
    Q8_0,
    /// Any other type, by number; its size is not known, and it is not read.
    Other(u32),
}

#[derive(Debug)]
struct Entry {
    shape: Vec<usize>,
    kind: Kind,
    /// Counted from the beginning of the file.
    start: usize,
    length: usize,
}

/// A tensor of the file.
#[derive(Debug, Clone)]
pub struct Tensor<'a> {
    pub name: &'a str,
    /// Extents, row-major: the last one varies fastest.
    pub shape: &'a [usize],
    /// The format of `bytes`.
    pub kind: Kind,
    /// The content.
    pub bytes: &'a [u8],
}

impl Kind {
    fn of(number: u32) -> Self {
        match number {
            0 => Self::F32,
            1 => Self::F16,
            3 => Self::Q4_1,
            8 => Self::Q8_0,
            _ => Self::Other(number),
        }
    }

    /// The number of elements and of bytes in a block.
    pub fn block(self) -> (usize, usize) {
        match self {
            Self::F32 => (1, 4),
            Self::F16 => (1, 2),
            Self::Q4_1 => (32, 2 + 2 + 16),
            Self::Q8_0 => (32, 2 + 32),
            Self::Other(_) => (1, 0),
        }
    }
}

impl Gguf {
    /// Reads a file.
    pub fn read(path: &Path) -> Result<Self> {
        let found =
            std::fs::metadata(path).with_context(|| format!("cannot read {}", path.display()))?;
        ensure!(
            found.is_file(),
            "{} is not a regular file: name a GGUF file",
            path.display()
        );
        Self::parse(path, fs_err::read(path)?)
    }

    /// Reads the bytes of a file.
    pub fn parse(path: &Path, bytes: Vec<u8>) -> Result<Self> {
        Self::parse_bytes(path, bytes).with_context(|| {
            format!(
                "{} cannot be read as GGUF (name another file, or fetch it again)",
                path.display()
            )
        })
    }

    fn parse_bytes(path: &Path, bytes: Vec<u8>) -> Result<Self> {
        let mut reader = Reader {
            bytes: &bytes,
            at: 0,
        };
        if bytes.starts_with(b"version https://git-lfs") {
            bail!("it is a Git LFS pointer, not the file itself");
        }
        let magic = reader.take(4, "the magic number")?;
        ensure!(magic == b"GGUF", "it does not begin with \"GGUF\"");
        let version = reader.u32("the version")?;
        ensure!(
            matches!(version, 2 | 3),
            "its version is {version}, but only 2 and 3 are supported"
        );
        let tensor_count = reader.u64("the number of tensors")?;
        let value_count = reader.u64("the number of values")?;

        let mut metadata = BTreeMap::new();
        for _ in 0..value_count {
            let key = reader.text("a key")?;
            let kind = reader.u32(key)?;
            let value = reader.value(kind, key, 0)?;
            ensure!(
                !metadata.contains_key(key),
                "its metadata has `{key}` twice"
            );
            metadata.insert(key.to_owned(), value);
        }
        let mut listed = Vec::new();
        for _ in 0..tensor_count {
            listed.push(reader.entry()?);
        }
        let alignment = match metadata.get("general.alignment") {
            None => 32,
            Some(Value::Integer(number)) if (1..=1 << 20).contains(number) => *number as usize,
            Some(other) => bail!("`general.alignment` is {other:?}"),
        };
        let data = reader.at.next_multiple_of(alignment);
        let mut tensors = BTreeMap::new();
        let mut places = Vec::new();
        for (name, mut entry) in listed {
            let end = data
                .checked_add(entry.start)
                .and_then(|start| start.checked_add(entry.length));
            ensure!(
                end.is_some_and(|end| end <= bytes.len()),
                "it ends before the tensor `{name}` does: it has {} bytes",
                bytes.len()
            );
            entry.start += data;
            ensure!(!tensors.contains_key(&name), "it has `{name}` twice");
            if entry.length > 0 {
                places.push((entry.start, entry.start + entry.length, name.clone()));
            }
            tensors.insert(name, entry);
        }
        // If tensors could share bytes, a small file could produce weights without end.
        places.sort();
        for pair in places.windows(2) {
            let [(_, end, first), (start, _, second)] = pair else {
                continue;
            };
            ensure!(
                end <= start,
                "its tensors `{first}` and `{second}` share bytes"
            );
        }
        Ok(Self {
            path: path.to_owned(),
            bytes,
            metadata,
            tensors,
        })
    }

    /// The path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Names of the tensors, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    /// A tensor by its name.
    pub fn tensor<'a>(&'a self, name: &'a str) -> Result<Tensor<'a>> {
        let entry = self
            .tensors
            .get(name)
            .with_context(|| format!("{} has no tensor `{name}`", self.path.display()))?;
        if let Kind::Other(number) = entry.kind {
            bail!(
                "{}: `{name}` has elements of type {number}, but only F32 (0), F16 (1), Q4_1 (3) and Q8_0 (8) are supported",
                self.path.display()
            );
        }
        Ok(Tensor {
            name,
            shape: &entry.shape,
            kind: entry.kind,
            bytes: &self.bytes[entry.start..][..entry.length],
        })
    }

    /// A value of the metadata, if it exists.
    pub fn value(&self, key: &str) -> Option<&Value> {
        self.metadata.get(key)
    }

    /// A non-negative number.
    pub fn integer(&self, key: &str) -> Result<usize> {
        match self.required(key)? {
            Value::Integer(number) if usize::try_from(*number).is_ok() => Ok(*number as usize),
            _ => Err(self.wrong(key, "a number that is not negative")),
        }
    }

    /// A float, as float32.
    pub fn float(&self, key: &str) -> Result<f32> {
        match self.required(key)? {
            Value::Float(number) => Ok(*number as f32),
            _ => Err(self.wrong(key, "a float")),
        }
    }

    /// A text.
    pub fn text(&self, key: &str) -> Result<&str> {
        match self.required(key)? {
            Value::Text(text) => Ok(text),
            _ => Err(self.wrong(key, "a text")),
        }
    }

    /// A list of texts.
    pub fn texts(&self, key: &str) -> Result<Vec<&str>> {
        let expected = "a list of texts";
        let list = self.list(key, expected)?;
        ensure!(list.kind == TEXT, self.wrong(key, expected));
        let mut reader = Reader {
            bytes: &self.bytes[..list.end],
            at: list.start,
        };
        (0..list.count).map(|_| reader.text(key)).collect()
    }

    /// A list of numbers.
    pub fn integers(&self, key: &str) -> Result<impl ExactSizeIterator<Item = i128>> {
        let expected = "a list of numbers";
        let list = self.list(key, expected)?;
        let (Some(size), true) = (size_of_kind(list.kind), is_integer(list.kind)) else {
            return Err(self.wrong(key, expected));
        };
        let numbers = self.bytes[list.start..list.end].chunks_exact(size);
        Ok(numbers.map(move |bytes| integer(list.kind, bytes)))
    }

    fn list(&self, key: &str, expected: &str) -> Result<List> {
        match self.required(key)? {
            Value::List(list) => Ok(*list),
            _ => Err(self.wrong(key, expected)),
        }
    }

    fn required(&self, key: &str) -> Result<&Value> {
        self.value(key)
            .with_context(|| format!("{} has no `{key}` in its metadata", self.path.display()))
    }

    fn wrong(&self, key: &str, expected: &str) -> anyhow::Error {
        anyhow::anyhow!("{}: `{key}` is not {expected}", self.path.display())
    }
}

/// Lists of lists are permitted; a list nested a million times is an attack.
const DEEPEST: usize = 4;

/// GGUF's numbers for types that are not numbers.
const BOOL: u32 = 7;
const TEXT: u32 = 8;
const LIST: u32 = 9;

/// The size of a value in bytes, if it is the same for all values of the type.
fn size_of_kind(kind: u32) -> Option<usize> {
    match kind {
        0 | 1 | BOOL => Some(1),
        2 | 3 => Some(2),
        4..=6 => Some(4),
        10..=12 => Some(8),
        _ => None,
    }
}

fn is_integer(kind: u32) -> bool {
    matches!(kind, 0..=5 | 10 | 11)
}

/// A little-endian integer of a type that [`is_integer`].
fn integer(kind: u32, bytes: &[u8]) -> i128 {
    let signed = matches!(kind, 1 | 3 | 5 | 11);
    let negative = signed && bytes.last().is_some_and(|byte| byte >> 7 == 1);
    let mut wide = [if negative { 0xff } else { 0 }; 16];
    wide[..bytes.len()].copy_from_slice(bytes);
    i128::from_le_bytes(wide)
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize, what: &str) -> Result<&'a [u8]> {
        let rest = &self.bytes[self.at..];
        let Some(taken) = rest.get(..count) else {
            bail!(
                "it ends inside of {what}: byte {} of {}",
                self.at,
                self.bytes.len()
            );
        };
        self.at += count;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self, what: &str) -> Result<[u8; N]> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N, what)?);
        Ok(array)
    }

    fn u32(&mut self, what: &str) -> Result<u32> {
        Ok(u32::from_le_bytes(self.array(what)?))
    }

    fn u64(&mut self, what: &str) -> Result<u64> {
        Ok(u64::from_le_bytes(self.array(what)?))
    }

    fn count(&mut self, what: &str) -> Result<usize> {
        // Larger than the file: the reader fails at its end.
        Ok(usize::try_from(self.u64(what)?).unwrap_or(usize::MAX))
    }

    fn text(&mut self, what: &str) -> Result<&'a str> {
        let length = self.count(what)?;
        let start = self.at;
        let text = std::str::from_utf8(self.take(length, what)?);
        text.with_context(|| format!("{what}, at byte {start}, is not UTF-8"))
    }

    fn value(&mut self, kind: u32, key: &str, depth: usize) -> Result<Value> {
        if is_integer(kind) {
            let size = size_of_kind(kind).context("integers have a size")?;
            return Ok(Value::Integer(integer(kind, self.take(size, key)?)));
        }
        Ok(match kind {
            6 => Value::Float(f32::from_le_bytes(self.array(key)?).into()),
            BOOL => match self.array(key)? {
                [0] => Value::Bool(false),
                [1] => Value::Bool(true),
                [other] => bail!("`{key}` is neither true nor false, but {other}"),
            },
            TEXT => Value::Text(self.text(key)?.to_owned()),
            LIST => Value::List(self.list(key, depth)?),
            12 => Value::Float(f64::from_le_bytes(self.array(key)?)),
            _ => bail!("`{key}` is of type {kind}, which does not exist"),
        })
    }

    /// Skips a list, and checks each element.
    fn list(&mut self, key: &str, depth: usize) -> Result<List> {
        ensure!(depth < DEEPEST, "`{key}` has lists {depth} deep");
        let kind = self.u32(key)?;
        let count = self.count(key)?;
        let start = self.at;
        match (kind, size_of_kind(kind)) {
            (TEXT, _) => {
                for _ in 0..count {
                    self.text(key)?;
                }
            }
            (kind, Some(size)) if kind != BOOL => {
                self.take(count.saturating_mul(size), key)?;
            }
            _ => {
                for _ in 0..count {
                    self.value(kind, key, depth + 1)?;
                }
            }
        }
        Ok(List {
            kind,
            count,
            start,
            end: self.at,
        })
    }

    /// A line of the table of tensors; its start is still relative to the start of the data.
    fn entry(&mut self) -> Result<(String, Entry)> {
        let name = self.text("the name of a tensor")?;
        let dimensions = self.u32(name)?;
        ensure!(
            (1..=4).contains(&dimensions),
            "`{name}` has {dimensions} dimensions"
        );
        let mut shape = Vec::new();
        for _ in 0..dimensions {
            shape.push(usize::try_from(self.u64(name)?)?);
        }
        let kind = Kind::of(self.u32(name)?);
        let start = usize::try_from(self.u64(name)?)?;
        let (elements, size) = kind.block();
        let blocks = shape.iter().try_fold(1usize, |n, &e| n.checked_mul(e));
        let length = blocks.and_then(|n| (n / elements).checked_mul(size));
        let Some(length) = length.filter(|_| shape[0] % elements == 0 && !shape.contains(&0))
        else {
            bail!("`{name}` of {kind:?} cannot have the shape {shape:?}");
        };
        // In the file, the extent that varies fastest comes first.
        shape.reverse();
        let entry = Entry {
            shape,
            kind,
            start,
            length,
        };
        Ok((name.to_owned(), entry))
    }
}
