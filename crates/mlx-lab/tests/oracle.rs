//! Compares the reader of model folders with mlx-lm: `oracle/folders.py` writes folders and, for each, the products that
//! mlx-lm computes.
//!
//! MLX_LM_PYTHON names a Python that has MLX and mlx-lm (`ci/mlx-lm.sh oracle` makes one). Without it the test is
//! listed as ignored.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use libtest_mimic::{Arguments, Failed, Trial};
use mlx_lab::model::{Model, TIES, inventory};
use mlx_lab::product;
use serde::Deserialize;

/// The products that mlx-lm computed for a folder.
#[derive(Deserialize)]
struct Listing {
    products: BTreeMap<String, Multiplied>,
    /// Heads of queries and keys, values per head of keys and values, and whether there are sinks: one entry per call.
    attention: Vec<(usize, usize, usize, usize, bool)>,
}

#[derive(Deserialize)]
struct Multiplied {
    batch: Vec<usize>,
    n: usize,
    k: usize,
    format: Option<(String, u32, u32)>,
}

fn main() {
    let arguments = Arguments::from_args();
    let python = std::env::var_os("MLX_LM_PYTHON");
    let missing = python.is_none();
    if missing {
        eprintln!(
            "the oracle is ignored: MLX_LM_PYTHON names no Python with mlx-lm (ci/mlx-lm.sh oracle)"
        );
    }
    let trial = Trial::test("folders_are_read_as_mlx_lm_reads_them", move || {
        compare(&python.unwrap_or_default())
    });
    libtest_mimic::run(&arguments, vec![trial.with_ignored_flag(missing)]).exit();
}

fn compare(python: &std::ffi::OsStr) -> Result<(), Failed> {
    let root = tempfile::tempdir()?;
    let folders = root.path().join("folders");
    std::fs::create_dir(&folders)?;
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/oracle/folders.py");
    let output = Command::new(python).arg(script).arg(&folders).output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned().into());
    }
    let listings: BTreeMap<String, Listing> =
        serde_json::from_slice(&std::fs::read(folders.join("listing.json"))?)?;
    let ties: BTreeSet<String> =
        serde_json::from_slice(&std::fs::read(folders.join("ties.json"))?)?;
    assert_eq!(
        TIES.map(str::to_owned).into_iter().collect::<BTreeSet<_>>(),
        ties,
        "families whose head mlx-lm drops if it is tied"
    );
    assert!(listings.len() > 30, "{} folders", listings.len());
    let wrong: Vec<String> = listings
        .iter()
        .flat_map(|(name, listing)| {
            let found = differences(&folders.join(name), listing);
            found.into_iter().map(move |line| format!("{name}: {line}"))
        })
        .collect();
    if wrong.is_empty() {
        Ok(())
    } else {
        Err(wrong.join("\n").into())
    }
}

/// The differences between the reader's answer and mlx-lm's.
fn differences(folder: &Path, listing: &Listing) -> Vec<String> {
    let (inventory, model) = match (inventory(folder), Model::read(folder)) {
        (Ok(inventory), Ok(model)) => (inventory, model),
        (Err(error), _) | (_, Err(error)) => return vec![error.to_string()],
    };
    let mut wrong = Vec::new();
    let skipped: BTreeSet<&str> = inventory
        .skipped
        .iter()
        .map(|(name, _)| name.as_str())
        .collect();
    for (name, expected) in &listing.products {
        let format = expected
            .format
            .as_ref()
            .map(|(mode, bits, group)| match mode.as_str() {
                "affine" => format!("{bits}:{group}"),
                mode => mode.to_owned(),
            });
        let expected = (expected.batch.is_empty()).then_some((expected.n, expected.k, format));
        let found = inventory
            .products
            .get(name)
            .map(|module| (module.n, module.k, module.quantization.map(product::format)));
        let named = expected.is_some() || skipped.contains(name.as_str());
        if found != expected || !named {
            wrong.push(format!(
                "{name}: mlx-lm multiplies {expected:?}, the reader has {found:?}"
            ));
        }
    }
    // mlx-lm wrote every tensor.
    for (name, reason) in &inventory.skipped {
        if reason.starts_with("missing, but") {
            wrong.push(format!("{name}: {reason}"));
        }
    }
    for name in inventory.products.keys() {
        if !listing.products.contains_key(name) {
            wrong.push(format!("{name}: mlx-lm does not multiply it"));
        }
    }
    let theirs: BTreeSet<_> = listing.attention.iter().copied().collect();
    let ours: BTreeSet<_> = model
        .attention
        .iter()
        .map(|a| (a.heads, a.kv_heads, a.head_dim, a.value_dim, a.sinks))
        .collect();
    let all = model.attention.iter().map(|a| a.layers).sum::<usize>() == listing.attention.len();
    if !ours.is_subset(&theirs)
        || ours != theirs && model.skipped.is_empty()
        || all && ours != theirs
    {
        wrong.push(format!(
            "attention: mlx-lm computes {theirs:?}, the reader has {ours:?}; {:?}",
            model.skipped
        ));
    }
    wrong
}
