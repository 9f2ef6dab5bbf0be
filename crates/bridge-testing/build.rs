//! Compiles this crate's C++ against the headers of MLX and of the bridge. The libraries are linked through
//! `mlx-overlay-sys`.

use std::env;

fn main() {
    println!("cargo::rerun-if-changed=src");
    println!("cargo::rerun-if-env-changed=DOCS_RS");
    // Type checks and documentation do not need MLX.
    if env::var_os("DOCS_RS").is_some() {
        return;
    }
    if let Err(message) = compile() {
        println!("cargo::error={message}");
    }
}

fn compile() -> Result<(), String> {
    let found = |name: &str| {
        let name = format!("DEP_MLX_{name}");
        env::var(&name).map_err(|error| format!("{name}: {error}"))
    };
    let mut build = cxx_build::bridge("src/lib.rs");
    build
        .files([
            "src/faults.cpp",
            "src/graphs.cpp",
            "src/mlx_c.cpp",
            "src/probe.cpp",
        ])
        .std(&found("CXX_STD")?)
        .warnings(true)
        .extra_warnings(true)
        .warnings_into_errors(true);
    for define in found("DEFINES")?.split_whitespace() {
        build.define(define, None);
    }
    if found("PRISTINE")? == "false" {
        build.define("MLX_OVERLAY_POLICIES", None);
    }
    if found("POLICIES")? == "true" {
        build.define("MLX_OVERLAY_ROW_KERNELS", None);
    }
    let deployment_target = found("DEPLOYMENT_TARGET")?;
    if !deployment_target.is_empty() {
        build.flag(format!("-mmacosx-version-min={deployment_target}"));
    }
    for folder in env::split_paths(&found("INCLUDE")?) {
        build.flag("-isystem").flag(folder);
    }
    build
        .try_compile("bridge_testing")
        .map_err(|error| format!("the C++ for tests did not compile: {error}"))
}
