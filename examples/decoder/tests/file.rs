//! Reads GGUF files, including damaged ones, and converts their blocks to MLX's layout.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::path::Path;

use decoder::folder;
use decoder::gguf::{Gguf, Kind, Value};
use decoder::model::{Config, Weights};
use decoder::text::Text;
use decoder::weights::{Packed, interleaved};
use mlx_overlay::{dequantize, f16};
use support::{F32, INTEGER, LIST, Noise, Q4_1, Q8_0, Shape, TEXT, Writer, model, text};

const PATH: &str = "folder/small.gguf";

fn parse(bytes: &[u8]) -> anyhow::Result<Gguf> {
    Gguf::parse(Path::new(PATH), bytes.to_vec())
}

/// The complete text of the error, which must name the file.
fn refused<T>(result: anyhow::Result<T>) -> String {
    let Err(error) = result else {
        panic!("a damaged file is read");
    };
    let text = format!("{error:#}");
    assert!(text.contains(PATH), "{text}");
    text
}

fn smallest() -> Writer {
    model(&Shape {
        layers: 1,
        heads: 1,
        kv_heads: 1,
        head_dim: 32,
        inner: 32,
        seed: 1,
    })
}

/// The decoder's steps before it computes anything.
fn read_all(bytes: &[u8]) -> anyhow::Result<()> {
    let file = parse(bytes)?;
    Weights::read(&file)?;
    Text::read(&file)?;
    Ok(())
}

#[test]
fn values_and_tensors_are_read() {
    let mut file = Writer::default();
    file.value("u8", 0, vec![255]);
    file.value("i8", 1, vec![255]);
    file.value("u16", 2, vec![255, 255]);
    file.value("i16", 3, vec![255, 255]);
    file.value("i32", 5, vec![255; 4]);
    file.value("yes", 7, vec![1]);
    file.value("u64", 10, vec![255; 8]);
    file.value("i64", 11, vec![255; 8]);
    file.value("f64", 12, 0.1f64.to_le_bytes().to_vec());
    file.float("f32", 0.5);
    file.integer("number", 7);
    file.text("text", "ä");
    file.list("texts", TEXT, &[text("a"), text("")]);
    file.list("bytes", 1, &[vec![255], vec![127], vec![0]]);
    file.list("numbers", INTEGER, &[vec![1, 0, 0, 0], vec![2, 0, 0, 0]]);
    let floats = [1f32, 2.0, 3.0, 4.0, 5.0, 6.0];
    let floats: Vec<u8> = floats
        .iter()
        .flat_map(|float| float.to_le_bytes())
        .collect();
    file.tensor("first", &[1], F32, vec![9; 4]);
    file.tensor("matrix", &[3, 2], F32, floats.clone());
    let read = parse(&file.bytes()).unwrap();

    let value = |key| read.value(key).unwrap().clone();
    assert_eq!(value("u8"), Value::Integer(255));
    assert_eq!(value("u16"), Value::Integer(65535));
    for key in ["i8", "i16", "i32", "i64"] {
        assert_eq!(value(key), Value::Integer(-1), "{key}");
        assert!(refused(read.integer(key)).contains("not negative"));
    }
    assert_eq!(value("u64"), Value::Integer(u64::MAX.into()));
    assert_eq!(value("yes"), Value::Bool(true));
    assert_eq!(value("f64"), Value::Float(0.1));
    assert_eq!(read.float("f32").unwrap(), 0.5);
    assert_eq!(read.integer("number").unwrap(), 7);
    assert_eq!(read.text("text").unwrap(), "ä");
    assert_eq!(read.texts("texts").unwrap(), ["a", ""]);
    assert!(read.integers("numbers").unwrap().eq([1, 2]));
    assert!(read.integers("bytes").unwrap().eq([-1, 127, 0]));
    assert_eq!(read.integers("bytes").unwrap().len(), 3);
    let matrix = read.tensor("matrix").unwrap();
    assert_eq!((matrix.shape, matrix.kind), (&[2, 3][..], Kind::F32));
    assert_eq!(matrix.bytes, floats);

    assert!(refused(read.text("number")).contains("is not a text"));
    assert!(refused(read.texts("numbers")).contains("is not a list of texts"));
    for key in ["texts", "f32"] {
        let error = read.integers(key).map(Iterator::count);
        assert!(refused(error).contains("is not a list of numbers"));
    }
    assert!(refused(read.float("absent")).contains("no `absent`"));
    assert!(refused(read.tensor("absent")).contains("no tensor `absent`"));
}

