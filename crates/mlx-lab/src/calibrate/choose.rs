//! Derives preferences from times.

use dispatch_plan::function_of;
use mlx_overlay::{PolicyKind, RoutePath, RowPolicy};

use super::Preference;
use crate::Result;
use crate::bench::{ALTERNATIVE, Cell, Spread, grouped};
use crate::product::Product;

/// The measurements of one product at one number of rows, by path.
struct Point<'a> {
    product: &'a Product,
    rows: usize,
    times: Vec<(RoutePath, Spread)>,
    /// The path that `default` uses, if a route can change that.
    stock: Option<RoutePath>,
}

/// Chooses preferences for products of several rows; also returns the rejected ones.
///
/// The dispatch uses the first entry that fits and that its policy permits. So an entry for policies that do not
/// require the bits of one row comes before an entry for policies that do.
///
/// # Errors
/// The errors of `sound`.
pub fn choose(
    cells: &[Cell],
    exact: bool,
    margin: f64,
    sound: &mut dyn FnMut(&Product, usize, RoutePath) -> Result<bool>,
) -> Result<(Vec<Preference>, Vec<String>)> {
    let mut found: Vec<Preference> = Vec::new();
    let mut rejected = Vec::new();
    for point in points(cells) {
        let mut faster =
            |than: RoutePath, among: &[RoutePath]| -> Result<Option<(RoutePath, f64)>> {
                let Some(stock) = point.time(than) else {
                    return Ok(None);
                };
                let times = || point.times.iter().filter(|(path, _)| among.contains(path));
                let best = times().min_by(|a, b| a.1.median.total_cmp(&b.1.median));
                let Some(&(path, time)) = best.filter(|(path, _)| *path != than) else {
                    return Ok(None);
                };
                let saves = 1.0 - time.median / stock.median;
                let mut reject = |why: &str| {
                    rejected.push(format!(
                        "{}, M = {}: {} instead of {} {why}",
                        point.product, point.rows, path, than
                    ));
                    Ok(None)
                };
                if saves < margin || !time.is_below(&stock) {
                    return reject(&format!(
                        "saves {:.1}%, which is within margin and spread",
                        saves * 100.0
                    ));
                }
                if !sound(point.product, point.rows, path)? {
                    return reject("is faster, but its numbers are wrong");
                }
                Ok(Some((path, saves)))
            };
        let with_bits = faster(RoutePath::Streamed, WITH_BITS)?;
        let without = match point.stock {
            Some(stock) if !exact => faster(stock, RoutePath::ALL)?,
            _ => None,
        };
        let mut entries = Vec::new();
        match (without, with_bits) {
            (Some((path, saves)), _) => entries.push((path, saves)),
            // Keeps policies that only need speed from using the next entry.
            (None, Some(_)) if point.stock == Some(RoutePath::Wide) => {
                entries.push((RoutePath::Wide, 0.0));
            }
            _ => {}
        }
        if let Some((path, saves)) = with_bits
            && entries.iter().all(|&(other, _)| other != path)
        {
            entries.push((path, saves));
        }
        for (path, saves) in entries {
            add(&mut found, &point, path, saves);
        }
    }
    Ok((found, rejected))
}

/// The paths with the bits of one row.
const WITH_BITS: &[RoutePath] = &[RoutePath::Qmv, RoutePath::Streamed, RoutePath::StreamedAlt];

