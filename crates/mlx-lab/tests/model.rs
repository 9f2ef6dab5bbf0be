//! How a model folder is read: what is a product, what is not, and what is rejected.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use mlx_lab::model::{Attention, Model};
use mlx_lab::probe::{self, Options};
use mlx_overlay::RowPolicy;
use safetensors::Dtype;
use safetensors::tensor::{TensorView, serialize_to_file};
use serde_json::{Value, json};
use tempfile::TempDir;

/// A folder before it is written.
#[derive(Clone)]
struct Spec {
    config: Value,
    tensors: Vec<(String, Dtype, Vec<usize>)>,
}

impl Spec {
    /// Two layers of 128 values, 4 heads over 2 of 32, and a separate head; affine, 4 bits in groups of 64.
    fn new() -> Self {
        let mut spec = Self {
            config: json!({
                "model_type": "llama", "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2,
                "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "rms_norm_eps": 1e-5,
                "vocab_size": 64, "tie_word_embeddings": false,
                "quantization": {"bits": 4, "group_size": 64},
            }),
            tensors: Vec::new(),
        };
        for layer in 0..2 {
            let name = |part: &str| format!("model.layers.{layer}.{part}");
            spec.matrix(&name("self_attn.q_proj"), 128, 128, 4, 64);
            spec.matrix(&name("self_attn.k_proj"), 64, 128, 4, 64);
            spec.matrix(&name("self_attn.v_proj"), 64, 128, 4, 64);
            spec.matrix(&name("self_attn.o_proj"), 128, 128, 4, 64);
            spec.matrix(&name("mlp.gate_proj"), 256, 128, 4, 64);
            spec.matrix(&name("mlp.up_proj"), 256, 128, 4, 64);
            spec.matrix(&name("mlp.down_proj"), 128, 256, 4, 64);
            spec.tensor(&name("input_layernorm.weight"), Dtype::BF16, &[128]);
        }
        spec.matrix("model.embed_tokens", 64, 128, 4, 64);
        spec.matrix("lm_head", 64, 128, 4, 64);
        spec.tensor("model.norm.weight", Dtype::BF16, &[128]);
        spec
    }

    fn tensor(&mut self, name: &str, dtype: Dtype, shape: &[usize]) {
        self.tensors.push((name.to_owned(), dtype, shape.to_vec()));
    }

    /// Adds an affine matrix; replaces one with that name.
    fn matrix(&mut self, name: &str, n: usize, k: usize, bits: usize, group: usize) {
        self.remove(name);
        self.tensor(&format!("{name}.weight"), Dtype::U32, &[n, k * bits / 32]);
        for part in ["scales", "biases"] {
            self.tensor(&format!("{name}.{part}"), Dtype::BF16, &[n, k / group]);
        }
    }

    /// Adds a matrix in a format with 8-bit scales.
    fn block_scaled(&mut self, name: &str, n: usize, k: usize, bits: usize, group: usize) {
        self.remove(name);
        self.tensor(&format!("{name}.weight"), Dtype::U32, &[n, k * bits / 32]);
        self.tensor(&format!("{name}.scales"), Dtype::U8, &[n, k / group]);
    }

    /// Removes a module or a tensor.
    fn remove(&mut self, name: &str) {
        self.tensors
            .retain(|(tensor, ..)| tensor != name && tensor.rsplit_once('.').unwrap().0 != name);
    }

    fn write(&self) -> TempDir {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("config.json"), self.config.to_string()).unwrap();
        write(&self.tensors, &folder.path().join("model.safetensors"));
        folder
    }

    /// Writes two files and an index.
    fn write_sharded(&self) -> TempDir {
        let folder = self.write();
        fs::remove_file(folder.path().join("model.safetensors")).unwrap();
        let (first, second) = self.tensors.split_at(self.tensors.len() / 2);
        let mut map = serde_json::Map::new();
        for (name, tensors) in [(SHARDS[0], first), (SHARDS[1], second)] {
            write(tensors, &folder.path().join(name));
            map.extend(
                tensors
                    .iter()
                    .map(|(tensor, ..)| (tensor.clone(), name.into())),
            );
        }
        let index = json!({"metadata": {}, "weight_map": map});
        fs::write(
            folder.path().join("model.safetensors.index.json"),
            index.to_string(),
        )
        .unwrap();
        folder
    }

    fn read(&self) -> mlx_lab::Result<Model> {
        Model::read(self.write().path())
    }

    fn error(&self) -> String {
        self.read().unwrap_err().to_string()
    }
}

const SHARDS: [&str; 2] = [
    "model-00001-of-00002.safetensors",
    "model-00002-of-00002.safetensors",
];