#[test]
fn a_file_that_is_cut_short_anywhere_is_refused() {
    let bytes = smallest().bytes();
    read_all(&bytes).unwrap();
    // The last tensor ends before the padding does.
    let end = bytes.len() - bytes.iter().rev().take_while(|byte| **byte == 0).count();
    // Densest at lengths and counts.
    let lengths = (0..2000).chain((2000..end).step_by(13));
    for length in lengths {
        refused(parse(&bytes[..length]));
    }
}

#[test]
fn damage_anywhere_is_an_error_or_other_weights_and_never_a_panic() {
    let bytes = smallest().bytes();
    let mut refusals = 0;
    let mut damaged = bytes.clone();
    // Mostly in the header, whose lengths and names matter.
    let places = (0..9000).step_by(5).chain((9000..bytes.len()).step_by(97));
    for (at, mask) in places.zip([0x01, 0x80, 0xff].into_iter().cycle()) {
        damaged[at] ^= mask;
        if let Err(error) = read_all(&damaged) {
            assert!(format!("{error:#}").contains(PATH), "byte {at}: {error:#}");
            refusals += 1;
        }
        damaged[at] ^= mask;
    }
    assert!(refusals > 100, "{refusals}");
}

#[test]
fn each_kind_of_damage_has_its_own_words() {
    let header = |version: u32, tensors: u64, values: u64| {
        let mut bytes = b"GGUF".to_vec();
        bytes.extend(version.to_le_bytes());
        bytes.extend(tensors.to_le_bytes());
        bytes.extend(values.to_le_bytes());
        bytes
    };
    let says = |bytes: &[u8], part: &str| {
        let text = refused(parse(bytes));
        assert!(text.contains(part), "{text}");
    };
    says(b"", "ends inside of the magic number");
    says(b"PK\x03\x04 and so on", "does not begin with \"GGUF\"");
    says(b"version https://git-lfs.github.com/spec/v1\n", "Git LFS");
    says(&header(1, 0, 0), "version is 1");
    says(&header(0x0300_0000, 0, 0), "version is 50331648");
    // Huge counts take neither memory nor time.
    says(
        &header(3, u64::MAX, 0),
        "ends inside of the name of a tensor",
    );
    says(&header(3, 0, u64::MAX), "ends inside of a key");
    let mut endless = Writer::default();
    let mut list = TEXT.to_le_bytes().to_vec();
    list.extend(u64::MAX.to_le_bytes());
    endless.value("list", LIST, list);
    says(&endless.bytes(), "ends inside of list");
    let mut deep = Writer::default();
    let mut lists = [LIST.to_le_bytes().to_vec(), 1u64.to_le_bytes().to_vec()].concat();
    lists = lists.repeat(100_000);
    deep.value("list", LIST, lists);
    says(&deep.bytes(), "lists 4 deep");

    let with = |change: &dyn Fn(&mut Writer)| {
        let mut file = smallest();
        change(&mut file);
        file.bytes()
    };
    let twice = |file: &mut Writer| file.values.push(file.values[0].clone());
    says(&with(&twice), "`general.architecture` twice");
    let twice = |file: &mut Writer| file.tensors.push(file.tensors[0].clone());
    says(&with(&twice), "`blk.0.attn_q.weight` twice");
    let tensor = |extents: &[u64], kind: u32| {
        let extents = extents.to_vec();
        with(&move |file| file.tensor("x", &extents, kind, Vec::new()))
    };
    says(&tensor(&[], F32), "0 dimensions");
    says(&tensor(&[1; 5], F32), "5 dimensions");
    says(&tensor(&[0], F32), "cannot have the shape");
    says(&tensor(&[1 << 40, 1 << 40], F32), "cannot have the shape");
    says(&tensor(&[1 << 62], F32), "cannot have the shape");
    says(&tensor(&[33], Q4_1), "cannot have the shape");
    says(&tensor(&[1 << 40], F32), "ends before the tensor `x` does");
    for alignment in [0, u32::MAX] {
        says(
            &with(&|file| file.integer("general.alignment", alignment)),
            "`general.alignment`",
        );
    }
    says(
        &with(&|file| file.value("b", 7, vec![2])),
        "neither true nor false",
    );
    says(&with(&|file| file.value("b", 13, vec![])), "type 13");
    says(
        &with(&|file| file.value("b", TEXT, [1u64.to_le_bytes().as_slice(), &[0xff]].concat())),
        "is not UTF-8",
    );
}

