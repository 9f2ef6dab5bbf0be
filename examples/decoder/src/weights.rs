//! Converts GGUF's blocks to MLX's layout: affine weights in groups of 32, bit for bit.
//!
//! | | GGUF, a block of 32 weights | MLX |
//! |---|---|---|
//! | Q4_1 | scale, minimum, then 16 bytes: weight `i` in the low half of byte `i`, weight `i + 16` in the high half | `w = scale * q + minimum`, weight `i` in bits `4 i` of a little-endian row |
//! | Q8_0 | scale, then 32 signed bytes: `w = scale * s` | `q = s + 128`, `w = scale * q - 128 * scale` |
//!
//! Scales and minima stay float16, and `128 * scale` is exact because 128 is a power of two.

use anyhow::{Context, Result, bail, ensure};
use mlx_overlay::{Array, Quantization, QuantizedMatrix, f16};

use crate::gguf::{Gguf, Kind, Tensor};

/// Weights of a block, and of MLX's group.
const GROUP: usize = 32;

/// A matrix in MLX's layout.
#[derive(Debug, Clone, PartialEq)]
pub struct Packed {
    /// Rows and columns.
    pub shape: [usize; 2],
    /// Bits per weight.
    pub bits: u32,
    /// The weights, row after row.
    pub words: Vec<u32>,
    /// A scale for each group.
    pub scales: Vec<f16>,
    /// A bias for each group.
    pub biases: Vec<f16>,
}

impl Packed {
    /// Repacks a matrix with this shape.
    pub fn of(file: &Gguf, name: &str, shape: [usize; 2]) -> Result<Self> {
        Self::with_rows(file, name, shape, |row| row)
    }

    /// Repacks a matrix with this shape whose row `i` is row `place(i)` of the file.
    pub fn with_rows(
        file: &Gguf,
        name: &str,
        shape: [usize; 2],
        place: impl Fn(usize) -> usize,
    ) -> Result<Self> {
        let tensor = shaped(file, name, &shape)?;
        repack(&tensor, shape, place)
            .with_context(|| format!("{}: tensor `{name}`", file.path().display()))
    }

    /// The matrix for MLX.
    pub fn matrix(&self) -> Result<QuantizedMatrix> {
        let [rows, columns] = self.shape;
        let words = [rows, columns * self.bits as usize / 32];
        let groups = [rows, columns / GROUP];
        Ok(QuantizedMatrix::from_parts(
            Array::from_slice(&self.words, &words)?,
            Array::from_slice(&self.scales, &groups)?,
            Array::from_slice(&self.biases, &groups)?,
            Quantization::affine(self.bits, GROUP as u32)?,
        )?)
    }
}

fn repack(
    tensor: &Tensor<'_>,
    shape: [usize; 2],
    place: impl Fn(usize) -> usize,
) -> Result<Packed> {
    let bits = match tensor.kind {
        Kind::Q4_1 => 4,
        Kind::Q8_0 => 8,
        other => bail!("it is {other:?}, but only Q4_1 and Q8_0 can be affine weights of MLX"),
    };
    let (elements, block_bytes) = tensor.kind.block();
    let row_bytes = shape[1] / elements * block_bytes;
    let mut packed = Packed {
        shape,
        bits,
        words: Vec::with_capacity(shape[0] * shape[1] * bits as usize / 32),
        scales: Vec::new(),
        biases: Vec::new(),
    };
    for row in 0..shape[0] {
        let row = &tensor.bytes[place(row) * row_bytes..][..row_bytes];
        for block in row.chunks_exact(block_bytes) {
            let half = |at: usize| f16::from_le_bytes([block[at], block[at + 1]]);
            let scale = half(0);
            let (bias, weights) = match tensor.kind {
                Kind::Q4_1 => (half(2), q4_1(&block[4..])),
                _ => (f16::from_f32(-128.0 * scale.to_f32()), q8_0(&block[2..])),
            };
            ensure!(
                scale.is_finite() && bias.is_finite(),
                "a scale is {scale} and its bias {bias}: the file is damaged"
            );
            packed.scales.push(scale);
            packed.biases.push(bias);
            packed.words.extend(
                weights
                    .chunks_exact(4)
                    .map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]])),
            );
        }
    }
    Ok(packed)
}

fn q4_1(bytes: &[u8]) -> Vec<u8> {
    let low = bytes.chunks_exact(2).map(|b| (b[0] & 15) | (b[1] << 4));
    let high = bytes.chunks_exact(2).map(|b| (b[0] >> 4) | (b[1] & 0xf0));
    low.chain(high).collect()
}

fn q8_0(bytes: &[u8]) -> Vec<u8> {
    bytes.iter().map(|byte| byte ^ 0x80).collect()
}

/// The position of a row of queries or keys in the file.
///
/// llama.cpp rotates adjacent values against each other, so its files have the two halves of a head interleaved. MLX,
/// like the model's authors, rotates the halves against each other.
pub fn interleaved(row: usize, head_dim: usize) -> usize {
    let (head, i) = (row / head_dim, row % head_dim);
    let (half, pair) = (i / (head_dim / 2), i % (head_dim / 2));
    head * head_dim + 2 * pair + half
}

/// A vector of norm weights as float16. The model's weights are bfloat16, stored as float32.
pub fn vector(file: &Gguf, name: &str, length: usize) -> Result<Vec<f16>> {
    let tensor = shaped(file, name, &[length])?;
    ensure!(
        tensor.kind == Kind::F32,
        "{}: `{name}` is {:?}, but norms must be F32",
        file.path().display(),
        tensor.kind
    );
    let floats = tensor.bytes.chunks_exact(4);
    let mut vector = Vec::with_capacity(length);
    for float in floats.map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])) {
        let half = f16::from_f32(float);
        ensure!(
            half.to_f32() == float,
            "{}: `{name}` has {float}, not a float16",
            file.path().display()
        );
        vector.push(half);
    }
    Ok(vector)
}

fn shaped<'a>(file: &'a Gguf, name: &'a str, shape: &[usize]) -> Result<Tensor<'a>> {
    let tensor = file.tensor(name)?;
    ensure!(
        tensor.shape == shape,
        "{}: `{name}` has the shape {:?}, but the metadata requires {shape:?}",
        file.path().display(),
        tensor.shape
    );
    Ok(tensor)
}
