//! Classifies every tensor of a model: part of a product, known not to be multiplied, or skipped.

use std::collections::{BTreeMap, BTreeSet};

use mlx_overlay::Quantization;
use safetensors::Dtype;

use super::folder::{Tensor, named};
use super::{Config, Folder, attention, format};
use crate::{Error, Result};

/// A matrix that rows are multiplied with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Module {
    pub name: String,
    /// Outputs per row.
    pub n: usize,
    /// Values per row.
    pub k: usize,
    /// How it is quantized, if it is.
    pub quantization: Option<Quantization>,
    /// Whether something is added to each row (`addmm`, if it is not quantized).
    pub bias: bool,
}

/// All tensors of a folder, each in one of the lists.
#[derive(Debug, Default)]
pub struct Inventory {
    /// Matrices of products, by name.
    pub products: BTreeMap<String, Module>,
    /// Tensors that are known not to be multiplied, with the reason.
    pub others: BTreeMap<String, &'static str>,
    /// Parts that are skipped, with the reason.
    pub skipped: Vec<(String, String)>,
    /// Lengths of vectors.
    vectors: BTreeMap<String, usize>,
    /// The modules of each layer.
    layers: BTreeMap<usize, BTreeSet<String>>,
}

/// Parts of a model that mlx-lm, which generates text, does not load.
const LEFT_OUT: [&str; 13] = [
    "vision_tower",
    "vision_model",
    "vision_embedder",
    "vision_encoder",
    "visual",
    "multi_modal_projector",
    "mm_projector",
    "embed_vision",
    "audio_tower",
    "audio_encoder",
    "embed_audio",
    "mtp",
    "mtp_block",
];

/// Matrices from which rows are looked up.
const LOOKED_UP: [&str; 8] = [
    "embed_tokens_per_layer",
    "per_layer_embeddings",
    "position_embeddings",
    "position_embedding",
    "embed_positions",
    "pos_embed",
    "wpe",
    "token_type_embeddings",
];

/// Embeddings of tokens, which may also be the head.
const EMBEDDINGS: [&str; 7] = [
    "embed_tokens",
    "wte",
    "word_embeddings",
    "tok_embeddings",
    "embed_in",
    "embeddings",
    "embedding",
];

const HEADS: [&str; 4] = ["lm_head", "embed_out", "output", "head"];

/// Families whose head mlx-lm drops if the configuration ties it (`weights.pop("lm_head.weight")`). `tests/oracle.rs`
/// compares them with mlx-lm's files.
pub const TIES: [&str; 38] = [
    "afmoe",
    "apertus",
    "bailing_hybrid",
    "bailing_moe",
    "bailing_moe_linear",
    "bailing_moe_v3",
    "bitnet",
    "dots1",
    "exaone_moe",
    "glm",
    "granite",
    "granitemoe",
    "granitemoehybrid",
    "hunyuan_v1_dense",
    "iquestcoder",
    "jamba",
    "kimi_k3",
    "kimi_linear",
    "laguna",
    "llama",
    "mellum",
    "mimo",
    "ministral3",
    "mistral",
    "mixtral",
    "nemotron-nas",
    "olmo_hybrid",
    "plamo3",
    "qwen2",
    "qwen3",
    "qwen3_5",
    "qwen3_moe",
    "qwen3_next",
    "seed_oss",
    "smollm3",
    "spark2_5",
    "xverse",
    "youtu_llm",
];

/// Fields with the number of layers.
const LAYERS: [&str; 4] = ["num_hidden_layers", "n_layer", "n_layers", "num_layers"];

/// Other tools' names for the parts of a packed matrix.
const FOREIGN: [&str; 13] = [
    "qweight",
    "qzeros",
    "g_idx",
    "weight_packed",
    "weight_scale",
    "weight_scale_2",
    "weight_scale_inv",
    "weight_shape",
    "weight_zero_point",
    "input_scale",
    "absmax",
    "quant_map",
    "quant_state",
];

const CONVERT: &str = "convert the model with `mlx_lm.convert`";

