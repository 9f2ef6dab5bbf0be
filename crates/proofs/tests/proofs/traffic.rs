//! Bytes of weights, scales and biases that a dispatch loads, and those of keys and values, counted by the metered
//! device.

use anyhow::{Context, Result, ensure};
use dispatch_plan::{Dense, Dtype, Mode, Path, Policy};
use metal_sim::Device;
use metal_sim::trace::Dispatch;
use proofs::{
    Case, Driver, FloatFormat, How, Kind, Mask, Operation, OperationAnswer, Prefix, Product,
    Record, Setting, Shape,
};

pub(crate) fn counted() -> Result<()> {
    let driver = Driver::build(&Prefix::patched()?)?;
    let architecture = "applegpu_g15d".parse()?;
    let mut met = Vec::new();
    let rows = [1, 3, 8, 9, 11];
    let mut cases: Vec<_> = [(4, Kind::Fast), (4, Kind::Tail), (6, Kind::Fast)]
        .into_iter()
        .filter_map(|(bits, kind)| Case::new(bits, 64, kind, rows))
        .collect();
    for format in FloatFormat::ALL {
        cases.extend(format.case(Kind::Fast, rows));
        cases.extend(format.case(Kind::Tail, rows));
    }
    ensure!(cases.len() == 11, "a K is missing");
    let others: Vec<_> = cases
        .iter()
        .filter_map(Case::in_the_other_arrangement)
        .collect();
    cases.extend(others);
    // Whole threadgroups: simdgroups after the last output load it again.
    for case in &mut cases {
        case.n = 32;
    }
    for policy in Policy::KINDS.iter().copied() {
        for case in &cases {
            let case = Case {
                record: Record::Dispatches,
                ..case.clone()
            };
            let how = How {
                device: Device::new()
                    .architecture("applegpu_g15d".parse()?)
                    .meter(true),
                policy,
                metallib: None,
            };
            let answers = driver.run(&how, std::slice::from_ref(&case))?;
            for together in &answers.first().context("no answer")?.together {
                let plan = case.plan(architecture, policy, together.m)?;
                let rounds_x = |kernel: &str| kernel.contains("_quantize_dequantize_");
                let dispatches: Vec<_> = together
                    .dispatches
                    .iter()
                    .filter(|dispatch| !rounds_x(&dispatch.kernel))
                    .collect();
                let [dispatch] = dispatches[..] else {
                    anyhow::bail!(
                        "{} dispatches for {}",
                        together.dispatches.len(),
                        plan.kernel
                    );
                };
                let loaded = |name: &str| {
                    dispatch
                        .argument(name)
                        .and_then(|argument| argument.loaded)
                        .with_context(|| format!("nothing counted for {name} of {}", plan.kernel))
                };
                let passes = u64::from(plan.weight_passes);
                let weights = u64::from(case.n * case.k);
                let what = format!("{} at M = {}", plan.kernel, together.m);
                // Each byte of the weights belongs to one lane, so it is loaded once per pass.
                let packed = passes * weights * u64::from(case.bits) / 8;
                ensure!(
                    loaded("w")? == packed,
                    "{what}: {} bytes of w loaded, {packed} planned",
                    loaded("w")?
                );
                // All lanes of a group use its scale and bias; each loads its own copy, which a GPU serves with one
                // read.
                let lanes = u64::from(lanes_a_group(&case, plan.path));
                let (names, bytes): (&[&str], _) = match case.mode {
                    Mode::Affine => (&["scales", "biases"], 4),
                    _ => (&["scales"], 1),
                };
                let scales = passes * weights / u64::from(case.group) * bytes * lanes;
                for name in names {
                    ensure!(
                        loaded(name)? == scales,
                        "{what}: {} bytes of {name} loaded, {scales} planned for {lanes} lanes",
                        loaded(name)?
                    );
                }
                if plan.function.starts_with("qmv_streamed") {
                    // Every simdgroup loads x for its own outputs, or a threadgroup loads it for all.
                    let loaded_x = loaded("x")?;
                    let times = u64::from(if plan.group[1] == 2 {
                        2 * plan.grid[1]
                    } else {
                        plan.grid[1]
                    });
                    let rows = u64::from(plan.computed_rows(together.m, case.bits));
                    let expected = times * rows * u64::from(case.k) * 4;
                    ensure!(
                        loaded_x == expected,
                        "{what}: {loaded_x} bytes of x loaded, {expected} expected"
                    );
                }
                met.push(plan.path);
            }
        }
    }
    for path in [Path::Qmv, Path::Wide, Path::Streamed, Path::StreamedAlt] {
        ensure!(met.contains(&path), "{path} was not met");
    }
    Ok(())
}

/// Lanes that load the scale of one group: as many as its values occupy in the kernels.
fn lanes_a_group(case: &Case, path: Path) -> u32 {
    let pack = if case.bits == 4 { 8 } else { 4 };
    let packs = if case.kind == Kind::Fast { 2 } else { 1 };
    match path {
        Path::Wide => 1,
        _ => case.group / (pack * packs),
    }
}

/// A dense matrix is loaded once per planned pass. Rows of attention that share a dispatch of MLX's kernels load the
/// keys as often as each of them alone; rows in the kernel for large groups of heads share their loads.
pub(crate) fn operations() -> Result<()> {
    let driver = Driver::of_operations(&Prefix::patched()?, &[])?;
    for transpose in [true, false] {
        dense(&driver, transpose)?;
    }
    for (keys, kernel) in [
        (96, "sdpa_vector_float"),
        (1100, "sdpa_vector_2pass_1_float"),
    ] {
        plain(&driver, keys, kernel)?;
    }
    // Rows that share: two with 8 heads per simdgroup, four with 2.
    for ([heads, dim], shared) in [([8, 64], 2), ([16, 128], 4)] {
        large_groups(&driver, heads, dim, shared)?;
    }
    Ok(())
}