/// Otherwise a small file could name the same bytes repeatedly, and each time weights would be made from them.
#[test]
fn tensors_that_share_bytes_are_refused() {
    let mut file = Writer::default();
    for name in ["first", "second"] {
        file.tensor(name, &[8], F32, vec![0; 32]);
    }
    // Tensors that are not read have no known size.
    file.tensor("third", &[8], 12, Vec::new());
    let mut bytes = file.bytes();
    parse(&bytes).unwrap();
    let start = [text("second"), vec![1, 0, 0, 0], vec![8], vec![0; 7 + 4]].concat();
    let at = bytes.windows(start.len()).position(|part| part == start);
    let at = at.unwrap() + start.len();
    assert_eq!(bytes[at], 32);
    for start in [0, 4, 31] {
        bytes[at] = start;
        let error = refused(parse(&bytes));
        assert!(
            error.contains("`first` and `second` share bytes"),
            "{error}"
        );
    }
}

/// A list of bytes, of empty texts or of empty lists takes far more memory as separate values than in the file.
#[test]
fn lists_take_no_room_beside_the_file() {
    let empty_list = [LIST.to_le_bytes().as_slice(), &[0; 8]].concat();
    for (kind, item) in [
        (0, vec![1]),
        (7, vec![1]),
        (TEXT, text("")),
        (LIST, empty_list),
    ] {
        let mut file = Writer::default();
        file.list("list", kind, &vec![item; 100_000]);
        let read = parse(&file.bytes()).unwrap();
        // Only the type and the position are kept.
        let held = format!("{:?}", read.value("list").unwrap());
        assert!(held.contains("count: 100000"), "{held:.200}");
        assert!(held.len() < 200, "{held:.200}");
    }
}

