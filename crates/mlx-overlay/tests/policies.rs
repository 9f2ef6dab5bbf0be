//! Policies on the GPU, real or simulated. Without one, every test is listed as ignored.
//!
//! `MTL_SIM_ARCH` chooses the simulated GPU. Tests for one architecture run in a child process of their own.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::process::Command;

use dispatch_plan::{Problem, function_of};
use libtest_mimic::{Arguments, Failed, Trial};
use mlx_overlay::{
    Array, Device, DispatchPlan, Dtype, Element, Error, PolicyKind, Quantization, QuantizationMode,
    QuantizedMatrix, Route, RoutePath, RowPolicy, Stream, bf16, dispatch_stats, f16,
    has_matrix_units, process_policy, quantized_matmul, record_kernels, reset_dispatch_stats,
    set_routes,
};
use mlx_overlay_sys as sys;

type Outcome = Result<(), Failed>;

const ARCHITECTURES: [&str; 5] = [
    "applegpu_g13s",
    "applegpu_g13d",
    "applegpu_g15s",
    "applegpu_g15d",
    "applegpu_g17s",
];

fn main() {
    let arguments = Arguments::from_args();
    let missing = support::without_policies();
    if let Some(why) = &missing {
        eprintln!("policy tests are ignored: {why}");
    }
    let trial = |name: &str, test: fn() -> Outcome| {
        Trial::test(name, test).with_ignored_flag(missing.is_some())
    };
    let mut tests = vec![
        trial(
            "each_policy_takes_a_kernel_of_its_own",
            each_policy_takes_a_kernel_of_its_own,
        ),
        trial(
            "rows_have_the_bits_of_one_row",
            rows_have_the_bits_of_one_row,
        ),
        trial("wide_has_other_bits", wide_has_other_bits),
        trial(
            "exact_holds_for_every_kind_of_product",
            exact_holds_for_every_kind_of_product,
        ),
        trial(
            "compiling_keeps_streams_apart",
            compiling_keeps_streams_apart,
        ),
        trial(
            "compiled_attention_keeps_its_policy",
            compiled_attention_keeps_its_policy,
        ),
        trial("plans_are_what_runs", plans_are_what_runs),
        trial("plans_are_of_floats", plans_are_of_floats),
        trial("streams_keep_their_policy_across_threads", || {
            streams_keep_their_policy_across_threads(400)
        }),
        trial(
            "streams_keep_their_policy_across_threads_ten_thousand_times",
            || streams_keep_their_policy_across_threads(10_000),
        )
        .with_ignored_flag(true),
        trial("a_panic_leaves_the_scope", a_panic_leaves_the_scope),
        trial("hooks_are_asked_and_checked", hooks_are_asked_and_checked),
        trial("routes_are_followed", routes_are_followed),
        trial(
            "routes_are_followed_by_their_format_alone",
            routes_are_followed_by_their_format_alone,
        ),
        trial(
            "the_environment_sets_the_default",
            the_environment_sets_the_default,
        ),
        trial(
            "the_environment_must_name_a_policy",
            the_environment_must_name_a_policy,
        ),
        trial("blocks_end_at_the_limit", blocks_end_at_the_limit),
        trial(
            "wide_has_one_order_for_any_number_of_rows",
            wide_has_one_order_for_any_number_of_rows,
        ),
        trial(
            "two_policies_in_one_graph_are_both_kept",
            two_policies_in_one_graph_are_both_kept,
        ),
        trial(
            "a_stream_has_one_policy_from_its_start",
            a_stream_has_one_policy_from_its_start,
        ),
    ];
    if sys::built::BACKEND == "sim" {
        tests.push(trial(
            "the_page_on_policies_says_what_runs",
            the_page_on_policies_says_what_runs,
        ));
        for architecture in ARCHITECTURES {
            tests.push(
                Trial::test(
                    format!("plans_are_what_runs_on_{architecture}"),
                    move || child("plans_are_what_runs", &[("MTL_SIM_ARCH", architecture)]),
                )
                .with_ignored_flag(missing.is_some()),
            );
        }
    }
    // One after another, because hooks, routes and counters belong to the process.
    let arguments = Arguments {
        test_threads: Some(1),
        // Tests that cannot run here stay ignored even if the long tests are requested.
        include_ignored: arguments.include_ignored && missing.is_none(),
        ..arguments
    };
    libtest_mimic::run(&arguments, tests).exit();
}

/// Runs one test of this file in a child process with this environment.
fn child(test: &str, environment: &[(&str, &str)]) -> Outcome {
    let output = Command::new(std::env::current_exe()?)
        .args(["--exact", test])
        .envs(environment.iter().copied())
        .output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    // A test that does not exist or is ignored would not fail.
    if output.status.success() && text.contains("1 passed") {
        return Ok(());
    }
    Err(format!("{test} with {environment:?} failed:\n{text}").into())
}

/// Pseudorandom numbers, the same for a seed.
struct Noise(u64);

impl Noise {
    fn bits(&mut self) -> u32 {
        // Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 32) as u32
    }

