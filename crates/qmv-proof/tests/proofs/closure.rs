//! Every kernel that a policy can lead to is in the library.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use metal_sim::Library;
use qmv_plan::{Dtype, Path, Policy, Problem, plan};
use qmv_proof::{BITS, GROUPS, Kind, Prefix};

pub(crate) fn complete() -> Result<()> {
    let library = Library::read(&Prefix::patched()?.metallib()?)?;
    let mut asked = BTreeSet::new();
    for name in [
        "applegpu_g13s",
        "applegpu_g13d",
        "applegpu_g15s",
        "applegpu_g15d",
        "applegpu_g17s",
    ] {
        let architecture = name.parse()?;
        for bits in BITS {
            for group_size in GROUPS {
                let ks = Kind::ALL
                    .into_iter()
                    .filter_map(|kind| kind.k(bits, group_size));
                let quads = [64, 128].into_iter().filter(|k| k % group_size == 0);
                for k in ks.chain(quads).collect::<Vec<_>>() {
                    for &dtype in Dtype::ALL {
                        for (n, batch) in [(16, 1), (13, 1), (16, 2), (13, 2)] {
                            for &policy in Policy::ALL {
                                for m in 1..=40 {
                                    let problem = Problem {
                                        bits,
                                        group_size,
                                        dtype,
                                        batch,
                                        m,
                                        ..Problem::new(architecture, n, k)
                                    };
                                    let plan = plan(&problem, policy, &[])?;
                                    asked.insert((plan.path.name(), plan.kernel));
                                }
                            }
                        }
                    }
                }
            }
        }
    }
    let missing: Vec<_> = asked
        .iter()
        .filter(|(_, kernel)| library.entry(kernel).is_none())
        .collect();
    ensure!(
        missing.is_empty(),
        "{} of {} names are not in the library, as {:?}",
        missing.len(),
        asked.len(),
        missing.first()
    );
    let of = |path: Path| {
        asked
            .iter()
            .filter(|(other, _)| *other == path.name())
            .count()
    };
    // 7 bits, 3 groups, 3 types, batched and not; then V and the twin.
    ensure!(
        of(Path::Streamed) == 126 * 5 * 2,
        "{} streamed",
        of(Path::Streamed)
    );
    ensure!(of(Path::Wide) == 126 * 7, "{} wide", of(Path::Wide));
    Ok(())
}
