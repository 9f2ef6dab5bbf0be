//! Files of arrays, in the safetensors format.

mod header;
mod put;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use mlx_overlay_sys as sys;

use crate::ops::extents;
use crate::{Array, Dtype, Error, Result};
use header::{Entry, Header};

/// An open safetensors file. Arrays are read on demand.
///
/// Each array is read directly into MLX's memory; the only other copy is in the system's cache.
/// The file is not mapped: another process that truncates a mapped file would kill this one.
///
/// ```
/// use mlx_overlay::{Array, SafetensorsFile, save_safetensors};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// let path = folder.path().join("weights.safetensors");
/// let w = Array::from_slice(&[1.0f32, 2.0], &[2])?;
/// save_safetensors(&path, [("w", &w)], [("format", "mlx")])?;
///
/// let file = SafetensorsFile::open(&path)?;
/// assert_eq!(file.names().collect::<Vec<_>>(), ["w"]);
/// assert_eq!(file.array("w")?.to_vec::<f32>()?, [1.0, 2.0]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct SafetensorsFile {
    path: PathBuf,
    file: File,
    header: Header,
    /// The position at which the arrays start.
    data: u64,
}

/// The largest header that the format allows.
const LARGEST_HEADER: u64 = 100_000_000;

impl SafetensorsFile {
    /// Opens a file and reads the description of its arrays.
    ///
    /// # Errors
    ///
    /// [`Error::File`] if it cannot be read, is not a safetensors file, or is shorter or longer than its header states.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let error = |problem: String| Error::File {
            path: path.to_owned(),
            problem,
        };
        let failed = |problem: io::Error| error(problem.to_string());
        // Checked first: opening a pipe would wait until another process writes to it.
        if !fs::metadata(path).map_err(failed)?.is_file() {
            return Err(error("not a regular file".to_owned()));
        }
        let mut file = File::open(path).map_err(failed)?;
        let about = file.metadata().map_err(failed)?;
        let no_such = |why: &dyn std::fmt::Display| error(format!("not a safetensors file: {why}"));
        let mut length = [0; 8];
        file.read_exact(&mut length)
            .map_err(|_| no_such(&format!("it has only {} bytes", about.len())))?;
        let length_of_header = u64::from_le_bytes(length);
        if length_of_header > LARGEST_HEADER.min(about.len().saturating_sub(8)) {
            let why = format!("its first 8 bytes announce a header of {length_of_header} bytes");
            return Err(no_such(&why));
        }
        let data = 8 + length_of_header;
        let mut header = Vec::new();
        Read::by_ref(&mut file)
            .take(length_of_header)
            .read_to_end(&mut header)
            .map_err(failed)?;
        let header = Header::read(&header).map_err(|why| no_such(&why))?;
        let expected = data.saturating_add(header.bytes);
        if about.len() != expected {
            return Err(error(format!(
                "it has {} bytes, expected {expected} from its header: an incomplete download?",
                about.len()
            )));
        }
        Ok(Self {
            path: path.to_owned(),
            file,
            header,
            data,
        })
    }

    /// The names of the arrays, in the order of the file.
    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.header.entries.keys().map(String::as_str)
    }

    /// The other metadata in the file.
    pub fn metadata(&self) -> BTreeMap<&str, &str> {
        let pairs = self.header.metadata.iter();
        pairs
            .map(|(key, value)| (key.as_str(), value.as_str()))
            .collect()
    }

    /// Shape and type of an array. 8-bit floats are read as U8, as in MLX.
    ///
    /// # Errors
    ///
    /// [`Error::File`] if there is no array with that name, or if its type is not supported.
    pub fn about(&self, name: &str) -> Result<(&[usize], Dtype)> {
        let entry = self.entry(name)?;
        Ok((&entry.shape, self.dtype(name, entry)?))
    }

    /// Reads an array.
    ///
    /// # Errors
    ///
    /// [`Error::File`] if there is no array with that name, if its type is not supported, or if it cannot be read;
    /// [`Error::OutOfMemory`].
    pub fn array(&self, name: &str) -> Result<Array> {
        let entry = self.entry(name)?;
        let dtype = self.dtype(name, entry)?;
        if entry.shape.contains(&0) {
            return Array::from_bytes(&[], &entry.shape, dtype);
        }
        let offset = self.data + entry.offsets.start;
        let shape = extents(&entry.shape)?;
        // SAFETY: the file is open for the lifetime of `self`.
        let raw = unsafe { sys::from_file(self.file.as_raw_fd(), offset, &shape, dtype.raw()) };
        match raw.map_err(Error::from) {
            Ok(raw) => Array::known(raw),
            Err(Error::Mlx(problem)) => Err(self.error(format!("{name}: {problem}"))),
            Err(error) => Err(error),
        }
    }

    fn entry(&self, name: &str) -> Result<&Entry> {
        let entry = self.header.entries.get(name);
        entry.ok_or_else(|| self.error(format!("no array is named {name:?}")))
    }

    fn dtype(&self, name: &str, entry: &Entry) -> Result<Dtype> {
        let missing = || {
            self.error(format!(
                "{name} has the type {}, which MLX does not support",
                entry.kind
            ))
        };
        entry.dtype().ok_or_else(missing)
    }

    fn error(&self, problem: String) -> Error {
        Error::File {
            path: self.path.clone(),
            problem,
        }
    }
}

