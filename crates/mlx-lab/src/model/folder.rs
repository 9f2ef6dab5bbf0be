//! The tensors of a model folder: those in its index, otherwise those in `model*.safetensors`, as in mlx-lm.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io;
use std::path::{Component, Path, PathBuf};

use memmap2::Mmap;
use safetensors::{Dtype, SafeTensorError, SafeTensors};
use serde_json::Value;

use super::python;
use crate::{Error, Result};

const INDEX: &str = "model.safetensors.index.json";

/// The safetensors files of a model, with their headers read.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
    files: Vec<PathBuf>,
    tensors: BTreeMap<String, Tensor>,
    /// Files that the index does not list but mlx-lm reads.
    pub(super) unlisted: Vec<String>,
}

/// The place of a tensor, and its type and shape.
#[derive(Debug, Clone)]
pub(crate) struct Tensor {
    file: usize,
    pub(crate) dtype: Dtype,
    pub(crate) shape: Vec<usize>,
}

impl Folder {
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let found = found(path)?;
        let index = Index::read(path)?;
        let (names, unlisted) = match &index {
            Some(index) => index.choose(path, &found)?,
            None => (found.clone(), Vec::new()),
        };
        if names.is_empty() {
            return Err(Error::content(path, nothing(path)?));
        }
        if index.is_none() {
            complete(path, &names)?;
        }
        let mut folder = Self {
            path: path.to_owned(),
            files: Vec::new(),
            tensors: BTreeMap::new(),
            unlisted,
        };
        for name in names {
            folder.add(path.join(name))?;
        }
        if let Some(index) = index.filter(|index| !folder.files.is_empty() && index.serves(&folder))
        {
            index.compare(&folder)?;
        }
        Ok(folder)
    }

    fn add(&mut self, path: PathBuf) -> Result<()> {
        let map = map(&path)?;
        let (_, header) = SafeTensors::read_metadata(&map)
            .map_err(|error| Error::content(&path, damage(&map, &error)))?;
        for (name, info) in header.tensors() {
            if info.shape.contains(&0) {
                let reason = format!("{name} has no elements: {:?}", info.shape);
                return Err(Error::content(&path, reason));
            }
            let tensor = Tensor {
                file: self.files.len(),
                dtype: info.dtype,
                shape: info.shape.clone(),
            };
            if let Some(other) = self.tensors.insert(name.clone(), tensor) {
                let other = self.files[other.file].display();
                let reason = format!(
                    "{name} is also in {other}: remove the file that does not belong to the model"
                );
                return Err(Error::content(&path, reason));
            }
        }
        self.files.push(path);
        Ok(())
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn tensors(&self) -> impl Iterator<Item = (&str, &Tensor)> {
        self.tensors
            .iter()
            .map(|(name, tensor)| (name.as_str(), tensor))
    }

    pub(crate) fn find(&self, name: &str) -> Option<&Tensor> {
        self.tensors.get(name)
    }
}

/// The file of each tensor according to the index.
struct Index {
    path: PathBuf,
    tensors: BTreeMap<String, String>,
}

impl Index {
    fn read(folder: &Path) -> Result<Option<Self>> {
        let path = folder.join(INDEX);
        if fs::symlink_metadata(&path).is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
            return Ok(None);
        }
        let value =
            python::parse(&read_text(&path)?).map_err(|error| Error::content(&path, error))?;
        let Some(Value::Object(listed)) = value.get("weight_map") else {
            return Err(Error::content(path, "no `weight_map`"));
        };
        let mut tensors = BTreeMap::new();
        for (tensor, file) in listed {
            let plain = |name: &&str| {
                let mut parts = Path::new(name).components();
                matches!(parts.next(), Some(Component::Normal(_)))
                    && parts.all(|part| matches!(part, Component::Normal(_)))
            };
            let Some(file) = file.as_str().filter(plain) else {
                let reason =
                    format!("the file of {tensor} is {file}, expected one below this folder");
                return Err(Error::content(path, reason));
            };
            tensors.insert(tensor.clone(), file.to_owned());
        }
        Ok(Some(Self { path, tensors }))
    }

    fn files(&self) -> BTreeSet<&String> {
        self.tensors.values().collect()
    }

    /// The files to read, and additional ones. If none of the listed files exists, the index belongs to other
    /// files; mlx-lm ignores it too.
    fn choose(&self, folder: &Path, found: &[String]) -> Result<(Vec<String>, Vec<String>)> {
        let files = self.files();
        let missing: Vec<&String> = files
            .iter()
            .filter(|name| !exists(&folder.join(name)))
            .copied()
            .collect();
        if missing.len() == files.len() {
            complete(folder, found)?;
            return Ok((found.to_vec(), Vec::new()));
        }
        if let Some(&first) = missing.first() {
            let reason = format!(
                "lists {} files, but {} of them {} missing: {}; download the model again",
                files.len(),
                missing.len(),
                if missing.len() == 1 { "is" } else { "are" },
                named(first, missing.len())
            );
            return Err(Error::content(&self.path, reason));
        }
        let unlisted = found.iter().filter(|name| !files.contains(name));
        Ok((
            files.iter().map(|&name| name.clone()).collect(),
            unlisted.cloned().collect(),
        ))
    }

    /// Whether this is the index of the folder's files.
    fn serves(&self, folder: &Folder) -> bool {
        let files = self.files();
        folder.files.iter().all(|path| {
            let name = path.strip_prefix(&folder.path).ok().and_then(Path::to_str);
            name.is_some_and(|name| files.contains(&name.to_owned()))
        })
    }

    /// Fails if a tensor is in no file.
    fn compare(&self, folder: &Folder) -> Result<()> {
        let missing: Vec<(&String, &String)> = self
            .tensors
            .iter()
            .filter(|(tensor, _)| folder.find(tensor).is_none())
            .collect();
        let Some((tensor, file)) = missing.first() else {
            return Ok(());
        };
        let reason = format!(
            "lists {} in {file}, which does not have it; download the model again",
            named(tensor, missing.len())
        );
        Err(Error::content(&self.path, reason))
    }
}

