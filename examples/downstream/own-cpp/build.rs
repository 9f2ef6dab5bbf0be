//! Compiles this package's C++ code with the headers of the MLX that mlx-overlay-sys links. That crate also links the
//! libraries.

use std::env;

fn main() {
    let found = |name: &str| env::var(format!("DEP_MLX_{name}")).unwrap_or_default();
    let mut build = cc::Build::new();
    build
        .cpp(true)
        .file("src/own.cpp")
        .std(&found("CXX_STD"))
        .define("OWN_METALLIB", format!("{:?}", found("METALLIB")).as_str());
    for define in found("DEFINES").split_whitespace() {
        build.define(define, None);
    }
    for folder in env::split_paths(&found("INCLUDE")) {
        build.flag("-isystem").flag(folder);
    }
    build.compile("own");
    println!("cargo::rerun-if-changed=src/own.cpp");
}