fn write(tensors: &[(String, Dtype, Vec<usize>)], path: &Path) {
    let bytes: Vec<Vec<u8>> = tensors
        .iter()
        .map(|(_, dtype, shape)| vec![0; shape.iter().product::<usize>() * dtype.bitsize() / 8])
        .collect();
    let views: HashMap<&str, TensorView<'_>> = tensors
        .iter()
        .zip(&bytes)
        .map(|((name, dtype, shape), bytes)| {
            (
                name.as_str(),
                TensorView::new(*dtype, shape.clone(), bytes).unwrap(),
            )
        })
        .collect();
    serialize_to_file(views, None, path).unwrap();
}

/// Shapes with their counts.
fn products(model: &Model) -> Vec<(String, usize)> {
    model
        .layers
        .iter()
        .map(|layer| (layer.product.to_string(), layer.count))
        .collect()
}

fn format_of(model: &Model, name: &str) -> String {
    let layer = model
        .layers
        .iter()
        .find(|layer| layer.product.name == name)
        .unwrap();
    layer.product.shape()
}

fn has(texts: &[String], part: &str) -> bool {
    texts.iter().any(|text| text.contains(part))
}

#[test]
fn a_whole_model_is_all_products() {
    let model = Spec::new().read().unwrap();
    let expected = [
        ("model.layers.0.self_attn.q_proj=128x128:4:64", 4),
        ("model.layers.0.self_attn.k_proj=64x128:4:64", 5),
        ("model.layers.0.mlp.gate_proj=256x128:4:64", 4),
        ("model.layers.0.mlp.down_proj=128x256:4:64", 2),
    ];
    assert_eq!(
        products(&model),
        expected.map(|(name, count)| (name.to_owned(), count))
    );
    assert!(model.skipped.is_empty(), "{:?}", model.skipped);
    assert!(
        has(&model.others, "model.embed_tokens: looked up"),
        "{:?}",
        model.others
    );
    let attention = Attention {
        heads: 4,
        kv_heads: 2,
        head_dim: 32,
        value_dim: 32,
        sinks: false,
        window: None,
        layers: 2,
    };
    assert_eq!(model.attention, [attention]);
}

#[test]
fn shards_that_are_missing_are_named() {
    let spec = Spec::new();
    let folder = spec.write_sharded();
    Model::read(folder.path()).unwrap();
    fs::remove_file(folder.path().join(SHARDS[1])).unwrap();
    let error = Model::read(folder.path()).unwrap_err().to_string();
    assert!(
        error.contains("index.json: lists 2 files, but 1 of them is missing: model-00002-of-00002"),
        "{error}"
    );
    // Without an index, the names show the number of shards.
    fs::remove_file(folder.path().join("model.safetensors.index.json")).unwrap();
    let error = Model::read(folder.path()).unwrap_err().to_string();
    assert!(error.contains("only 1 of 2 shards are present"), "{error}");

    // A file that lacks a tensor.
    let folder = spec.write_sharded();
    let shard = folder.path().join(SHARDS[0]);
    write(&spec.tensors[1..3], &shard);
    let error = Model::read(folder.path()).unwrap_err().to_string();
    assert!(error.contains("which does not have it"), "{error}");
}

#[test]
fn an_index_that_nothing_follows_is_stale() {
    let folder = Spec::new().write();
    let index = json!({"weight_map": {"a.weight": SHARDS[0], "b.weight": SHARDS[1]}});
    fs::write(
        folder.path().join("model.safetensors.index.json"),
        index.to_string(),
    )
    .unwrap();
    assert_eq!(
        Model::read(folder.path()).unwrap(),
        Spec::new().read().unwrap()
    );
}

#[test]
fn an_index_names_files_of_the_folder_alone() {
    let folder = Spec::new().write();
    for file in ["../model.safetensors", "/etc/passwd", "a/../../b", ""] {
        let index = json!({"weight_map": {"a.weight": file}});
        fs::write(
            folder.path().join("model.safetensors.index.json"),
            index.to_string(),
        )
        .unwrap();
        let error = Model::read(folder.path()).unwrap_err().to_string();
        assert!(error.contains("expected one below this folder"), "{error}");
    }
}

#[test]
fn other_files_are_not_the_model() {
    let folder = Spec::new().write();
    let stranger = [("mtp.fc.weight".to_owned(), Dtype::BF16, vec![64, 128])];
    for name in ["mtp.safetensors", "adapters.safetensors"] {
        write(&stranger, &folder.path().join(name));
    }
    fs::write(folder.path().join("._model.safetensors"), "AppleDouble").unwrap();
    assert_eq!(
        Model::read(folder.path()).unwrap(),
        Spec::new().read().unwrap()
    );

    // One tensor in two files.
    write(
        &Spec::new().tensors[..3],
        &folder.path().join("model-copy.safetensors"),
    );
    let error = Model::read(folder.path()).unwrap_err().to_string();
    assert!(
        error.contains("model-copy.safetensors: remove the file"),
        "{error}"
    );

    // A file that mlx-lm reads but the index does not list is not read here, and is reported.
    let folder = Spec::new().write_sharded();
    write(&stranger, &folder.path().join("model-more.safetensors"));
    let model = Model::read(folder.path()).unwrap();
    assert!(
        has(
            &model.skipped,
            "model-more.safetensors: the index does not list it"
        ),
        "{:?}",
        model.skipped
    );
}