/// Adds an entry, or extends the entry for one row less.
fn add(found: &mut Vec<Preference>, point: &Point<'_>, path: RoutePath, saves: f64) {
    // These casts are safe: MLX's extents are 32-bit integers.
    let int = |value: usize| i32::try_from(value).unwrap_or(i32::MAX);
    let (n, k, rows) = (int(point.product.n), int(point.product.k), int(point.rows));
    // Both are small.
    let quantization = point.product.quantization;
    let (bits, group_size) = (quantization.bits() as u8, quantization.group_size() as u8);
    let mode = quantization.mode().name();
    let before = found.iter_mut().find(|entry| {
        (entry.mode.as_str(), entry.bits, entry.group_size) == (mode, bits, group_size)
            && (entry.n, entry.k) == ([n, n], [k, k])
            && entry.path == path.name()
            && entry.m[1] + 1 == rows
    });
    match before {
        Some(entry) => {
            entry.m[1] = rows;
            entry.saves = entry.saves.min(saves);
        }
        None => found.push(Preference {
            mode: mode.to_owned(),
            bits,
            group_size,
            n: [n, n],
            k: [k, k],
            m: [rows, rows],
            path: path.to_string(),
            saves,
        }),
    }
}

fn points(cells: &[Cell]) -> Vec<Point<'_>> {
    let mut points = Vec::new();
    for ((_, batch, rows), cells) in grouped(cells) {
        let Some(first) = cells.first() else { continue };
        if batch != 1 || rows < 2 {
            continue;
        }
        let times: Vec<(RoutePath, Spread)> = cells
            .iter()
            .filter_map(|cell| Some((path_of(cell)?, cell.seconds)))
            .collect();
        let default = cells
            .iter()
            .find(|cell| cell.is_of(&RowPolicy::DEFAULT.to_string()));
        let Some(default) = default else { continue };
        points.push(Point {
            product: &first.product,
            rows,
            times,
            stock: path_of(default),
        });
    }
    points
}

impl Point<'_> {
    fn time(&self, path: RoutePath) -> Option<Spread> {
        let found = self.times.iter().find(|(other, _)| *other == path);
        found.map(|&(_, time)| time)
    }
}

