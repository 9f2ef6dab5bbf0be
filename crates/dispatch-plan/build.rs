//! Compiles the files that decide: the same files that MLX is built with.

use std::path::Path;

const SOURCE: &str = "../../patches/files";
const COMPILED: [&str; 4] = [
    "mlx/row_policy.cpp",
    "mlx/backend/metal/qmv_plan.cpp",
    "mlx/backend/metal/attention_plan.cpp",
    "mlx/backend/metal/dense_plan.cpp",
];
const HEADERS: [&str; 6] = [
    "mlx/row_policy.h",
    "mlx/backend/metal/attention_plan.h",
    "mlx/backend/metal/dense_plan.h",
    "mlx/backend/metal/qmv_plan.h",
    // Only whether they exist matters.
    "mlx/backend/metal/kernels/qmv_streamed.h",
    "mlx/backend/metal/kernels/fp_qmv_streamed.h",
];

fn main() {
    println!("cargo::rustc-check-cfg=cfg(without_plan)");
    for file in COMPILED.iter().chain(&HEADERS) {
        println!("cargo::rerun-if-changed={SOURCE}/{file}");
    }
    let compiled = cc::Build::new()
        .cpp(true)
        .std("c++20")
        .include(SOURCE)
        .files(COMPILED.map(|file| Path::new(SOURCE).join(file)))
        .warnings_into_errors(true)
        // GCC 12 and 13 report a false overlap in std::string's operator+ (their bug 105651).
        .flag_if_supported("-Wno-restrict")
        .cargo_warnings(false)
        .try_compile("row_policy");
    if let Err(error) = compiled {
        // `cargo xtask` must build before it can install a C++ compiler; without one, only the plan is missing.
        println!("cargo::rustc-cfg=without_plan");
        println!(
            "cargo::warning=without a C++ compiler `cargo xtask plan` is not available: {error}"
        );
        // A path that never exists: try again at the next build.
        println!("cargo::rerun-if-changed=compiler-missing");
    }
}
