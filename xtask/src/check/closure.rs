//! Checks that every kernel that the dispatch can ask for exists, in both ways to build MLX.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, bail, ensure};
use camino::Utf8Path;
use metal_sim::{Library, Toolchain, default_cache_folder, kernel_functions};

use crate::kernels::{is_nax, thousands};

const METAL: &str = "mlx/backend/metal";

/// Checks that every name that the dispatch can ask for is instantiated, also in a build without matrix units.
pub(super) fn ahead_of_time(library: &Library) -> Result<String> {
    let plain = dispatch_plan::kernels(false)?;
    let mut asked: BTreeSet<String> = dispatch_plan::kernels(true)?.into_keys().collect();
    asked.extend(dispatch_plan::dense_kernels()?);
    asked.extend(dispatch_plan::attention_kernels()?);
    let lacks = |name: &&String| match source(library, name) {
        None => true,
        Some(source) => is_nax(source) && plain.contains_key(*name),
    };
    let missing: Vec<_> = asked.iter().filter(lacks).collect();
    if let Some(first) = missing.first() {
        bail!(
            "{} of {} names that the dispatch can ask for are not instantiated, such as {first}; `cargo xtask kernels` lists \
             them",
            thousands(missing.len() as u64),
            thousands(asked.len() as u64)
        );
    }
    Ok(format!(
        "{} names that the dispatch can ask for are instantiated",
        thousands(asked.len() as u64)
    ))
}

/// Checks that the function behind each such name is in a header that a JIT build compiles into the host library.
/// Attention is compiled ahead of time in a JIT build too, so its source must be compiled there.
pub(super) fn at_run_time(tree: &Utf8Path, library: &Library) -> Result<String> {
    let compiled_in = jit_sources(tree)?;
    let mut wanted: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let products = dispatch_plan::kernels(true)?.into_keys();
    let names: Vec<_> = products.chain(dispatch_plan::dense_kernels()?).collect();
    for name in &names {
        // Names without any source are reported by the other check.
        if let (Some(source), Some(entry)) = (source(library, name), library.entry(name)) {
            let function = entry.expression.split('<').next().unwrap_or_default();
            wanted.entry(source).or_default().insert(function);
        }
    }
    let toolchain = Toolchain::find(default_cache_folder())?;
    let mut missing = Vec::new();
    for (source, functions) in &wanted {
        let stem = source.trim_end_matches(".metal");
        if !compiled_in.contains(stem) {
            missing.push(format!("{stem}: no make_jit_source"));
            continue;
        }
        let found = kernel_functions(&toolchain, tree.as_std_path(), &format!("{stem}.h"))?;
        for &function in functions {
            if !found.contains(function) {
                missing.push(format!("{function}: not in {stem}.h"));
            }
        }
    }
    let ahead = ahead_in_every_build(tree)?;
    let attention = dispatch_plan::attention_kernels()?;
    let mut sources: BTreeSet<&str> = BTreeSet::new();
    sources.extend(attention.iter().filter_map(|name| source(library, name)));
    for source in sources {
        let stem = source.trim_end_matches(".metal");
        if !ahead.contains(stem) {
            missing.push(format!(
                "{stem}: no build_kernel outside `if(NOT MLX_METAL_JIT)`"
            ));
        }
    }
    ensure!(
        missing.is_empty(),
        "a JIT build cannot compile {}",
        missing.join(", ")
    );
    Ok(format!(
        "their {} functions are in the {} headers that a JIT build compiles in",
        wanted.values().map(BTreeSet::len).sum::<usize>(),
        wanted.len()
    ))
}

/// The file that instantiates a name.
fn source<'a>(library: &'a Library, name: &str) -> Option<&'a str> {
    let entry = library.entry(name)?;
    Some(library.sources().get(entry.source)?.file.as_str())
}

/// The headers that the CMake files embed as text in the host library.
fn jit_sources(tree: &Utf8Path) -> Result<BTreeSet<String>> {
    const CALL: &str = "make_jit_source(";
    let mut sources = BTreeSet::new();
    for file in ["CMakeLists.txt", "rows.cmake"] {
        let path = tree.join(METAL).join(file);
        if !path.exists() && file == "rows.cmake" {
            continue;
        }
        let text = fs_err::read_to_string(path)?;
        sources.extend(text.split(CALL).skip(1).filter_map(|after| {
            let name = after.trim_start().split([' ', '\n', ')']).next()?;
            Some(name.to_owned())
        }));
    }
    Ok(sources)
}