impl Inventory {
    /// Reads a folder (only headers). Also returns the number of layers, 0 if the configuration does not have it.
    ///
    /// # Errors
    /// [`Error::Content`] for tensors that match neither each other nor the configuration, and for missing layers.
    pub(super) fn read(config: &Config, folder: &Folder) -> Result<(Self, usize)> {
        let mut inventory = Self::default();
        let layers = config.counts(&LAYERS).first().copied();
        let guessing: usize = config.counts(&["num_nextn_predict_layers"]).iter().sum();
        let mut modules: BTreeMap<&str, Vec<(&str, &Tensor)>> = BTreeMap::new();
        for (name, tensor) in folder.tensors() {
            let (module, part) = name.rsplit_once('.').unwrap_or(("", name));
            let layer = layer_of(name);
            let beyond = layer.zip(layers).filter(|(layer, layers)| layer >= layers);
            if is_left_out(name) || beyond.is_some_and(|(layer, layers)| layer < layers + guessing)
            {
                inventory
                    .others
                    .insert(name.to_owned(), "not loaded by mlx-lm");
                continue;
            }
            if let Some((layer, layers)) = beyond {
                let reason =
                    format!("{name} is in layer {layer}, but config.json has {layers} layers");
                return Err(Error::content(folder.path(), reason));
            }
            if let Some(layer) = layer {
                inventory
                    .layers
                    .entry(layer)
                    .or_default()
                    .insert(module.to_owned());
            }
            modules.entry(module).or_default().push((part, tensor));
        }
        for (module, parts) in modules {
            inventory.add(config, folder, module, &parts)?;
        }
        inventory.settle_head(config);
        inventory.check_layers(folder, layers)?;
        inventory.check_parts_of_layers();
        if config.flag("quantize_activations") {
            inventory.skip(
                "quantize_activations",
                "config.json requests products of quantized activations, which are not probed",
            );
        }
        if let Some(file) = config.text("model_file") {
            inventory.skip(file, "the model's own code, which may compute anything");
        }
        for file in &folder.unlisted {
            let reason = "the index does not list it, but mlx-lm reads it too; remove it if it does not belong to the model";
            inventory.skip(file.clone(), reason);
        }
        Ok((inventory, layers.unwrap_or(0)))
    }

    fn add(
        &mut self,
        config: &Config,
        folder: &Folder,
        module: &str,
        parts: &[(&str, &Tensor)],
    ) -> Result<()> {
        let get = |name: &str| {
            parts
                .iter()
                .find(|(part, _)| *part == name)
                .map(|&(_, tensor)| tensor)
        };
        if let Some(weight) = get("weight") {
            let foreign = parts.iter().find(|(part, _)| FOREIGN.contains(part));
            if let Some((part, _)) = foreign {
                self.skip(
                    module,
                    format!("packed by another tool (`{part}`): {CONVERT}"),
                );
            } else {
                self.add_weight(
                    config,
                    folder,
                    module,
                    weight,
                    get("global_scale").is_some(),
                )?;
            }
        } else if parts
            .iter()
            .any(|(part, _)| *part == "qweight" || FOREIGN.contains(part))
        {
            self.skip(module, format!("packed by another tool: {CONVERT}"));
        } else if get("scales").is_some() {
            return Err(Error::content(
                folder.path(),
                format!("{module}: has scales but no weight"),
            ));
        }
        let foreign = |part: &str| {
            FOREIGN.contains(&part)
                || ["weight", "scales", "biases", "global_scale"].contains(&part)
        };
        for &(part, tensor) in parts.iter().filter(|(part, _)| !foreign(part)) {
            let name = if module.is_empty() {
                part.to_owned()
            } else {
                format!("{module}.{part}")
            };
            if tensor.shape.len() <= 1 || part == "bias" {
                self.others.insert(name, "not a matrix");
            } else {
                let convert = if is_float(tensor) {
                    String::new()
                } else {
                    format!(": {CONVERT}")
                };
                let reason = format!(
                    "{:?} {:?}, with an unknown name{convert}",
                    tensor.dtype, tensor.shape
                );
                self.skip(name, reason);
            }
        }
        Ok(())
    }

    fn add_weight(
        &mut self,
        config: &Config,
        folder: &Folder,
        module: &str,
        weight: &Tensor,
        global_scale: bool,
    ) -> Result<()> {
        let quantization = format::quantization(config, folder, module)?;
        let shape = &weight.shape;
        let last = module.rsplit('.').next().unwrap_or(module);
        if quantization.is_none() && !is_float(weight) {
            self.skip(
                module,
                format!(
                    "{:?} without scales of MLX's names: {CONVERT}",
                    weight.dtype
                ),
            );
        } else if let [] | [_] = shape[..] {
            self.vectors
                .insert(module.to_owned(), shape.first().copied().unwrap_or(1));
            self.others
                .insert(format!("{module}.weight"), "not a matrix");
        } else if LOOKED_UP.contains(&last) {
            self.others.insert(module.to_owned(), "looked up");
        } else if is_of_experts(module) {
            self.skip(
                module,
                "one of several experts, which mlx-lm stacks and selects by a gather",
            );
        } else if global_scale {
            self.skip(module, "has a global scale, which is not probed");
        } else if let [n, columns] = shape[..] {
            let k = match quantization {
                None => columns,
                // The cast is safe: `format` has checked the value.
                Some(format) => columns * 32 / format.bits() as usize,
            };
            let product = Module {
                name: module.to_owned(),
                n,
                k,
                quantization,
                bias: folder.find(&format!("{module}.bias")).is_some(),
            };
            self.products.insert(module.to_owned(), product);
        } else if quantization.is_some() {
            let what = if module.contains("embed_q") || module.contains("unembed_out") {
                "one matrix per head"
            } else {
                "one matrix per expert, selected by a gather"
            };
            self.skip(module, format!("{shape:?}, {what}"));
        } else if module.contains("conv") {
            self.skip(
                module,
                format!("{shape:?}, a convolution, which is not probed"),
            );
        } else {
            self.skip(
                module,
                format!("{shape:?}, more than a matrix, not quantized"),
            );
        }
        Ok(())
    }

