//! A model folder of two small layers with random weights.

use std::collections::HashMap;

use mlx_lab::values::Noise;
use mlx_overlay::{Dtype, Quantization, QuantizedMatrix, as_type};
use safetensors::Dtype as Stored;
use safetensors::tensor::{TensorView, serialize_to_file};
use tempfile::TempDir;

struct Tensor {
    name: String,
    dtype: Stored,
    shape: Vec<usize>,
    bytes: Vec<u8>,
}

/// The contents of a folder in addition to the weights of its layers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum More {
    /// A dense matrix.
    Router,
    /// Matrices from which a gather picks, quantized and not.
    Experts,
}

const LAYERS: [&str; 2] = ["model.layers.0", "model.layers.1"];

/// Writes `config.json` and a safetensors file.
pub(crate) fn write(more: More) -> TempDir {
    let mut noise = Noise::new(11);
    let mut tensors = Vec::new();
    let affine = Quantization::affine(4, 64).unwrap();
    let other = Quantization::affine(8, 32).unwrap();
    let own = "model.layers.0.mlp.gate_proj";
    for layer in LAYERS {
        for (name, n) in [
            ("self_attn.q_proj", 512),
            ("self_attn.k_proj", 128),
            ("self_attn.v_proj", 128),
            ("self_attn.o_proj", 512),
            ("mlp.gate_proj", 512),
            ("mlp.up_proj", 512),
            ("mlp.down_proj", 512),
        ] {
            let name = format!("{layer}.{name}");
            let format = if name == own { other } else { affine };
            matrix(&mut tensors, &mut noise, &name, [n, 512], format);
        }
        for norm in ["input_layernorm", "post_attention_layernorm"] {
            vector(&mut tensors, &format!("{layer}.{norm}"), 512);
        }
    }
    match more {
        More::Router => {
            for layer in LAYERS {
                let name = format!("{layer}.mlp.router.weight");
                tensors.push(zeros(&name, Stored::BF16, &[64, 512]));
            }
        }
        More::Experts => {
            for (part, dtype, columns) in [
                ("weight", Stored::U32, 64),
                ("scales", Stored::BF16, 8),
                ("biases", Stored::BF16, 8),
            ] {
                let name = format!("model.layers.1.mlp.switch_mlp.up_proj.{part}");
                tensors.push(zeros(&name, dtype, &[2, 512, columns]));
            }
            let name = "model.layers.1.mlp.switch_mlp.down_proj.weight";
            tensors.push(zeros(name, Stored::BF16, &[2, 16, 512]));
        }
    }
    matrix(
        &mut tensors,
        &mut noise,
        "model.embed_tokens",
        [64, 512],
        affine,
    );
    matrix(
        &mut tensors,
        &mut noise,
        "lm_head",
        [64, 512],
        Quantization::Mxfp4,
    );
    vector(&mut tensors, "model.norm", 512);

    let folder = tempfile::tempdir().unwrap();
    let config = serde_json::json!({
        "model_type": "llama",
        "hidden_size": 512,
        "intermediate_size": 512,
        "num_hidden_layers": 2,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "head_dim": 64,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "tie_word_embeddings": false,
        "quantization": {
            "bits": 4,
            "group_size": 64,
            (own): {"bits": 8, "group_size": 32},
            "lm_head": {"mode": "mxfp4", "bits": 4, "group_size": 32},
        },
    });
    std::fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
    let views: HashMap<String, TensorView<'_>> = tensors
        .iter()
        .map(|tensor| {
            let view = TensorView::new(tensor.dtype, tensor.shape.clone(), &tensor.bytes);
            (tensor.name.clone(), view.unwrap())
        })
        .collect();
    serialize_to_file(views, None, &folder.path().join("model.safetensors")).unwrap();
    folder
}

fn matrix(
    tensors: &mut Vec<Tensor>,
    noise: &mut Noise,
    name: &str,
    shape: [usize; 2],
    format: Quantization,
) {
    let matrix: QuantizedMatrix = noise.matrix(shape, format, Dtype::F32, 1.0).unwrap();
    let mut add = |part: &str, dtype, shape: &[usize], bytes: Vec<u8>| {
        tensors.push(Tensor {
            name: format!("{name}.{part}"),
            dtype,
            shape: shape.to_vec(),
            bytes,
        });
    };
    let words: Vec<u32> = matrix.packed().to_vec().unwrap();
    let bytes = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    add("weight", Stored::U32, matrix.packed().shape(), bytes);
    let shape = matrix.scales().shape();
    match matrix.biases() {
        None => add(
            "scales",
            Stored::U8,
            shape,
            matrix.scales().to_vec().unwrap(),
        ),
        Some(biases) => {
            for (part, array) in [("scales", matrix.scales()), ("biases", biases)] {
                let half: Vec<mlx_overlay::bf16> =
                    as_type(array, Dtype::Bf16).unwrap().to_vec().unwrap();
                let bytes = half.iter().flat_map(|value| value.to_le_bytes()).collect();
                add(part, Stored::BF16, shape, bytes);
            }
        }
    }
}

fn zeros(name: &str, dtype: Stored, shape: &[usize]) -> Tensor {
    let values: usize = shape.iter().product();
    Tensor {
        name: name.to_owned(),
        dtype,
        shape: shape.to_vec(),
        bytes: vec![0; values * dtype.bitsize() / 8],
    }
}

fn vector(tensors: &mut Vec<Tensor>, name: &str, length: usize) {
    tensors.push(Tensor {
        name: format!("{name}.weight"),
        dtype: Stored::BF16,
        shape: vec![length],
        bytes: mlx_overlay::bf16::ONE.to_le_bytes().repeat(length),
    });
}
