//! Finds the MLX that `cargo xtask build` installed, checks that it is the pinned one, compiles the bridge against it
//! and passes the link settings to cargo. It downloads nothing, patches nothing and does not run CMake.

#[path = "build/find.rs"]
mod find;

use std::env;
use std::path::{Path, PathBuf};

use mlx_prefix::{Backend, PREFIX_VARIABLE, PRISTINE_VARIABLE, Prefix, Search};

const BRIDGE: &[&str] = &[
    "src/bridge.cpp",
    "src/check.cpp",
    "src/elementwise.cpp",
    "src/encoders.cpp",
    "src/evaluation.cpp",
    "src/lifetime.cpp",
    "src/memory.cpp",
    "src/metallib.cpp",
    "src/neural.cpp",
    "src/order.cpp",
    "src/policy.cpp",
    "src/product.cpp",
    "src/random.cpp",
    "src/shape.cpp",
];

fn main() {
    // docs.rs has no MLX, and documentation does not need it.
    println!("cargo::rerun-if-env-changed=DOCS_RS");
    if env::var_os("DOCS_RS").is_some() {
        return;
    }
    // An error here is one line for the user, not a panic with a backtrace.
    if let Err(message) = run() {
        println!("cargo::error={message}");
    }
}

fn run() -> Result<(), String> {
    let manifest_dir = PathBuf::from(variable("CARGO_MANIFEST_DIR")?);
    for variable in [PREFIX_VARIABLE, PRISTINE_VARIABLE] {
        println!("cargo::rerun-if-env-changed={variable}");
    }
    let workspace = manifest_dir.ancestors().nth(2).unwrap_or(&manifest_dir);
    // Cargo runs build scripts in the package's folder, so relative paths start there.
    let search = Search::from_environment(workspace, &manifest_dir);
    let lock = manifest_dir.join("mlx.lock");
    println!("cargo::rerun-if-changed={}", lock.display());
    // Watch the folder, not the stamp, so that cargo notices a new target of the link `current`, and a rebuilt library.
    println!("cargo::rerun-if-changed={}", search.root().display());

    let prefix = find::find(&search, &lock)?;
    compile_bridge(&prefix, &manifest_dir)?;
    link(&prefix)?;
    publish(&prefix)
}

fn variable(name: &str) -> Result<String, String> {
    env::var(name).map_err(|error| format!("{name}: {error}"))
}

/// Compiles the C++ side. Warnings are errors, except in a packaged copy: a newer compiler's new warning must not break
/// a user's build.
fn compile_bridge(prefix: &Prefix, manifest_dir: &Path) -> Result<(), String> {
    let packaged = manifest_dir.join("Cargo.toml.orig").exists();
    let mut build = cxx_build::bridge("src/lib.rs");
    build
        .files(BRIDGE)
        .std(&prefix.stamp.cxx_std)
        .define(
            "MLX_OVERLAY_VERSION",
            format!("\"{}\"", prefix.stamp.version).as_str(),
        )
        .warnings(true)
        .extra_warnings(true)
        .warnings_into_errors(!packaged);
    for define in &prefix.stamp.defines {
        build.define(define, None);
    }
    // Pristine MLX has no policies, and only the Metal back-end has kernels for them; the bridge reports this.
    if !prefix.stamp.pristine {
        build.define("MLX_OVERLAY_POLICIES", None);
    }
    if prefix.stamp.has_policies() {
        build.define("MLX_OVERLAY_ROW_KERNELS", None);
    }
    if matches!(prefix.stamp.backend, Backend::Metal | Backend::Sim) {
        build.define("MLX_OVERLAY_METAL", None);
    }
    if let Some(path) = prefix.metallib() {
        let literal = format!("{:?}", path.display().to_string());
        build.define("MLX_OVERLAY_PREFIX_METALLIB", literal.as_str());
    }
    // As system headers: MLX's warnings are not ours to fix.
    for include in prefix.include() {
        build.flag("-isystem").flag(include);
    }
    if let Some(version) = deployment_target(prefix)? {
        build.flag(format!("-mmacosx-version-min={version}"));
    }
    println!("cargo::rerun-if-changed=src");
    build
        .try_compile("mlx_overlay_bridge")
        .map_err(|error| format!("the C++ bridge did not compile: {error}"))
}