#[test]
fn what_stands_in_the_place_of_a_file_is_named() {
    let lfs = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 1234\n";
    for (file, content, expected) in [
        ("model.safetensors", lfs, "is a Git LFS pointer"),
        ("config.json", lfs, "is a Git LFS pointer"),
        ("model.safetensors", "", "is empty"),
        ("config.json", "", "is empty"),
        (
            "model.safetensors",
            "<!DOCTYPE html>\n<html><body>429</body></html>",
            "is a web page",
        ),
        ("model.safetensors", "\u{1}", "is truncated"),
        ("config.json", "{\"a\": ", "EOF"),
    ] {
        let folder = Spec::new().write();
        fs::write(folder.path().join(file), content).unwrap();
        let error = Model::read(folder.path()).unwrap_err().to_string();
        assert!(error.contains(expected) && error.contains(file), "{error}");
    }
    let folder = Spec::new().write();
    let file = folder.path().join("model.safetensors");
    let bytes = fs::read(&file).unwrap();
    fs::write(&file, &bytes[..bytes.len() - 1]).unwrap();
    let error = Model::read(folder.path()).unwrap_err().to_string();
    assert!(
        error.contains("its length does not match its header"),
        "{error}"
    );
}

#[test]
fn a_fifo_is_not_waited_for() {
    for file in [
        "config.json",
        "model.safetensors",
        "model.safetensors.index.json",
    ] {
        let folder = Spec::new().write();
        let fifo = folder.path().join(file);
        let _ = fs::remove_file(&fifo);
        assert!(
            std::process::Command::new("mkfifo")
                .arg(&fifo)
                .status()
                .unwrap()
                .success()
        );
        let error = Model::read(folder.path()).unwrap_err().to_string();
        assert!(error.contains("is not a regular file"), "{error}");
        let error = Model::read(&fifo).unwrap_err().to_string();
        assert!(error.contains("expected a model folder"), "{error}");
    }
}

#[test]
fn promised_layers_must_be_there() {
    let mut spec = Spec::new();
    spec.config["num_hidden_layers"] = 4.into();
    let error = spec.error();
    assert!(
        error.contains("has 4 layers, but 2 of them have no tensors, the first is layer 2"),
        "{error}"
    );
    spec.config["num_hidden_layers"] = 1.into();
    let error = spec.error();
    assert!(
        error.contains("is in layer 1, but config.json has 1 layers"),
        "{error}"
    );
    // A layer that predicts further tokens, which mlx-lm does not load.
    spec.config["num_nextn_predict_layers"] = 1.into();
    let model = spec.read().unwrap();
    assert!(model.skipped.is_empty(), "{:?}", model.skipped);
    assert!(
        has(&model.others, "not loaded by mlx-lm"),
        "{:?}",
        model.others
    );

    let mut spec = Spec::new();
    spec.config
        .as_object_mut()
        .unwrap()
        .remove("num_hidden_layers");
    assert!(has(
        &spec.read().unwrap().skipped,
        "layers: config.json does not state their number"
    ));
}

#[test]
fn a_part_that_one_layer_lacks_is_named() {
    for part in [
        "mlp.down_proj",
        "mlp.up_proj",
        "self_attn.k_proj",
        "self_attn.v_proj",
        "self_attn.o_proj",
    ] {
        let mut spec = Spec::new();
        spec.remove(&format!("model.layers.1.{part}"));
        let skipped = spec.read().unwrap().skipped;
        assert_eq!(skipped.len(), 1, "{part}: {skipped:?}");
    }
    for (part, expected) in [("lm_head", 0), ("model.embed_tokens", 1)] {
        let mut spec = Spec::new();
        spec.remove(part);
        let skipped = spec.read().unwrap().skipped;
        assert_eq!(skipped.len(), expected, "{part}: {skipped:?}");
    }
}