    /// About normally distributed, with this deviation.
    fn floats(&mut self, count: usize, deviation: f32) -> Vec<f32> {
        let mut sum = || {
            (0..6)
                .map(|_| self.bits() as f32 / u32::MAX as f32)
                .sum::<f32>()
                - 3.0
        };
        (0..count).map(|_| sum() * deviation * 1.4).collect()
    }
}

/// Types of x, with conversions from f32 and to bits.
trait Float: Element {
    fn of(value: f32) -> Self;
    fn bits(self) -> u32;
}

impl Float for f32 {
    fn of(value: f32) -> Self {
        value
    }
    fn bits(self) -> u32 {
        self.to_bits()
    }
}

impl Float for f16 {
    fn of(value: f32) -> Self {
        Self::from_f32(value)
    }
    fn bits(self) -> u32 {
        self.to_bits().into()
    }
}

impl Float for bf16 {
    fn of(value: f32) -> Self {
        Self::from_f32(value)
    }
    fn bits(self) -> u32 {
        self.to_bits().into()
    }
}

/// Weights and rows of x.
struct Layer<T> {
    weights: QuantizedMatrix,
    x: Vec<T>,
    k: usize,
}

impl<T: Float> Layer<T> {
    fn new([m, n, k]: [usize; 3], quantization: Quantization, seed: u64) -> Result<Self, Error> {
        let mut noise = Noise(seed);
        let (bits, group) = (
            quantization.bits() as usize,
            quantization.group_size() as usize,
        );
        // Without the codes of E4M3 that are NaN.
        let codes = if quantization == Quantization::Mxfp8 {
            0xbfbf_bfbf
        } else {
            u32::MAX
        };
        let packed: Vec<u32> = (0..n * k * bits / 32)
            .map(|_| noise.bits() & codes)
            .collect();
        let typed = |values: Vec<f32>| values.into_iter().map(T::of).collect::<Vec<_>>();
        let groups = [n, k / group];
        let (scales, biases) = if quantization.has_biases() {
            let scales = typed(noise.floats(n * k / group, 0.02));
            let biases = typed(noise.floats(n * k / group, 0.1));
            (
                Array::from_slice(&scales, &groups)?,
                Some(Array::from_slice(&biases, &groups)?),
            )
        } else {
            // About one half, as a power of two or in E4M3.
            let first = if quantization == Quantization::Nvfp4 {
                0x28
            } else {
                122
            };
            let scales: Vec<_> = (0..n * k / group)
                .map(|_| first + (noise.bits() % 8) as u8)
                .collect();
            (Array::from_slice(&scales, &groups)?, None)
        };
        Ok(Self {
            weights: QuantizedMatrix::from_parts(
                Array::from_slice(&packed, &[n, k * bits / 32])?,
                scales,
                biases,
                quantization,
            )?,
            x: typed(noise.floats(m * k, 1.0)),
            k,
        })
    }

    /// The product of the first `m` rows.
    fn product(&self, m: usize) -> Result<Array, Error> {
        let x = Array::from_slice(&self.x[..m * self.k], &[m, self.k])?;
        quantized_matmul(&x, &self.weights)
    }

    /// The bits of the product of the first `m` rows, and its kernel.
    fn together(&self, m: usize) -> Result<(Vec<u32>, String), Error> {
        let product = self.product(m)?;
        let (bits, kernel) = product_kernel(|| product.to_vec::<T>())?;
        Ok((bits.into_iter().map(Float::bits).collect(), kernel))
    }

    /// The bits of the products of the first `m` rows, one by one.
    fn alone(&self, m: usize) -> Result<Vec<u32>, Error> {
        let mut bits = Vec::new();
        for row in self.x[..m * self.k].chunks(self.k) {
            let x = Array::from_slice(row, &[1, self.k])?;
            bits.extend(quantized_matmul(&x, &self.weights)?.to_vec::<T>()?);
        }
        Ok(bits.into_iter().map(Float::bits).collect())
    }
}

/// Evaluates one product and returns its kernel.
fn product_kernel<V>(evaluate: impl FnOnce() -> Result<V, Error>) -> Result<(V, String), Error> {
    let (outcome, names) = record_kernels(evaluate)?;
    let kernel = names
        .iter()
        .rfind(|name| function_of(name).is_some())
        .cloned();
    Ok((outcome?, kernel.unwrap_or_default()))
}

fn differing(a: &[u32], b: &[u32]) -> usize {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).filter(|(a, b)| a != b).count()
}

fn affine(bits: u32, group_size: u32) -> Quantization {
    Quantization::affine(bits, group_size).unwrap()
}

fn default_stream() -> Result<Stream, Error> {
    Stream::with_policy(RowPolicy::DEFAULT)
}

/// One policy of each kind, without a limit of rows.
fn unlimited() -> impl Iterator<Item = RowPolicy> {
    RowPolicy::KINDS.iter().map(|policy| policy.all())
}