#[test]
fn what_is_not_computed_is_refused_by_name() {
    let says = |change: &dyn Fn(&mut Writer), part: &str| {
        let mut file = smallest();
        change(&mut file);
        let text = refused(read_all(&file.bytes()));
        assert!(text.contains(part), "{text}");
    };
    says(
        &|file| file.text("general.architecture", "qwen2"),
        "`qwen2`",
    );
    says(
        &|file| file.text("llama.rope.scaling.type", "yarn"),
        "scaling",
    );
    says(
        &|file| file.tensor("rope_freqs.weight", &[16], F32, vec![0; 64]),
        "`rope_freqs.weight`, which this example does not support",
    );
    says(
        &|file| file.tensor("token_embd.weight", &[32, 263], 12, vec![]),
        "type 12",
    );
    says(
        &|file| {
            file.tensors
                .retain(|(name, ..)| name != "blk.0.ffn_norm.weight")
        },
        "no tensor `blk.0.ffn_norm.weight`",
    );
    says(
        &|file| file.integer("llama.block_count", 2),
        "too few for 2 layers",
    );
    says(
        &|file| file.integer("llama.block_count", u32::MAX),
        "too few",
    );
    says(&|file| file.integer("llama.embedding_length", 64), "heads");
    says(
        &|file| file.integer("llama.attention.head_count_kv", 0),
        "heads",
    );
    // A product that does not fit into 64 bits, of heads that do not exist.
    let no_heads = |file: &mut Writer| {
        for key in ["embedding_length", "attention.head_count"] {
            file.integer(&format!("llama.{key}"), 0);
        }
        for key in ["attention.head_count_kv", "rope.dimension_count"] {
            file.long(&format!("llama.{key}"), 1 << 40);
        }
    };
    says(&no_heads, "heads do not match");
    let narrow_heads = |file: &mut Writer| {
        for key in ["embedding_length", "rope.dimension_count"] {
            file.integer(&format!("llama.{key}"), 0);
        }
    };
    says(&narrow_heads, "heads do not match");
    says(
        &|file| file.integer("llama.feed_forward_length", 64),
        "shape [32, 32]",
    );
    says(
        &|file| file.float("llama.rope.freq_base", f32::NAN),
        "finite",
    );
    says(
        &|file| {
            file.tensor(
                "output_norm.weight",
                &[32],
                F32,
                1e9f32.to_le_bytes().repeat(32),
            )
        },
        "not a float16",
    );
    says(
        &|file| {
            let scale = f16::from_f32(600.0).to_le_bytes();
            let blocks = [&scale[..], &[0; 32]].concat().repeat(263);
            file.tensor("token_embd.weight", &[32, 263], Q8_0, blocks);
        },
        "the file is damaged",
    );

    says(
        &|file| file.text("tokenizer.ggml.model", "llama"),
        "tokenizer `llama`",
    );
    says(
        &|file| file.list("tokenizer.ggml.tokens", TEXT, &[text("a")]),
        "1 tokens",
    );
    says(
        &|file| file.list("tokenizer.ggml.token_type", 5, &[]),
        "0 types",
    );
    says(
        &|file| file.list("tokenizer.ggml.tokens", TEXT, &vec![text("a"); 263]),
        "a token twice",
    );
    says(
        &|file| file.list("tokenizer.ggml.merges", TEXT, &[text("ab")]),
        "is not a pair",
    );
    says(
        &|file| file.list("tokenizer.ggml.merges", TEXT, &[text("q zz")]),
        "merges do not match",
    );
    says(
        &|file| file.integer("tokenizer.ggml.eos_token_id", 263),
        "263, of 263",
    );
}

#[test]
fn what_is_no_file_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let text = format!("{:#}", Gguf::read(folder.path()).unwrap_err());
    assert!(text.contains("not a regular file"), "{text}");
    let text = format!("{:#}", Gguf::read(&folder.path().join("none")).unwrap_err());
    assert!(text.contains("none"), "{text}");
    // It would never end.
    let text = format!("{:#}", Gguf::read(Path::new("/dev/zero")).unwrap_err());
    assert!(text.contains("not a regular file"), "{text}");
}

/// One matrix of a file.
fn packed(
    kind: u32,
    [rows, columns]: [usize; 2],
    bytes: Vec<u8>,
    place: impl Fn(usize) -> usize,
) -> Packed {
    let mut file = Writer::default();
    file.tensor("w", &[columns as u64, rows as u64], kind, bytes);
    let file = parse(&file.bytes()).unwrap();
    Packed::with_rows(&file, "w", [rows, columns], place).unwrap()
}

/// The weights by MLX's definition: `q` bits from the lowest on, `scale * q + bias`.
fn by_mlx(packed: &Packed) -> Vec<f32> {
    let a_word = 32 / packed.bits as usize;
    let mut weights = Vec::new();
    for (i, word) in packed.words.iter().enumerate() {
        for j in 0..a_word {
            let group = (i * a_word + j) / 32;
            let q = word >> (j as u32 * packed.bits) & ((1 << packed.bits) - 1);
            weights.push(packed.scales[group].to_f32() * q as f32 + packed.biases[group].to_f32());
        }
    }
    weights
}

fn half(bytes: &[u8]) -> f32 {
    f16::from_le_bytes([bytes[0], bytes[1]]).to_f32()
}

