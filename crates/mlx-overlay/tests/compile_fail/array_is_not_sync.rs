//! Two threads that evaluate one array change its node at the same time.

use mlx_overlay::Array;

fn main() {
    let array = Array::from_slice(&[1.0f32], &[1, 1]).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| array.evaluate());
    });
}