/// `model*.safetensors`, in order.
fn found(path: &Path) -> Result<Vec<String>> {
    let mut names: Vec<String> = entries(path)?;
    names.retain(|name| name.starts_with("model") && name.ends_with(".safetensors"));
    Ok(names)
}

fn entries(path: &Path) -> Result<Vec<String>> {
    let fail = |error| Error::File {
        path: path.to_owned(),
        error,
    };
    let mut names = Vec::new();
    for entry in fs::read_dir(path).map_err(fail)? {
        // A name that is not UTF-8 cannot match.
        names.extend(entry.map_err(fail)?.file_name().into_string().ok());
    }
    names.sort();
    Ok(names)
}

/// Describes why there is nothing to read.
fn nothing(path: &Path) -> Result<String> {
    let mut others = entries(path)?;
    others.retain(|name| {
        let weights = [".safetensors", ".gguf", ".npz", ".bin", ".pth"];
        !name.starts_with('.') && weights.iter().any(|end| name.ends_with(end))
    });
    let besides = others
        .first()
        .map(|first| format!(", only {}", named(first, others.len())));
    Ok(format!(
        "no model*.safetensors in this folder{}; expected a model as `mlx_lm.convert` writes it",
        besides.unwrap_or_default()
    ))
}

/// Fails if the names announce more shards than exist: `model-00001-of-00003.safetensors`.
fn complete(folder: &Path, names: &[String]) -> Result<()> {
    for name in names {
        let Some(shards) = shards(name) else { continue };
        let there = names
            .iter()
            .filter(|other| shards == self::shards(other).unwrap_or_default());
        let there = there.count();
        if there < shards.1 {
            let reason = format!(
                "only {there} of {} shards are present ({}); download the model again",
                shards.1,
                named(name, there)
            );
            return Err(Error::content(folder, reason));
        }
    }
    Ok(())
}

/// The part before a shard's number, and the number of shards.
fn shards(name: &str) -> Option<(&str, usize)> {
    let (rest, count) = name.strip_suffix(".safetensors")?.rsplit_once("-of-")?;
    let (stem, number) = rest.rsplit_once('-')?;
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if !digits(number) || !digits(count) {
        return None;
    }
    Some((stem, count.parse().ok()?))
}

/// The first of several names, and their number.
pub(super) fn named(first: &str, count: usize) -> String {
    match count {
        0 | 1 => first.to_owned(),
        2 => format!("{first} and another"),
        _ => format!("{first} and {} others", count - 1),
    }
}

fn exists(path: &Path) -> bool {
    fs::metadata(path).is_ok()
}

/// Fails if the path is not a regular file: opening a fifo would wait, and reading a device may never end.
fn require_file(path: &Path) -> Result<u64> {
    let found = fs::metadata(path).map_err(|error| Error::File {
        path: path.to_owned(),
        error,
    })?;
    if found.is_file() {
        return Ok(found.len());
    }
    Err(Error::content(path, "is not a regular file"))
}

/// The text of a file of the folder.
pub(super) fn read_text(path: &Path) -> Result<String> {
    require_file(path)?;
    let bytes = fs::read(path).map_err(|error| Error::File {
        path: path.to_owned(),
        error,
    })?;
    if let Some(reason) = not_the_file(&bytes) {
        return Err(Error::content(path, reason));
    }
    String::from_utf8(bytes).map_err(|_| Error::content(path, "is not UTF-8 text"))
}

fn map(path: &Path) -> Result<Mmap> {
    let length = require_file(path)?;
    let fail = |error| Error::File {
        path: path.to_owned(),
        error,
    };
    if length == 0 {
        return Err(Error::content(path, EMPTY));
    }
    let file = File::open(path).map_err(fail)?;
    // SAFETY: the map is only read. A model folder must not be modified while it is used: changed contents would give
    // wrong numbers, and a truncated file would end the process with SIGBUS.
    unsafe { Mmap::map(&file) }.map_err(fail)
}

const EMPTY: &str = "is empty; download it again";

/// Recognizes what a skipped or failed download leaves in a file's place.
fn not_the_file(bytes: &[u8]) -> Option<&'static str> {
    let start = bytes.get(..64).unwrap_or(bytes).trim_ascii_start();
    if start.is_empty() {
        Some(EMPTY)
    } else if start.starts_with(b"version https://git-lfs.github.com/spec/") {
        Some("is a Git LFS pointer, not the file itself; fetch it with `git lfs pull`")
    } else if start.starts_with(b"<!DOCTYPE") || start.starts_with(b"<html") {
        Some("is a web page, not the file itself; download it again")
    } else {
        None
    }
}

/// The fault of a file that cannot be read.
fn damage(bytes: &[u8], error: &SafeTensorError) -> String {
    if let Some(reason) = not_the_file(bytes) {
        return reason.to_owned();
    }
    match error {
        SafeTensorError::MetadataIncompleteBuffer => {
            "its length does not match its header; download it again".to_owned()
        }
        SafeTensorError::HeaderTooSmall
        | SafeTensorError::HeaderTooLarge
        | SafeTensorError::InvalidHeaderLength => {
            format!("is truncated, or not a safetensors file ({error}); download it again")
        }
        _ => format!("is not a safetensors file: {error}"),
    }
}