/// The names that families give the parts of an MLP.
#[test]
fn a_layer_without_its_mlp_is_named() {
    const OWN: &[&str] = &["gate_proj", "up_proj", "down_proj"];
    for parts in [
        OWN,
        &["fc1", "fc2"],
        &["c_fc", "c_proj"],
        &["w1", "w2", "w3"],
        &["gate_up_proj", "down_proj"],
    ] {
        let mut whole = Spec::new();
        for layer in 0..2 {
            let name = |part: &str| format!("model.layers.{layer}.mlp.{part}");
            OWN.iter().for_each(|part| whole.remove(&name(part)));
            for part in parts {
                whole.matrix(&name(part), 128, 128, 4, 64);
            }
        }
        let skipped = whole.read().unwrap().skipped;
        assert!(skipped.is_empty(), "{skipped:?}");
        let without = |whole: &Spec, lacking: &[(usize, &str)]| {
            let mut spec = whole.clone();
            for (layer, part) in lacking {
                spec.remove(&format!("model.layers.{layer}.mlp.{part}"));
            }
            let skipped = spec.read().unwrap().skipped;
            assert_eq!(skipped.len(), lacking.len(), "{lacking:?}: {skipped:?}");
            for (layer, part) in lacking {
                let name = format!("model.layers.{layer}.mlp.{part}: missing");
                assert!(has(&skipped, &name), "{name}: {skipped:?}");
            }
        };
        let all: Vec<_> = parts.iter().map(|part| (1, *part)).collect();
        without(&whole, &all);
        without(&whole, &all[1..]);
        if let [first, _, .., last] = parts {
            without(&whole, &[(0, first), (1, last)]);
        }
        // Additional parts of each layer do not hide it.
        for layer in 0..2 {
            whole.matrix(
                &format!("model.layers.{layer}.per_layer_projection"),
                128,
                128,
                4,
                64,
            );
        }
        without(&whole, &all);
    }
    // A router instead of an MLP is not damage.
    let mut spec = Spec::new();
    for part in OWN {
        spec.remove(&format!("model.layers.1.mlp.{part}"));
    }
    spec.matrix("model.layers.1.mlp.gate", 64, 128, 8, 64);
    let skipped = spec.read().unwrap().skipped;
    assert!(!has(&skipped, ": missing"), "{skipped:?}");
}

#[test]
fn attention_is_not_exact_over_no_positions() {
    let options = Options {
        rows: vec![2],
        policies: vec![RowPolicy::NARROW],
        dtype: mlx_overlay::Dtype::Bf16,
        seeds: 1,
        outputs: None,
        contexts: Vec::new(),
        simulated: true,
    };
    let model = Spec::new().read().unwrap();
    let error = probe::model(&model, &options, &mut |_, _| ()).unwrap_err();
    assert!(error.to_string().contains("no positions"), "{error}");
}

#[test]
fn tensors_decide_what_the_head_is() {
    let count = |spec: &Spec| -> usize {
        spec.read()
            .unwrap()
            .layers
            .iter()
            .map(|layer| layer.count)
            .sum()
    };
    let mut spec = Spec::new();
    // 7 per layer, and the head.
    assert_eq!(count(&spec), 15);
    spec.config["tie_word_embeddings"] = true.into();
    let model = spec.read().unwrap();
    assert_eq!(count(&spec), 15);
    assert!(
        has(
            &model.others,
            "lm_head: not loaded by mlx-lm, as config.json ties"
        ),
        "{:?}",
        model.others
    );
    assert!(!has(&model.others, "embed_tokens"), "{:?}", model.others);
    // Gemma 3 uses the head that exists.
    spec.config["model_type"] = "gemma3_text".into();
    spec.config["layer_types"] = json!(["full_attention", "full_attention"]);
    assert_eq!(count(&spec), 16);
    spec.config["model_type"] = "llama".into();
    spec.config
        .as_object_mut()
        .unwrap()
        .remove("tie_word_embeddings");
    // The family decides, which is not known here: both are probed.
    assert_eq!(count(&spec), 16);
    for tied in [json!(true), json!(false), Value::Null] {
        let mut spec = Spec::new();
        spec.remove("lm_head");
        spec.config["tie_word_embeddings"] = tied;
        assert_eq!(count(&spec), 15);
    }
}

#[test]
fn look_ups_are_no_products() {
    let mut spec = Spec::new();
    spec.matrix("model.embed_tokens_per_layer", 64, 256, 4, 64);
    spec.tensor("model.position_embeddings.weight", Dtype::BF16, &[512, 128]);
    let model = spec.read().unwrap();
    assert!(model.dense.is_empty() && model.skipped.is_empty());
    assert_eq!(products(&model), products(&Spec::new().read().unwrap()));
    assert!(has(&model.others, "looked up"));
}