/// The sources that the CMake files compile ahead of time in every build.
fn ahead_in_every_build(tree: &Utf8Path) -> Result<BTreeSet<String>> {
    let mut sources = BTreeSet::new();
    // For each open `if`: whether it excludes JIT builds.
    let mut open: Vec<bool> = Vec::new();
    for file in ["CMakeLists.txt", "rows.cmake"] {
        let path = tree.join(METAL).join("kernels").join(file);
        if !path.exists() {
            continue;
        }
        for line in fs_err::read_to_string(path)?.lines().map(str::trim) {
            if line.starts_with("if(") {
                open.push(line.contains("NOT MLX_METAL_JIT"));
            } else if line.starts_with("endif(") {
                open.pop();
            } else if let Some(after) = line.strip_prefix("build_kernel(")
                && !open.contains(&true)
            {
                sources.extend(after.split([' ', ')']).next().map(str::to_owned));
            }
        }
    }
    Ok(sources)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KERNEL: &str =
        "template <typename T, int g, int b> [[kernel]] void affine_qvm(device T* x) {}\n";

    #[test]
    fn a_name_that_nothing_instantiates_is_told() {
        let text = format!("{:#}", ahead_of_time(&Library::default()).unwrap_err());
        assert!(
            text.contains("are not instantiated, such as affine_"),
            "{text}"
        );
    }

    #[test]
    fn attention_is_compiled_ahead_in_every_build() {
        let folder = tempfile::tempdir().unwrap();
        let tree = Utf8Path::from_path(folder.path()).unwrap();
        let kernels = tree.join(METAL).join("kernels");
        fs_err::create_dir_all(&kernels).unwrap();
        let name = "sdpa_vector_2pass_1_gqa_rows_8_float_64_64";
        let text = format!(
            "template <typename T, int d> [[kernel]] void rows(device T* x) {{}}\n\
             template [[host_name(\"{name}\")]] [[kernel]] decltype(rows<float, 64>) rows<float, 64>;\n"
        );
        let library = Library::from_source("sdpa_rows.metal", &text).unwrap();
        fs_err::write(tree.join(METAL).join("CMakeLists.txt"), "").unwrap();
        for (condition, told) in [
            ("EXISTS sdpa_rows.metal", None),
            (
                "NOT MLX_METAL_JIT",
                Some("sdpa_rows: no build_kernel outside"),
            ),
        ] {
            let text = format!("if({condition})\n  build_kernel(sdpa_rows sdpa_rows.h)\nendif()\n");
            fs_err::write(kernels.join("rows.cmake"), text).unwrap();
            let result = at_run_time(tree, &library);
            match told {
                None => assert!(result.is_ok(), "{result:?}"),
                Some(told) => {
                    let text = format!("{:#}", result.unwrap_err());
                    assert!(text.contains(told), "{text}");
                }
            }
        }
    }

    #[test]
    fn a_jit_build_needs_the_header_and_the_function_in_it() {
        let folder = tempfile::tempdir().unwrap();
        let tree = Utf8Path::from_path(folder.path()).unwrap();
        let kernels = tree.join(METAL).join("kernels");
        fs_err::create_dir_all(&kernels).unwrap();
        let name = "affine_qvm_float_gs_64_b_4_batch_0";
        let instantiation = format!(
            "template [[host_name(\"{name}\")]] [[kernel]] decltype(affine_qvm<float, 64, 4>) affine_qvm<float, 64, 4>;\n"
        );
        let library =
            Library::from_source("quantized.metal", &format!("{KERNEL}{instantiation}")).unwrap();

        let cmake = tree.join(METAL).join("CMakeLists.txt");
        for (calls, header, told) in [
            ("make_jit_source(\n    quantized kernels/x.h)", KERNEL, None),
            (
                "make_jit_source(unary)",
                KERNEL,
                Some("quantized: no make_jit_source"),
            ),
            (
                "make_jit_source(quantized)",
                "",
                Some("affine_qvm: not in quantized.h"),
            ),
        ] {
            fs_err::write(&cmake, format!("function(make_jit_source SRC)\n{calls}\n")).unwrap();
            fs_err::write(kernels.join("quantized.h"), header).unwrap();
            let result = at_run_time(tree, &library);
            match told {
                None => assert!(result.unwrap().contains("1 functions are in the 1 headers")),
                Some(told) => {
                    let text = format!("{:#}", result.unwrap_err());
                    assert!(text.contains(told), "{text}");
                }
            }
        }
    }
}