/// Policies must choose different kernels; otherwise the tests would compare a kernel with itself.
fn each_policy_takes_a_kernel_of_its_own() -> Outcome {
    let layer = Layer::<f32>::new([40, 16, 512], affine(4, 64), 1)?;
    let kernel =
        |policy, m| Stream::with_policy(policy)?.scope(|| Ok::<_, Error>(layer.together(m)?.1));
    for (policy, one, several, many) in [
        (RowPolicy::DEFAULT, "qmv_fast", "", "qmm_t"),
        (RowPolicy::EXACT, "qmv_fast", "qmv_streamed_fast", "qmm_t"),
        (
            RowPolicy::EXACT.all(),
            "qmv_fast",
            "qmv_streamed_fast",
            "qmv_streamed_fast",
        ),
        (RowPolicy::NARROW, "qmv_fast", "qmv_fast", "qmm_t"),
        (RowPolicy::NARROW.all(), "qmv_fast", "qmv_fast", "qmv_fast"),
        (RowPolicy::WIDE, "qmv_wide", "qmv_wide", "qmm_t"),
        (RowPolicy::WIDE.all(), "qmv_wide", "qmv_wide", "qmv_wide"),
    ] {
        for (m, expected) in [(1, one), (6, several), (16, several), (40, many)] {
            let found = kernel(policy, m)?;
            let expected = format!("affine_{expected}");
            assert!(found.starts_with(&expected), "{policy}, M = {m}: {found}");
        }
    }
    Ok(())
}

/// On every GPU the last row of a block keeps its bits. One row more is a prompt, computed as without a policy.
fn blocks_end_at_the_limit() -> Outcome {
    let layer = Layer::<f32>::new([42, 16, 512], affine(4, 64), 1)?;
    let alone = default_stream()?.scope(|| layer.alone(42))?;
    for policy in [
        RowPolicy::EXACT,
        RowPolicy::NARROW,
        RowPolicy::EXACT.with_rows(41)?,
        RowPolicy::NARROW.with_rows(1)?,
    ] {
        let most = policy.rows().unwrap() as usize;
        let stream = Stream::with_policy(policy)?;
        let (block, kernel) = stream.scope(|| layer.together(most))?;
        assert_eq!(
            differing(&block, &alone[..most * 16]),
            0,
            "{policy}: {kernel}"
        );
        let (prompt, kernel) = stream.scope(|| layer.together(most + 1))?;
        let (expected, by_default) = default_stream()?.scope(|| layer.together(most + 1))?;
        assert_eq!(kernel, by_default, "{policy}");
        assert_eq!(prompt, expected, "{policy}");
    }
    Ok(())
}

/// `wide` gives one row and any number of rows the same bits, also above the batch limit.
fn wide_has_one_order_for_any_number_of_rows() -> Outcome {
    for quantization in [
        affine(4, 64),
        Quantization::Mxfp4,
        Quantization::Mxfp8,
        Quantization::Nvfp4,
    ] {
        let layer = Layer::<f32>::new([40, 16, 512], quantization, 1)?;
        let wide = Stream::with_policy(RowPolicy::WIDE.all())?;
        let alone = wide.scope(|| layer.alone(40))?;
        for m in (1..=16).chain([40]) {
            let (together, kernel) = wide.scope(|| layer.together(m))?;
            assert!(kernel.contains("_qmv_wide_"), "{kernel}");
            assert_eq!(differing(&together, &alone[..m * 16]), 0, "{kernel}");
        }
        // The order of summing differs from that of a row alone without a policy.
        let before = default_stream()?.scope(|| layer.alone(40))?;
        assert!(differing(&alone, &before) > alone.len() / 4);
    }
    Ok(())
}

/// Evaluates two products on two streams and a third that uses the second, all at once.
fn two_policies_in_one_graph_are_both_kept() -> Outcome {
    let layer = Layer::<f32>::new([6, 64, 64], affine(4, 64), 1)?;
    let deep = Layer::<f32>::new([6, 64, 512], affine(4, 64), 1)?;
    let exact = Stream::with_policy(RowPolicy::EXACT)?;
    let wide = Stream::with_policy(RowPolicy::WIDE)?;
    let first = exact.scope(|| deep.product(6))?;
    let second = wide.scope(|| deep.product(6))?;
    let last = exact.scope(|| quantized_matmul(&second, &layer.weights))?;
    let (outcome, kernels) = record_kernels(|| mlx_overlay::eval([&first, &second, &last]))?;
    outcome?;
    let mut functions: Vec<_> = kernels
        .iter()
        .filter_map(|name| function_of(name))
        .collect();
    functions.sort_unstable();
    // K = 64 uses the quad kernels under every policy.
    assert_eq!(functions, ["qmv_quad", "qmv_streamed_fast", "qmv_wide"]);
    let bits = |array: &Array| -> Result<Vec<u32>, Error> {
        Ok(array
            .to_vec::<f32>()?
            .into_iter()
            .map(f32::to_bits)
            .collect())
    };
    let alone = default_stream()?.scope(|| deep.alone(6))?;
    assert_eq!(differing(&bits(&first)?, &alone), 0);
    let alone = wide.scope(|| deep.alone(6))?;
    assert_eq!(differing(&bits(&second)?, &alone), 0);
    Ok(())
}

