//! Inputs of a case, and its result in double precision.

use half::{bf16, f16};

use crate::case::{Case, Element, Mode};

/// A buffer of the product, by the name of the kernel's parameter.
pub(crate) struct Buffer {
    /// `w`, `scales`, …
    pub(crate) name: &'static str,
    pub(crate) bytes: Vec<u8>,
}

/// Random inputs of a case and the expected result.
pub(crate) struct Problem {
    /// Inputs, in any order.
    pub(crate) inputs: Vec<Buffer>,
    /// y, M x N, in double precision.
    pub(crate) expected: Vec<f64>,
    /// The sum of the absolute values of the terms of each y: the scale of rounding errors.
    pub(crate) magnitude: Vec<f64>,
}

/// SplitMix64 (Steele, Lea and Flood 2014): small, and the same on every host.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// In [-1, 1).
    fn signed(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    }
}

impl Problem {
    /// The inputs of `case` for one seed.
    pub(crate) fn new(case: &Case, seed: u64) -> Self {
        let mut random = Random(seed);
        let groups = case.k / case.group;
        let x = Values::new(case.element, case.m * case.k, || random.signed());
        let weights: Vec<u8> = (0..case.n * case.k * case.bits / 8)
            .map(|_| element_byte(case.mode, &mut random))
            .collect();
        let mut inputs = Vec::new();
        let (scale, bias): (Vec<f64>, Vec<f64>);
        if case.mode == Mode::Affine {
            let steps = f64::from((1u32 << case.bits) - 1);
            let scales = Values::new(case.element, case.n * groups, || {
                (0.5 + random.signed().abs()) / steps
            });
            let biases = Values::new(case.element, case.n * groups, || random.signed());
            (scale, bias) = (scales.numbers.clone(), biases.numbers.clone());
            inputs.extend([scales.buffer("scales"), biases.buffer("biases")]);
        } else {
            let bytes: Vec<u8> = (0..case.n * groups)
                .map(|_| scale_byte(case.mode, &mut random))
                .collect();
            // The second level is stored multiplied by the largest values of both formats: upstream, fp_quantized.h.
            let global = 0.75f32;
            let factor = if case.global_scale {
                f64::from(global / (448.0 * 6.0))
            } else {
                1.0
            };
            scale = bytes
                .iter()
                .map(|byte| factor * scale_value(case.mode, *byte))
                .collect();
            bias = vec![0.0; scale.len()];
            inputs.push(Buffer {
                name: "scales",
                bytes,
            });
            if case.global_scale {
                inputs.push(Buffer {
                    name: "global_scale",
                    bytes: global.to_le_bytes().to_vec(),
                });
            }
        }
        let (mut expected, mut magnitude) = (Vec::new(), Vec::new());
        for row in 0..case.m {
            for column in 0..case.n {
                let (mut sum, mut absolute) = (0.0, 0.0);
                for k in 0..case.k {
                    let group = column * groups + k / case.group;
                    let x = x.numbers[row * case.k + k];
                    let weight = scale[group] * weight_value(case, &weights, column * case.k + k);
                    sum += x * (weight + bias[group]);
                    absolute += (x * weight).abs() + (x * bias[group]).abs();
                }
                expected.push(sum);
                magnitude.push(absolute);
            }
        }
        inputs.extend([
            x.buffer("x"),
            Buffer {
                name: "w",
                bytes: weights,
            },
        ]);
        for (name, value) in [("in_vec_size", case.k), ("out_vec_size", case.n)] {
            inputs.push(Buffer {
                name,
                bytes: (value as u32).to_le_bytes().to_vec(),
            });
        }
        if matches!(case.path, crate::case::Path::Wide { .. }) {
            inputs.push(Buffer {
                name: "M",
                bytes: (case.m as u32).to_le_bytes().to_vec(),
            });
        }
        Self {
            inputs,
            expected,
            magnitude,
        }
    }

    /// The largest error of `y` (M x N values of the case's type) as a fraction of the tolerance.
    ///
    /// The tolerance is two roundings of f32 relative to the sum of the terms' absolute values, and one of the output's
    /// type. A value that was never written is a NaN and gives infinity.
    pub(crate) fn error(&self, case: &Case, y: &[u8]) -> f64 {
        let output_rounding = match case.element {
            Element::Float => 0.0,
            Element::Half => 2f64.powi(-11),
            Element::Bfloat => 2f64.powi(-8),
        };
        let allowed = |index: usize| {
            2.0 * f64::from(f32::EPSILON) * self.magnitude[index]
                + output_rounding * self.expected[index].abs()
                // The spacing of subnormal halves.
                + if case.element == Element::Half { 2f64.powi(-25) } else { f64::MIN_POSITIVE }
        };
        let errors = decode(case.element, y)
            .into_iter()
            .enumerate()
            .map(|(index, value)| {
                let error = (value - self.expected[index]).abs() / allowed(index);
                if error.is_nan() { f64::INFINITY } else { error }
            });
        errors.fold(0.0, f64::max)
    }
}

