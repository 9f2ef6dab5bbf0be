//! Checks that the table of operations in docs/reports/policies.md matches what runs.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result, ensure};
use dispatch_plan::{Dtype, Policy};
use proofs::{Driver, Experts, Mask, Operation, Prefix, Product, Setting, Shape};

const ARCHITECTURE: &str = "applegpu_g15d";
const BEGIN: &str = "<!-- operations: begin -->\n";
const END: &str = "<!-- operations: end -->";

/// Which rows keep their bits, and which functions compute them, for each operation under each policy. With
/// QMV_POLICIES_BLESS=1 the table is written.
pub(crate) fn operations() -> Result<()> {
    let driver = Driver::of_operations(&Prefix::patched()?, &[])?;
    let (names, operations): (Vec<_>, Vec<_>) = cases().into_iter().unzip();
    let device = Setting::new(ARCHITECTURE.parse()?).device();
    let answers = driver.operations(&device, None, &operations)?;

    let heads: Vec<_> = Policy::KINDS.iter().map(ToString::to_string).collect();
    let mut table = format!("| operation | rows | {} |\n|---|--:", heads.join(" | "));
    table += &"|---".repeat(heads.len());
    table += "|\n";
    for ((name, operation), answer) in names.iter().zip(&operations).zip(&answers) {
        for &rows in &operation.rows {
            table += &format!("| {name} | {rows} |");
            for policy in &heads {
                let block = answer
                    .blocks
                    .iter()
                    .find(|block| block.m == rows && &block.policy == policy)
                    .context("a block is missing")?;
                let mark = if block.differing == 0 { "=" } else { "≠" };
                table += &format!(" {mark} {} |", functions(&block.kernels)?);
            }
            table.push('\n');
        }
    }

    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reports/policies.md");
    let page = fs_err::read_to_string(&file)?;
    let (before, rest) = page
        .split_once(BEGIN)
        .context("docs/reports/policies.md has no table of operations")?;
    let (found, after) = rest.split_once(END).context("the table does not end")?;
    if std::env::var("QMV_POLICIES_BLESS").as_deref() == Ok("1") {
        fs_err::write(&file, format!("{before}{BEGIN}{table}{END}{after}"))?;
        return Ok(());
    }
    let differ = found.lines().zip(table.lines()).find(|(a, b)| a != b);
    ensure!(
        found == table,
        "docs/reports/policies.md does not match what runs; set QMV_POLICIES_BLESS=1 to write it. The first line that differs, on the \
         page and as it ran: {differ:#?}"
    );
    Ok(())
}

/// The operations, each with the name shown to readers.
fn cases() -> Vec<(&'static str, Operation)> {
    let attention = |[heads, kv_heads]: [u32; 2], dim, keys| Shape::Attention {
        heads,
        kv_heads,
        head_dim: dim,
        value_dim: dim,
        keys,
        mask: Mask::Causal,
        sinks: false,
        layout: "heads",
    };
    let product = |n, form, weights, heads| Product {
        n,
        k: 130,
        form,
        weights,
        heads,
    };
    let matrix = |n, form| product(n, form, "matrix", 1);
    let experts = Experts {
        n: 64,
        k: 128,
        experts: 8,
        picks: 4,
        rows_a_pick: 1,
    };
    let addmm = Shape::Addmm {
        product: matrix(64, "nt"),
        alpha: "1",
        beta: "1",
        bias: "vector",
    };
    let delta = Shape::GatedDelta {
        heads: 16,
        kv_heads: 16,
        head_dim: 128,
        value_dim: 128,
    };
    let block = [4, 17];
    let nine = [4, 9, 17];
    [
        ("attention, one pass", attention([4, 2], 64, 100), &nine[..]),
        ("attention, two passes", attention([4, 2], 64, 1100), &block),
        (
            "attention, across 1,024 keys",
            attention([4, 2], 64, 1026),
            &block,
        ),
        (
            "attention, large groups of heads",
            attention([8, 1], 64, 8195),
            &block[..1],
        ),
        (
            "attention, heads times rows above 32",
            attention([16, 1], 64, 100),
            &block,
        ),
        ("attention, head dim 80", attention([4, 2], 80, 40), &block),
        (
            "attention, head dim 512, 40 keys",
            attention([16, 2], 512, 40),
            &block,
        ),
        (
            "attention, head dim 512, 1,100 keys",
            attention([8, 1], 512, 1100),
            &block,
        ),
        ("matmul, x Wᵀ", Shape::Matmul(matrix(64, "nt")), &block),
        ("matmul, x W", Shape::Matmul(matrix(64, "nn")), &block),
        (
            "matmul, one output (N = 1)",
            Shape::Matmul(matrix(1, "nt")),
            &block,
        ),
        (
            "matmul, 4 heads over one key head",
            Shape::Matmul(product(64, "nt", "folded", 4)),
            &block,
        ),
        ("addmm, x Wᵀ and a bias", addmm, &block),
        ("gather_mm, sorted", Shape::GatherMm(experts), &block),
        ("gather_qmm, sorted", Shape::GatherQmm(experts), &block),
        ("gated_delta_update", delta, &nine),
        (
            "quantized_matmul, not transposed, K = 512",
            Shape::QmmN { n: 128, k: 512 },
            &block,
        ),
        (
            "quantized_matmul, not transposed, K = 2048",
            Shape::QmmN { n: 128, k: 2048 },
            &block,
        ),
    ]
    .into_iter()
    .zip(1..)
    .map(|((name, shape, rows), seed)| {
        let operation = Operation {
            shape,
            dtype: Dtype::Float32,
            seed,
            batch: 1,
            rows: rows.to_vec(),
            policies: Policy::KINDS.iter().map(ToString::to_string).collect(),
            run: true,
            record: false,
        };
        (name, operation)
    })
    .collect()
}

/// The functions of kernels that compute, without those that only copy, mask or reduce.
fn functions(kernels: &BTreeMap<String, u64>) -> Result<String> {
    const FAMILIES: [&str; 5] = ["affine_", "dot_", "gemv", "sdpa_", "steel_"];
    let mut found = BTreeSet::new();
    for name in kernels.keys() {
        let computes = FAMILIES.iter().any(|family| name.starts_with(family))
            || ["softmax", "gated_delta"]
                .iter()
                .any(|part| name.contains(part));
        if !computes
            || ["_2pass_2", "quantize_", "accum"]
                .iter()
                .any(|other| name.contains(other))
        {
            continue;
        }
        let end = name
            .find("float")
            .with_context(|| format!("{name} names no type"))?;
        let name = name.get(..end).unwrap_or_default();
        // Removes sizes and the rest of `bfloat16`.
        let name = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '_');
        found.insert(name.strip_prefix("affine_").unwrap_or(name).to_owned());
    }
    ensure!(!found.is_empty(), "nothing computes among {kernels:?}");
    let found: Vec<_> = found.into_iter().map(|name| format!("`{name}`")).collect();
    Ok(found.join(", "))
}
