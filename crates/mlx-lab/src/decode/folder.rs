//! A model folder of the Llama or Qwen3 family, as `mlx_lm` writes it.

use std::path::Path;
use std::rc::Rc;

use mlx_overlay::{Array, QuantizedMatrix, transpose};

use super::transformer::{Embedding, Layer, Linear, Shape, Transformer};
use crate::model::{Attention, Config, Folder, quantization};
use crate::values::settled;
use crate::{Error, Result};

/// The families that are computed as [`Transformer`] does.
const FAMILIES: [&str; 2] = ["llama", "qwen3"];

impl Transformer {
    /// Reads a folder: `config.json` and all safetensors.
    ///
    /// # Errors
    /// [`Error::File`] or [`Error::Content`], with the tensor where it is about one; for another
    /// family, and for scaled rotary positions.
    pub fn read(folder: &Path) -> Result<Self> {
        let config = Config::read(folder)?;
        if !FAMILIES.contains(&config.kind()) {
            return Err(config.error(format!(
                "model_type is \"{}\", expected {}",
                config.kind(),
                FAMILIES.join(" or ")
            )));
        }
        let (rope_base, scaling) = config.rope("full_attention");
        if scaling != "default" {
            let reason =
                format!("rotary positions are scaled ({scaling}), which is not computed here");
            return Err(config.error(reason));
        }
        let kinds = config.texts("layer_types").unwrap_or_default();
        if let Some(kind) = kinds.iter().find(|kind| **kind != "full_attention") {
            return Err(config.error(format!("a layer is of {kind}, which is not computed here")));
        }
        let Some((attention, hidden)) = config.attention()? else {
            return Err(config.error("no hidden_size and num_attention_heads"));
        };
        let Attention {
            heads,
            kv_heads,
            head_dim,
            layers: count,
            ..
        } = attention;
        let weights = Weights {
            config: &config,
            folder: Folder::open(folder)?,
        };
        let embedding = weights.embedding("model.embed_tokens")?;
        // Tensors decide; mlx-lm ties Llama's unless told otherwise.
        let tied = config.tied().unwrap_or(config.kind() == "llama");
        let head = if tied || weights.folder.find("lm_head.weight").is_none() {
            match &embedding {
                Embedding::Quantized(matrix) => Linear::Quantized(matrix.clone(), None),
                Embedding::Dense(matrix) => Linear::Dense(transpose(matrix)?, None),
            }
        } else {
            weights.linear("lm_head")?
        };
        let layers = (0..count)
            .map(|i| Ok(Rc::new(weights.layer(&format!("model.layers.{i}"))?)))
            .collect::<Result<_>>()?;
        let vocabulary = match &embedding {
            Embedding::Quantized(matrix) => matrix.rows(),
            Embedding::Dense(matrix) => matrix.shape()[0],
        };
        Ok(Self {
            shape: Shape {
                vocabulary,
                hidden,
                layers: count,
                heads,
                kv_heads,
                head_dim,
                intermediate: config.count("intermediate_size")?,
                rope_base: rope_base as f32,
                eps: config.require("rms_norm_eps")? as f32,
            },
            embedding,
            layers,
            norm: weights.folder.load("model.norm.weight")?,
            head,
        })
    }
}

struct Weights<'a> {
    config: &'a Config,
    folder: Folder,
}

impl Weights<'_> {
    fn layer(&self, prefix: &str) -> Result<Layer> {
        let linear = |name: &str| self.linear(&format!("{prefix}.{name}"));
        let norm = |name: &str| self.folder.load(&format!("{prefix}.{name}.weight"));
        let optional = |name: &str| self.optional(&format!("{prefix}.{name}.weight"));
        Ok(Layer {
            input_norm: norm("input_layernorm")?,
            q: linear("self_attn.q_proj")?,
            k: linear("self_attn.k_proj")?,
            v: linear("self_attn.v_proj")?,
            q_norm: optional("self_attn.q_norm")?,
            k_norm: optional("self_attn.k_norm")?,
            o: linear("self_attn.o_proj")?,
            post_norm: norm("post_attention_layernorm")?,
            gate: linear("mlp.gate_proj")?,
            up: linear("mlp.up_proj")?,
            down: linear("mlp.down_proj")?,
        })
    }

    fn linear(&self, module: &str) -> Result<Linear> {
        let bias = self.optional(&format!("{module}.bias"))?;
        match self.quantized(module)? {
            Some(matrix) => Ok(Linear::Quantized(matrix, bias)),
            None => {
                let weight = self.dense(module)?;
                Ok(Linear::Dense(transpose(&weight)?, bias))
            }
        }
    }

    fn embedding(&self, module: &str) -> Result<Embedding> {
        match self.quantized(module)? {
            Some(matrix) => Ok(Embedding::Quantized(matrix)),
            None => Ok(Embedding::Dense(self.dense(module)?)),
        }
    }

    fn quantized(&self, module: &str) -> Result<Option<QuantizedMatrix>> {
        let Some(format) = quantization(self.config, &self.folder, module)? else {
            return Ok(None);
        };
        let load = |part: &str| self.folder.load(&format!("{module}.{part}"));
        let biases = if format.has_biases() {
            Some(load("biases")?)
        } else {
            None
        };
        let matrix = QuantizedMatrix::from_parts(load("weight")?, load("scales")?, biases, format);
        matrix.map(Some).map_err(|error| self.about(module, &error))
    }

    fn dense(&self, module: &str) -> Result<Array> {
        let weight = self.folder.load(&format!("{module}.weight"))?;
        if weight.shape().len() != 2 {
            return Err(self.about(module, &format!("{:?} is no matrix", weight.shape())));
        }
        settled(&weight)
    }

    fn optional(&self, tensor: &str) -> Result<Option<Array>> {
        self.folder
            .find(tensor)
            .map(|_| self.folder.load(tensor))
            .transpose()
    }

    fn about(&self, module: &str, reason: &dyn std::fmt::Display) -> Error {
        Error::content(self.folder.path(), format!("{module}: {reason}"))
    }
}
