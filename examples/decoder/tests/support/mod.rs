//! Writes GGUF files: arbitrary ones, and a complete small model with random weights.

// Each test program uses only a part.
#![allow(dead_code)]

use mlx_overlay::f16;

/// Numbers of the file's types.
pub(crate) const INTEGER: u32 = 4;
pub(crate) const FLOAT: u32 = 6;
pub(crate) const TEXT: u32 = 8;
pub(crate) const LIST: u32 = 9;
pub(crate) const LONG: u32 = 10;
pub(crate) const F32: u32 = 0;
pub(crate) const Q4_1: u32 = 3;
pub(crate) const Q8_0: u32 = 8;

/// A file to write.
#[derive(Default, Clone)]
pub(crate) struct Writer {
    /// Keys, types, and values in the file's format.
    pub(crate) values: Vec<(String, u32, Vec<u8>)>,
    /// Names, extents in the file's order, types, contents.
    pub(crate) tensors: Vec<(String, Vec<u64>, u32, Vec<u8>)>,
}

pub(crate) fn text(text: &str) -> Vec<u8> {
    let mut bytes = (text.len() as u64).to_le_bytes().to_vec();
    bytes.extend(text.as_bytes());
    bytes
}

impl Writer {
    pub(crate) fn value(&mut self, key: &str, kind: u32, bytes: Vec<u8>) {
        self.values.retain(|(other, ..)| other != key);
        self.values.push((key.to_owned(), kind, bytes));
    }

    pub(crate) fn integer(&mut self, key: &str, value: u32) {
        self.value(key, INTEGER, value.to_le_bytes().to_vec());
    }

    pub(crate) fn long(&mut self, key: &str, value: u64) {
        self.value(key, LONG, value.to_le_bytes().to_vec());
    }

    pub(crate) fn float(&mut self, key: &str, value: f32) {
        self.value(key, FLOAT, value.to_le_bytes().to_vec());
    }

    pub(crate) fn text(&mut self, key: &str, value: &str) {
        self.value(key, TEXT, text(value));
    }

    pub(crate) fn list(&mut self, key: &str, kind: u32, items: &[Vec<u8>]) {
        let mut bytes = kind.to_le_bytes().to_vec();
        bytes.extend((items.len() as u64).to_le_bytes());
        bytes.extend(items.concat());
        self.value(key, LIST, bytes);
    }

    pub(crate) fn tensor(&mut self, name: &str, extents: &[u64], kind: u32, bytes: Vec<u8>) {
        self.tensors.retain(|(other, ..)| other != name);
        self.tensors
            .push((name.to_owned(), extents.to_vec(), kind, bytes));
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut file = b"GGUF".to_vec();
        file.extend(3u32.to_le_bytes());
        file.extend((self.tensors.len() as u64).to_le_bytes());
        file.extend((self.values.len() as u64).to_le_bytes());
        for (key, kind, value) in &self.values {
            file.extend(text(key));
            file.extend(kind.to_le_bytes());
            file.extend(value);
        }
        let mut data = Vec::new();
        for (name, extents, kind, bytes) in &self.tensors {
            file.extend(text(name));
            file.extend((extents.len() as u32).to_le_bytes());
            file.extend(extents.iter().flat_map(|extent| extent.to_le_bytes()));
            file.extend(kind.to_le_bytes());
            file.extend((data.len() as u64).to_le_bytes());
            data.extend(bytes);
            data.resize(data.len().next_multiple_of(32), 0);
        }
        file.resize(file.len().next_multiple_of(32), 0);
        file.extend(data);
        file
    }
}

/// Pseudo-random bytes.
pub(crate) struct Noise(pub(crate) u64);

impl Noise {
    pub(crate) fn byte(&mut self) -> u8 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 56) as u8
    }

    /// Blocks of Q4_1, weights about in [-1, 1) times `scale`.
    pub(crate) fn q4_1(&mut self, blocks: usize, scale: f32) -> Vec<u8> {
        let mut bytes = Vec::new();
        for _ in 0..blocks {
            let d = scale / 8.0 * (1.0 + f32::from(self.byte()) / 512.0);
            bytes.extend(f16::from_f32(d).to_le_bytes());
            bytes.extend(f16::from_f32(-7.5 * d).to_le_bytes());
            bytes.extend((0..16).map(|_| self.byte()));
        }
        bytes
    }

    /// Blocks of Q8_0, weights about in [-1, 1) times `scale`.
    pub(crate) fn q8_0(&mut self, blocks: usize, scale: f32) -> Vec<u8> {
        let mut bytes = Vec::new();
        for _ in 0..blocks {
            let d = scale / 128.0 * (1.0 + f32::from(self.byte()) / 512.0);
            bytes.extend(f16::from_f32(d).to_le_bytes());
            bytes.extend((0..32).map(|_| self.byte()));
        }
        bytes
    }
}