/// A stream takes one policy, before its first work, and only on the GPU.
fn a_stream_has_one_policy_from_its_start() -> Outcome {
    let layer = Layer::<f32>::new([3, 8, 512], affine(4, 64), 3)?;
    let refused = |stream: &Stream, policy| stream.set_policy(policy).unwrap_err().to_string();

    let given = Stream::new(Device::Gpu)?;
    assert_eq!(given.policy()?, None);
    given.set_policy(RowPolicy::EXACT.with_rows(64)?)?;
    assert_eq!(given.policy()?, Some(RowPolicy::EXACT.with_rows(64)?));
    assert!(given.scope(|| layer.together(3))?.1.contains("_streamed_"));
    for policy in [RowPolicy::NARROW, RowPolicy::EXACT.with_rows(64)?] {
        let expected = format!(
            "stream {} has a policy already, exact:64, which holds for the life of the process",
            given.index()
        );
        assert_eq!(refused(&given, policy), expected);
    }

    let late = Stream::new(Device::Gpu)?;
    late.scope(|| layer.product(3)?.evaluate())?;
    for policy in [RowPolicy::EXACT, RowPolicy::DEFAULT] {
        let said = refused(&late, policy);
        let expected = "has computed without a policy of its own; give a stream its policy before its first work";
        assert!(said.ends_with(expected), "{said}");
    }
    assert_eq!(late.policy()?, None);

    // Another thread finds the stream by its index, and the stream's own thread sees the policy.
    let (sender, receiver) = std::sync::mpsc::channel();
    let (told, tells) = std::sync::mpsc::channel();
    let worker = std::thread::spawn(move || -> Result<(String, Option<RowPolicy>), Error> {
        let layer = Layer::<f32>::new([3, 8, 512], affine(4, 64), 3)?;
        let stream = Stream::new(Device::Gpu)?;
        sender.send(stream.index()).unwrap();
        tells.recv().unwrap();
        Ok((stream.scope(|| layer.together(3))?.1, stream.policy()?))
    });
    let index = receiver.recv()?;
    sys::set_stream_policy(index, sys::RowPolicy { kind: 1, rows: 16 })?;
    assert_eq!(
        sys::stream_policy(index)?,
        sys::RowPolicy { kind: 1, rows: 16 }
    );
    told.send(())?;
    let (kernel, policy) = worker.join().map_err(|_| "a thread panicked")??;
    assert!(kernel.contains("_streamed_"), "{kernel}");
    assert_eq!(policy, Some(RowPolicy::EXACT));

    if Device::Cpu.is_available()? {
        let cpu = Stream::new(Device::Cpu)?;
        let said = refused(&cpu, RowPolicy::EXACT);
        let expected = format!(
            "[set_stream_policy] stream {} is one of the CPU, which keeps no policy but default; give it to a GPU stream",
            cpu.index()
        );
        assert_eq!(said, expected);
        cpu.set_policy(RowPolicy::DEFAULT)?;
        assert_eq!(cpu.policy()?, Some(RowPolicy::DEFAULT));
    }
    Ok(())
}

/// The most important cases: each width with each kind of K, in f32 and in one 16-bit type. Group sizes and the numbers
/// of outputs and rows alternate.
fn rows_have_the_bits_of_one_row() -> Outcome {
    let rows = [[2, 9], [3, 16], [4, 7], [5, 20], [4, 11], [5, 13]];
    let mut case = 0;
    for bits in [1, 2, 3, 4, 5, 6, 8] {
        let group = [32, 64, 128][case % 3];
        // Whole blocks of qmv_fast; whole blocks of qmv; a last block in which some lanes are idle.
        let fast = if bits == 1 { 2_048 } else { 512 };
        let whole = if bits == 1 { 1_024 } else { 768 };
        for k in [fast, whole, fast + group as usize] {
            let n = [16, 13, 3][(case + case / 3) % 3];
            let quantization = affine(bits, group);
            let rows = rows[case % 6];
            same_bits_of_two_types([n, k], quantization, rows, case)?;
            case += 1;
        }
    }
    for (quantization, fast) in [
        (Quantization::Mxfp4, 512),
        (Quantization::Mxfp8, 256),
        (Quantization::Nvfp4, 512),
    ] {
        for k in [
            fast,
            fast + fast / 2,
            fast + quantization.group_size() as usize,
        ] {
            let n = [16, 13, 3][case % 3];
            let rows = rows[case % 6];
            same_bits_of_two_types([n, k], quantization, rows, case)?;
            case += 1;
        }
    }
    Ok(())
}

/// In float32 and one of the narrow types, in turn.
fn same_bits_of_two_types(
    [n, k]: [usize; 2],
    quantization: Quantization,
    rows: [usize; 2],
    case: usize,
) -> Outcome {
    same_bits::<f32>(n, k, quantization, rows)?;
    if case.is_multiple_of(2) {
        same_bits::<f16>(n, k, quantization, rows)
    } else {
        same_bits::<bf16>(n, k, quantization, rows)
    }
}