fn dense(driver: &Driver, transpose: bool) -> Result<()> {
    // Whole tiles: at the edges, threads load what others load too.
    let (n, k) = (128, 512);
    let product = Product {
        n,
        k,
        form: if transpose { "nt" } else { "nn" },
        weights: "matrix",
        heads: 1,
    };
    let policies = ["exact", "narrow"];
    let answer = metered(driver, Shape::Matmul(product), &[1, 2, 8, 9, 16], &policies)?;
    for block in &answer.blocks {
        let problem = Dense {
            architecture: "applegpu_g15d".parse()?,
            dtype: Dtype::Float32,
            addmm: false,
            transpose,
            m: block.m,
            n,
            k,
            batch: 1,
        };
        let plan = dispatch_plan::dense(&problem, block.policy.parse()?)?;
        let what = format!("{} at M = {}, {}", plan.kernel, block.m, block.policy);
        let (dispatches, loaded) = loaded(&block.dispatches, &plan.kernel, "mat")?;
        ensure!(
            dispatches == plan.dispatches,
            "{what}: {dispatches} dispatches, {} planned",
            plan.dispatches
        );
        let planned = u64::from(plan.weight_passes) * u64::from(n * k) * 4;
        ensure!(
            loaded == planned,
            "{what}: {loaded} bytes of the matrix loaded, {planned} planned"
        );
    }
    Ok(())
}

fn plain(driver: &Driver, keys: u32, kernel: &str) -> Result<()> {
    let shape = attention([4, 1], 64, keys, Mask::None);
    let answer = metered(driver, shape, &[1, 2, 4], &["exact"])?;
    for name in ["keys", "values"] {
        let row = answer.alone.rows.first().context("no row")?;
        let (_, alone) = loaded(row, kernel, name)?;
        // Every query head loads them itself.
        ensure!(
            alone == u64::from(4 * keys * 64 * 4),
            "{kernel}: a row alone loads {alone} bytes of {name}"
        );
        for block in &answer.blocks {
            let (dispatches, together) = loaded(&block.dispatches, kernel, name)?;
            ensure!(
                dispatches == 1 && together == u64::from(block.m) * alone,
                "{kernel}: {} rows load {together} bytes of {name} in {dispatches} dispatches, one row {alone}",
                block.m
            );
        }
    }
    Ok(())
}

fn large_groups(driver: &Driver, heads: u32, dim: u32, shared: usize) -> Result<()> {
    // The rows see 8,197 to 8,200 keys in blocks of 65, so all blocks start at the same keys.
    let shape = attention([heads, 1], dim, 8200, Mask::Causal);
    let answer = metered(driver, shape, &[1, 2, 4], &["exact"])?;
    let kernel = "sdpa_vector_2pass_1_gqa_";
    for name in ["keys", "values"] {
        let rows = answer.alone.rows.iter();
        let alone = rows
            .map(|row| Ok(loaded(row, kernel, name)?.1))
            .collect::<Result<Vec<_>>>()?;
        for block in &answer.blocks {
            let (dispatches, together) = loaded(&block.dispatches, kernel, name)?;
            let own = alone
                .get(alone.len() - block.m as usize..)
                .context("more rows than were evaluated alone")?;
            // For rows that share: what the last one loads alone.
            let expected: u64 = own.chunks(shared).filter_map(<[u64]>::last).sum();
            ensure!(
                dispatches == 1 && together == expected,
                "{heads} heads of {dim}: {} rows load {together} bytes of {name} in {dispatches} dispatches, \
                 expected {expected}: alone they load {own:?}",
                block.m
            );
        }
    }
    Ok(())
}

fn attention([heads, kv_heads]: [u32; 2], dim: u32, keys: u32, mask: Mask) -> Shape {
    Shape::Attention {
        heads,
        kv_heads,
        head_dim: dim,
        value_dim: dim,
        keys,
        mask,
        sinks: false,
        layout: "heads",
    }
}

fn metered(
    driver: &Driver,
    shape: Shape,
    rows: &[u32],
    policies: &[&str],
) -> Result<OperationAnswer> {
    let operation = Operation {
        shape,
        dtype: Dtype::Float32,
        seed: 1,
        batch: 1,
        rows: rows.to_vec(),
        policies: policies.iter().map(ToString::to_string).collect(),
        run: true,
        record: true,
    };
    let device = Setting::new("applegpu_g15d".parse()?).device().meter(true);
    let mut answers = driver.operations(&device, None, &[operation])?;
    answers.pop().context("no answer")
}

/// The number of dispatches of kernels with this prefix, and the bytes that they load from an argument.
fn loaded(dispatches: &[Dispatch], kernel: &str, argument: &str) -> Result<(u32, u64)> {
    let (mut count, mut bytes) = (0, 0);
    for dispatch in dispatches {
        if !dispatch.kernel.starts_with(kernel) {
            continue;
        }
        count += 1;
        bytes += dispatch
            .argument(argument)
            .and_then(|argument| argument.loaded)
            .with_context(|| format!("nothing counted for {argument} of {kernel}"))?;
    }
    let names: Vec<_> = dispatches.iter().map(|dispatch| &dispatch.kernel).collect();
    ensure!(count > 0, "no {kernel} among {names:?}");
    Ok((count, bytes))
}
