//! The products of a model folder, from `config.json` and the headers of its safetensors files, interpreted like
//! mlx-lm does.

mod attention;
mod config;
mod folder;
mod format;
mod inventory;
mod python;

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::path::Path;

use mlx_overlay::Dtype;
use safetensors::Dtype as Stored;
use serde::{Deserialize, Serialize};

pub use attention::Attention;
pub use config::Config;
pub(crate) use folder::Folder;
pub use inventory::{Inventory, Module, TIES};

use crate::product::Product;
use crate::{Error, Result};

/// Fields with the number of values per row between the layers.
const HIDDEN: [&str; 4] = ["hidden_size", "n_embd", "d_model", "model_dim"];

/// The products of a model, and the operations between them.
#[derive(Debug, Clone, PartialEq)]
pub struct Model {
    /// Quantized products in the order of the model, identical ones together.
    pub layers: Vec<Layer>,
    /// Dense matrices, identical ones together.
    pub dense: Vec<Dense>,
    /// The distinct shapes of its attention.
    pub attention: Vec<Attention>,
    /// Values per row between the layers, if the configuration has it.
    pub hidden: Option<usize>,
    /// The type of the rows, if the embedding shows it.
    pub dtype: Option<Dtype>,
    /// Tensors that are known not to be multiplied, or that mlx-lm does not load.
    pub others: Vec<String>,
    /// Parts that are skipped, with the reason.
    pub skipped: Vec<String>,
}

/// Identical products, and how many of them the model has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layer {
    /// The shape, with the name of the first one.
    #[serde(flatten)]
    pub product: Product,
    /// The number of products.
    pub count: usize,
}

/// Identical dense matrices.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dense {
    /// The first one with this shape.
    pub name: String,
    /// Outputs per row.
    pub n: usize,
    /// Values per row.
    pub k: usize,
    /// Whether something is added to each row.
    pub bias: bool,
    /// The number of matrices.
    pub count: usize,
}

impl Model {
    /// Reads a folder that `mlx_lm` wrote. No weights are read.
    ///
    /// # Errors
    /// [`Error::File`] or [`Error::Content`] with the file, and with the tensor if it is about one.
    pub fn read(folder: &Path) -> Result<Self> {
        let (config, folder) = open(folder)?;
        let (mut inventory, layers) = Inventory::read(&config, &folder)?;
        let attention = attention::read(&config, &mut inventory, layers);
        let mut model = Self {
            layers: Vec::new(),
            dense: Vec::new(),
            attention,
            hidden: config.counts(&HIDDEN).first().copied(),
            dtype: match Inventory::dtype(&folder) {
                Some(Stored::F16) => Some(Dtype::F16),
                Some(Stored::F32) => Some(Dtype::F32),
                // 8-bit scales are decoded to bf16.
                Some(Stored::BF16 | Stored::U8) => Some(Dtype::Bf16),
                _ => None,
            },
            others: inventory.others(),
            skipped: inventory.skipped(),
        };
        let rope = config.rope("full_attention");
        if rope != "default" {
            let line = format!("rope of type {rope}: each position by itself, not compared");
            model.others.push(line);
        }
        let mut modules: Vec<&Module> = inventory.products.values().collect();
        modules.sort_by(|a, b| order(&a.name, &b.name));
        let mut seen = BTreeMap::new();
        for module in modules {
            model.add(module, &mut seen)?;
        }
        if model.layers.is_empty() && model.dense.is_empty() && model.skipped.is_empty() {
            return Err(Error::content(
                folder.path(),
                "no matrix in any of its safetensors files",
            ));
        }
        Ok(model)
    }

    fn add(&mut self, module: &Module, seen: &mut BTreeMap<String, usize>) -> Result<()> {
        let &Module {
            ref name,
            n,
            k,
            quantization,
            bias,
        } = module;
        let Some(quantization) = quantization else {
            let shape = |dense: &&mut Dense| (dense.n, dense.k, dense.bias) == (n, k, bias);
            match self.dense.iter_mut().find(shape) {
                Some(dense) => dense.count += 1,
                None => self.dense.push(Dense {
                    name: name.clone(),
                    n,
                    k,
                    bias,
                    count: 1,
                }),
            }
            return Ok(());
        };
        let product = Product::new(n, k, quantization)?;
        match seen.get(&product.shape()) {
            Some(&at) => self.layers[at].count += 1,
            None => {
                seen.insert(product.shape(), self.layers.len());
                self.layers.push(Layer {
                    product: product.named(name),
                    count: 1,
                });
            }
        }
        Ok(())
    }
}

/// Every tensor of a folder with its classification.
///
/// # Errors
/// See [`Model::read`].
pub fn inventory(folder: &Path) -> Result<Inventory> {
    let (config, folder) = open(folder)?;
    Ok(Inventory::read(&config, &folder)?.0)
}

fn open(folder: &Path) -> Result<(Config, Folder)> {
    let found = std::fs::metadata(folder).map_err(|error| Error::File {
        path: folder.to_owned(),
        error,
    })?;
    if !found.is_dir() {
        return Err(Error::content(
            folder,
            "expected a model folder: config.json and model*.safetensors",
        ));
    }
    Ok((Config::read(folder)?, Folder::open(folder)?))
}

/// Parts of a layer in the order of computation.
const PARTS: [&str; 9] = [
    "embed_tokens",
    "q_proj",
    "k_proj",
    "v_proj",
    "o_proj",
    "gate_proj",
    "up_proj",
    "down_proj",
    "lm_head",
];

/// The order of computation: by layer, then by part, then by name.
fn order(a: &str, b: &str) -> Ordering {
    let key = |name: &str| {
        let layer = inventory::layer_of(name);
        let part = PARTS.iter().position(|part| name.ends_with(part));
        // Tensors outside layers come first if they are embeddings, otherwise last.
        let layer = match (layer, part) {
            (Some(layer), _) => layer.saturating_add(1),
            (None, Some(0)) => 0,
            _ => usize::MAX,
        };
        (layer, part.unwrap_or(PARTS.len()))
    };
    key(a).cmp(&key(b)).then_with(|| a.cmp(b))
}