/// As llama.cpp's `dequantize_row_q4_1` and `dequantize_row_q8_0`.
fn by_gguf(kind: u32, bytes: &[u8]) -> Vec<f32> {
    let mut weights = Vec::new();
    if kind == Q4_1 {
        for block in bytes.chunks_exact(20) {
            let (d, m) = (half(block), half(&block[2..]));
            weights.extend((0..16).map(|j| d * f32::from(block[4 + j] & 15) + m));
            weights.extend((0..16).map(|j| d * f32::from(block[4 + j] >> 4) + m));
        }
    } else {
        for block in bytes.chunks_exact(34) {
            let d = half(block);
            weights.extend((0..32).map(|j| d * f32::from(block[2 + j] as i8)));
        }
    }
    weights
}

#[test]
fn blocks_are_mlx_groups_bit_for_bit() {
    let shape = [6, 96];
    let mut noise = Noise(3);
    for kind in [Q4_1, Q8_0] {
        let bytes = match kind {
            Q4_1 => noise.q4_1(18, 0.7),
            _ => noise.q8_0(18, 0.7),
        };
        let packed = packed(kind, shape, bytes.clone(), |row| row);
        let expected = by_gguf(kind, &bytes);
        let found = by_mlx(&packed);
        assert_eq!(found.len(), 6 * 96);
        for (i, (found, expected)) in found.iter().zip(&expected).enumerate() {
            match kind {
                Q4_1 => assert_eq!(found.to_bits(), expected.to_bits(), "weight {i}"),
                // `scale * (s + 128) - 128 * scale`: each product is exact in float32, and so is their difference.
                _ => assert_eq!(found, expected, "weight {i}"),
            }
        }
        // Every block has its own scale, and the 8-bit biases are exact.
        for (i, block) in bytes.chunks_exact(bytes.len() / 18).enumerate() {
            assert_eq!(packed.scales[i].to_f32(), half(block));
            let bias = if kind == Q4_1 {
                half(&block[2..])
            } else {
                -128.0 * half(block)
            };
            assert_eq!(packed.biases[i].to_f32(), bias);
        }
    }
}

#[test]
fn mlx_unpacks_the_same_weights() {
    let mut noise = Noise(5);
    // Weights that float16 can represent: MLX's own unpacking rounds to the scales' type.
    let mut q4_1 = noise.q4_1(4, 1.0);
    for block in q4_1.chunks_exact_mut(20) {
        block[..2].copy_from_slice(&f16::from_f32(0.25).to_le_bytes());
        block[2..4].copy_from_slice(&f16::from_f32(-3.5).to_le_bytes());
    }
    let mut q8_0 = noise.q8_0(4, 1.0);
    for block in q8_0.chunks_exact_mut(34) {
        block[..2].copy_from_slice(&f16::from_f32(0.125).to_le_bytes());
    }
    for (kind, bytes) in [(Q4_1, q4_1), (Q8_0, q8_0)] {
        let packed = packed(kind, [2, 64], bytes.clone(), |row| row);
        let matrix = packed.matrix().unwrap();
        // On the build's device: each of the weights has the same bits.
        let found = dequantize(&matrix).unwrap().to_vec::<f16>().unwrap();
        let found: Vec<f32> = found.into_iter().map(f32::from).collect();
        assert_eq!(found, by_gguf(kind, &bytes));
    }
}

#[test]
fn rows_of_queries_and_keys_are_put_back() {
    // llama.cpp's converter: reshape(heads, 2, head_dim / 2), swapaxes(1, 2).
    let (heads, head_dim) = (3, 8);
    let mut converted = vec![0; heads * head_dim];
    for head in 0..heads {
        for half in 0..2 {
            for pair in 0..head_dim / 2 {
                let from = head * head_dim + half * (head_dim / 2) + pair;
                converted[head * head_dim + 2 * pair + half] = from;
            }
        }
    }
    let place = |row| interleaved(row, head_dim);
    let back: Vec<usize> = (0..heads * head_dim)
        .map(|row| converted[place(row)])
        .collect();
    assert_eq!(back, (0..heads * head_dim).collect::<Vec<_>>());

    let bytes = Noise(7).q8_0(24, 1.0);
    let turned = packed(Q8_0, [24, 32], bytes.clone(), place);
    let all = by_gguf(Q8_0, &bytes);
    let rows = (0..24).map(|row| &all[place(row) * 32..][..32]);
    assert_eq!(by_mlx(&turned), rows.collect::<Vec<_>>().concat());
}

