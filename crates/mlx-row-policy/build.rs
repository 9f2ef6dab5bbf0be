//! Compiles the references to libmlx. It needs no MLX: the program that uses this crate links one.

fn main() {
    println!("cargo::rerun-if-changed=src/linked.c");
    println!("cargo::rerun-if-changed=mlx");
    // Cargo may link two versions of this crate into one program, but C has a single namespace.
    let major_minor = concat!(
        env!("CARGO_PKG_VERSION_MAJOR"),
        "_",
        env!("CARGO_PKG_VERSION_MINOR")
    );
    let mut build = cc::Build::new();
    if std::env::var_os("CARGO_FEATURE_MLX_C").is_some() {
        build.define("WITH_MLX_C", None);
    }
    // One test links no MLX. The package on crates.io has no tests, and cargo would reject the line there.
    let is_macos = std::env::var_os("CARGO_CFG_TARGET_OS").is_some_and(|system| system == "macos");
    if is_macos && std::path::Path::new("tests").exists() {
        println!("cargo::rustc-link-arg-tests=-Wl,-undefined,dynamic_lookup");
    }
    let compiled = build
        .file("src/linked.c")
        .include(".")
        .std("c11")
        .define("CRATE_VERSION", major_minor)
        .warnings(true)
        .extra_warnings(true)
        .try_compile("mlx_row_policy_linked");
    if let Err(error) = compiled {
        println!("cargo::error=the references to libmlx did not compile: {error}");
    }
}
