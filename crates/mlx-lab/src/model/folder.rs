//! The tensors of a model folder.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};

use memmap2::Mmap;
use mlx_overlay::{Array, bf16, f16};
use safetensors::{Dtype, SafeTensors};

use crate::{Error, Result};

/// All safetensors files of a folder, mapped.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
    files: Vec<(PathBuf, Mmap)>,
    tensors: BTreeMap<String, Tensor>,
}

/// Where a tensor lies, and what it is.
#[derive(Debug, Clone)]
pub(crate) struct Tensor {
    file: usize,
    pub(crate) dtype: Dtype,
    pub(crate) shape: Vec<usize>,
}

impl Folder {
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let io = |path: &Path| {
            let path = path.to_owned();
            move |source| Error::File { path, source }
        };
        let mut names = Vec::new();
        for entry in std::fs::read_dir(path).map_err(io(path))? {
            let file = entry.map_err(io(path))?.path();
            if file.extension().is_some_and(|e| e == "safetensors") {
                names.push(file);
            }
        }
        names.sort();
        if names.is_empty() {
            return Err(Error::content(path, "no *.safetensors in this folder"));
        }
        let mut folder = Self {
            path: path.to_owned(),
            files: Vec::new(),
            tensors: BTreeMap::new(),
        };
        for name in names {
            let file = File::open(&name).map_err(io(&name))?;
            // SAFETY: the map is only read. A model folder is not written while it is used; if it
            // is, the numbers are wrong, and a truncated file ends the process with SIGBUS.
            let map = unsafe { Mmap::map(&file) }.map_err(io(&name))?;
            let (_, header) =
                SafeTensors::read_metadata(&map).map_err(|error| Error::content(&name, error))?;
            for (tensor, info) in header.tensors() {
                folder.tensors.insert(
                    tensor,
                    Tensor {
                        file: folder.files.len(),
                        dtype: info.dtype,
                        shape: info.shape.clone(),
                    },
                );
            }
            folder.files.push((name, map));
        }
        Ok(folder)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    pub(crate) fn find(&self, name: &str) -> Option<&Tensor> {
        self.tensors.get(name)
    }

    pub(crate) fn tensor(&self, name: &str) -> Result<&Tensor> {
        self.find(name)
            .ok_or_else(|| Error::content(&self.path, format!("no tensor `{name}` in any file")))
    }

    /// Copies a tensor into an array.
    pub(crate) fn load(&self, name: &str) -> Result<Array> {
        let tensor = self.tensor(name)?;
        let (path, map) = &self.files[tensor.file];
        let fail =
            |error: safetensors::SafeTensorError| Error::content(path, format!("{name}: {error}"));
        let file = SafeTensors::deserialize(map).map_err(fail)?;
        let view = file.tensor(name).map_err(fail)?;
        let shape = &tensor.shape;
        let bytes = view.data();
        // safetensors are little-endian and not aligned.
        Ok(match tensor.dtype {
            Dtype::F32 => Array::from_slice(&values(bytes, f32::from_le_bytes), shape)?,
            Dtype::F16 => Array::from_slice(&values(bytes, f16::from_le_bytes), shape)?,
            Dtype::BF16 => Array::from_slice(&values(bytes, bf16::from_le_bytes), shape)?,
            Dtype::U32 => Array::from_slice(&values(bytes, u32::from_le_bytes), shape)?,
            Dtype::U8 => Array::from_slice(bytes, shape)?,
            other => {
                return Err(Error::content(
                    path,
                    format!("{name} is {other:?}, expected F32, F16, BF16, U32 or U8"),
                ));
            }
        })
    }
}

fn values<T, const N: usize>(bytes: &[u8], value: fn([u8; N]) -> T) -> Vec<T> {
    let (chunks, _) = bytes.as_chunks::<N>();
    chunks.iter().map(|&chunk| value(chunk)).collect()
}
