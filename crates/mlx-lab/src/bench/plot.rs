//! Time against rows, one plot per product.

use std::collections::BTreeMap;

use cli::chart::{Axis, Plot, Style};

use super::{Cell, DENSE, Report};

/// A plot for each product with one block: a name that is valid as a file name, and the SVG document.
///
/// The dashed line is the time to read the weights at `bandwidth`, in GB/s: the device's, or that of the fastest arm.
/// It is not drawn for a simulated device.
pub fn plots(report: &Report, bandwidth: Option<f64>) -> Vec<(String, String)> {
    let mut products: Vec<&crate::product::Product> = Vec::new();
    for cell in report.cells.iter().filter(|cell| cell.batch == 1) {
        if !products.contains(&&cell.product) {
            products.push(&cell.product);
        }
    }
    // Two products may differ only in characters that a file name cannot contain.
    let mut names: BTreeMap<String, usize> = BTreeMap::new();
    products
        .into_iter()
        .map(|product| {
            let cells: Vec<&Cell> = report
                .cells
                .iter()
                .filter(|cell| cell.batch == 1 && cell.product == *product)
                .collect();
            let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
            let name: String = product.to_string().chars().take(100).map(plain).collect();
            let count = names.entry(name.clone()).or_insert(0);
            *count += 1;
            let name = if *count == 1 {
                name
            } else {
                format!("{name}-{count}")
            };
            (name, plot(report, &product.to_string(), &cells, bandwidth))
        })
        .collect()
}

fn plot(report: &Report, title: &str, cells: &[&Cell], bandwidth: Option<f64>) -> String {
    let simulated = report.machines.iter().any(|machine| machine.simulated);
    let micros = |seconds: f64| (seconds * 1e6) as f32;
    let most = cells.iter().map(|cell| cell.rows).max().unwrap_or(1);
    let slowest = |dense: bool| {
        let of = cells.iter().filter(|cell| (cell.arm == DENSE) == dense);
        of.map(|cell| micros(cell.seconds.high)).fold(0.0, f32::max)
    };
    // The dense control is much slower: on its scale the policies would be indistinguishable.
    let control = slowest(true) <= 1.25 * slowest(false) || slowest(false) == 0.0;
    let highest = if control {
        slowest(true).max(slowest(false))
    } else {
        slowest(false)
    };
    let mut rows: Vec<usize> = cells.iter().map(|cell| cell.rows).collect();
    rows.dedup();
    rows.sort_unstable();
    rows.dedup();
    let ticks = rows.iter().map(|&m| (m as f32, m.to_string()));
    let note = report.machines.first().map_or_else(String::new, |machine| {
        let device = machine.place();
        match &report.caveat {
            Some(caveat) => format!("{device}; {caveat}"),
            None => device,
        }
    });
    let unit = if simulated {
        "simulator's µs per product"
    } else {
        "µs a product"
    };
    let mut plot = Plot::new(
        title,
        &note,
        ["rows (M)", unit],
        Axis::new(0.5, most as f32 + 0.5, ticks),
        Axis::up_to(highest),
    );
    let mut arms: Vec<&str> = Vec::new();
    for cell in cells {
        if !arms.contains(&cell.arm.as_str()) {
            arms.push(&cell.arm);
        }
    }
    let count = arms.len();
    for (i, arm) in arms.into_iter().enumerate() {
        let style = Style::solid(i);
        if arm == DENSE && !control {
            let note = format!("{arm}: {:.0} µs, not drawn", slowest(true));
            plot.legend(&note, style);
            continue;
        }
        // Side by side, so that no bar hides another.
        let aside = 0.12 * (i as f32 - (count as f32 - 1.0) / 2.0);
        let of_arm = || cells.iter().filter(|cell| cell.is_of(arm));
        let points: Vec<(f32, f32)> = of_arm()
            .map(|cell| (cell.rows as f32 + aside, micros(cell.seconds.median)))
            .collect();
        for cell in of_arm() {
            let ends = [micros(cell.seconds.low), micros(cell.seconds.high)];
            plot.bar(cell.rows as f32 + aside, ends, style);
        }
        plot.line(&points, style);
        plot.legend(arm, style);
    }
    let fastest = cells
        .iter()
        .filter_map(|cell| cell.gb_per_s)
        .fold(None, |most: Option<f64>, rate| {
            Some(most.map_or(rate, |most| most.max(rate)))
        });
    let bytes = cells.iter().map(|cell| cell.bytes).min();
    let limit = match bandwidth {
        Some(rate) => Some((rate, "limit given")),
        None => fastest.map(|rate| (rate, "fastest read")),
    };
    if let (false, Some((rate, what)), Some(bytes)) = (simulated, limit, bytes) {
        let time = micros(bytes as f64 / rate / 1e9);
        let style = Style::solid(8).dashed();
        let (from, to) = (plot.at(0.5, time), plot.at(most as f32 + 0.5, time));
        plot.path(cli::chart::Data::new().move_to(from).line_to(to), style);
        plot.legend(&format!("{what}: {rate:.0} GB/s"), style);
    }
    plot.to_string()
}

#[cfg(test)]
mod tests {
    use super::super::gap::tests::cell;
    use super::super::{Sustained, gaps, limits, markdown, wide};
    use super::*;
    use crate::machine::{Condition, Machine};

