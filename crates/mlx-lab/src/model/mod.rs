//! What a model folder says of its products, from `config.json` and the headers of its safetensors.

mod config;
mod folder;

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::path::Path;

use mlx_overlay::Quantization;
use safetensors::Dtype;
use serde::{Deserialize, Serialize};

pub use config::Config;
pub(crate) use folder::Folder;

use crate::product::Product;
use crate::{Error, Result};

/// The products of a model, and what lies between them.
#[derive(Debug, Clone, PartialEq)]
pub struct Model {
    /// Quantized products, those alike together, in the order of the model.
    pub layers: Vec<Layer>,
    /// Matrices that are not quantized, those alike once.
    pub dense: Vec<Dense>,
    /// Its attention, where the configuration describes one.
    pub attention: Option<Attention>,
    /// What is not looked at, and why.
    pub skipped: Vec<String>,
}

/// Products that are alike, and how many of them the model has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layer {
    /// Their shape; the name is that of the first.
    #[serde(flatten)]
    pub product: Product,
    /// How many there are.
    pub count: usize,
}

/// A matrix that is not quantized.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dense {
    /// The first of its shape.
    pub name: String,
    /// Outputs a row.
    pub n: usize,
    /// Values a row.
    pub k: usize,
}

/// Attention as all layers have it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attention {
    /// Heads of the queries.
    pub heads: usize,
    /// Heads of keys and values.
    pub kv_heads: usize,
    /// Values a head.
    pub head_dim: usize,
    /// Values a row between the layers.
    pub hidden: usize,
    /// Layers that have it.
    pub layers: usize,
}

impl Model {
    /// Reads a folder as `mlx_lm` writes it. No weights are read.
    ///
    /// # Errors
    /// [`Error::File`] or [`Error::Content`] with the file, and the tensor where it is about one.
    pub fn read(folder: &Path) -> Result<Self> {
        let config = Config::read(folder)?;
        let folder = Folder::open(folder)?;
        Self::from_parts(&config, &folder)
    }

    fn from_parts(config: &Config, folder: &Folder) -> Result<Self> {
        let mut model = Self {
            layers: Vec::new(),
            dense: Vec::new(),
            attention: config.attention(),
            skipped: Vec::new(),
        };
        let mut modules: Vec<String> = folder
            .names()
            .filter_map(|name| Some(name.strip_suffix(".weight")?.to_owned()))
            .collect();
        modules.sort_by(|a, b| order(a, b));
        let mut seen: BTreeMap<String, usize> = BTreeMap::new();
        for module in modules {
            let weight = folder.tensor(&format!("{module}.weight"))?;
            // An embedding is looked up, unless it serves as the head as well.
            if module.ends_with("embed_tokens") && !config.tied() {
                continue;
            }
            let Some(quantization) = quantization(config, folder, &module)? else {
                model.add_dense(module, &weight.shape);
                continue;
            };
            let scales = folder.tensor(&format!("{module}.scales"))?;
            let (&[n, _], &[_, groups]) = (&weight.shape[..], &scales.shape[..]) else {
                model.skipped.push(format!(
                    "{module}: {:?}, one matrix an expert, picked by a gather",
                    weight.shape
                ));
                continue;
            };
            let k = groups * quantization.group_size() as usize;
            let product = Product::new(n, k, quantization)?;
            match seen.get(&product.shape()) {
                Some(&at) => model.layers[at].count += 1,
                None => {
                    seen.insert(product.shape(), model.layers.len());
                    model.layers.push(Layer {
                        product: product.named(module),
                        count: 1,
                    });
                }
            }
        }
        if model.attention.is_none() {
            let fields = "no `hidden_size` and `num_attention_heads`";
            let skipped = format!("attention, rope and norms: config.json has {fields}");
            model.skipped.push(skipped);
        }
        if model.layers.is_empty() && model.dense.is_empty() {
            return Err(Error::content(
                folder.path(),
                "no `.weight` in any of its safetensors files",
            ));
        }
        Ok(model)
    }

    /// A weight that is not quantized; vectors are those of norms.
    fn add_dense(&mut self, name: String, shape: &[usize]) {
        match *shape {
            [] | [_] => {}
            [n, k] => {
                if !self.dense.iter().any(|d| d.n == n && d.k == k) {
                    self.dense.push(Dense { name, n, k });
                }
            }
            _ => self.skipped.push(format!(
                "{name}: {shape:?}, more than a matrix, not quantized"
            )),
        }
    }
}

/// How a module is quantized; `None` if it is not. What the tensors say decides, the configuration
/// fills in what they leave open.
pub(crate) fn quantization(
    config: &Config,
    folder: &Folder,
    module: &str,
) -> Result<Option<Quantization>> {
    let Some(scales) = folder.find(&format!("{module}.scales")) else {
        return Ok(None);
    };
    let weight = folder.tensor(&format!("{module}.weight"))?;
    let fail = |reason: String| Error::content(folder.path(), format!("{module}: {reason}"));
    if weight.dtype != Dtype::U32 {
        return Err(fail(format!(
            "has scales, but its weight is {:?}, expected U32",
            weight.dtype
        )));
    }
    let stated = config.format_of(module).map_err(&fail)?;
    let affine = folder.find(&format!("{module}.biases")).is_some();
    let quantization = match stated {
        Some(stated) if stated.has_biases() == affine => stated,
        Some(stated) => {
            return Err(fail(format!(
                "config.json says {}, but it has {} biases",
                stated.mode(),
                if affine { "" } else { "no" }
            )));
        }
        None => {
            return Err(fail(
                "has scales, but config.json has no `quantization`".to_owned(),
            ));
        }
    };
    let columns = |shape: &[usize]| shape.last().copied().unwrap_or(0);
    let k = columns(&scales.shape) * quantization.group_size() as usize;
    let packed = columns(&weight.shape) * 32;
    if packed != k * quantization.bits() as usize {
        return Err(fail(format!(
            "{packed} packed bits a row, expected {} for {k} values of {}",
            k * quantization.bits() as usize,
            crate::product::format(quantization)
        )));
    }
    Ok(Some(quantization))
}

/// Parts of a layer in the order in which they are computed.
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
        let layer = name.split('.').find_map(|part| part.parse::<usize>().ok());
        let part = PARTS.iter().position(|part| name.ends_with(part));
        // What is in no layer comes first if it is an embedding, else last.
        let layer = match (layer, part) {
            (Some(layer), _) => layer + 1,
            (None, Some(0)) => 0,
            _ => usize::MAX,
        };
        (layer, part.unwrap_or(PARTS.len()))
    };
    key(a).cmp(&key(b)).then_with(|| a.cmp(b))
}