/// The dimensions of a model.
pub(crate) struct Shape {
    pub(crate) layers: u32,
    pub(crate) heads: u32,
    pub(crate) kv_heads: u32,
    pub(crate) head_dim: u32,
    pub(crate) inner: u32,
    /// The seed of the weights.
    pub(crate) seed: u64,
}

/// A complete model: every byte is a token; a few merges, three special tokens.
pub(crate) fn model(shape: &Shape) -> Writer {
    let mut file = Writer::default();
    let hidden = shape.heads * shape.head_dim;
    file.text("general.architecture", "llama");
    file.integer("llama.block_count", shape.layers);
    file.integer("llama.context_length", 512);
    file.integer("llama.embedding_length", hidden);
    file.integer("llama.feed_forward_length", shape.inner);
    file.integer("llama.attention.head_count", shape.heads);
    file.integer("llama.attention.head_count_kv", shape.kv_heads);
    file.integer("llama.rope.dimension_count", shape.head_dim);
    file.float("llama.attention.layer_norm_rms_epsilon", 1e-5);
    file.float("llama.rope.freq_base", 10_000.0);
    let tokens = vocabulary();
    file.integer("llama.vocab_size", tokens.len() as u32);
    file.text("tokenizer.ggml.model", "gpt2");
    file.text("tokenizer.ggml.pre", "smollm");
    let names: Vec<_> = tokens.iter().map(|token| text(token)).collect();
    file.list("tokenizer.ggml.tokens", TEXT, &names);
    let kinds: Vec<_> = (0..tokens.len())
        .map(|id| if id < 3 { 3u32 } else { 1 }.to_le_bytes().to_vec())
        .collect();
    file.list("tokenizer.ggml.token_type", 5, &kinds);
    file.list(
        "tokenizer.ggml.merges",
        TEXT,
        &MERGES.map(|(left, right)| text(&format!("{left} {right}"))),
    );
    file.integer("tokenizer.ggml.eos_token_id", 2);
    file.text("tokenizer.chat_template", "{{'<|im_start|>' + …}}");

    let mut noise = Noise(shape.seed);
    let (hidden, inner) = (u64::from(hidden), u64::from(shape.inner));
    let kv = u64::from(shape.kv_heads * shape.head_dim);
    let ones = |count: u64| 1f32.to_le_bytes().repeat(count as usize);
    let blocks = |columns: u64, rows: u64| (columns * rows / 32) as usize;
    for layer in 0..shape.layers {
        for (part, columns, rows, gain) in [
            // Sharp attention: an average over all positions would show nothing.
            ("attn_q", hidden, hidden, 3.0),
            ("attn_k", hidden, kv, 3.0),
            ("attn_v", hidden, kv, 1.0),
            ("attn_output", hidden, hidden, 2.0),
            ("ffn_gate", hidden, inner, 2.0),
            ("ffn_up", hidden, inner, 2.0),
            ("ffn_down", inner, hidden, 2.0),
        ] {
            let scale = gain / (columns as f32).sqrt();
            let bytes = noise.q4_1(blocks(columns, rows), scale);
            file.tensor(
                &format!("blk.{layer}.{part}.weight"),
                &[columns, rows],
                Q4_1,
                bytes,
            );
        }
        for norm in ["attn_norm", "ffn_norm"] {
            file.tensor(
                &format!("blk.{layer}.{norm}.weight"),
                &[hidden],
                F32,
                ones(hidden),
            );
        }
    }
    file.tensor("output_norm.weight", &[hidden], F32, ones(hidden));
    let rows = tokens.len() as u64;
    let embedding = noise.q8_0(blocks(hidden, rows), 0.25);
    file.tensor("token_embd.weight", &[hidden, rows], Q8_0, embedding);
    file
}

const MERGES: [(&str, &str); 4] = [("Ġ", "t"), ("h", "e"), ("Ġt", "he"), ("i", "n")];

/// Special tokens, a character for each byte as in GPT-2, and the results of the merges.
fn vocabulary() -> Vec<String> {
    let mut tokens = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
        .map(str::to_owned)
        .to_vec();
    let mut next = 256;
    for byte in 0..=255u32 {
        let written = match byte {
            0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff => byte,
            _ => {
                next += 1;
                next - 1
            }
        };
        tokens.extend(char::from_u32(written).map(String::from));
    }
    tokens.extend(MERGES.map(|(left, right)| format!("{left}{right}")));
    tokens
}