/// All arrays of a safetensors file, by name; see [`SafetensorsFile`].
///
/// # Errors
///
/// Those of [`SafetensorsFile::open`] and [`SafetensorsFile::array`].
pub fn load_safetensors(path: impl AsRef<Path>) -> Result<BTreeMap<String, Array>> {
    let file = SafetensorsFile::open(path)?;
    let read = |name: &str| Ok((name.to_owned(), file.array(name)?));
    file.names().map(read).collect()
}

/// Evaluates arrays and writes them to a safetensors file, with further metadata.
///
/// The file is written completely or not at all: a new file is written next to it and then renamed. An existing file
/// keeps its permissions. A file with several hard links, and anything but a regular file (a device, a pipe, a link),
/// is written in place.
///
/// # Errors
///
/// [`Error::File`] if it cannot be written, if a name is given twice, if an array is named `__metadata__`, or if the
/// names are too long for the format; the errors of [`crate::eval()`].
pub fn save_safetensors<'a>(
    path: impl AsRef<Path>,
    arrays: impl IntoIterator<Item = (impl Into<String>, &'a Array)>,
    metadata: impl IntoIterator<Item = (impl Into<String>, impl Into<String>)>,
) -> Result<()> {
    let path = path.as_ref();
    let refused = |problem: String| Error::File {
        path: path.to_owned(),
        problem,
    };
    let arrays = by_name(arrays).map_err(refused)?;
    let metadata = by_name(metadata.into_iter().map(|(key, value)| (key, value.into())));
    let metadata: BTreeMap<String, String> = metadata.map_err(refused)?;
    if arrays.contains_key(header::METADATA) {
        let reserved = format!("no array can be named {:?}", header::METADATA);
        return Err(refused(reserved));
    }
    crate::eval(arrays.values().copied())?;
    let mut contents = Vec::with_capacity(arrays.len());
    for (name, array) in arrays {
        contents.push((name, array.evaluate()?));
    }
    // The widest types first, so that each array is aligned to its width.
    contents.sort_by_key(|(_, array)| std::cmp::Reverse(array.dtype().size()));
    let abouts = contents
        .iter()
        .map(|(name, array)| (name.as_str(), array.dtype(), array.shape()));
    let header = header::text(&metadata, abouts);
    if header.len() as u64 > LARGEST_HEADER {
        return Err(refused(format!(
            "its header would have {} bytes, but at most {LARGEST_HEADER} can be read",
            header.len()
        )));
    }
    let write = |file: &mut File| {
        file.write_all(&(header.len() as u64).to_le_bytes())?;
        file.write_all(header.as_bytes())?;
        contents
            .iter()
            .try_for_each(|(_, array)| file.write_all(array.as_bytes()))
    };
    put::put(path, write).map_err(|problem| refused(problem.to_string()))
}

/// The items by name. Fails if a name occurs twice.
fn by_name<T>(
    named: impl IntoIterator<Item = (impl Into<String>, T)>,
) -> std::result::Result<BTreeMap<String, T>, String> {
    let mut all = BTreeMap::new();
    for (name, value) in named {
        let name = name.into();
        if all.contains_key(&name) {
            return Err(format!("duplicate name {name:?}"));
        }
        all.insert(name, value);
    }
    Ok(all)
}
