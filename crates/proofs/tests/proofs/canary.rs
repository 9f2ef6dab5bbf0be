//! The bits of one row at this pin. The order-preserving kernels follow the pin's one-row kernels. If a new pin changes
//! those, this test fails and explains the other failures.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Result, ensure};
use dispatch_plan::{Dtype, Policy};
use metal_sim::Device;
use proofs::{BITS, Case, Driver, FloatFormat, How, Kind, Prefix};
use serde::{Deserialize, Serialize};

/// Set to 1 to store the bits instead of comparing them.
pub(crate) const BLESS: &str = "QMV_PROOF_BLESS";

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Golden {
    /// The pin with which it was made.
    version: String,
    base_tree: String,
    /// By kernel and K: 8 outputs in hex.
    rows: BTreeMap<String, String>,
}

pub(crate) fn same_bits() -> Result<()> {
    let prefix = Prefix::patched()?;
    let driver = Driver::build(&prefix)?;
    let architecture = "applegpu_g15d".parse()?;
    let mut cases = Vec::new();
    for kind in Kind::ALL {
        for &bits in BITS {
            cases.extend(Case::new(bits, 64, kind, []).map(|case| Case { n: 8, ..case }));
        }
        for dtype in [Dtype::Float16, Dtype::Bfloat16] {
            cases.extend(Case::new(4, 64, kind, []).map(|case| Case {
                n: 8,
                dtype,
                ..case
            }));
        }
        for format in FloatFormat::ALL {
            for &dtype in Dtype::ALL {
                cases.extend(format.case(kind, []).map(|case| Case {
                    n: 8,
                    dtype,
                    ..case
                }));
            }
        }
    }
    let how = How {
        device: Device::new(),
        policy: Policy::DEFAULT,
        metallib: None,
    };
    let mut rows = BTreeMap::new();
    for (case, answer) in cases.iter().zip(driver.run(&how, &cases)?) {
        let kernel = case.plan(architecture, Policy::DEFAULT, 1)?.kernel;
        ensure!(
            answer.alone.kernels.contains_key(&kernel),
            "{:?}",
            answer.alone.kernels
        );
        rows.insert(format!("{kernel} k {}", case.k), answer.alone.bits);
    }
    let found = Golden {
        version: prefix.stamp().version.clone(),
        base_tree: prefix.stamp().base_tree.clone(),
        rows,
    };
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/one-row.toml");
    if std::env::var_os(BLESS).is_some_and(|value| value == "1") {
        fs_err::write(&file, toml::to_string(&found)?)?;
        return Ok(());
    }
    let stored: Golden = toml::from_str(&fs_err::read_to_string(&file)?)?;
    let mut changed: Vec<&String> = stored.rows.keys().collect();
    changed.retain(|name| found.rows.get(*name) != stored.rows.get(*name));
    let names_differ = !found.rows.keys().eq(stored.rows.keys());
    ensure!(
        changed.is_empty() && !names_differ,
        "{}: one row has other bits than at MLX {} (tree {}), in {changed:?}; if the new pin intends \
         that, run again with {BLESS}=1 and note it in the change log",
        file.display(),
        stored.version,
        stored.base_tree
    );
    ensure!(
        found.base_tree == stored.base_tree,
        "{}: made on MLX {}, tree {}; the bits are those of {} as well: run again with {BLESS}=1",
        file.display(),
        stored.version,
        stored.base_tree,
        found.version
    );
    Ok(())
}