/// `rows[0]` is below every batch limit; `rows[1]` can be any number.
fn same_bits<T: Float>(
    n: usize,
    k: usize,
    quantization: Quantization,
    rows: [usize; 2],
) -> Outcome {
    let layer = Layer::<T>::new([rows[1], n, k], quantization, (n * k) as u64)?;
    let alone = default_stream()?.scope(|| layer.alone(rows[1]))?;
    for (policy, m) in [
        (RowPolicy::NARROW, rows[0]),
        (RowPolicy::EXACT, rows[0]),
        (RowPolicy::NARROW.all(), rows[1]),
        (RowPolicy::EXACT.all(), rows[1]),
    ] {
        let (together, kernel) = Stream::with_policy(policy)?.scope(|| layer.together(m))?;
        let differ = differing(&together, &alone[..m * n]);
        assert_eq!(differ, 0, "{policy}: {kernel}, N = {n}, K = {k}");
        let streamed = kernel.contains("_streamed_");
        let is_exact = policy.kind() == PolicyKind::Exact;
        assert_eq!(streamed, is_exact, "{policy}: {kernel}");
    }
    Ok(())
}

/// The comparison can fail: products without a policy have other bits.
fn wide_has_other_bits() -> Outcome {
    let layer = Layer::<f32>::new([6, 64, 512], affine(4, 64), 1)?;
    let default = default_stream()?;
    let (together, kernel) = default.scope(|| layer.together(6))?;
    let alone = default.scope(|| layer.alone(6))?;
    let differ = differing(&together, &alone);
    if kernel.contains("_wide_") {
        assert!(
            differ > alone.len() / 2,
            "{differ} of {} for {kernel}",
            alone.len()
        );
    } else {
        assert_eq!(differ, 0, "{kernel}");
    }
    Ok(())
}

fn raw(stream: &Stream) -> sys::RawStream {
    sys::RawStream {
        device: sys::DeviceKind::Gpu,
        index: stream.index(),
    }
}

/// mx.compile merges equal products. On streams with different policies they are not equal.
fn compiling_keeps_streams_apart() -> Outcome {
    let default = default_stream()?;
    let exact = Stream::with_policy(RowPolicy::EXACT)?;
    let differ = bridge_testing::probe_compiled(raw(&default), raw(&exact))?;
    assert_eq!(differ[..2], [0, 0], "plain against compiled");
    let (_, kernel) =
        default.scope(|| Layer::<f32>::new([6, 64, 512], affine(4, 64), 1)?.together(6))?;
    assert_eq!(differ[2] > 0, kernel.contains("_wide_"), "{kernel}");
    Ok(())
}

/// Without shapes, only the evaluation knows what is a block.
fn compiled_attention_keeps_its_policy() -> Outcome {
    let exact = Stream::with_policy(RowPolicy::EXACT)?;
    let differ = bridge_testing::probe_compiled_attention(raw(&exact))?;
    assert_eq!(differ, [0; 3], "plain, compiled, without shapes");
    let differ = bridge_testing::probe_compiled_attention(raw(&default_stream()?))?;
    assert!(differ.iter().all(|&d| d > 0), "{differ:?}");
    Ok(())
}

fn exact_holds_for_every_kind_of_product() -> Outcome {
    let kept = [RowPolicy::EXACT, RowPolicy::NARROW, RowPolicy::WIDE];
    let kept = kept.map(|policy| Stream::with_policy(policy.all()));
    let default = default_stream()?;
    for name in bridge_testing::probe_cases()? {
        let mut noticed = false;
        for rows in [3, 40] {
            for stream in &kept {
                let stream = stream.as_ref().map_err(Clone::clone)?;
                let differ = bridge_testing::probe_rows_that_differ(&name, rows, raw(stream))?;
                assert_eq!(differ, 0, "{name}, {rows} rows, {:?}", stream.policy()?);
            }
            noticed |= bridge_testing::probe_rows_that_differ(&name, rows, raw(&default))? > 0;
        }
        // For some modes, products that round x to a few bits have exact sums in any order. Gathers without a matrix
        // kernel go row by row under every policy.
        assert!(
            noticed || name.contains("qqmm"),
            "{name} is the same without a policy"
        );
    }
    Ok(())
}

/// The table in docs/reports/policies.md: the kernel that each policy takes for each kind of product, and whether the
/// rows have the bits that they have alone. QMV_POLICIES_BLESS=1 rewrites it.
fn the_page_on_policies_says_what_runs() -> Outcome {
    let architecture = "applegpu_g15d";
    if std::env::var("MTL_SIM_ARCH").as_deref() != Ok(architecture) {
        return child(
            "the_page_on_policies_says_what_runs",
            &[("MTL_SIM_ARCH", architecture)],
        );
    }
    let streams = RowPolicy::KINDS
        .iter()
        .map(|&policy| Stream::with_policy(policy));
    let streams = streams.collect::<Result<Vec<_>, _>>()?;
    let heads: Vec<_> = RowPolicy::KINDS.iter().map(ToString::to_string).collect();
    let mut table = format!("| product | rows | {} |\n|---|--:", heads.join(" | "));
    table += &"|---".repeat(heads.len());
    table += "|\n";
    for name in bridge_testing::probe_cases()? {
        // Several rows of a block, a full block, and a prompt.
        for rows in [3, 16, 40] {
            table += &format!("| {name} | {rows} |");
            for stream in &streams {
                let differ = bridge_testing::probe_rows_that_differ(&name, rows, raw(stream))?;
                let (_, kernel) = product_kernel(|| {
                    Ok(bridge_testing::probe_together(&name, rows, raw(stream))?)
                })?;
                let function = function_of(&kernel).unwrap_or_default();
                let mark = if differ == 0 { "=" } else { "≠" };
                table += &format!(" {mark} `{function}` |");
            }
            table.push('\n');
        }
    }
    let file = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../docs/reports/policies.md"
    );
    let page = std::fs::read_to_string(file)?;
    let (begin, end) = ("<!-- table: begin -->\n", "<!-- table: end -->");
    let (before, rest) = page
        .split_once(begin)
        .ok_or("no table in docs/reports/policies.md")?;
    let (found, after) = rest.split_once(end).ok_or("the table does not end")?;
    if std::env::var("QMV_POLICIES_BLESS").as_deref() == Ok("1") {
        std::fs::write(file, format!("{before}{begin}{table}{end}{after}"))?;
    } else {
        assert_eq!(
            found, table,
            "docs/reports/policies.md differs: QMV_POLICIES_BLESS=1 rewrites it"
        );
    }
    Ok(())
}