#[test]
fn what_other_tools_packed_is_not_exact() {
    for (module, parts) in [
        // AWQ, GPTQ; compressed-tensors; FP8; bitsandbytes.
        (
            "model.layers.0.mlp.up_proj",
            &[
                ("qweight", Dtype::I32),
                ("qzeros", Dtype::I32),
                ("scales", Dtype::F16),
            ][..],
        ),
        (
            "model.layers.0.mlp.up_proj",
            &[("weight_packed", Dtype::I32), ("weight_scale", Dtype::BF16)],
        ),
        (
            "model.layers.0.mlp.up_proj",
            &[("weight", Dtype::F8_E4M3), ("weight_scale_inv", Dtype::F32)],
        ),
        (
            "model.layers.0.mlp.up_proj",
            &[("weight", Dtype::U8), ("weight.absmax", Dtype::F32)],
        ),
        ("model.layers.0.mlp.up_proj", &[("weight", Dtype::U32)]),
        ("model.layers.0.mlp.up_proj", &[("weight", Dtype::F8_E5M2)]),
        ("model.layers.0.mlp.up_proj", &[("tensor", Dtype::U32)]),
    ] {
        let mut spec = Spec::new();
        spec.remove(module);
        for (part, dtype) in parts {
            spec.tensor(&format!("{module}.{part}"), *dtype, &[256, 16]);
        }
        let model = spec.read().unwrap();
        assert!(
            has(&model.skipped, "mlx_lm.convert"),
            "{parts:?}: {:?}",
            model.skipped
        );
        assert!(
            has(&model.skipped, module),
            "{parts:?}: {:?}",
            model.skipped
        );
        assert!(model.dense.is_empty(), "{parts:?}");
    }
    // A whole folder of AWQ: no product is recognized.
    let mut spec = Spec::new();
    let modules: Vec<String> = spec
        .tensors
        .iter()
        .filter_map(|(name, ..)| Some(name.strip_suffix(".scales")?.to_owned()))
        .collect();
    for module in modules {
        spec.remove(&module);
        for part in ["qweight", "qzeros", "scales"] {
            spec.tensor(&format!("{module}.{part}"), Dtype::I32, &[128, 8]);
        }
    }
    spec.config["quantization"] = Value::Null;
    spec.config["quantization_config"] =
        json!({"quant_method": "awq", "bits": 4, "group_size": 128});
    let model = spec.read().unwrap();
    assert!(model.layers.is_empty() && !model.skipped.is_empty());
}

#[test]
fn parts_of_one_matrix_fit_one_another() {
    for (part, dtype, shape, expected) in [
        (
            "scales",
            Dtype::BF16,
            &[64, 2][..],
            "its weight is [256, 16] and its scales are BF16 [64, 2]",
        ),
        ("biases", Dtype::BF16, &[128, 2], "expected the same"),
        ("biases", Dtype::F32, &[256, 2], "expected the same"),
        ("scales", Dtype::I8, &[256, 2], "expected the same"),
        (
            "weight",
            Dtype::I32,
            &[256, 16],
            "its weight is I32, expected U32",
        ),
        ("weight", Dtype::U32, &[256, 15], "no format of MLX fits"),
        ("scales", Dtype::BF16, &[256, 0], "has no elements"),
    ] {
        let mut spec = Spec::new();
        let name = format!("model.layers.1.mlp.up_proj.{part}");
        for tensor in spec
            .tensors
            .iter_mut()
            .filter(|(tensor, ..)| *tensor == name)
        {
            (tensor.1, tensor.2) = (dtype, shape.to_vec());
        }
        let error = spec.error();
        assert!(
            error.contains("model.layers.1.mlp.up_proj") && error.contains(expected),
            "{error}"
        );
    }
    for (part, expected) in [
        ("weight", "has scales but no weight"),
        ("biases", "has scales but no biases"),
    ] {
        let mut spec = Spec::new();
        spec.remove(&format!("model.layers.1.mlp.up_proj.{part}"));
        let error = spec.error();
        assert!(error.contains(expected), "{error}");
    }
    let mut spec = Spec::new();
    spec.remove("model.layers.1.mlp.up_proj.scales");
    assert!(has(&spec.read().unwrap().skipped, "U32 without scales"));
}

