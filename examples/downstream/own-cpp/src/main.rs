//! Calls this package's C++ code, which uses the same MLX as the Rust crates.

use std::process::ExitCode;

// Its libraries are linked only if the package is used.
use mlx_overlay_sys as _;

unsafe extern "C" {
    fn own_quantization_error(rows: i32, columns: i32) -> f32;
}

fn main() -> ExitCode {
    // SAFETY: the function takes plain numbers and catches MLX's exceptions, and no other code of this program uses
    // MLX.
    let error = unsafe { own_quantization_error(64, 256) };
    if error < 0.0 {
        return ExitCode::FAILURE;
    }
    println!("4-bit quantization is off by {error:.2} steps at most");
    ExitCode::SUCCESS
}
