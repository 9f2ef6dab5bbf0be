//! Pseudorandom numbers that are the same everywhere for a seed, and matrices made from them.

use mlx_overlay::{
    Array, Dtype, Element, Evaluated, Quantization, QuantizedMatrix, as_type, bf16, f16,
};

use crate::{Error, Result};

/// Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014.
#[derive(Debug, Clone)]
pub struct Noise(u64);

impl Noise {
    /// The sequence for a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in [0, 1).
    pub fn unit(&mut self) -> f32 {
        (self.bits() >> 40) as f32 / (1u32 << 24) as f32
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: u32) -> u32 {
        // The bias is below 2^-32.
        ((u64::from(bound) * (self.bits() >> 32)) >> 32) as u32
    }

    /// Approximately normal: a sum of six uniform numbers, scaled to a deviation of 1.
    pub fn normal(&mut self) -> f32 {
        let sum: f32 = (0..6).map(|_| self.unit()).sum();
        (sum - 3.0) * std::f32::consts::SQRT_2
    }

    /// An array of approximately normal numbers with a given deviation, of a floating-point type.
    ///
    /// # Errors
    /// MLX's.
    pub fn array(&mut self, shape: &[usize], deviation: f32, dtype: Dtype) -> Result<Array> {
        let count = shape.iter().product();
        let values: Vec<f32> = (0..count).map(|_| self.normal() * deviation).collect();
        settled(&as_type(&Array::from_slice(&values, shape)?, dtype)?)
    }

    /// A random quantized matrix whose products have about the deviation of x times `gain`. Affine scales and biases
    /// have type `dtype`.
    ///
    /// # Errors
    /// MLX's.
    pub fn matrix(
        &mut self,
        [n, k]: [usize; 2],
        quantization: Quantization,
        dtype: Dtype,
        gain: f32,
    ) -> Result<QuantizedMatrix> {
        let bits = quantization.bits();
        let words = n * k * bits as usize / 32;
        let packed: Vec<u32> = (0..words)
            .map(|_| {
                let word = self.bits() as u32;
                if quantization == Quantization::Mxfp8 {
                    without_nan(word)
                } else {
                    word
                }
            })
            .collect();
        let packed = Array::from_slice(&packed, &[n, k * bits as usize / 32])?;
        let groups = [n, k / quantization.group_size() as usize];
        let deviation = gain / (k as f32).sqrt();
        if !quantization.has_biases() {
            let scales: Vec<u8> = (0..groups[0] * groups[1])
                .map(|_| self.block_scale(quantization, deviation))
                .collect();
            let scales = Array::from_slice(&scales, &groups)?;
            return Ok(QuantizedMatrix::from_parts(
                packed,
                scales,
                None,
                quantization,
            )?);
        }
        // The codes are uniform over 2^bits values.
        let levels = (1u32 << bits) as f32;
        let step = deviation * 12f32.sqrt() / levels.max(2.0);
        let mut scales = Vec::with_capacity(groups[0] * groups[1]);
        let mut biases = Vec::with_capacity(scales.capacity());
        for _ in 0..groups[0] * groups[1] {
            let scale = step * (0.75 + 0.5 * self.unit());
            scales.push(scale);
            biases.push(-scale * (levels - 1.0) / 2.0 + step * 0.1 * self.normal());
        }
        let typed =
            |values: &[f32]| settled(&as_type(&Array::from_slice(values, &groups)?, dtype)?);
        Ok(QuantizedMatrix::from_parts(
            packed,
            typed(&scales)?,
            typed(&biases)?,
            quantization,
        )?)
    }

    /// A scale with which random codes have about this deviation.
    fn block_scale(&mut self, quantization: Quantization, deviation: f32) -> u8 {
        // Root mean squares of all finite codes of E2M1 and of E4M3.
        let code = if quantization == Quantization::Mxfp8 {
            104.0
        } else {
            2.93
        };
        let scale = deviation / code * (0.75 + 0.5 * self.unit());
        if quantization == Quantization::Nvfp4 {
            // E4M3 has steps of 2^-9 up to 2^-6, then eighths of a power of two.
            let exponent = scale.log2().floor().max(-6.0);
            let mantissa = (scale / exponent.exp2() - 1.0) * 8.0;
            ((exponent + 7.0) * 8.0 + mantissa).clamp(1.0, 126.0) as u8
        } else {
            (scale.log2().round() + 127.0).clamp(1.0, 254.0) as u8
        }
    }
}

/// Four E4M3 codes, none of which is a NaN (0x7f and 0xff).
fn without_nan(word: u32) -> u32 {
    u32::from_le_bytes(word.to_le_bytes().map(|code| {
        if code & 0x7f == 0x7f {
            code & 0xfe
        } else {
            code
        }
    }))
}

/// The array without the graph that made it.
pub(crate) fn settled(array: &Array) -> Result<Array> {
    Ok(array.evaluate()?.to_array()?)
}

/// The bits of an array's elements, row-major. Comparison is bitwise: 0.0 differs from -0.0, and a NaN equals itself.
///
/// # Errors
/// MLX's; for a type that is not floating-point.
pub fn bits(array: &Array) -> Result<Vec<u32>> {
    fn of<T: Element>(evaluated: &Evaluated, bits: fn(T) -> u32) -> Result<Vec<u32>> {
        Ok(evaluated
            .as_slice::<T>()?
            .iter()
            .map(|&v| bits(v))
            .collect())
    }
    let evaluated = array.evaluate()?;
    match array.dtype() {
        Dtype::F32 => of(&evaluated, f32::to_bits),
        Dtype::F16 => of(&evaluated, |value: f16| value.to_bits().into()),
        Dtype::Bf16 => of(&evaluated, |value: bf16| value.to_bits().into()),
        Dtype::U32 => of(&evaluated, |value: u32| value),
        other => Err(Error::Invalid(format!("no bits to compare in {other}"))),
    }
}