/// An entry is passed to `to_quantized` unchanged: nothing is taken from the common entry.
#[test]
fn an_override_has_the_defaults_of_its_own_mode() {
    let up = "model.layers.0.mlp.up_proj";
    let mut spec = Spec::new();
    for (name, n, k) in [("mlp.gate_proj", 256, 128), ("mlp.down_proj", 128, 256)] {
        spec.block_scaled(&format!("model.layers.0.{name}"), n, k, 4, 32);
    }
    spec.config["quantization"] = json!({
        "bits": 4, "group_size": 32, "mode": "mxfp4", (up): {"group_size": 64, "bits": 8},
    });
    spec.matrix(up, 256, 128, 8, 64);
    let model = spec.read().unwrap();
    assert_eq!(format_of(&model, up), "256x128:8:64");
    assert_eq!(
        format_of(&model, "model.layers.0.mlp.gate_proj"),
        "256x128:mxfp4"
    );

    spec.config["quantization"][up] = json!({"bits": 8});
    assert_eq!(format_of(&spec.read().unwrap(), up), "256x128:8:64");
    spec.config["quantization"][up] = json!({"mode": "nvfp4"});
    spec.block_scaled(up, 256, 128, 4, 16);
    assert_eq!(format_of(&spec.read().unwrap(), up), "256x128:nvfp4");
    for (entry, expected) in [
        (
            json!({"mode": "nvfp4", "bits": 8}),
            "expected 4 in mode nvfp4",
        ),
        (
            json!({"mode": "int4"}),
            "expected affine, mxfp4, mxfp8 or nvfp4",
        ),
        (
            json!({"bits": 4}),
            "config.json says 4:64, but its weight is",
        ),
        (json!(false), "says that it is not quantized"),
        (json!({}), "says that it is not quantized"),
        (json!(3), "expected an object, true or false"),
    ] {
        spec.config["quantization"][up] = entry;
        let error = spec.error();
        assert!(error.contains(expected) && error.contains(up), "{error}");
    }
    // An entry for a module without scales.
    let mut spec = Spec::new();
    spec.remove(up);
    spec.tensor(&format!("{up}.weight"), Dtype::BF16, &[256, 128]);
    assert_eq!(spec.read().unwrap().dense.len(), 1);
    spec.config["quantization"][up] = json!({"bits": 4, "group_size": 64});
    assert!(
        spec.error()
            .contains("config.json says 4:64, but it has no scales")
    );
}

/// 4 bits in groups of 64 and 8 in groups of 32 have the same ratio of weights to scales.
#[test]
fn shapes_decide_where_config_is_silent() {
    for (name, n, k) in [
        ("model.layers.1.mlp.up_proj", 256, 128),
        ("model.layers.1.mlp.down_proj", 128, 256),
        ("model.layers.1.self_attn.o_proj", 128, 128),
        ("model.embed_tokens", 64, 128),
    ] {
        let mut spec = Spec::new();
        if name == "model.embed_tokens" {
            spec.remove("lm_head");
        }
        for (bits, group) in [(8, 32), (8, 64), (2, 128), (6, 64), (3, 32)] {
            spec.matrix(name, n, k, bits, group);
            let model = spec.read().unwrap();
            assert_eq!(format_of(&model, name), format!("{n}x{k}:{bits}:{group}"));
        }
        spec.block_scaled(name, n, k, 8, 32);
        assert_eq!(
            format_of(&spec.read().unwrap(), name),
            format!("{n}x{k}:mxfp8")
        );
    }
}

#[test]
fn the_quantization_may_be_in_text_config() {
    let mut spec = Spec::new();
    let Value::Object(mut fields) = spec.config.take() else {
        panic!()
    };
    let kind = fields.remove("model_type").unwrap();
    spec.config = json!({"model_type": kind, "text_config": fields});
    assert_eq!(spec.read().unwrap(), Spec::new().read().unwrap());
    spec.config["text_config"]["quantization"] = Value::Null;
    assert!(
        spec.error()
            .contains("has scales, but config.json has no `quantization`")
    );
}

#[test]
fn config_is_what_python_writes() {
    let folder = Spec::new().write();
    let path = folder.path().join("config.json");
    let text = fs::read_to_string(&path).unwrap();
    let text = text.replacen('{', "{\"a\": Infinity, \"b\": [-Infinity, NaN], ", 1);
    fs::write(&path, text).unwrap();
    Model::read(folder.path()).unwrap();
}

#[test]
fn each_shape_of_attention_is_found() {
    let mut spec = Spec::new();
    // As in Gemma 4: the second layer is global, with heads of another size and no values of its own.
    let layer = "model.layers.1.self_attn";
    spec.matrix(&format!("{layer}.q_proj"), 4 * 64, 128, 4, 64);
    spec.matrix(&format!("{layer}.k_proj"), 64, 128, 4, 64);
    spec.remove(&format!("{layer}.v_proj"));
    spec.matrix(&format!("{layer}.o_proj"), 128, 4 * 64, 4, 64);
    for (name, value) in [
        ("global_head_dim", json!(64)),
        ("num_global_key_value_heads", json!(1)),
        ("attention_k_eq_v", json!(true)),
        ("sliding_window", json!(512)),
        (
            "layer_types",
            json!(["sliding_attention", "full_attention"]),
        ),
    ] {
        spec.config[name] = value;
    }
    let model = spec.read().unwrap();
    assert!(model.skipped.is_empty(), "{:?}", model.skipped);
    let shapes: Vec<_> = model
        .attention
        .iter()
        .map(|a| (a.heads, a.kv_heads, a.head_dim, a.window))
        .collect();
    assert_eq!(shapes, [(4, 2, 32, Some(512)), (4, 1, 64, None)]);

    // Without the setting that explains it.
    spec.config["global_head_dim"] = Value::Null;
    let model = spec.read().unwrap();
    assert_eq!(model.attention.len(), 1);
    assert!(
        has(
            &model.skipped,
            "model.layers.1.self_attn: its queries have 256 outputs, keys 64"
        ),
        "{:?}",
        model.skipped
    );

    // A gate next to the queries.
    let mut spec = Spec::new();
    spec.matrix("model.layers.1.self_attn.q_proj", 256, 128, 4, 64);
    let model = spec.read().unwrap();
    assert_eq!(
        (model.attention[0].layers, model.attention.len()),
        (2, 1),
        "{:?}",
        model.skipped
    );
    // Sinks.
    spec.tensor("model.layers.1.self_attn.sinks", Dtype::BF16, &[4]);
    assert_eq!(spec.read().unwrap().attention.len(), 2);
}

