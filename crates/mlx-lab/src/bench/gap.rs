//! The part of the time between the one-row kernel and the default one that the order-preserving kernel saves.

use mlx_overlay::RowPolicy;
use serde::{Deserialize, Serialize};

use super::{Cell, Spread, grouped};
use crate::product::Product;

/// A kernel that recovers less than this part of the gap is not worth carrying: the gain does not justify more names in
/// the library and one more patch. A convention, not a measurement.
pub const WORTH: f64 = 0.5;

/// One product at one number of rows: three kernels.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Gap {
    /// The product.
    pub product: Product,
    /// Rows.
    pub rows: usize,
    /// Seconds under `narrow`, which reads the weights once per row.
    pub narrow: Spread,
    /// Seconds under `default`.
    pub default: Spread,
    /// Seconds under `exact`, which reads them once for up to 8 rows.
    pub exact: Spread,
    /// The part of the time between `narrow` and `default` that `exact` saves: 1 is all of it. `None` if `default` is
    /// not faster than `narrow` by more than the spreads.
    pub recovered: Option<f64>,
    /// Whether `exact` is faster than `narrow` by more than the spreads.
    pub pays: bool,
}

/// The range in which a product's order-preserving kernel pays.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Limits {
    /// The product.
    pub product: Product,
    /// The smallest number of rows for which it pays.
    pub pays_from: Option<usize>,
    /// The smallest number of rows above that for which it no longer pays.
    pub stops_at: Option<usize>,
    /// The median of the recovered part, if there is a gap.
    pub recovered: Option<f64>,
    /// Whether it is at least [`WORTH`].
    pub worth_carrying: Option<bool>,
}

/// Compares the policies for all cells in which all three were measured with one block.
pub fn gaps(cells: &[Cell]) -> Vec<Gap> {
    let mut gaps = Vec::new();
    for ((_, batch, rows), cells) in grouped(cells) {
        let of = |policy: RowPolicy| {
            let cell = cells.iter().find(|cell| cell.arm == policy.to_string());
            cell.map(|cell| cell.seconds)
        };
        let (Some(first), 1) = (cells.first(), batch) else {
            continue;
        };
        let (Some(default), Some(narrow), Some(exact)) = (
            of(RowPolicy::DEFAULT),
            of(RowPolicy::NARROW),
            of(RowPolicy::EXACT),
        ) else {
            continue;
        };
        let recovered = default
            .is_below(&narrow)
            .then(|| (narrow.median - exact.median) / (narrow.median - default.median));
        gaps.push(Gap {
            product: first.product.clone(),
            rows,
            narrow,
            default,
            exact,
            recovered,
            pays: exact.is_below(&narrow),
        });
    }
    gaps
}

/// Summarizes gaps by product.
pub fn limits(gaps: &[Gap]) -> Vec<Limits> {
    let mut limits: Vec<Limits> = Vec::new();
    for gap in gaps {
        if limits.last().is_none_or(|last| last.product != gap.product) {
            limits.push(Limits {
                product: gap.product.clone(),
                pays_from: None,
                stops_at: None,
                recovered: None,
                worth_carrying: None,
            });
        }
        if let Some(last) = limits.last_mut() {
            match (gap.pays, last.pays_from) {
                (true, None) => last.pays_from = Some(gap.rows),
                (false, Some(_)) if last.stops_at.is_none() => last.stops_at = Some(gap.rows),
                _ => {}
            }
        }
    }
    for limit in &mut limits {
        let recovered: Vec<f64> = gaps
            .iter()
            .filter(|gap| gap.product == limit.product)
            .filter_map(|gap| gap.recovered)
            .collect();
        limit.recovered = Spread::of(&recovered, 1).map(|spread| spread.median);
        limit.worth_carrying = limit.recovered.map(|part| part >= WORTH);
    }
    limits
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A cell whose times are within 1% of a median.
    pub(crate) fn cell(rows: usize, arm: &str, micros: f64) -> Cell {
        let product: Product = "mlp=17408x5120:4:64".parse().unwrap();
        let seconds = micros * 1e-6;
        Cell {
            bytes: product.bytes(2),
            gb_per_s: Some(product.bytes(2) as f64 / seconds / 1e9),
            product,
            batch: 1,
            rows,
            arm: arm.to_owned(),
            also: Vec::new(),
            kernel: format!("kernel of {arm}"),
            length: 8,
            copies: 4,
            seconds: Spread {
                median: seconds,
                low: seconds * 0.99,
                high: seconds * 1.01,
                samples: 20,
            },
        }
    }

    fn at(rows: usize, [narrow, default, exact]: [f64; 3]) -> [Cell; 3] {
        [
            cell(rows, "narrow", narrow),
            cell(rows, "default", default),
            cell(rows, "exact", exact),
        ]
    }

    #[test]
    fn the_part_of_the_gap_that_is_recovered() {
        let cells = [
            at(2, [200.0, 100.0, 125.0]),
            // Within the spreads, so not a gap.
            at(3, [101.0, 100.0, 100.0]),
            at(4, [400.0, 100.0, 100.0]),
            at(5, [400.0, 100.0, 440.0]),
        ]
        .concat();
        let gaps = gaps(&cells);
        let recovered: Vec<_> = gaps.iter().map(|gap| gap.recovered).collect();
        assert_eq!(
            gaps.iter().map(|gap| gap.rows).collect::<Vec<_>>(),
            [2, 3, 4, 5]
        );
        assert!((recovered[0].unwrap() - 0.75).abs() < 1e-9);
        assert_eq!(recovered[1], None);
        assert!((recovered[2].unwrap() - 1.0).abs() < 1e-9);
        assert!(recovered[3].unwrap() < 0.0);
        assert_eq!(
            gaps.iter().map(|gap| gap.pays).collect::<Vec<_>>(),
            [true, false, true, false]
        );
        let limits = limits(&gaps);
        assert_eq!(limits.len(), 1);
        assert_eq!(
            (limits[0].pays_from, limits[0].stops_at),
            (Some(2), Some(3))
        );
        assert_eq!(limits[0].worth_carrying, Some(true));
    }

    #[test]
    fn without_all_three_there_is_no_gap() {
        let cells = at(4, [400.0, 100.0, 100.0]);
        assert_eq!(gaps(&cells[..2]), []);
        assert_eq!(limits(&[]), []);
    }

    #[test]
    fn a_kernel_that_recovers_little_is_not_worth_carrying() {
        let gaps = gaps(&at(4, [400.0, 100.0, 300.0]));
        assert_eq!(limits(&gaps)[0].worth_carrying, Some(false));
    }
}