/// No kernel multiplies integers, so there is no plan.
fn plans_are_of_floats() -> Outcome {
    let stream = Stream::with_policy(RowPolicy::DEFAULT)?;
    for dtype in [Dtype::U32, Dtype::U8] {
        let refused = DispatchPlan::of([1, 16, 512], affine(4, 32), dtype, &stream);
        let told =
            matches!(&refused, Err(Error::Dtype { argument: "x", found, .. }) if *found == dtype);
        assert!(told, "{refused:?}");
    }
    Ok(())
}

/// The library's plan, the plan made without a library, the counters and the dispatched kernels agree.
fn plans_are_what_runs() -> Outcome {
    let architecture = Device::Gpu.architecture()?.parse()?;
    for (n, k, quantization) in [
        (16, 512, affine(4, 32)),
        (13, 512, affine(3, 32)),
        (16, 576, affine(8, 32)),
        (16, 128, affine(4, 32)),
        (16, 128, affine(5, 32)),
        (16, 64, affine(1, 32)),
        (16, 512, Quantization::Mxfp4),
        (13, 288, Quantization::Mxfp8),
        (16, 528, Quantization::Nvfp4),
        (16, 64, Quantization::Nvfp4),
    ] {
        let layer = Layer::<bf16>::new([40, n, k], quantization, 5)?;
        for policy in unlimited().chain(RowPolicy::KINDS.iter().copied()) {
            let stream = Stream::with_policy(policy)?;
            for m in [1, 2, 5, 6, 9, 13, 14, 16, 17, 32, 33] {
                let plan = DispatchPlan::of([m, n, k], quantization, Dtype::Bf16, &stream)?;
                reset_dispatch_stats()?;
                let (_, kernel) = stream.scope(|| layer.together(m))?;
                let problem = Problem {
                    m: m as u32,
                    nax: has_matrix_units()?,
                    ..Problem::new(architecture, n as u32, k as u32)
                        .with_format(quantization.format())
                };
                // Made without a device, from the same files and a copy of MLX's rules.
                let described = dispatch_plan::plan(&problem, policy, &[])?;
                assert_eq!(
                    (plan.path, plan.policy, plan.identical),
                    (described.path, policy, described.identical),
                    "M = {m}"
                );
                if plan.tile > 0 {
                    assert_eq!(plan.tile, described.tile as usize, "{kernel}");
                }
                assert_eq!(described.kernel, kernel, "M = {m}");
                let counts = dispatch_stats()?;
                let counted: Vec<_> = counts
                    .iter()
                    .map(|c| (c.path, c.fast, c.products))
                    .collect();
                assert_eq!(counted, [(plan.path, plan.fast, 1)], "{kernel}");
                assert_eq!(plan.fast, described.fast, "{kernel}");
            }
        }
    }
    Ok(())
}

/// Threads evaluate with a different policy each time, one after another and then all at once.
fn streams_keep_their_policy_across_threads(evaluations: usize) -> Outcome {
    let threads = 4;
    let workers: Vec<_> = (0..threads)
        .map(|worker| {
            std::thread::spawn(move || -> Result<[usize; 4], Error> {
                let layer = Layer::<f32>::new([6, 8, 512], affine(4, 64), 3)?;
                let streams: Vec<_> = RowPolicy::KINDS
                    .iter()
                    .copied()
                    .map(Stream::with_policy)
                    .collect();
                let (fast, _) = default_stream()?.scope(|| layer.together(6))?;
                let alone = default_stream()?.scope(|| layer.alone(6))?;
                let wide = Stream::with_policy(RowPolicy::WIDE)?.scope(|| layer.alone(6))?;
                let mut counts = [0; 4];
                for i in 0..evaluations / threads {
                    let at = (i + worker) % 4;
                    let stream = streams[at].as_ref().map_err(Clone::clone)?;
                    assert_eq!(stream.policy()?, Some(RowPolicy::KINDS[at]));
                    // Built inside the scope, evaluated outside.
                    let product = stream.scope(|| layer.product(6))?;
                    let checked = stream.check_operations([&product]);
                    assert_eq!(checked.is_ok(), RowPolicy::KINDS[at] != RowPolicy::DEFAULT);
                    let (values, kernel) = product_kernel(|| product.to_vec::<f32>())?;
                    let bits: Vec<_> = values.into_iter().map(f32::to_bits).collect();
                    let (name, expected) = match RowPolicy::KINDS[at] {
                        RowPolicy::DEFAULT => ("", &fast),
                        RowPolicy::NARROW => ("_qmv_fast_", &alone),
                        RowPolicy::WIDE => ("_qmv_wide_", &wide),
                        _ => ("_streamed_fast_", &alone),
                    };
                    assert!(kernel.contains(name), "{kernel}");
                    assert_eq!(differing(&bits, expected), 0, "{kernel}");
                    counts[at] += 1;
                }
                Ok(counts)
            })
        })
        .collect();
    let mut counts = [0; 4];
    for worker in workers {
        let some = worker.join().map_err(|_| "a thread panicked")??;
        counts.iter_mut().zip(some).for_each(|(all, n)| *all += n);
    }
    assert_eq!(counts, [evaluations / 4; 4]);
    Ok(())
}