#[test]
fn other_mixers_are_named() {
    for (name, shape, expected) in [
        (
            "self_attn.kv_a_proj_with_mqa.weight",
            &[64, 128][..],
            "latent attention",
        ),
        (
            "linear_attn.in_proj.weight",
            &[64, 128],
            "mixes positions by `linear_attn`",
        ),
        (
            "mixer.conv1d.weight",
            &[64, 4, 1],
            "mixes positions by `mixer`",
        ),
    ] {
        let mut spec = Spec::new();
        for part in ["q_proj", "k_proj", "v_proj", "o_proj"] {
            spec.remove(&format!("model.layers.1.self_attn.{part}"));
        }
        spec.tensor(&format!("model.layers.1.{name}"), Dtype::BF16, shape);
        let skipped = spec.read().unwrap().skipped;
        assert!(has(&skipped, expected), "{skipped:?}");
    }
    for (field, value, expected) in [
        ("attn_logit_softcapping", json!(50.0), "scores are capped"),
        (
            "layer_types",
            json!(["full_attention", "linear_attention"]),
            "layer 1: config.json calls it linear_attention",
        ),
        (
            "layer_types",
            json!(["full_attention", "sliding_attention"]),
            "no `sliding_window`",
        ),
        (
            "num_attention_heads",
            json!(3),
            "do not match any head counts",
        ),
    ] {
        let mut spec = Spec::new();
        spec.config[field] = value;
        spec.config["head_dim"] = Value::Null;
        let skipped = spec.read().unwrap().skipped;
        assert!(has(&skipped, expected), "{skipped:?}");
    }
}

/// No count may cause a panic or an endless loop.
#[test]
fn numbers_without_sense_are_no_counts() {
    for field in [
        "head_dim",
        "hidden_size",
        "num_hidden_layers",
        "num_attention_heads",
        "num_key_value_heads",
    ] {
        for value in [
            json!(1u64 << 62),
            json!(1u64 << 63),
            json!(u64::MAX),
            json!(-1),
            json!(0),
            json!("x"),
            json!(1.5),
        ] {
            let mut spec = Spec::new();
            spec.config[field] = value;
            // An error, something skipped, or a field that the tensors can replace.
            let _ = spec.read();
        }
    }
}

#[test]
fn vision_and_guessing_layers_are_left_out() {
    let mut spec = Spec::new();
    spec.tensor(
        "vision_tower.blocks.7.attn.qkv.weight",
        Dtype::BF16,
        &[96, 32],
    );
    spec.tensor("mtp.layers.0.mlp.up_proj.weight", Dtype::BF16, &[96, 32]);
    let model = spec.read().unwrap();
    assert!(model.dense.is_empty() && model.skipped.is_empty());
    assert!(has(
        &model.others,
        "vision_tower.blocks.7.attn.qkv.weight: not loaded by mlx-lm"
    ));
}

/// Separate experts, as other tools leave them: mlx-lm stacks them.
#[test]
fn single_experts_are_no_products() {
    let mut spec = Spec::new();
    for expert in 0..2 {
        spec.matrix(
            &format!("model.layers.0.mlp.experts.{expert}.w1"),
            256,
            128,
            4,
            64,
        );
        spec.tensor(
            &format!("model.layers.0.block_sparse_moe.experts.{expert}.w2.weight"),
            Dtype::BF16,
            &[128, 256],
        );
    }
    let model = spec.read().unwrap();
    assert!(model.dense.is_empty());
    assert_eq!(products(&model), products(&Spec::new().read().unwrap()));
    let expected =
        "model.layers.0.mlp.experts.0.w1 and another: one of several experts, which mlx-lm stacks";
    assert!(has(&model.skipped, expected), "{:?}", model.skipped);
}

