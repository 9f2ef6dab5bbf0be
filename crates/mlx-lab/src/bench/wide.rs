//! The cost of computing even one row with the bits of `qmv_wide`, and the savings.

use mlx_overlay::RowPolicy;
use serde::{Deserialize, Serialize};

use super::{Cell, Spread, grouped};
use crate::probe::spans;
use crate::product::Product;

/// One product at one number of rows under `wide`, with the alternatives.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Wide {
    /// The product.
    pub product: Product,
    /// Rows.
    pub rows: usize,
    /// Seconds under `default`.
    pub default: Spread,
    /// Seconds under `exact`; for one row, those of `default`.
    pub exact: Spread,
    /// Seconds under `wide`.
    pub wide: Spread,
}

impl Wide {
    /// How much longer `wide` takes than another time, as a part; negative if it is faster. `None` within the spreads.
    pub fn more_than(&self, other: &Spread) -> Option<f64> {
        let differs = self.wide.is_below(other) || other.is_below(&self.wide);
        differs.then(|| self.wide.median / other.median - 1.0)
    }
}

/// Compares `wide` for all cells with one block in which all three policies were measured, either directly or through
/// another policy with the same kernel.
pub fn wide(cells: &[Cell]) -> Vec<Wide> {
    let mut all = Vec::new();
    for ((_, batch, rows), cells) in grouped(cells) {
        let of = |policy: RowPolicy| {
            let cell = cells.iter().find(|cell| cell.is_of(&policy.to_string()));
            cell.map(|cell| cell.seconds)
        };
        let times = [RowPolicy::DEFAULT, RowPolicy::EXACT, RowPolicy::WIDE].map(of);
        if let (Some(first), 1, [Some(default), Some(exact), Some(wide)]) =
            (cells.first(), batch, times)
        {
            all.push(Wide {
                product: first.product.clone(),
                rows,
                default,
                exact,
                wide,
            });
        }
    }
    all
}

/// A line for each product: the cost for one row, and the numbers of rows that are faster than under `exact`.
pub fn wide_lines(all: &[Wide]) -> Vec<String> {
    all.chunk_by(|a, b| a.product == b.product)
        .map(line)
        .collect()
}

fn line(of: &[Wide]) -> String {
    let mut parts = Vec::new();
    if let Some(one) = of.iter().find(|wide| wide.rows == 1) {
        parts.push(match one.more_than(&one.default) {
            Some(more) => format!("one row {:+.0}% against `default`", more * 100.0),
            None => "one row as fast as under `default`".to_owned(),
        });
    }
    let several = || of.iter().filter(|wide| wide.rows > 1);
    let rows = |faster: bool| {
        let is = |wide: &&Wide| wide.more_than(&wide.exact).map(|more| more < 0.0);
        let rows: Vec<usize> = several()
            .filter(|wide| is(wide) == Some(faster))
            .map(|wide| wide.rows)
            .collect();
        (!rows.is_empty()).then(|| spans(&rows))
    };
    for (word, rows) in [("faster", rows(true)), ("slower", rows(false))] {
        parts.extend(rows.map(|rows| format!("{word} than `exact` at M = {rows}")));
    }
    let saved: Vec<f64> = several()
        .map(|wide| 1.0 - wide.wide.median / wide.exact.median)
        .collect();
    if let Some(saved) = Spread::of(&saved, 1) {
        parts.push(format!(
            "several rows save {:.0}% against it in the median",
            saved.median * 100.0
        ));
    }
    format!("{}: `wide`: {}", of[0].product, parts.join("; "))
}

#[cfg(test)]
mod tests {
    use super::super::gap::tests::cell;
    use super::*;

    /// As on a GPU on which `default` and `wide` share a kernel up to 5 rows, and all except `wide` share one for one
    /// row.
    fn cells() -> Vec<Cell> {
        let mut one = cell(1, "default", 100.0);
        one.also = ["narrow", "exact"].map(str::to_owned).into();
        let mut cells = vec![one, cell(1, "wide", 112.0)];
        for (rows, exact) in [(2, 120.0), (3, 126.0), (5, 250.0)] {
            let mut shared = cell(rows, "default", 125.0);
            shared.also = vec!["wide".to_owned()];
            cells.extend([shared, cell(rows, "exact", exact)]);
        }
        cells.extend([
            cell(6, "default", 150.0),
            cell(6, "exact", 200.0),
            cell(6, "wide", 240.0),
        ]);
        cells
    }

    #[test]
    fn one_row_and_several_are_told() {
        let all = wide(&cells());
        let rows: Vec<usize> = all.iter().map(|wide| wide.rows).collect();
        assert_eq!(rows, [1, 2, 3, 5, 6]);
        assert_eq!(all[0].exact, all[0].default);
        assert_eq!(all[1].wide, all[1].default);
        let more: Vec<Option<i32>> = all
            .iter()
            .map(|wide| wide.more_than(&wide.exact))
            .map(|more| more.map(|more| (more * 100.0).round() as i32))
            .collect();
        assert_eq!(more, [Some(12), Some(4), None, Some(-50), Some(20)]);
        assert_eq!(
            wide_lines(&all),
            [
                "mlp=17408x5120:4:64: `wide`: one row +12% against `default`; faster than `exact` at M = 5; \
                 slower than `exact` at M = 2, 6; several rows save -2% against it in the median"
            ]
        );
    }

    #[test]
    fn without_all_three_nothing_is_told() {
        let without: Vec<Cell> = cells().into_iter().filter(|c| c.arm != "exact").collect();
        let rows: Vec<usize> = wide(&without).iter().map(|wide| wide.rows).collect();
        assert_eq!(rows, [1]);
        assert_eq!(wide_lines(&[]), [""; 0]);
    }
}
