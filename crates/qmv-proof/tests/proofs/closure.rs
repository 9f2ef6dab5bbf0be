//! Every kernel that a policy can lead to is in the library.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use metal_sim::Library;
use qmv_plan::{Architecture, Dtype, Op, Path, Policy, Problem, plan};
use qmv_proof::{BITS, Format, GROUPS, Kind, Prefix};

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
        for base in bases(architecture) {
            for &dtype in Dtype::ALL {
                // From 4096 outputs on some GPUs take another one-row kernel.
                for (n, batch) in [(16, 1), (13, 1), (16, 2), (13, 2), (4096, 1), (4099, 2)] {
                    // Products of qqmm have no batch.
                    if base.global_scale && batch > 1 {
                        continue;
                    }
                    for &policy in Policy::ALL {
                        for m in 1..=40 {
                            let problem = Problem {
                                dtype,
                                n,
                                batch,
                                m,
                                ..base
                            };
                            let plan = plan(&problem, policy, &[])?;
                            asked.insert((plan.path.name(), plan.kernel));
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
    let of = |path: Path, affine: bool| {
        asked
            .iter()
            .filter(|(other, kernel)| {
                *other == path.name() && kernel.starts_with("affine_") == affine
            })
            .count()
    };
    // 7 bits, 3 groups, 3 types, batched and not; then V and the twin.
    ensure!(
        of(Path::Streamed, true) == 126 * 5 * 2,
        "{} streamed",
        of(Path::Streamed, true)
    );
    ensure!(
        of(Path::Wide, true) == 126 * 7,
        "{} wide",
        of(Path::Wide, true)
    );
    // 3 modes batched and not, nvfp4 with a global scale, 3 types; then V and the twin.
    ensure!(
        of(Path::Streamed, false) == 21 * 5 * 2,
        "{} streamed of fp modes",
        of(Path::Streamed, false)
    );
    // Not with a global scale.
    ensure!(
        of(Path::Wide, false) == 18 * 4,
        "{} wide of fp modes",
        of(Path::Wide, false)
    );
    Ok(())
}

/// A product of each kind of K, for all weights that there are.
fn bases(architecture: Architecture) -> Vec<Problem> {
    let mut bases = Vec::new();
    for bits in BITS {
        for group_size in GROUPS {
            bases.extend(ks(bits, group_size).into_iter().map(|k| Problem {
                bits,
                group_size,
                ..Problem::new(architecture, 1, k)
            }));
        }
    }
    for format in Format::ALL {
        let (bits, group_size) = format.mode.fixed().unwrap_or_default();
        bases.extend(ks(bits, group_size).into_iter().map(|k| {
            let of_mode = Problem::new(architecture, 1, k).with_mode(format.mode);
            match format.global_scale {
                false => of_mode,
                true => Problem {
                    op: Op::QqMatmul,
                    global_scale: true,
                    ..of_mode
                },
            }
        }));
    }
    bases
}

fn ks(bits: u32, group_size: u32) -> Vec<u32> {
    let kinds = Kind::ALL
        .into_iter()
        .filter_map(|kind| kind.k(bits, group_size));
    let quads = [64, 128].into_iter().filter(|k| k % group_size == 0);
    kinds.chain(quads).collect()
}