fn a_panic_leaves_the_scope() -> Outcome {
    let exact = Stream::with_policy(RowPolicy::EXACT)?;
    let before = Stream::current()?.index();
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        exact.scope(|| -> Result<(), Error> { panic!("in the scope") })
    }));
    assert!(panicked.is_err());
    assert_eq!(Stream::current()?.index(), before);
    let layer = Layer::<f32>::new([2, 8, 512], affine(4, 64), 3)?;
    let error = exact.check_operations([&layer.product(2)?]).unwrap_err();
    assert!(matches!(error, Error::Unkept { .. }), "{error}");
    Ok(())
}

/// Hooks of C and C++. hooks.rs tests those of Rust.
fn hooks_are_asked_and_checked() -> Outcome {
    let layer = Layer::<f32>::new([3, 8, 512], affine(4, 64), 3)?;
    let plain = Stream::new(Device::Gpu)?;
    assert_eq!(plain.policy()?, None);
    let kernel = |stream: &Stream| stream.scope(|| Ok::<_, Error>(layer.together(3)?.1));
    let without = kernel(&plain)?;

    let [exact, rows] = RowPolicy::EXACT.numbers();
    bridge_testing::hook_answers(exact, rows)?;
    assert!(kernel(&plain)?.contains("_streamed_"));
    bridge_testing::hook_answers(exact, 2)?;
    assert_eq!(kernel(&plain)?, without, "three rows are a prompt");
    bridge_testing::hook_answers(exact, rows)?;
    let narrow = kernel(&Stream::with_policy(RowPolicy::NARROW)?)?;
    assert!(
        narrow.contains("_qmv_fast_"),
        "the stream's policy comes first: {narrow}"
    );
    bridge_testing::hook_answers(-1, 0)?;
    assert_eq!(kernel(&plain)?, without, "a hook that declines");
    for (kind, rows) in [(7, 16), (exact, -1), (-2, 0)] {
        bridge_testing::hook_answers(kind, rows)?;
        let nonsense = kernel(&plain).unwrap_err().to_string();
        let expected = format!(
            "The answer of the policy hook must be a kind from 0 to 3 and a number of rows (0 for no limit), found {kind} and {rows}"
        );
        assert!(nonsense.ends_with(&expected), "{nonsense}");
    }
    bridge_testing::hook_throws()?;
    let thrown = kernel(&plain).unwrap_err().to_string();
    assert!(
        thrown.ends_with("The policy hook failed: no idea"),
        "{thrown}"
    );
    bridge_testing::hook_is_gone()?;
    let layer = Layer::<f32>::new([3, 8, 512], affine(4, 64), 3)?;
    assert_eq!(plain.scope(|| layer.together(3))?.1, without);
    Ok(())
}

fn routes_are_followed() -> Outcome {
    let layer = Layer::<f32>::new([6, 8, 512], affine(4, 64), 3)?;
    let kernel =
        |policy| Stream::with_policy(policy)?.scope(|| Ok::<_, Error>(layer.together(5)?.1));
    let of_all = || {
        RowPolicy::KINDS
            .iter()
            .map(|&policy| kernel(policy))
            .collect::<Result<Vec<_>, _>>()
    };
    let without = of_all()?;
    let route = |path| Route {
        mode: None,
        bits: Some(4),
        group_size: None,
        n: 0..=64,
        k: 0..=1_024,
        m: 2..=8,
        path,
    };

    set_routes(&[route(RoutePath::Qmv)])?;
    for policy in [RowPolicy::DEFAULT, RowPolicy::EXACT, RowPolicy::NARROW] {
        assert!(kernel(policy)?.contains("_qmv_fast_"), "{policy}");
    }
    assert!(kernel(RowPolicy::WIDE)?.contains("_qmv_wide_"));
    set_routes(&[route(RoutePath::Wide), route(RoutePath::Streamed)])?;
    assert!(kernel(RowPolicy::DEFAULT)?.contains("_qmv_wide_"));
    assert!(kernel(RowPolicy::EXACT)?.contains("_streamed_"));
    #[allow(clippy::reversed_empty_ranges)] // the mistake in question
    let backwards = Route {
        m: 8..=2,
        ..route(RoutePath::Qmv)
    };
    let error = set_routes(&[route(RoutePath::Qmv), backwards])
        .unwrap_err()
        .to_string();
    assert_eq!(error, "route 1: a range ends before it starts");
    set_routes(&[])?;
    assert_eq!(of_all()?, without);
    Ok(())
}

