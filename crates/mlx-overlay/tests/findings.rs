//! The findings of the check of operations in graphs on a GPU. Attention and dense products without findings must keep
//! their rows.

mod support;

use libtest_mimic::{Arguments, Failed, Trial};
use mlx_overlay::{
    Array, Device, Error, Finding, Mask, Quantization, RowPolicy, Stream, addmm, attention, matmul,
    quantize, quantized_matmul, slice, softmax,
};
use mlx_overlay_sys::{self as sys, ArrayRef};

type Outcome = Result<(), Failed>;

fn main() {
    let mut arguments = Arguments::from_args();
    let missing = support::without_policies();
    if let Some(why) = &missing {
        eprintln!("tests of findings are ignored: {why}");
    }
    let trial = |name: &str, test: fn() -> Outcome| {
        Trial::test(name, test).with_ignored_flag(missing.is_some())
    };
    let tests = vec![
        trial("each_kind_is_found", each_kind_is_found),
        trial("rows_are_counted", rows_are_counted),
        trial("other_streams_are_named", other_streams_are_named),
        trial(
            "the_default_policy_keeps_no_rows",
            the_default_policy_keeps_no_rows,
        ),
        trial(
            "a_report_names_each_kind_once",
            a_report_names_each_kind_once,
        ),
        trial("a_deep_graph_is_walked", a_deep_graph_is_walked),
        trial(
            "long_sums_depend_on_their_number",
            long_sums_depend_on_their_number,
        ),
        trial("blocks_equal_rows_alone", blocks_equal_rows_alone),
    ];
    // Without the hardware, they stay ignored with `--include-ignored`.
    arguments.include_ignored &= missing.is_none();
    libtest_mimic::run(&arguments, tests).exit();
}

fn raw(stream: &Stream) -> sys::RawStream {
    sys::RawStream {
        device: sys::DeviceKind::Gpu,
        index: stream.index(),
    }
}

fn found(result: Result<(), Error>) -> Vec<Finding> {
    match result {
        Ok(()) => Vec::new(),
        Err(Error::Unkept { findings, .. }) => findings,
        Err(error) => panic!("{error}"),
    }
}

fn values(seed: usize, shape: &[usize]) -> Result<Array, Error> {
    let count = shape.iter().product();
    let values: Vec<f32> = (0..count)
        .map(|i: usize| ((i + 1) * (2 * seed + 37) % 1009) as f32 / 504.0 - 1.0)
        .collect();
    Array::from_slice(&values, shape)
}