/// Links MLX and its dependencies. `-bundle` keeps the 36 MB archive out of the rlib.
fn link(prefix: &Prefix) -> Result<(), String> {
    let stamp = &prefix.stamp;
    println!("cargo::rustc-link-search=native={}", prefix.lib().display());
    for folder in &stamp.link_search {
        println!("cargo::rustc-link-search=native={folder}");
    }
    for library in &stamp.static_libs {
        println!("cargo::rustc-link-lib=static:-bundle={library}");
    }
    for library in &stamp.system_libs {
        println!("cargo::rustc-link-lib={library}");
    }
    for framework in &stamp.frameworks {
        println!("cargo::rustc-link-lib=framework={framework}");
    }
    // MLX checks the OS version with `__builtin_available`, which calls clang's runtime. rustc links with
    // `-nodefaultlibs`, so the runtime must be named.
    if let Some(runtime) = &stamp.clang_rt {
        let (folder, name) = archive(runtime)?;
        println!("cargo::rustc-link-search=native={}", folder.display());
        println!("cargo::rustc-link-lib=static:-bundle={name}");
    }
    Ok(())
}

/// Folder and name of an archive `folder/libNAME.a`, in the form that a linker needs.
fn archive(path: &Path) -> Result<(&Path, &str), String> {
    let name = path.file_name().and_then(|name| name.to_str());
    name.and_then(|name| name.strip_prefix("lib")?.strip_suffix(".a"))
        .zip(path.parent())
        .map(|(name, folder)| (folder, name))
        .ok_or_else(|| format!("`{}` is not the path of a static library", path.display()))
}

/// The oldest macOS for which the bridge is compiled: the user's setting, else the version that MLX was built for.
fn deployment_target(prefix: &Prefix) -> Result<Option<String>, String> {
    if variable("CARGO_CFG_TARGET_OS")? != "macos" {
        return Ok(None);
    }
    println!("cargo::rerun-if-env-changed=MACOSX_DEPLOYMENT_TARGET");
    Ok(env::var("MACOSX_DEPLOYMENT_TARGET")
        .ok()
        .or_else(|| prefix.stamp.deployment_target.clone()))
}

/// Passes the results to this crate (`rustc-env`) and to the build scripts of its dependants (`DEP_MLX_*`).
fn publish(prefix: &Prefix) -> Result<(), String> {
    let stamp = &prefix.stamp;
    let include =
        env::join_paths(prefix.include()).map_err(|error| format!("include folders: {error}"))?;
    let metallib = prefix
        .metallib()
        .map(|path| path.display().to_string())
        .unwrap_or_default();
    let facts = [
        ("prefix", prefix.root.display().to_string()),
        ("include", include.to_string_lossy().into_owned()),
        ("lib", prefix.lib().display().to_string()),
        ("version", stamp.version.clone()),
        ("tree", stamp.final_tree.clone()),
        ("base_tree", stamp.base_tree.clone()),
        ("pristine", stamp.pristine.to_string()),
        ("backend", stamp.backend.to_string()),
        ("cpu", stamp.cpu.to_string()),
        ("jit", stamp.jit.to_string()),
        ("policies", stamp.has_policies().to_string()),
        ("defines", stamp.defines.join(" ")),
        ("cxx_std", stamp.cxx_std.clone()),
        ("metallib", metallib),
        (
            "deployment_target",
            deployment_target(prefix)?.unwrap_or_default(),
        ),
    ];
    for (key, value) in facts {
        println!("cargo::metadata={key}={value}");
        println!(
            "cargo::rustc-env=MLX_OVERLAY_BUILT_{}={value}",
            key.to_uppercase()
        );
    }
    Ok(())
}