    /// Made-up times of a made-up device.
    fn report(simulated: bool) -> Report {
        let condition = Condition {
            power: None,
            thermal: None,
        };
        let machine = Machine {
            device: "Some GPU".to_owned(),
            architecture: "applegpu_g15d".to_owned(),
            simulated,
            backend: if simulated { "sim" } else { "metal" }.to_owned(),
            system: "some system".to_owned(),
            mlx: "0.32.4".to_owned(),
            tree: "0123456789abcdef".to_owned(),
            pristine: false,
            jit: false,
            optimised: true,
        };
        let mut cells = Vec::new();
        for rows in 1..=8 {
            let m = rows as f64;
            cells.push(cell(rows, "default", 100.0 + 4.0 * m));
            if rows == 1 {
                let one = cells.last_mut().unwrap();
                one.also = ["narrow", "exact"].map(str::to_owned).into();
            } else {
                cells.push(cell(rows, "narrow", 100.0 * m));
                cells.push(cell(rows, "exact", 101.0 + 6.0 * m));
            }
            cells.push(cell(rows, "wide", 110.0 + 4.0 * m));
            cells.push(cell(rows, "dense", 330.0 + m));
        }
        if simulated {
            for cell in &mut cells {
                cell.gb_per_s = None;
            }
        }
        let gaps = if simulated { Vec::new() } else { gaps(&cells) };
        Report {
            format: crate::Layout,
            command: "mlx-lab bench".to_owned(),
            caveat: machine.caveat().map(str::to_owned),
            machines: vec![machine],
            before: condition.clone(),
            after: condition,
            rounds: 8,
            outputs: None,
            merged: Vec::new(),
            limits: limits(&gaps),
            wide: if simulated { Vec::new() } else { wide(&cells) },
            gaps,
            cells,
            refused: vec!["a and b take the same kernel".to_owned()],
            sustained: Some((
                "mlp, M = 2, exact".to_owned(),
                Sustained {
                    asked: 120.0,
                    runs: 6000,
                    first: 0.02,
                    last: 0.021,
                    slowest: 0.05,
                    slowest_at: 61.0,
                },
            )),
        }
    }

    #[test]
    fn a_real_device_has_rates_and_a_limit() {
        let report = report(false);
        let page = markdown(&report);
        for text in [
            "| mlp=17408x5120:4:64 | 4 | default | 116.0 | 114.8 to 117.2 | 432 |",
            "| mlp=17408x5120:4:64 | 2 | 200.0 | 108.0 | 113.0 | 95% | yes |",
            "| mlp=17408x5120:4:64 | M = 2 | never |",
            "| mlp=17408x5120:4:64 | 1 | default, narrow, exact | 104.0 |",
            "| mlp=17408x5120:4:64 | 1 | 104.0 | 104.0 | 114.0 | +10% | +10% |",
            "\n- mlp=17408x5120:4:64: `wide`: one row +10% against `default`; ",
            "6000 runs of a chain in 120 s",
            "the slowest took 50.000 ms, 61 s in",
        ] {
            assert!(page.contains(text), "{text} in {page}");
        }
        let (name, svg) = plots(&report, Some(800.0)).remove(0);
        assert_eq!(name, "mlp-17408x5120-4-64");
        assert!(svg.contains("limit given: 800 GB/s"), "{svg}");
        let (_, svg) = plots(&report, None).remove(0);
        assert!(svg.contains("fastest read:"), "{svg}");
        assert!(!svg.contains("not drawn"), "{svg}");
        // To view the plot: QMV_LAB_PLOT=plot.svg cargo test -p mlx-lab --lib a_real_device
        if let Some(path) = std::env::var_os("QMV_LAB_PLOT") {
            std::fs::write(path, svg).unwrap();
        }
    }

    #[test]
    fn a_control_of_another_size_does_not_set_the_scale() {
        let mut report = report(false);
        for cell in report.cells.iter_mut().filter(|cell| cell.arm == DENSE) {
            cell.seconds.high *= 10.0;
        }
        let (_, svg) = plots(&report, None).remove(0);
        assert!(svg.contains("dense: 3414 µs, not drawn"), "{svg}");
        // Two products whose names differ only in characters that a file name cannot contain.
        let mut others = report.cells.clone();
        for (cell, other) in report.cells.iter_mut().zip(&mut others) {
            cell.product.name = "a/b".to_owned();
            other.product.name = "a-b".to_owned();
        }
        report.cells.append(&mut others);
        let names: Vec<String> = plots(&report, None)
            .into_iter()
            .map(|(name, _)| name)
            .collect();
        assert_eq!(names, ["a-b-17408x5120-4-64", "a-b-17408x5120-4-64-2"]);
    }

    #[test]
    fn a_simulated_device_has_neither() {
        let report = report(true);
        let page = markdown(&report);
        assert!(
            page.contains("simulated: times are those of the simulator"),
            "{page}"
        );
        assert!(page.contains("simulator's µs"), "{page}");
        assert!(!page.contains("recovers"), "{page}");
        let (_, svg) = plots(&report, Some(800.0)).remove(0);
        assert!(
            svg.contains("simulated: times are those of the simulator"),
            "{svg}"
        );
        assert!(!svg.contains("GB/s"), "{svg}");
    }
}