/// Layers of one shape and width that differ in mode or group: a route applies only to its own format.
fn routes_are_followed_by_their_format_alone() -> Outcome {
    let formats = [
        affine(4, 64),
        affine(4, 128),
        Quantization::Mxfp4,
        Quantization::Nvfp4,
    ];
    let streamed = Stream::with_policy(RowPolicy::EXACT)?;
    let kernels = || -> Result<Vec<String>, Error> {
        let kernel = |format| Ok(Layer::<f32>::new([3, 8, 512], format, 3)?.together(3)?.1);
        streamed.scope(|| formats.into_iter().map(kernel).collect())
    };
    let without = kernels()?;
    assert!(without.iter().all(|kernel| kernel.contains("_streamed_")));
    for (led, format) in formats.iter().enumerate() {
        set_routes(&[Route {
            mode: Some(format.mode()),
            bits: Some(4),
            group_size: Some(format.group_size() as u8),
            n: 0..=64,
            k: 0..=1_024,
            m: 2..=8,
            path: RoutePath::Qmv,
        }])?;
        let kernels = kernels();
        set_routes(&[])?;
        for (i, (found, without)) in kernels?.iter().zip(&without).enumerate() {
            let expected = i == led;
            assert_eq!(found.contains("_qmv_fast_"), expected, "{led} {found}");
            assert_eq!(found != without, expected, "{led} {found}");
        }
    }
    let error = set_routes(&[Route {
        mode: Some(QuantizationMode::Nvfp4),
        bits: None,
        group_size: Some(64),
        n: 0..=64,
        k: 0..=1_024,
        m: 2..=8,
        path: RoutePath::Qmv,
    }])
    .unwrap_err()
    .to_string();
    assert_eq!(
        error,
        "route 0: group_size must be 16 in mode nvfp4, found 64"
    );
    Ok(())
}

fn the_environment_sets_the_default() -> Outcome {
    const POLICY: &str = "exact:8";
    let layer = Layer::<f32>::new([9, 8, 512], affine(4, 64), 3)?;
    let plain = Stream::new(Device::Gpu)?;
    match std::env::var("MLX_ROW_POLICY").as_deref() {
        Ok(POLICY) => {
            assert_eq!(process_policy()?, RowPolicy::EXACT.with_rows(8)?);
            assert!(plain.scope(|| layer.together(8))?.1.contains("_streamed_"));
            assert!(!plain.scope(|| layer.together(9))?.1.contains("_streamed_"));
            Ok(())
        }
        Ok(other) => Err(format!("the test sets MLX_ROW_POLICY itself, found {other}").into()),
        Err(_) => {
            assert_eq!(process_policy()?, RowPolicy::DEFAULT);
            child(
                "the_environment_sets_the_default",
                &[("MLX_ROW_POLICY", POLICY)],
            )
        }
    }
}

fn the_environment_must_name_a_policy() -> Outcome {
    const NAME: &str = "the_environment_must_name_a_policy";
    let found = ["MLX_ROW_POLICY", "MLX_QMV_POLICY"].map(|name| std::env::var(name).ok());
    let expected = match found {
        [None, None] => {
            for text in [
                "fast",
                "streamed",
                "exact:0",
                "exact:-1",
                "exact:x",
                "exact:99999999999",
            ] {
                child(NAME, &[("MLX_ROW_POLICY", text)])?;
            }
            child(NAME, &[("MLX_QMV_POLICY", "streamed")])?;
            return child(
                NAME,
                &[("MLX_QMV_POLICY", "exact"), ("MLX_ROW_POLICY", "exact")],
            );
        }
        [_, Some(old)] => format!(
            "[row policy] MLX_QMV_POLICY is set (to \"{old}\") and is no longer read: set MLX_ROW_POLICY, where \"streamed\" is now \"exact\" and the former \"exact\" is \"exact:all\""
        ),
        [Some(text), None] => {
            let why = text.parse::<RowPolicy>().unwrap_err();
            format!("[row policy] MLX_ROW_POLICY is no policy: {why}")
        }
    };
    assert_eq!(process_policy().unwrap_err().to_string(), expected);
    let plain = Stream::new(Device::Gpu)?;
    // Every product reports it, not only the first.
    for _ in 0..2 {
        let layer = Layer::<f32>::new([3, 8, 512], affine(4, 64), 3)?;
        let error = plain.scope(|| layer.product(3)?.evaluate()).unwrap_err();
        assert_eq!(error.to_string(), expected);
    }
    // A stream with a policy does not need the process's.
    let layer = Layer::<f32>::new([3, 8, 512], affine(4, 64), 3)?;
    Stream::with_policy(RowPolicy::EXACT)?.scope(|| layer.product(3)?.evaluate())?;
    Ok(())
}
