//! Tiles of `qmv_wide`: ours have up to 8 rows, upstream's up to 5, and a row's bits are the same in all of them.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use dispatch_plan::Policy;
use metal_sim::Device;

use crate::case::{BITS, Case, Kind, Record};
use crate::driver::{Answer, Driver, How};
use crate::identity::{ARCHITECTURE, architecture};

/// The most rows of a tile, here and upstream.
const CAP: u32 = 8;
const UPSTREAM_CAP: u32 = 5;

/// The largest number of rows that is tried.
const ROWS: u32 = 16;

/// Outputs; above 2,048 the cap is raised.
const OUTPUTS: u32 = 2056;

/// The shortest K of `qmv_fast`, with enough outputs for larger tiles.
fn many_outputs(case: Case) -> Case {
    Case {
        n: OUTPUTS,
        k: if case.bits == 1 { case.k } else { case.k / 3 },
        ..case
    }
}

fn cap_of(case: &Case) -> u32 {
    if case.n > 2048 { CAP } else { UPSTREAM_CAP }
}

fn how() -> Result<How> {
    Ok(How {
        device: Device::new()
            .architecture(ARCHITECTURE.parse()?)
            .host_threads(1),
        policy: Policy::DEFAULT,
        metallib: None,
    })
}

/// Rows of one tile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Tile {
    first: u32,
    count: u32,
}

/// The fewest tiles of at most `cap` rows that cover `m`, all but the last of the same height.
fn tiles(m: u32, cap: u32) -> impl Iterator<Item = Tile> {
    let height = m.div_ceil(m.div_ceil(cap));
    (0..m).step_by(height as usize).map(move |first| Tile {
        first,
        count: height.min(m - first),
    })
}

/// Compares the patched library with itself: several rows in one product, and the same rows in one product for each
/// tile into which upstream would split them. These take a kernel that upstream has too. Returns the number of compared
/// products.
///
/// # Errors
/// The first product that differs or that took another kernel than planned.
pub fn compare_with_smaller_tiles(driver: &Driver, bits: &[u32], rows: &[u32]) -> Result<usize> {
    let mut cases = Vec::new();
    for &bits in bits {
        for &m in rows {
            let whole = Tile { first: 0, count: m };
            for tile in std::iter::once(whole).chain(tiles(m, UPSTREAM_CAP)) {
                cases.extend(Case::new(bits, 64, Kind::Fast, [tile.count]).map(|case| {
                    many_outputs(Case {
                        first: tile.first,
                        alone: tile.first + tile.count,
                        record: Record::Bits,
                        ..case
                    })
                }));
            }
        }
    }
    let answers = driver.run(&how()?, &cases)?;
    let mut products = cases.iter().zip(&answers);
    let mut next = || -> Result<(&Case, &str)> {
        let (case, answer) = products.next().context("an answer is missing")?;
        let together = answer.together.first().context("a product is missing")?;
        check_kernel(case, together.m, &together.kernels)?;
        let bits = together.bits.as_deref();
        Ok((case, bits.context("no bits were recorded")?))
    };
    let mut compared = 0;
    for &_ in bits {
        for &m in rows {
            let (case, whole) = next()?;
            let mut parts = String::new();
            for _ in tiles(m, UPSTREAM_CAP) {
                parts += next()?.1;
            }
            ensure!(
                whole == parts,
                "{case}: other bits at M = {m} than in tiles of {UPSTREAM_CAP}"
            );
            compared += 1;
        }
    }
    Ok(compared)
}

/// Checks that the planned kernel ran, in the fewest tiles.
fn check_kernel(case: &Case, m: u32, kernels: &BTreeMap<String, u64>) -> Result<()> {
    let plan = case.plan(architecture()?, Policy::DEFAULT, m)?;
    ensure!(
        kernels.len() == 1 && kernels.contains_key(&plan.kernel),
        "{case}: {kernels:?} at M = {m}, {} planned",
        plan.kernel
    );
    let fewest = if m == 1 { 1 } else { m.div_ceil(cap_of(case)) };
    ensure!(
        plan.tiles == fewest,
        "{case}: M = {m} takes {} tiles, {fewest} are enough",
        plan.tiles
    );
    Ok(())
}

/// Compares the patched library with pristine MLX: M = 1 to 16 under `default`, all bits and kinds of K, batched and
/// not. Returns the number of compared products, and in how many of them the two took different tiles.
///
/// # Errors
/// The first product that differs, that took another kernel than planned, or whose kernels tiles of 8 and of 5 do not
/// explain.
pub fn compare_with_pristine(patched: &Driver, pristine: &Driver) -> Result<[usize; 2]> {
    let mut cases = Vec::new();
    for &bits in BITS {
        for kind in Kind::ALL {
            for batch in [1, 2] {
                let case = Case::new(bits, 64, kind, 1..=ROWS).map(|case| Case {
                    batch,
                    record: Record::Bits,
                    ..case
                });
                // Few outputs, with upstream's tiles, and many.
                if kind == Kind::Fast {
                    cases.extend(case.clone().map(many_outputs));
                }
                cases.extend(case);
            }
        }
    }
    let ours = patched.run(&how()?, &cases)?;
    let theirs = pristine.run(&how()?, &cases)?;
    let mut compared = [0, 0];
    for ((case, ours), theirs) in cases.iter().zip(&ours).zip(&theirs) {
        compare(case, ours, theirs, &mut compared)?;
    }
    Ok(compared)
}

fn compare(case: &Case, ours: &Answer, theirs: &Answer, compared: &mut [usize; 2]) -> Result<()> {
    for (ours, theirs) in ours.together.iter().zip(&theirs.together) {
        let m = ours.m;
        ensure!(ours.bits.is_some(), "{case}: no bits at M = {m}");
        ensure!(
            m == theirs.m && ours.bits == theirs.bits,
            "{case}: other bits at M = {m} than pristine MLX"
        );
        check_kernel(case, m, &ours.kernels)?;
        let height = |cap: u32| tiles(m, cap).next().map(|tile| tile.count);
        let other_tiles = m > 1 && height(cap_of(case)) != height(UPSTREAM_CAP);
        ensure!(
            (ours.kernels != theirs.kernels) == other_tiles,
            "{case} at M = {m}: {:?}, and {:?} in pristine MLX",
            ours.kernels,
            theirs.kernels
        );
        compared[0] += 1;
        compared[1] += usize::from(other_tiles);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiles_are_the_fewest_and_hold_all_rows() {
        let heights = |m, cap| tiles(m, cap).map(|rows| rows.count).collect::<Vec<_>>();
        assert_eq!(heights(11, 5), [4, 4, 3]);
        assert_eq!(heights(11, 8), [6, 5]);
        assert_eq!(heights(8, 8), [8]);
        for m in 1..=40 {
            for cap in [UPSTREAM_CAP, CAP] {
                let heights = heights(m, cap);
                assert_eq!(heights.iter().sum::<u32>(), m);
                assert_eq!(heights.len() as u32, m.div_ceil(cap));
            }
        }
    }
}