/// The path that selects the measured kernel; `None` if no entry does.
fn path_of(cell: &Cell) -> Option<RoutePath> {
    // The tiles of `wide`, and its kernel for products in which `default` uses a matrix kernel, are only used under
    // `wide`.
    let is_wide = |arm: &str| {
        let policy = arm.parse::<RowPolicy>();
        policy.is_ok_and(|policy| policy.kind() == PolicyKind::Wide)
    };
    if cell.arms().all(is_wide) {
        return None;
    }
    let function = function_of(&cell.kernel)?;
    if function.starts_with("qmv_streamed") {
        // Which arrangement is the other one depends on the product; the kernel's name does not show it.
        Some(if cell.arms().all(|arm| arm == ALTERNATIVE) {
            RoutePath::StreamedAlt
        } else {
            RoutePath::Streamed
        })
    } else if function.starts_with("qmv_wide") {
        Some(RoutePath::Wide)
    } else if function.starts_with("qmv_quad") {
        None
    } else {
        function.starts_with("qmv").then_some(RoutePath::Qmv)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(rows: usize, arm: &str, kernel: &str, micros: f64) -> Cell {
        let product: Product = "kv=1024x4096:4:64".parse().unwrap();
        let seconds = micros * 1e-6;
        Cell {
            bytes: product.bytes(2),
            product,
            batch: 1,
            rows,
            arm: arm.to_owned(),
            also: Vec::new(),
            kernel: format!("affine_{kernel}_bfloat16_t_gs_64_b_4"),
            length: 8,
            copies: 8,
            seconds: Spread {
                median: seconds,
                low: seconds * 0.99,
                high: seconds * 1.01,
                samples: 20,
            },
            gb_per_s: None,
        }
    }

    /// Times of the one-row, the wide and the streamed kernel.
    fn measured(rows: usize, [qmv, wide, streamed]: [f64; 3]) -> [Cell; 3] {
        [
            cell(rows, "default", "qmv_wide", wide),
            cell(rows, "narrow", "qmv_fast", qmv),
            cell(rows, "exact", "qmv_streamed_fast", streamed),
        ]
    }

    fn chosen(cells: &[Cell], exact: bool) -> Vec<(String, [i32; 2])> {
        let (found, _) = choose(cells, exact, 0.05, &mut |_, _, _| Ok(true)).unwrap();
        found
            .into_iter()
            .map(|entry| (entry.path, entry.m))
            .collect()
    }

    #[test]
    fn neighbouring_rows_share_an_entry_that_ends_at_the_cap() {
        let cells = [
            measured(2, [10.0, 20.0, 30.0]),
            measured(3, [15.0, 20.0, 30.0]),
            measured(4, [40.0, 20.0, 30.0]),
        ]
        .concat();
        // The one-row kernel beats both: one entry for all policies.
        let qmv = ("qmv".to_owned(), [2, 3]);
        assert_eq!(chosen(&cells, false), std::slice::from_ref(&qmv));
        // Only for exact policies; `default` stays as it is.
        assert_eq!(chosen(&cells, true), [("qmv_wide".to_owned(), [2, 3]), qmv]);
    }

    /// The one-row kernel wins at 2 rows for one format and at 3 for another.
    #[test]
    fn formats_of_one_shape_have_entries_of_their_own() {
        let of = |format: &str, cells: [Cell; 3]| {
            let product: Product = format!("kv=1024x4096:{format}").parse().unwrap();
            cells.map(|mut cell| {
                cell.product = product.clone();
                cell
            })
        };
        let wins = |rows| measured(rows, [10.0, 20.0, 30.0]);
        let entry = |mode: &str, group_size, rows| Preference {
            mode: mode.to_owned(),
            bits: 4,
            group_size,
            n: [1024, 1024],
            k: [4096, 4096],
            m: [rows, rows],
            path: "qmv".to_owned(),
            saves: 0.5,
        };
        for (others, expected) in [
            ("4:128", entry("affine", 128, 3)),
            ("mxfp4", entry("mxfp4", 32, 3)),
            ("nvfp4", entry("nvfp4", 16, 3)),
        ] {
            let cells = [of("4:64", wins(2)), of(others, wins(3))].concat();
            let (found, rejected) = choose(&cells, false, 0.05, &mut |_, _, _| Ok(true)).unwrap();
            assert_eq!(found, [entry("affine", 64, 2), expected]);
            assert_eq!(rejected, [""; 0]);
        }
    }

    #[test]
    fn an_exact_winner_does_not_slow_down_the_rest() {
        // Without the bits of one row, wide wins; with them, the one-row kernel.
        let cells = measured(2, [25.0, 20.0, 30.0]);
        for exact in [false, true] {
            let expected = [("qmv_wide".to_owned(), [2, 2]), ("qmv".to_owned(), [2, 2])];
            assert_eq!(chosen(&cells, exact), expected);
        }
    }

    #[test]
    fn the_streamed_kernel_can_win_without_being_asked_for() {
        let cells = measured(6, [60.0, 20.0, 15.0]);
        assert_eq!(chosen(&cells, false), [("qmv_streamed".to_owned(), [6, 6])]);
        assert_eq!(chosen(&cells, true), []);
    }

    #[test]
    fn a_margin_must_be_won_and_the_numbers_must_be_right() {
        let close = measured(2, [29.0, 40.0, 30.0]);
        let (found, rejected) = choose(&close, true, 0.05, &mut |_, _, _| Ok(true)).unwrap();
        assert_eq!(found, []);
        assert_eq!(
            rejected,
            [
                "kv=1024x4096:4:64, M = 2: qmv instead of qmv_streamed saves 3.3%, which is within margin and spread"
            ]
        );
        let wrong = measured(2, [10.0, 20.0, 30.0]);
        let (found, rejected) = choose(&wrong, true, 0.05, &mut |_, _, _| Ok(false)).unwrap();
        assert_eq!(found, []);
        assert!(rejected[0].ends_with("is faster, but its numbers are wrong"));
    }

    #[test]
    fn families_are_told_from_names() {
        for (kernel, path) in [
            ("affine_qmv_fast_float_gs_64", Some(RoutePath::Qmv)),
            ("affine_qmv_float_gs_64", Some(RoutePath::Qmv)),
            ("affine_qmv_wide_float_gs_64", Some(RoutePath::Wide)),
            ("affine_qmv_streamed_float_gs_64", Some(RoutePath::Streamed)),
            ("affine_qmv_quad_float_gs_64", None),
            ("affine_qmm_t_x", None),
            ("", None),
        ] {
            let mut cell = cell(2, "exact", "", 1.0);
            cell.kernel = kernel.to_owned();
            assert_eq!(path_of(&cell), path, "{kernel}");
        }
    }

    /// Times of the one-row, the wide and the streamed kernel, and of the latter's other arrangement.
    fn arranged(rows: usize, [qmv, wide, streamed, other]: [f64; 4]) -> Vec<Cell> {
        let mut cells = measured(rows, [qmv, wide, streamed]).to_vec();
        cells.push(cell(rows, "exact-alt", "qmv_streamed_fast", other));
        cells
    }

    #[test]
    fn the_other_arrangement_wins_where_it_is_faster() {
        let entry = |path: &str, rows| (path.to_owned(), rows);
        let cells = [
            arranged(6, [90.0, 20.0, 40.0, 30.0]),
            arranged(7, [90.0, 20.0, 40.0, 30.0]),
            arranged(8, [90.0, 20.0, 40.0, 50.0]),
        ]
        .concat();
        for exact in [false, true] {
            let expected = [entry("qmv_wide", [6, 7]), entry("qmv_streamed_alt", [6, 7])];
            assert_eq!(chosen(&cells, exact), expected);
        }
        // Faster than all others: one entry for every policy.
        let fastest = arranged(6, [90.0, 20.0, 16.0, 12.0]);
        let expected = [entry("qmv_streamed_alt", [6, 6])];
        assert_eq!(chosen(&fastest, false), expected);
        // Above the batch limit `default` uses a matrix kernel, whatever the routes are: only exact policies have a
        // choice.
        let mut matrix = arranged(14, [90.0, 20.0, 40.0, 30.0]);
        matrix[0].kernel = "affine_qmm_t_bfloat16_t_gs_64_b_4".to_owned();
        let (found, _) = choose(&matrix, false, 0.05, &mut |_, _, _| Ok(true)).unwrap();
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(
            (found[0].path.as_str(), found[0].m),
            ("qmv_streamed_alt", [14, 14])
        );
        assert!((found[0].saves - 0.25).abs() < 1e-9, "{found:?}");
        // Different bits do not count.
        let (found, rejected) = choose(&fastest, true, 0.05, &mut |_, _, path| {
            Ok(path != RoutePath::StreamedAlt)
        })
        .unwrap();
        assert_eq!(found, []);
        assert!(rejected[0].ends_with("is faster, but its numbers are wrong"));
    }

    #[test]
    fn one_arrangement_is_the_usual_one() {
        let mut cells = measured(6, [90.0, 20.0, 40.0]).to_vec();
        cells[2].arm = "exact-alt".to_owned();
        cells[2].also = vec!["exact".to_owned()];
        assert_eq!(path_of(&cells[2]), Some(RoutePath::Streamed));
        assert_eq!(chosen(&cells, true), []);
    }

    /// No entry selects a kernel that is only used under `wide`.
    #[test]
    fn times_of_wide_decide_nothing() {
        let mut cells = measured(6, [60.0, 50.0, 40.0]).to_vec();
        cells.insert(0, cell(6, "wide", "qmv_wide", 10.0));
        assert_eq!(chosen(&cells, false), [("qmv_streamed".to_owned(), [6, 6])]);
        // If `default` uses the same kernel, the times are its times too.
        let mut shared = measured(3, [60.0, 50.0, 40.0]).to_vec();
        shared[0].arm = "wide:64".to_owned();
        shared[0].also = vec!["default".to_owned()];
        assert_eq!(path_of(&shared[0]), Some(RoutePath::Wide));
        assert_eq!(path_of(&cells[0]), None);
    }
}