#[test]
fn what_is_computed_otherwise_is_named() {
    for (field, value, expected) in [
        (
            "quantize_activations",
            json!(true),
            "products of quantized activations",
        ),
        (
            "model_file",
            json!("model.py"),
            "model.py: the model's own code",
        ),
    ] {
        let mut spec = Spec::new();
        spec.config[field] = value;
        let skipped = spec.read().unwrap().skipped;
        assert!(has(&skipped, expected), "{skipped:?}");
    }
    // A second attention, a gate inside one, another mixer next to it, and a layer that has no kind.
    let mut spec = Spec::new();
    for (name, n) in [
        ("q_proj", 128),
        ("k_proj", 64),
        ("v_proj", 64),
        ("o_proj", 128),
    ] {
        spec.matrix(&format!("model.layers.1.cross_attn.{name}"), n, 128, 4, 64);
    }
    let model = spec.read().unwrap();
    assert_eq!(model.attention[0].layers, 3, "{:?}", model.skipped);
    spec.matrix("model.layers.1.cross_attn.g_proj", 128, 128, 4, 64);
    let model = spec.read().unwrap();
    assert_eq!(model.attention[0].layers, 2);
    assert!(
        has(
            &model.skipped,
            "model.layers.1.cross_attn: attention with `g_proj`"
        ),
        "{:?}",
        model.skipped
    );
    let mut spec = Spec::new();
    spec.matrix("model.layers.1.mamba.in_proj", 128, 128, 4, 64);
    spec.config["layer_types"] = json!(["full_attention"]);
    let skipped = spec.read().unwrap().skipped;
    assert!(
        has(&skipped, "layer 1: mixes positions by `mamba`"),
        "{skipped:?}"
    );
    assert!(
        has(&skipped, "layer 1: config.json calls it nothing"),
        "{skipped:?}"
    );
}

#[test]
fn rows_have_the_type_of_the_embedding() {
    use mlx_overlay::Dtype as Rows;
    let mut spec = Spec::new();
    assert_eq!(spec.read().unwrap().dtype, Some(Rows::Bf16));
    for tensor in spec
        .tensors
        .iter_mut()
        .filter(|(_, dtype, _)| *dtype == Dtype::BF16)
    {
        tensor.1 = Dtype::F16;
    }
    assert_eq!(spec.read().unwrap().dtype, Some(Rows::F16));
    spec.remove("model.embed_tokens");
    assert_eq!(spec.read().unwrap().dtype, None);
    spec.tensor("model.embed_tokens.weight", Dtype::F32, &[64, 128]);
    assert_eq!(spec.read().unwrap().dtype, Some(Rows::F32));
}

#[test]
fn scaled_rotary_positions_are_named() {
    for (field, value, expected) in [
        (
            "rope_parameters",
            json!({"rope_theta": 1e6, "rope_type": "yarn", "factor": 4.0}),
            Some("yarn"),
        ),
        (
            "rope_scaling",
            json!({"type": "linear", "factor": 4.0}),
            Some("linear"),
        ),
        ("rope_scaling", json!({"factor": 4.0}), Some("unnamed")),
        ("rope_scaling", json!({"rope_type": "default"}), None),
        (
            "rope_parameters",
            json!({"full_attention": {"rope_type": "proportional"}}),
            Some("proportional"),
        ),
    ] {
        let mut spec = Spec::new();
        spec.config[field] = value;
        let others = spec.read().unwrap().others;
        assert_eq!(
            has(&others, "rope of type"),
            expected.is_some(),
            "{others:?}"
        );
        assert!(expected.is_none_or(|name| has(&others, name)), "{others:?}");
    }
}

/// Damaged files are errors, or are read as another model; a panic fails the test.
#[test]
fn no_damage_makes_it_panic() {
    let mut noise = mlx_lab::values::Noise::new(5);
    let folder = Spec::new().write_sharded();
    let names = [
        "config.json",
        "model.safetensors.index.json",
        SHARDS[0],
        SHARDS[1],
    ];
    let whole = names.map(|name| fs::read(folder.path().join(name)).unwrap());
    let (mut errors, rounds) = (0, 400);
    for _ in 0..rounds {
        let at = noise.below(4) as usize;
        let mut bytes = whole[at].clone();
        for _ in 0..=noise.below(3) {
            // The header of a file of tensors is text too.
            let place = noise.below(bytes.len().min(3000) as u32) as usize;
            let with = [
                b'0', b'9', b'-', b'"', b'{', b']', b',', b'.', b'e', 0xc3, 0x00,
            ][noise.below(11) as usize];
            match noise.below(3) {
                0 => bytes[place] = with,
                1 => bytes.insert(place, with),
                _ => drop(bytes.remove(place)),
            }
        }
        fs::write(folder.path().join(names[at]), &bytes).unwrap();
        errors += u32::from(Model::read(folder.path()).is_err());
        fs::write(folder.path().join(names[at]), &whole[at]).unwrap();
    }
    assert!(errors > rounds / 4, "{errors}");
    Model::read(folder.path()).unwrap();
}
