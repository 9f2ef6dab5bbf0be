//! Compares rows of a block with rows alone for attention, dense products, gathers and gated delta.

use anyhow::{Result, ensure};
use dispatch_plan::{Dense, DenseWay, Dtype, Policy};
use metal_sim::trace::Dispatch;
use proofs::{
    Driver, Family, Operation, Prefix, Product, Setting, Shape, Tier, check_names, compare, jobs,
};

fn core(family: Family) -> Result<()> {
    let prefix = Prefix::patched()?;
    let driver = Driver::of_operations(&prefix, &[])?;
    let jobs = jobs(family, Tier::Core)?;
    let comparison = compare(&driver, &prefix.stamp().final_tree, &jobs, 2, None, None)?;
    ensure!(
        comparison.findings.is_empty() && comparison.jobs[0] == jobs.len(),
        "{:#?}",
        comparison.findings
    );
    for kind in ["exact", "narrow"] {
        let total = comparison.total(kind);
        ensure!(
            total.outputs > 0 && total.differing == 0,
            "{kind}: {total:?}"
        );
    }
    // Otherwise the comparison proves nothing.
    for ((operation, dtype, kind), compared) in &comparison.by_policy {
        ensure!(
            kind != "default" || dtype != "float32" || compared.differing > 0,
            "{operation} in {dtype} does not differ by default either"
        );
    }
    Ok(())
}

pub(crate) fn attention() -> Result<()> {
    core(Family::Attention)
}

pub(crate) fn dense() -> Result<()> {
    core(Family::Dense)
}

pub(crate) fn rest() -> Result<()> {
    core(Family::Rest)
}

/// The Ultra of the lowest and of the highest generation, a Max and a small GPU, near the thresholds.
pub(crate) fn names() -> Result<()> {
    let driver = Driver::of_operations(&Prefix::patched()?, &[])?;
    for architecture in ["g13d", "g15p", "g16s", "g17d"] {
        let names = check_names(&driver, architecture.parse()?, 64, 1, 8192)?;
        ensure!(
            names.findings.is_empty() && names.dispatches < names.rows,
            "{} findings: {:#?}",
            names.findings.len(),
            &names.findings[..names.findings.len().min(5)]
        );
    }
    Ok(())
}

/// A dense product dispatches what its plan describes, on a device whose kernels do nothing.
pub(crate) fn dense_names() -> Result<()> {
    let driver = Driver::of_operations(&Prefix::patched()?, &[])?;
    let mut sizes = Vec::new();
    for k in [64, 65, 130, 2048, 4100] {
        for n in [1, 3, 64, 2048, 4096, 4100] {
            sizes.extend(["nt", "nn"].map(|form| (n, k, form)));
        }
    }
    // Other tiles: K of 16 N, and not transposed many of both.
    sizes.extend([(128, 2048, "nt"), (512, 130, "nn"), (2048, 8192, "nn")]);
    let setting = Setting {
        run: false,
        ..Setting::new("applegpu_g15d".parse()?)
    };
    let dtypes = [Dtype::Float32, Dtype::Bfloat16, Dtype::Float16]
        .into_iter()
        .cycle();
    let operations: Vec<_> = sizes
        .into_iter()
        .zip(dtypes)
        .map(|((n, k, form), dtype)| {
            let product = Product {
                n,
                k,
                form,
                weights: "matrix",
                heads: 1,
            };
            let operation = Operation {
                shape: Shape::Matmul(product),
                dtype,
                seed: 1,
                batch: 1,
                rows: vec![2, 9],
                policies: ["exact", "narrow", "default"].map(str::to_owned).to_vec(),
                run: false,
                record: false,
            };
            (product, operation)
        })
        .collect();
    let asked: Vec<_> = operations
        .iter()
        .map(|(_, operation)| operation.clone())
        .collect();
    let answers = driver.operations(&setting.device(), None, &asked)?;
    for ((product, operation), answer) in operations.iter().zip(&answers) {
        let problem = |m| Dense {
            architecture: setting.architecture,
            dtype: operation.dtype,
            addmm: false,
            transpose: product.form == "nt",
            m,
            n: product.n,
            k: product.k,
            batch: 1,
        };
        for row in &answer.alone.rows {
            as_planned(&problem(1), Policy::DEFAULT, row)?;
        }
        for block in &answer.blocks {
            as_planned(&problem(block.m), block.policy.parse()?, &block.dispatches)?;
        }
    }
    Ok(())
}

fn as_planned(problem: &Dense, policy: Policy, dispatches: &[Dispatch]) -> Result<()> {
    let plan = dispatch_plan::dense(problem, policy)?;
    let products: Vec<&str> = dispatches
        .iter()
        .map(|dispatch| dispatch.kernel.as_str())
        .filter(|name| {
            ["gemv", "dot", "steel"]
                .iter()
                .any(|family| name.starts_with(family))
        })
        .collect();
    let planned =
        |name: &str| name == plan.kernel || name.starts_with(&format!("{}_", plan.kernel));
    // MLX may split K and add up the parts in a second dispatch.
    let split =
        plan.way == DenseWay::Upstream && products.iter().any(|name| name.contains("splitk"));
    ensure!(
        products.iter().all(|name| planned(name))
            && (split || products.len() == plan.dispatches as usize),
        "{problem:?} under {policy} dispatches {products:?}, planned {plan:?}"
    );
    Ok(())
}
