//! Compares the watch list with our own text: everything of upstream's that the overlay and its plans name or copy is
//! watched.

use std::collections::{BTreeMap, BTreeSet};

use camino::Utf8Path;
use fs_err as fs;

use super::manifests::repository_manifest;
use super::real::{checkout, repository};
use crate::manifest::Watch;
use crate::sources::store::Store;
use crate::tree::Snapshot;
use crate::watch;

/// A run of this many equal tokens counts as a copy; shorter ones may be a kernel's usual parameters.
const COPIED: usize = 60;

/// Names in our text on which no claim depends: file, names and reason.
const NOT_WATCHED: [(&str, &[&str], &str); 13] = [
    ("mlx/backend/cuda/device.h", &["MLX_API"], "visibility"),
    (
        "mlx/backend/cuda/device/cute_dequant.cuh",
        &["cute_dequant"],
        "the name of the header",
    ),
    ("mlx/backend/cuda/utils.h", &["gpu_ptr"], "a pointer"),
    (
        "mlx/backend/metal/device.cpp",
        &[
            "CommandEncoder",
            "device",
            "get_command_encoder",
            "load_default_library",
            "new_scoped_memory_pool",
        ],
        "called as any primitive calls them",
    ),
    ("mlx/backend/metal/device.h", &["MLX_API"], "visibility"),
    (
        "mlx/backend/metal/kernels.h",
        &["get_template_definition"],
        "a build with JIT instantiates by it, and its tests would not compile a kernel",
    ),
    (
        "mlx/backend/metal/kernels/fp_quantized.h",
        &["Quantize", "MLX_MTL_CONST"],
        "a primitive of that name; an address space",
    ),
    (
        "mlx/backend/metal/kernels/gemv.h",
        &["MLX_MTL_CONST"],
        "an address space",
    ),
    (
        "mlx/backend/metal/kernels/quantized.h",
        &["MLX_MTL_CONST"],
        "an address space",
    ),
    (
        "mlx/backend/metal/kernels/utils.h",
        &["dim", "MLX_MTL_PRAGMA_UNROLL"],
        "a word; a hint to the compiler",
    ),
    (
        "mlx/backend/common/utils.h",
        &["elem_to_loc"],
        "the kernels' own is meant",
    ),
    (
        "mlx/backend/metal/reduce.cpp",
        &[
            "ColReduceArgs",
            "strided_reduce_2pass",
            "strided_reduce_longcolumn",
            "strided_reduce_looped",
            "strided_reduce_small",
        ],
        "the check of operations says which is taken, not what it computes",
    ),
    (
        "mlx/backend/metal/utils.h",
        &["concatenate"],
        "puts names together; the closure finds a wrong one",
    ),
];

/// Our files: the overlay's own, and those that describe MLX's dispatch.
fn our_files() -> BTreeMap<String, String> {
    let root = repository().root().to_owned();
    let mut texts = BTreeMap::new();
    for folder in ["patches/files", "crates/dispatch-plan/src"] {
        for entry in walkdir::WalkDir::new(root.join(folder)) {
            let entry = entry.unwrap();
            let path = Utf8Path::from_path(entry.path()).unwrap();
            if entry.file_type().is_file() {
                let name = path.strip_prefix(&root).unwrap().to_string();
                texts.insert(name, fs::read_to_string(path).unwrap());
            }
        }
    }
    texts
}

/// The files that a text includes.
fn includes(text: &str) -> Vec<String> {
    let quoted = text
        .lines()
        .filter_map(|line| line.trim().strip_prefix("#include \"")?.strip_suffix('"'));
    quoted.map(str::to_owned).collect()
}

/// Upstream's files that our text depends on: watched ones, included ones, and what included kernels include.
fn room(upstream: &Snapshot, list: &[Watch], ours: &str) -> BTreeSet<String> {
    let mut room: BTreeSet<_> = list.iter().map(|entry| entry.file.clone()).collect();
    let mut left = includes(ours);
    while let Some(file) = left.pop() {
        let is_kernels = file.starts_with("mlx/backend/metal/kernels/");
        // Matrix kernels are upstream's only; MLX's dispatch of them is watched.
        let counts = file.starts_with("mlx/backend/") && !file.contains("/steel/");
        if let Some(text) = upstream.0.get(&file).filter(|_| counts)
            && room.insert(file)
            && is_kernels
        {
            left.extend(includes(&String::from_utf8_lossy(&text.bytes)));
        }
    }
    room
}

/// Whether a text contains a name that is not part of a longer one.
fn has_name(text: &str, name: &str) -> bool {
    let in_name = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(name).any(|(at, _)| {
        !text[..at].ends_with(in_name) && !text[at + name.len()..].starts_with(in_name)
    })
}

