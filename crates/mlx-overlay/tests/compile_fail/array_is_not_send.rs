//! The stream of a lazy array exists only in its thread.

use mlx_overlay::{Array, matmul};

fn main() {
    let a = Array::from_slice(&[1.0f32], &[1, 1]).unwrap();
    let lazy = matmul(&a, &a).unwrap();
    std::thread::spawn(move || lazy.to_vec::<f32>());
}