/// The bytes of `y` before the kernel runs: a NaN that no kernel here computes.
pub(crate) fn poison(case: &Case) -> Vec<u8> {
    let pattern: &[u8] = match case.element {
        Element::Float => &[0xad, 0xde, 0xfe, 0x7f],
        Element::Half => &[0xad, 0x7e],
        Element::Bfloat => &[0xfd, 0x7f],
    };
    pattern.repeat(case.m * case.n)
}

/// Numbers, rounded to the type that the kernel reads.
struct Values {
    bytes: Vec<u8>,
    numbers: Vec<f64>,
}

impl Values {
    fn new(element: Element, count: usize, mut draw: impl FnMut() -> f64) -> Self {
        let mut bytes = Vec::with_capacity(count * element.size());
        for _ in 0..count {
            let number = draw();
            match element {
                Element::Float => bytes.extend((number as f32).to_le_bytes()),
                Element::Half => bytes.extend(f16::from_f64(number).to_le_bytes()),
                Element::Bfloat => bytes.extend(bf16::from_f64(number).to_le_bytes()),
            }
        }
        Self {
            numbers: decode(element, &bytes),
            bytes,
        }
    }

    fn buffer(self, name: &'static str) -> Buffer {
        Buffer {
            name,
            bytes: self.bytes,
        }
    }
}

fn decode(element: Element, bytes: &[u8]) -> Vec<f64> {
    let half = |pair: &[u8]| [pair[0], pair[1]];
    match element {
        Element::Float => bytes
            .chunks_exact(4)
            .map(|b| f64::from(f32::from_le_bytes([b[0], b[1], b[2], b[3]])))
            .collect(),
        Element::Half => bytes
            .chunks_exact(2)
            .map(|b| f16::from_le_bytes(half(b)).to_f64())
            .collect(),
        Element::Bfloat => bytes
            .chunks_exact(2)
            .map(|b| bf16::from_le_bytes(half(b)).to_f64())
            .collect(),
    }
}

/// A random byte of packed weights; not an FP8 NaN.
fn element_byte(mode: Mode, random: &mut Random) -> u8 {
    loop {
        let byte = random.next() as u8;
        if mode != Mode::Mxfp8 || byte & 0x7f != 0x7f {
            return byte;
        }
    }
}

/// A random positive scale near one, so that no group vanishes next to the others.
fn scale_byte(mode: Mode, random: &mut Random) -> u8 {
    let step = (random.next() % 8) as u8;
    match mode {
        Mode::Nvfp4 => 0x30 + 3 * step,
        _ => 123 + step,
    }
}

/// OCP MX specification 1.0: E8M0 scales; nvfp4 has E4M3 ones.
fn scale_value(mode: Mode, byte: u8) -> f64 {
    match mode {
        Mode::Nvfp4 => e4m3(byte),
        _ => 2f64.powi(i32::from(byte) - 127),
    }
}

/// The number that `bits` bits at position `index` of the packed rows represent, before scaling.
///
/// Values follow each other from the lowest bit of the first byte, for every width.
fn weight_value(case: &Case, packed: &[u8], index: usize) -> f64 {
    let first = index * case.bits;
    let low = u16::from(packed[first / 8]);
    let high = packed.get(first / 8 + 1).copied().map_or(0, u16::from);
    let code = ((high << 8 | low) >> (first % 8)) & ((1 << case.bits) - 1);
    match case.mode {
        Mode::Affine => f64::from(code),
        Mode::Mxfp8 => e4m3(code as u8),
        Mode::Mxfp4 | Mode::Nvfp4 => {
            const VALUES: [f64; 8] = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];
            VALUES[usize::from(code & 7)] * if code & 8 == 0 { 1.0 } else { -1.0 }
        }
    }
}

fn e4m3(byte: u8) -> f64 {
    let (exponent, mantissa) = (i32::from(byte >> 3 & 15), f64::from(byte & 7));
    let value = match exponent {
        0 => mantissa * 2f64.powi(-9),
        _ => (1.0 + mantissa / 8.0) * 2f64.powi(exponent - 7),
    };
    if byte & 0x80 == 0 { value } else { -value }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_values_run_through_byte_borders() {
        let case = |mode, bits| Case {
            mode,
            bits,
            ..crate::case::all()[0]
        };
        // 3 bits: 0b_00_111_001 0b_…1 -> 1, 7, then two bits of the first byte and one of the second.
        let packed = [0b1011_1001, 0b0000_0001];
        let value = |index| weight_value(&case(Mode::Affine, 3), &packed, index);
        assert_eq!([value(0), value(1), value(2)], [1.0, 7.0, 6.0]);
        assert_eq!(weight_value(&case(Mode::Mxfp4, 4), &[0x2f], 0), -6.0);
        assert_eq!(weight_value(&case(Mode::Mxfp4, 4), &[0x2f], 1), 1.0);
    }

    #[test]
    fn fp8_has_its_known_extremes() {
        assert_eq!(e4m3(0x7e), 448.0);
        assert_eq!(e4m3(0x38), 1.0);
        assert_eq!(e4m3(0x01), 2f64.powi(-9));
        assert_eq!(e4m3(0xb8), -1.0);
    }
}
