//! A stamp for a prefix into which nothing was built.

use mlx_prefix::{Backend, Stamp};

/// The stamp of a prefix of MLX `version`, built from `tree`.
pub(crate) fn stamp(version: &str, tree: &str, backend: Backend) -> Stamp {
    Stamp {
        version: version.to_owned(),
        base_tree: String::new(),
        final_tree: tree.to_owned(),
        pristine: false,
        backend,
        jit: false,
        cpu: backend == Backend::Cpu,
        include: vec!["include".to_owned()],
        lib: "lib".to_owned(),
        static_libs: vec!["mlx".to_owned()],
        system_libs: Vec::new(),
        link_search: Vec::new(),
        frameworks: Vec::new(),
        defines: Vec::new(),
        cxx_std: "c++20".to_owned(),
        metallib: None,
        deployment_target: None,
        clang_rt: None,
        tools: [].into(),
    }
}
