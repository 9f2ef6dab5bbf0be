//! Compiles the overlay's pure plan: the very file that MLX's Metal back-end is built with.

use std::path::Path;

const SOURCE: &str = "../../patches/files";
const FILES: [&str; 2] = [
    "mlx/backend/metal/qmv_plan.cpp",
    "mlx/backend/metal/qmv_plan.h",
];

fn main() {
    println!("cargo::rustc-check-cfg=cfg(without_plan)");
    for file in FILES {
        println!("cargo::rerun-if-changed={SOURCE}/{file}");
    }
    let compiled = cc::Build::new()
        .cpp(true)
        .std("c++17")
        .include(SOURCE)
        .file(Path::new(SOURCE).join(FILES[0]))
        .warnings_into_errors(true)
        .cargo_warnings(false)
        .try_compile("qmv_plan");
    if let Err(error) = compiled {
        // `cargo xtask` must build before it can install a C++ compiler: without one it lacks the plan only.
        println!("cargo::rustc-cfg=without_plan");
        println!(
            "cargo::warning=without a C++ compiler `cargo xtask plan` is not available: {error}"
        );
        // A path that never exists: try again at the next build.
        println!("cargo::rerun-if-changed=compiler-missing");
    }
}