    /// Finds the head. The tensors decide: it is the embedding if there is no other matrix for it, or if the
    /// configuration ties the two.
    fn settle_head(&mut self, config: &Config) {
        let outside = |names: &[&str]| -> Vec<String> {
            let is = |name: &&String| {
                let last = name.rsplit('.').next().unwrap_or(name);
                names.contains(&last) && layer_of(name).is_none()
            };
            self.products.keys().filter(is).cloned().collect()
        };
        let (embeddings, heads) = (outside(&EMBEDDINGS), outside(&HEADS));
        if embeddings.is_empty() {
            self.skip("embedding", "no tensor with a known name");
        }
        if heads.is_empty() {
            if embeddings.is_empty() {
                self.skip("head", "no tensor with a known name");
            }
        } else if config.tied() == Some(true) && config.is_one_of(&TIES) && !embeddings.is_empty() {
            for head in heads {
                self.products.remove(&head);
                self.others.insert(
                    head,
                    "not loaded by mlx-lm, as config.json ties the head to the embedding",
                );
            }
        } else if config.tied() == Some(false) {
            for embedding in embeddings {
                self.products.remove(&embedding);
                self.others.insert(embedding, "looked up");
            }
        }
        // If both exist and the configuration does not decide, or the family ignores it (Gemma 3 uses the head that
        // exists), both are products here.
    }

    /// Fails unless every layer in the configuration has tensors.
    fn check_layers(&mut self, folder: &Folder, layers: Option<usize>) -> Result<()> {
        let Some(layers) = layers else {
            self.skip(
                "layers",
                "config.json does not state their number (`num_hidden_layers`)",
            );
            return Ok(());
        };
        // Higher layer numbers were rejected, so the difference is the number of missing layers.
        let missing = layers - self.layers.len();
        let Some(first) = (0..layers).find(|layer| !self.layers.contains_key(layer)) else {
            return Ok(());
        };
        let reason = format!(
            "config.json has {layers} layers, but {missing} of them have no tensors, the first is layer {first}; download the \
             model again"
        );
        Err(Error::content(folder.path(), reason))
    }

    /// Reports products outside attention that a layer lacks, compared with a layer that has all of its products
    /// and more, and with layers that share a part with it. Layers that share nothing, such as dense layers and layers
    /// with experts, are of different kinds.
    fn check_parts_of_layers(&mut self) {
        // Layers are compared by the names that their products would have in the first layer.
        let products = |modules: &BTreeSet<String>| -> BTreeSet<String> {
            let mixers = attention::mixers(modules);
            let is_meant = |module: &&String| {
                self.products.contains_key(*module) && !mixers.contains(module.as_str())
            };
            let meant = modules.iter().filter(is_meant);
            meant.map(|module| in_layer(module, 0)).collect()
        };
        let layers: BTreeMap<usize, BTreeSet<String>> = self
            .layers
            .iter()
            .map(|(&layer, modules)| (layer, products(modules)))
            .collect();
        let kinds: BTreeSet<&BTreeSet<String>> = layers.values().collect();
        let mut lacking = BTreeSet::new();
        for (layer, own) in &layers {
            for other in &kinds {
                let shared: BTreeSet<_> =
                    own.intersection(other).map(|name| parent(name)).collect();
                let is_due = |name: &&String| own.is_subset(other) || shared.contains(parent(name));
                let due = other.difference(own).filter(is_due);
                lacking.extend(due.map(|name| in_layer(name, *layer)).filter(|name| {
                    // Tensors that are not products are reported elsewhere.
                    !self.layers[layer].contains(name)
                }));
            }
        }
        for name in lacking {
            self.skip(name, "missing, but other layers have it");
        }
    }