/// Graphs that the C++ next to the tests builds under `exact`, with the expected findings: the primitive and a part of
/// the reason.
fn each_kind_is_found() -> Outcome {
    let cases: &[(&str, &[(&str, &str)])] = &[
        ("sorted picks", &[]),
        (
            "sorted picks, more than a block",
            &[(
                "GatherMM",
                "has 600 rows or picks, more than a block of the policy exact",
            )],
        ),
        ("picks in any order", &[]),
        ("causal attention", &[]),
        (
            "attention with an array mask",
            &[("ScaledDotProductAttention", "sees an array mask")],
        ),
        (
            "attention with more positions than keys",
            &[("Matmul", "more positions than keys")],
        ),
        (
            "attention in the trace of a gradient",
            &[("ScaledDotProductAttention", "in the trace of a gradient")],
        ),
        ("attention by hand", &[("Matmul", "written by hand")]),
        (
            "attention by hand, scaled after the softmax",
            &[("Matmul", "written by hand")],
        ),
        (
            "a quantized cache",
            &[("QuantizedMatmul", "quantized cache")],
        ),
        ("a router", &[]),
        (
            "a kernel of the program's own",
            &[("CustomKernel", "which no policy sees")],
        ),
        ("a running sum in bfloat16", &[("CumSum", "rounds once")]),
        ("a running sum in float32", &[]),
        ("gated delta of 8 tokens", &[]),
        ("gated delta of 16 tokens", &[]),
        (
            "gated delta of 17 tokens",
            &[("GatedDeltaUpdate", "has 17 rows or picks")],
        ),
        ("a convolution of one dimension", &[]),
        (
            "a convolution of two dimensions",
            &[("Convolution", "several dimensions")],
        ),
        ("a long sum", &[]),
        (
            "a long sum of columns",
            &[("Sum", "adds columns of 512 values")],
        ),
        ("a sum over experts", &[]),
        ("a long maximum", &[]),
        ("random numbers", &[("RandomBits", "how many are drawn")]),
        ("a Fourier transform", &[("FFT", "no policy covers")]),
        ("what computes each row by itself", &[]),
    ];
    let exact = Stream::with_policy(RowPolicy::EXACT)?;
    let mut wrong = Vec::new();
    for &(name, expected) in cases {
        let graph = bridge_testing::probe_graph(name, raw(&exact))?;
        let array = graph.as_ref().ok_or("no array")?;
        let findings = sys::check_operations(&[ArrayRef { array }], raw(&exact))?;
        let seen: Vec<_> = findings
            .iter()
            .map(|finding| (finding.primitive.as_str(), finding.why.as_str()))
            .collect();
        let same = seen.len() == expected.len()
            && seen
                .iter()
                .zip(expected)
                .all(|(seen, expected)| seen.0 == expected.0 && seen.1.contains(expected.1));
        if !same || findings.iter().any(|finding| finding.remedy.is_empty()) {
            wrong.push(format!("{name}: found {seen:?}, expected {expected:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

/// A product counts the rows of all sequences; attention does not.
fn rows_are_counted() -> Outcome {
    let exact = Stream::with_policy(RowPolicy::EXACT.with_rows(8)?)?;
    let w = values(1, &[64, 32])?;
    let product = |shape: &[usize]| {
        let graph = exact.scope(|| matmul(&values(2, shape)?, &w))?;
        Ok::<_, Error>(found(exact.check_operations([&graph])).len())
    };
    assert_eq!(product(&[8, 64])?, 0);
    assert_eq!(product(&[9, 64])?, 1);
    assert_eq!(product(&[2, 4, 64])?, 0);
    assert_eq!(product(&[3, 4, 64])?, 1, "12 rows meet the matrix");
    let of = |sequences, rows| {
        let graph = exact.scope(|| {
            let q = values(1, &[sequences, 2, rows, 64])?;
            let k = values(2, &[sequences, 2, 96, 64])?;
            attention(&q, &k, &k, 1.0, Mask::Causal, None)
        })?;
        Ok::<_, Error>(found(exact.check_operations([&graph])).len())
    };
    assert_eq!(of(3, 8)?, 0);
    assert_eq!(of(1, 9)?, 1);
    Ok(())
}

fn other_streams_are_named() -> Outcome {
    let (exact, other) = (
        Stream::with_policy(RowPolicy::EXACT)?,
        Stream::with_policy(RowPolicy::EXACT)?,
    );
    let w = quantize(&values(1, &[64, 64])?, Quantization::affine(4, 64)?)?;
    let x = values(2, &[1, 64])?;
    let graph = || quantized_matmul(&x, &w);
    // Also with one row: the other stream may have the policy `wide`.
    let findings = found(exact.check_operations([&other.scope(graph)?]));
    assert_eq!(findings.len(), 1);
    let text = findings[0].to_string();
    let (here, there) = (exact.index(), other.index());
    assert_eq!(
        text,
        format!(
            "QuantizedMatmul [1, 64] on GPU stream {there} runs on stream {there}, whose policy decides: build it on \
             stream {here}"
        )
    );
    if Device::Cpu.name().is_ok() {
        let cpu = Stream::new(Device::Cpu)?;
        let findings = found(exact.check_operations([&cpu.scope(graph)?]));
        assert!(findings[0].why.contains("on the CPU"), "{findings:?}");
        assert_eq!(findings[0].device, Device::Cpu);
    }
    Ok(())
}

fn the_default_policy_keeps_no_rows() -> Outcome {
    let plain = Stream::new(Device::Gpu)?;
    let w = values(1, &[64, 32])?;
    let product = |rows| plain.scope(|| matmul(&values(2, &[rows, 64])?, &w));
    let findings = found(plain.check_operations([&product(2)?]));
    assert_eq!(findings.len(), 1);
    assert!(findings[0].why.contains("has the policy default"));
    assert_eq!(plain.check_operations([&product(1)?]), Ok(()));
    // A check does not fix the policy: the stream can still get one.
    plain.set_policy(RowPolicy::EXACT)?;
    assert_eq!(plain.check_operations([&product(2)?]), Ok(()));
    Ok(())
}

fn a_report_names_each_kind_once() -> Outcome {
    let exact = Stream::with_policy(RowPolicy::EXACT)?;
    let graph = exact.scope(|| {
        let mut x = values(1, &[20, 64])?;
        for layer in 0..3 {
            x = matmul(&x, &values(layer, &[64, 64])?)?;
        }
        softmax(&x)
    })?;
    let Err(error) = exact.check_operations([&graph]) else {
        return Err("20 rows are a block of 16".into());
    };
    assert_eq!(
        error.to_string(),
        format!(
            "on stream {at}, rows would not keep their bits:\n  Matmul [20, 64] on GPU stream {at} has 20 rows or picks, \
             more than a block of the policy exact: give the policy more rows (\":R\" or \":all\"), or compute fewer at \
             once (2 more like this)",
            at = exact.index()
        )
    );
    Ok(())
}

/// The check does not recurse, and visits each operation once: this graph has 2^2000 paths.
fn a_deep_graph_is_walked() -> Outcome {
    let exact = Stream::with_policy(RowPolicy::EXACT)?;
    let graph = exact.scope(|| {
        let mut x = matmul(&values(1, &[20, 64])?, &values(2, &[64, 64])?)?;
        for _ in 0..2000 {
            x = mlx_overlay::add(&x, &x)?;
        }
        Ok::<_, Error>(x)
    })?;
    assert_eq!(found(exact.check_operations([&graph])).len(), 1);
    Ok(())
}

/// Shows why long sums of columns are reported, and those of rows are not.
fn long_sums_depend_on_their_number() -> Outcome {
    let exact = Stream::with_policy(RowPolicy::EXACT)?;
    let differ = |sums, terms, column| {
        bridge_testing::probe_sums_that_differ(sums, terms, column, raw(&exact))
    };
    assert_ne!(differ(8, 257, true)?, 0);
    assert_eq!(differ(8, 100, true)?, 0);
    assert_eq!(differ(40, 512, false)?, 0);
    Ok(())
}

type Build<'a> = dyn Fn(usize, usize) -> Result<Array, Error> + 'a;

/// How many rows of a block of this size differ in bits from the row alone. The closure computes a range of rows.
fn rows_that_differ(stream: &Stream, rows: usize, build: &Build<'_>) -> Result<usize, Failed> {
    let bits = |array: Array| -> Result<Vec<u32>, Error> {
        Ok(array
            .to_vec::<f32>()?
            .into_iter()
            .map(f32::to_bits)
            .collect())
    };
    let block = stream.scope(|| bits(build(0, rows)?))?;
    let plain = Stream::new(Device::Gpu)?;
    let width = block.len() / rows;
    let mut differ = 0;
    for (row, of_block) in block.chunks_exact(width).enumerate() {
        let alone = plain.scope(|| bits(build(row, row + 1)?))?;
        differ += usize::from(alone != of_block);
    }
    Ok(differ)
}

/// One small case each; `proofs` has the others. Under `default` the rows must differ, or the test would prove
/// nothing.
fn blocks_equal_rows_alone() -> Outcome {
    const ROWS: usize = 6;
    let (x, w, c) = (
        values(1, &[ROWS, 512])?,
        values(2, &[512, 96])?,
        values(3, &[96])?,
    );
    let rows_of_x = |from, to| slice(&x, &[from..to, 0..512]);
    // One head, so that a row of the output is a row of the block; over 1,024 keys.
    let (q, k, v) = (
        values(4, &[1, 1, ROWS, 64])?,
        values(5, &[1, 1, 1026, 64])?,
        values(6, &[1, 1, 1026, 64])?,
    );
    let attended = |from: usize, to: usize| {
        let seen = 1026 - ROWS + to;
        let up_to = |array| slice(array, &[0..1, 0..1, 0..seen, 0..64]);
        let q = slice(&q, &[0..1, 0..1, from..to, 0..64])?;
        attention(&q, &up_to(&k)?, &up_to(&v)?, 0.125, Mask::Causal, None)
    };
    let sinks = values(7, &[1])?;
    let with_sinks = |from: usize, to: usize| {
        let seen = 1026 - ROWS + to;
        let up_to = |array| slice(array, &[0..1, 0..1, 0..seen, 0..64]);
        let q = slice(&q, &[0..1, 0..1, from..to, 0..64])?;
        attention(
            &q,
            &up_to(&k)?,
            &up_to(&v)?,
            0.125,
            Mask::Causal,
            Some(&sinks),
        )
    };
    let cases: [(&str, &Build<'_>); 4] = [
        ("matmul", &|from, to| matmul(&rows_of_x(from, to)?, &w)),
        ("addmm", &|from, to| {
            addmm(&c, &rows_of_x(from, to)?, &w, 0.5, 2.0)
        }),
        ("attention", &attended),
        ("attention with sinks", &with_sinks),
    ];
    for (name, build) in cases {
        for policy in [RowPolicy::EXACT, RowPolicy::NARROW] {
            let stream = Stream::with_policy(policy)?;
            let graph = stream.scope(|| build(0, ROWS))?;
            stream.check_operations([&graph])?;
            let differ = rows_that_differ(&stream, ROWS, build)?;
            assert_eq!(differ, 0, "{name} under {policy}");
        }
        let plain = Stream::new(Device::Gpu)?;
        let differ = rows_that_differ(&plain, ROWS, build)?;
        assert_ne!(differ, 0, "the test of {name} proves nothing");
    }
    Ok(())
}