fn tokens(text: &str) -> Vec<&str> {
    let tokens = c_tokens::split(text).tokens;
    let tokens = tokens.iter().map(|token| &text[token.start..token.end]);
    tokens.filter(|token| *token != "\n").collect()
}

/// The upstream names (with their files) that `ours` uses or copies but the list does not watch; also names from the
/// same file that a definition followed by `ours` uses.
fn not_watched(
    upstream: &Snapshot,
    list: &[Watch],
    ours: &BTreeMap<String, String>,
) -> BTreeSet<(String, String)> {
    let all: String = ours.values().map(String::as_str).collect();
    let split: Vec<_> = ours
        .iter()
        .filter(|(path, _)| !path.ends_with(".rs"))
        .map(|(_, text)| tokens(text))
        .collect();
    let pieces: BTreeSet<&[&str]> = split.iter().flat_map(|one| one.windows(COPIED)).collect();
    let is_watched = |file: &str, name: &str| {
        let of_file = list.iter().filter(|entry| entry.file == file);
        of_file
            .flat_map(|entry| [&entry.functions, &entry.structs, &entry.macros])
            .flatten()
            .any(|watched| watched == name)
    };
    let mut missing = BTreeSet::new();
    for file in room(upstream, list, &all) {
        let text = String::from_utf8_lossy(&upstream.0[&file].bytes);
        let definitions = watch::all(&text);
        let follows = |name: &str| {
            let mut entries = list.iter().filter(|entry| entry.file == file);
            entries.any(|entry| entry.followed_by.is_some()) && is_watched(&file, name)
        };
        let followed = definitions.iter().filter(|(name, _)| follows(name));
        let followed: BTreeSet<_> = followed.flat_map(|(_, body)| body).collect();
        for (name, body) in &definitions {
            let body: Vec<_> = body
                .iter()
                .map(String::as_str)
                .filter(|token| *token != "\n")
                .collect();
            let is_ours = has_name(&all, name)
                || followed.contains(name)
                || body.windows(COPIED).any(|window| pieces.contains(window));
            if is_ours && !is_watched(&file, name) {
                missing.insert((file.clone(), name.clone()));
            }
        }
    }
    missing
}

#[test]
fn what_our_text_names_or_copies_of_upstream_is_watched() {
    let (_folder, workspace) = checkout();
    let store = Store::open(&workspace).unwrap();
    let mut manifest = repository_manifest();
    let upstream = Snapshot::of_tree(store.repo(), manifest.mlx.tree).unwrap();
    let ours = our_files();
    let excepted: BTreeSet<_> = NOT_WATCHED
        .iter()
        .flat_map(|(file, names, _)| {
            names
                .iter()
                .map(|name| ((*file).to_owned(), (*name).to_owned()))
        })
        .collect();
    let found = not_watched(&upstream, &manifest.watch, &ours);
    let forgotten: Vec<_> = found.difference(&excepted).collect();
    assert!(
        forgotten.is_empty(),
        "watch these in mlx.toml and run `cargo xtask check watch --accept`, or add to NOT_WATCHED why no claim rests on them: {forgotten:?}"
    );
    let left_over: Vec<_> = excepted.difference(&found).collect();
    assert!(
        left_over.is_empty(),
        "no longer named, or watched: {left_over:?}"
    );
    // And every watched name exists.
    let sums = watch::sums(store.repo(), manifest.mlx.tree, &manifest.watch).unwrap();
    for entry in &manifest.watch {
        for name in [&entry.functions, &entry.structs, &entry.macros]
            .into_iter()
            .flatten()
        {
            assert!(
                sums[&entry.file].contains_key(name),
                "{}: {name}",
                entry.file
            );
        }
    }

    // The test finds a name missing from the list, and a copied body under another name.
    let quantized = "mlx/backend/metal/kernels/quantized.h";
    for entry in &mut manifest.watch {
        entry
            .functions
            .retain(|name| name != "qdot" && name != "qmv_impl");
    }
    let found = not_watched(&upstream, &manifest.watch, &ours);
    let has = |file: &str, name: &str| found.contains(&(file.to_owned(), name.to_owned()));
    assert!(has(quantized, "qdot") && has(quantized, "qmv_impl"));
    let text = String::from_utf8_lossy(&upstream.0[quantized].bytes);
    let mut all = watch::all(&text).into_iter();
    let (name, body) = all.find(|(name, _)| name == "qouter").unwrap();
    let copy = body.join(" ").replacen(&name, "ours", 1);
    let copy = format!("#include \"{quantized}\"\n{copy}");
    let found = not_watched(
        &upstream,
        &[],
        &BTreeMap::from([("copy.h".to_owned(), copy)]),
    );
    assert_eq!(found, BTreeSet::from([(quantized.to_owned(), name)]));
}