#[test]
fn text_becomes_tokens_and_text_again() {
    let file = parse(&smallest().bytes()).unwrap();
    let words = Text::read(&file).unwrap();
    assert_eq!(words.end(), 2);
    // Merges, splits at digits, and bytes beyond ASCII.
    let name = |id: u32| words.name(id).unwrap();
    let tokens = words.tokens("in the year 2026, ü").unwrap();
    let names: Vec<String> = tokens.iter().map(|&id| name(id)).collect();
    assert_eq!(
        names,
        [
            "in", "Ġthe", "Ġ", "y", "e", "a", "r", "Ġ", "2", "0", "2", "6", ",", "Ġ", "Ã", "¼"
        ]
    );
    assert_eq!(words.of(&tokens).unwrap(), "in the year 2026, ü");
    let question = words.question("Be brief.", "Why?").unwrap();
    assert_eq!(
        (
            question.iter().filter(|id| **id == 1).count(),
            question.iter().filter(|id| **id == 2).count()
        ),
        (3, 2)
    );
    assert_eq!(
        words.of(&question).unwrap(),
        "system\nBe brief.\nuser\nWhy?\nassistant\n"
    );

    // A vocabulary may lack some bytes.
    let mut file = smallest();
    let mut tokens = parse(&file.bytes()).unwrap();
    let mut names: Vec<_> = tokens
        .texts("tokenizer.ggml.tokens")
        .unwrap()
        .into_iter()
        .map(text)
        .collect();
    names[3 + usize::from(b'z')] = text("zzz");
    file.list("tokenizer.ggml.tokens", TEXT, &names);
    tokens = parse(&file.bytes()).unwrap();
    let error = Text::read(&tokens).unwrap().tokens("zoo").unwrap_err();
    assert!(error.to_string().contains("no tokens"), "{error}");
}

#[test]
fn the_folder_holds_every_tensor_once() {
    let file = parse(&smallest().bytes()).unwrap();
    let (weights, words) = (Weights::read(&file).unwrap(), Text::read(&file).unwrap());
    let parent = tempfile::tempdir().unwrap();
    let to = parent.path().join("model");
    folder::write(&to, &weights, &words).unwrap();
    let bytes = std::fs::read(to.join("model.safetensors")).unwrap();
    let tensors = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    // Seven matrices and the embedding, three tensors each, and three norms.
    assert_eq!(tensors.len(), 8 * 3 + 3);
    let embedding = tensors.tensor("model.embed_tokens.weight").unwrap();
    assert_eq!(embedding.shape(), [263, 8]);
    let words_of: Vec<u8> = weights
        .embedding
        .words
        .iter()
        .flat_map(|word| word.to_le_bytes())
        .collect();
    assert_eq!(embedding.data(), words_of);
    let config: serde_json::Value =
        serde_json::from_slice(&std::fs::read(to.join("config.json")).unwrap()).unwrap();
    assert_eq!(config["quantization"]["bits"], 4);
    assert_eq!(config["quantization"]["model.embed_tokens"]["bits"], 8);
    assert_eq!(
        config["num_hidden_layers"],
        Config::read(&file).unwrap().layers
    );

    let before = std::fs::read_dir(parent.path()).unwrap().count();
    let error = folder::write(&to, &weights, &words).unwrap_err();
    assert!(error.to_string().contains("already exists"), "{error}");
    folder::write(&parent.path().join("none/model"), &weights, &words).unwrap_err();
    // The remains of a killed run are not confused with another folder's.
    let left = parent.path().join("other.partial");
    std::fs::create_dir(&left).unwrap();
    let error = folder::write(&parent.path().join("other"), &weights, &words).unwrap_err();
    assert!(error.to_string().contains("remove it"), "{error}");
    std::fs::remove_dir(&left).unwrap();
    assert_eq!(
        std::fs::read_dir(parent.path()).unwrap().count(),
        before,
        "nothing half-written stays"
    );
}