    pub(super) fn skip(&mut self, name: impl Into<String>, reason: impl Into<String>) {
        self.skipped.push((name.into(), reason.into()));
    }

    /// The skipped items, identical ones once.
    pub(super) fn skipped(&self) -> Vec<String> {
        let mut skipped: Vec<_> = self.skipped.iter().collect();
        skipped.sort_by(|(a, _), (b, _)| super::order(a, b));
        let mut alike: Vec<(String, String, usize)> = Vec::new();
        for (name, reason) in skipped {
            let general = format!("{}: {reason}", without_numbers(name));
            match alike.iter_mut().find(|(other, ..)| *other == general) {
                Some((_, _, count)) => *count += 1,
                None => alike.push((general, name.clone(), 1)),
            }
        }
        let line = |(general, name, count): (String, String, usize)| {
            let (_, reason) = general.split_once(": ").unwrap_or_default();
            format!("{}: {reason}", named(&name, count))
        };
        alike.into_iter().map(line).collect()
    }

    /// The tensors that are not multiplied, in a few lines.
    pub(super) fn others(&self) -> Vec<String> {
        let mut counts: BTreeMap<(&str, String), (&str, usize)> = BTreeMap::new();
        for (name, why) in &self.others {
            let key = match *why {
                // Norms and biases, of which there are hundreds.
                "not a matrix" => String::new(),
                _ => name.split('.').next().unwrap_or(name).to_owned(),
            };
            counts.entry((why, key)).or_insert((name, 0)).1 += 1;
        }
        counts
            .into_iter()
            .map(|((why, _), (name, count))| format!("{}: {why}", named(name, count)))
            .collect()
    }

    /// The modules of a layer.
    pub(super) fn of_layer(&self, layer: usize) -> Vec<&str> {
        let modules = self.layers.get(&layer).into_iter().flatten();
        modules.map(String::as_str).collect()
    }

    /// The type of the rows: that of the embedding's output, which no tensor list contains.
    pub(super) fn dtype(folder: &Folder) -> Option<Dtype> {
        let of = |part: &str| {
            folder.tensors().find(|(name, _)| {
                let module = name.strip_suffix(part).unwrap_or_default();
                EMBEDDINGS.contains(&module.rsplit('.').next().unwrap_or(module))
                    && layer_of(name).is_none()
            })
        };
        let (_, tensor) = of(".scales").or_else(|| of(".weight"))?;
        Some(tensor.dtype)
    }

    /// Outputs and values of a product.
    pub(super) fn product(&self, name: &str) -> Option<(usize, usize)> {
        self.products
            .get(name)
            .map(|product| (product.n, product.k))
    }

    /// The length of a vector: the weight of a norm.
    pub(super) fn vector(&self, module: &str) -> Option<usize> {
        self.vectors.get(module).copied()
    }

    pub(super) fn has_sinks(&self, module: &str) -> bool {
        self.others.contains_key(&format!("{module}.sinks"))
    }
}

/// The layer of a tensor: the first number in its name.
pub(super) fn layer_of(name: &str) -> Option<usize> {
    name.split('.').find_map(|part| part.parse().ok())
}

/// The name of a layer's module in another layer.
fn in_layer(module: &str, layer: usize) -> String {
    let mut parts: Vec<&str> = module.split('.').collect();
    let number = layer.to_string();
    if let Some(part) = parts.iter_mut().find(|part| part.parse::<usize>().is_ok()) {
        *part = &number;
    }
    parts.join(".")
}

/// The name of the module's parent.
fn parent(module: &str) -> &str {
    module.rsplit_once('.').map_or("", |(parent, _)| parent)
}

/// Whether a module is one expert's, as in `experts.3.w1`.
fn is_of_experts(module: &str) -> bool {
    let mut parts = module
        .split('.')
        .skip_while(|part| !part.ends_with("experts"));
    parts.next().is_some()
        && parts
            .next()
            .is_some_and(|part| part.parse::<usize>().is_ok())
}

fn is_float(tensor: &Tensor) -> bool {
    matches!(tensor.dtype, Dtype::F16 | Dtype::BF16 | Dtype::F32)
}

fn is_left_out(name: &str) -> bool {
    name.split('.').any(|part| LEFT_OUT.contains(&part))
}

/// The name with a star for each number.
fn without_numbers(name: &str) -> String {
    let star = |part: &str| match part.parse::<usize>() {
        Ok(_) => "*".to_owned(),
        Err(_) => part.to_owned(),
    };
    name.split(['.', ' '])
        .map(star)
        .collect::<Vec<_>>()
        .join(".")
}
