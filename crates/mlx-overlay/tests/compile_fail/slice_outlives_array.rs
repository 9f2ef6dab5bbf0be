//! A slice cannot outlive MLX's memory.

use mlx_overlay::Array;

fn main() {
    let evaluated = Array::from_slice(&[1.0f32], &[1]).unwrap().evaluate().unwrap();
    let slice = evaluated.as_slice::<f32>().unwrap();
    drop(evaluated);
    println!("{slice:?}");
}
