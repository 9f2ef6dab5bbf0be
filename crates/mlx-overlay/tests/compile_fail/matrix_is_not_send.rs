//! A quantized matrix consists of lazy arrays.

use mlx_overlay::{Array, Quantization, quantize};

fn main() {
    let w = Array::from_slice(&[1.0f32; 64], &[1, 64]).unwrap();
    let w = quantize(&w, Quantization::affine(4, 64).unwrap()).unwrap();
    std::thread::spawn(move || w.rows());
}
