//! Writes the model as a folder that mlx-lm and `mlx-lab probe --model` read: the same weights, bit for bit.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use mlx_overlay::f16;
use safetensors::tensor::{Dtype, TensorView};
use serde_json::json;

use crate::model::{MATRICES, NORMS, Weights};
use crate::text::Text;
use crate::weights::Packed;

/// mlx-lm's names for [`MATRICES`] and [`NORMS`].
const MLX_MATRICES: [&str; MATRICES.len()] = [
    "self_attn.q_proj",
    "self_attn.k_proj",
    "self_attn.v_proj",
    "self_attn.o_proj",
    "mlp.gate_proj",
    "mlp.up_proj",
    "mlp.down_proj",
];
const MLX_NORMS: [&str; NORMS.len()] = ["input_layernorm", "post_attention_layernorm"];

/// Writes a new folder, completely or not at all.
pub fn write(folder: &Path, weights: &Weights, text: &Text) -> Result<()> {
    ensure!(
        fs_err::symlink_metadata(folder).is_err(),
        "{} already exists: choose another folder",
        folder.display()
    );
    let mut name = folder
        .file_name()
        .context("the folder has no name")?
        .to_owned();
    name.push(".partial");
    let partial = folder.with_file_name(name);
    ensure!(
        fs_err::symlink_metadata(&partial).is_err(),
        "{}, which is needed for temporary files, already exists: if no other run uses it, remove it",
        partial.display()
    );
    fs_err::create_dir(&partial)?;
    let written =
        write_files(&partial, weights, text).and_then(|()| Ok(fs_err::rename(&partial, folder)?));
    if written.is_err() {
        // The first error is the one to report.
        let _ = fs_err::remove_dir_all(&partial);
    }
    written
}

fn write_files(folder: &Path, weights: &Weights, text: &Text) -> Result<()> {
    let json = |name: &str, value: &serde_json::Value| -> Result<()> {
        Ok(fs_err::write(folder.join(name), format!("{value:#}\n"))?)
    };
    json("config.json", &config(weights, text))?;
    json(
        "tokenizer_config.json",
        &json!({
            "tokenizer_class": "PreTrainedTokenizerFast",
            "eos_token": text.name(text.end()),
            "chat_template": text.template(),
        }),
    )?;
    fs_err::write(folder.join("tokenizer.json"), text.to_json()?)?;
    let file = folder.join("model.safetensors");
    let bytes = safetensors(weights)?;
    fs_err::write(file, bytes)?;
    Ok(())
}

fn config(weights: &Weights, text: &Text) -> serde_json::Value {
    let config = &weights.config;
    let bits = weights
        .layers
        .first()
        .map_or(4, |(matrices, _)| matrices[0].bits);
    let mut quantization = json!({ "group_size": 32, "bits": bits, "mode": "affine" });
    for (name, packed) in matrices(weights) {
        if packed.bits != bits {
            quantization[name] = json!({ "group_size": 32, "bits": packed.bits, "mode": "affine" });
        }
    }
    json!({
        "model_type": "llama",
        "hidden_size": config.hidden,
        "num_hidden_layers": config.layers,
        "intermediate_size": config.inner,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.kv_heads,
        "head_dim": config.head_dim,
        "vocab_size": config.vocabulary,
        "max_position_embeddings": config.context,
        "rms_norm_eps": config.eps,
        "rope_theta": config.rope_base,
        "tie_word_embeddings": true,
        "eos_token_id": text.end(),
        "quantization": quantization,
    })
}

/// Every matrix with mlx-lm's name.
fn matrices(weights: &Weights) -> impl Iterator<Item = (String, &Packed)> {
    let layers = weights.layers.iter().enumerate();
    let layers = layers.flat_map(|(layer, (matrices, _))| {
        let names = MLX_MATRICES.iter().zip(matrices);
        names.map(move |(name, packed)| (format!("model.layers.{layer}.{name}"), packed))
    });
    layers.chain([("model.embed_tokens".to_owned(), &weights.embedding)])
}

/// Every norm with mlx-lm's name.
fn norms(weights: &Weights) -> impl Iterator<Item = (String, &[f16])> {
    let layers = weights.layers.iter().enumerate();
    let layers = layers.flat_map(|(layer, (_, norms))| {
        let names = MLX_NORMS.iter().zip(norms);
        names.map(move |(name, norm)| (format!("model.layers.{layer}.{name}"), norm.as_slice()))
    });
    layers.chain([("model.norm".to_owned(), weights.norm.as_slice())])
}

fn safetensors(weights: &Weights) -> Result<Vec<u8>> {
    let halves = |values: &[f16]| -> Vec<u8> {
        values
            .iter()
            .flat_map(|value| value.to_le_bytes())
            .collect()
    };
    let mut tensors: Vec<(String, Dtype, Vec<usize>, Vec<u8>)> = Vec::new();
    for (name, packed) in matrices(weights) {
        let [rows, columns] = packed.shape;
        let words = packed.words.iter().flat_map(|word| word.to_le_bytes());
        let groups = vec![rows, columns / 32];
        tensors.push((
            format!("{name}.weight"),
            Dtype::U32,
            vec![rows, columns * packed.bits as usize / 32],
            words.collect(),
        ));
        let scales = halves(&packed.scales);
        tensors.push((format!("{name}.scales"), Dtype::F16, groups.clone(), scales));
        let biases = halves(&packed.biases);
        tensors.push((format!("{name}.biases"), Dtype::F16, groups, biases));
    }
    for (name, norm) in norms(weights) {
        tensors.push((
            format!("{name}.weight"),
            Dtype::F16,
            vec![norm.len()],
            halves(norm),
        ));
    }
    let views = tensors
        .iter()
        .map(|(name, dtype, shape, bytes)| {
            Ok((name, TensorView::new(*dtype, shape.clone(), bytes)?))
        })
        .collect::<Result<Vec<_>>>()?;
    // mlx-lm requires this line.
    let metadata = [("format".to_owned(), "mlx".to_owned())];
    Ok(safetensors::serialize(views, Some(metadata.into()))?)
}
