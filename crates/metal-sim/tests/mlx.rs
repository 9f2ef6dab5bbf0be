//! MLX's own kernels, from the pinned tree: `vendor/mlx`, or the folder given by `METAL_SIM_MLX`. Run with
//! `--include-ignored` if there is such a tree.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use metal_sim::{
    Compiler, Contraction, Library, Options, Verdict, library_of_tree, metal, metallib,
};
use support::{Outcome, Run, cache, toolchain};

fn mlx() -> PathBuf {
    std::env::var_os("METAL_SIM_MLX").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../vendor/mlx"),
        PathBuf::from,
    )
}

/// All of MLX's `.metal` files as one library.
fn library() -> &'static Path {
    static MADE: OnceLock<PathBuf> = OnceLock::new();
    MADE.get_or_init(|| library_of_tree(&toolchain(), &mlx()).unwrap())
}

/// Whether the overlay's patches add this kernel: tiles of 6 to 8 rows, and the streamed kernels.
fn is_added(name: &str) -> bool {
    let wide = name.starts_with("affine_qmv_wide");
    ["_qmv_streamed", "gemv_rows_", "gemv_t_rows_", "_gqa_rows_"]
        .iter()
        .any(|part| name.contains(part))
        || wide
            && ["_nv_6_", "_nv_7_", "_nv_8_"]
                .iter()
                .any(|tile| name.contains(tile))
}

#[test]
#[ignore = "needs MLX's tree"]
fn the_calls_of_mlx_cmake_make_the_same_library() {
    let folder = tempfile::tempdir().unwrap();
    let kernels = mlx().join("mlx/backend/metal/kernels");
    let path = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    for source in ["arange", "gemv"] {
        let file = kernels.join(format!("{source}.metal"));
        let (file, include, air) = (
            file.to_string_lossy(),
            format!("-I{}", mlx().display()),
            path(source),
        );
        let call = [
            "-x",
            "metal",
            "-Wall",
            "-fno-fast-math",
            "-c",
            &file,
            &include,
            "-o",
            &air,
        ];
        metal(
            &toolchain(),
            &call.map(str::to_owned),
            &mut Vec::new(),
            &mut Vec::new(),
        )
        .unwrap();
    }
    // In any order, and with either tool.
    let target = path("both.metallib");
    let link = |airs: [&str; 2]| [airs[0], airs[1], "-o", &target].map(str::to_owned);
    metal(
        &toolchain(),
        &link([&path("gemv"), &path("arange")]),
        &mut Vec::new(),
        &mut Vec::new(),
    )
    .unwrap();
    let one = std::fs::read(&target).unwrap();
    metallib(&link([&path("arange"), &path("gemv")])).unwrap();
    assert_eq!(one, std::fs::read(&target).unwrap());
    let (both, all) = (
        Library::read(Path::new(&target)).unwrap(),
        Library::read(library()).unwrap(),
    );
    assert_eq!(both.sources().len(), 2);
    for name in both.names() {
        assert_eq!(
            both.entry(name).unwrap().expression,
            all.entry(name).unwrap().expression
        );
    }
}

#[test]
#[ignore = "needs MLX's tree"]
fn the_table_has_every_host_name_of_the_pin() {
    let library = Library::read(library()).unwrap();
    let pinned = || library.names().filter(|name| !is_added(name));
    assert_eq!(pinned().count(), 18_817);
    let of = |file: &str| {
        let source = library
            .sources()
            .iter()
            .position(|s| s.file == file)
            .unwrap();
        pinned()
            .filter(|name| library.entry(name).unwrap().source == source)
            .count()
    };
    // Apple's own metallib of this version has the same number from these two files.
    assert_eq!(of("quantized.metal"), 2520);
    assert_eq!(
        pinned()
            .filter(|name| name.starts_with("affine_qmv_wide"))
            .count(),
        504
    );
    // All kernels of the patches, or none: 126 for each tile of an affine kernel, 21 for each tile of an fp mode; half
    // that number below 8 bits for the other arrangement; two tiles fewer for one bit; in 3 types 11 kernels of dense
    // products in 5 tiles and 4 of attention.
    let added = library.names().len() - 18_817;
    let alternative = 9 * (6 * 5 - 2) * 2 + 9 * 5 * 2;
    let streamed = 18 * (7 * 5 - 2) * 2 + 21 * (5 * 2) + alternative;
    let expected = 126 * 3 + streamed + 3 * (11 * 5 + 4);
    assert!(added == 0 || added == expected, "{added} added");
    assert!(
        library
            .entry("affine_qmv_wide_float_gs_64_b_4_nv_5_kl_8_batch_0")
            .is_some()
    );
    // Templates are not kernels.
    assert!(library.entry("naive_unfold_Nd").is_none());
}

#[test]
#[ignore = "needs MLX's tree"]
fn a_kernel_of_every_family_compiles() {
    let all = Library::read(library()).unwrap();
    let mut names: Vec<String> = all
        .representatives()
        .into_iter()
        .map(str::to_owned)
        .collect();
    assert_eq!(names.iter().filter(|name| !is_added(name)).count(), 170);
    // Types that use other parts of the headers than `float`.
    names.extend(
        [
            "argmax_int16",
            "dot_product_bfloat16_it32_tg512_sg16",
            "steel_attention_float16_bq32_bk32_bd256_bv256_wm4_wn2_maskbool_",
        ]
        .map(str::to_owned),
    );
    let compiler = Compiler::new(toolchain(), Options::default());
    let failures = compiler.warm(library(), &names).unwrap();
    assert!(failures.is_empty(), "{failures:?}");
}

#[test]
#[ignore = "needs MLX's tree"]
fn address_spaces_are_as_the_baseline_says() {
    let all = Library::read(library()).unwrap();
    let names: Vec<String> = all
        .representatives()
        .into_iter()
        .map(str::to_owned)
        .collect();
    let compiler = Compiler::new(toolchain(), Options::default());
    let verdict = Verdict::of(compiler.check(library(), &names).unwrap());
    assert_eq!((verdict.new, verdict.stale), (vec![], vec![]));
}

#[test]
#[ignore = "needs MLX's tree"]
fn matrix_hardware_is_refused_by_name() {
    let compiler = Compiler::new(toolchain(), Options::default());
    let names = Library::read(library()).unwrap();
    let nax = names
        .names()
        .find(|name| name.contains("_nax_"))
        .unwrap()
        .to_owned();
    let error = compiler.kernel(library(), &nax).unwrap_err().to_string();
    assert!(error.contains("generation 17"), "{error}");
    let error = compiler
        .kernel(library(), "affine_qmv_nope")
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("no kernel named affine_qmv_nope")
            && error.contains(&names.names().len().to_string()),
        "{error}"
    );
}

/// A quantized product: x (m, k), w (n, k) packed, one scale and bias per group.
struct Product {
    m: usize,
    n: usize,
    k: usize,
    bits: usize,
    group: usize,
    x: Vec<f32>,
    w: Vec<u32>,
    scales: Vec<f32>,
    biases: Vec<f32>,
}

impl Product {
    fn new(m: usize, n: usize, k: usize, bits: usize, group: usize) -> Self {
        let mut state = 1u64;
        let mut next = move || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as u32
        };
        let w = (0..n * k * bits / 32)
            .map(|_| next() << 1 ^ next())
            .collect();
        let mut real = |scale: f32| (next() % 65_536) as f32 / 32_768.0 * scale - scale;
        Product {
            m,
            n,
            k,
            bits,
            group,
            w,
            x: (0..m * k).map(|_| real(1.0)).collect(),
            scales: (0..n * k / group).map(|_| real(0.01)).collect(),
            biases: (0..n * k / group).map(|_| real(0.1)).collect(),
        }
    }

    /// Rows `0..self.m` through a kernel whose grid is `groups`.
    fn run(&self, name: &str, groups: [usize; 2], wide: bool, how: impl Fn(Run) -> Run) -> Outcome {
        let mut run = Run::library(library(), name)
            .buffer(0, &self.w)
            .buffer(1, &self.scales)
            .buffer(2, &self.biases)
            .buffer(3, &self.x)
            .buffer(4, &vec![f32::NAN; self.m * self.n])
            .bytes(5, self.k as i32)
            .bytes(6, self.n as i32)
            .with(&format!(
                "groups {} {} 1 group 32 2 1 workers 2",
                groups[0], groups[1]
            ));
        if wide {
            run = run.bytes(7, self.m as i32);
        }
        how(run).go()
    }

    fn fast(&self, how: impl Fn(Run) -> Run) -> Outcome {
        let name = format!(
            "affine_qmv_fast_float_gs_{}_b_{}_batch_0_pr_0_hgs_0_r_4",
            self.group, self.bits
        );
        self.run(&name, [self.m, self.n / 8], false, how)
    }

    fn wide(&self, vectors: usize, how: impl Fn(Run) -> Run) -> Outcome {
        let name = format!(
            "affine_qmv_wide_float_gs_{}_b_{}_nv_{vectors}_kl_8_batch_0",
            self.group, self.bits
        );
        self.run(
            &name,
            [self.m.div_ceil(vectors), self.n.div_ceil(8)],
            true,
            how,
        )
    }

    fn code(&self, row: usize, column: usize) -> u32 {
        let words = &self.w[row * self.k * self.bits / 32..];
        let bit = column * self.bits;
        let low = u64::from(words[bit / 32]);
        let high = words.get(bit / 32 + 1).map_or(0, |&word| u64::from(word));
        ((low | high << 32) >> (bit % 32)) as u32 & ((1 << self.bits) - 1)
    }

    /// Checks every output against double precision.
    #[track_caller]
    fn is_right(&self, y: &[f32]) {
        for n in 0..self.n {
            let weight = |k| {
                let at = (n * self.k + k) / self.group;
                let [scale, bias] = [self.scales[at], self.biases[at]].map(f64::from);
                [f64::from(self.code(n, k)) * scale, bias]
            };
            for m in 0..self.m {
                let x = &self.x[m * self.k..][..self.k];
                let terms = (0..)
                    .zip(x)
                    .flat_map(|(k, &x)| weight(k).map(|w| w * f64::from(x)));
                assert_sum(y[m * self.n + n], terms);
            }
        }
    }
}

/// Checks a float32 sum against its terms. Each of their N additions rounds by up to half a unit in the last place, and
/// roundings in both directions add up to the square root of their number: Higham and Mary, "A new approach to
/// probabilistic rounding error analysis", 2019.
#[track_caller]
fn assert_sum(found: f32, terms: impl Iterator<Item = f64>) {
    let (mut count, mut sum, mut magnitude) = (0u32, 0.0, 0.0);
    for term in terms {
        count += 1;
        sum += term;
        magnitude += term.abs();
    }
    let allowed = f64::from(f32::EPSILON) / 2.0 * f64::from(count).sqrt() * magnitude;
    let error = (f64::from(found) - sum).abs();
    assert!(
        error <= allowed,
        "{found} for {sum}, off by more than {allowed:e}"
    );
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

#[test]
#[ignore = "needs MLX's tree"]
fn quantized_products_are_right_under_both_readings() {
    for (width, group) in [(4, 64), (2, 32), (3, 64), (5, 32), (6, 64), (8, 128)] {
        let product = Product::new(2, 32, 1024, width, group);
        let fused = product.fast(|run| run).get::<f32>(4);
        let split = product
            .fast(|run| run.contraction(Contraction::Split))
            .get::<f32>(4);
        product.is_right(&fused);
        product.is_right(&split);
        assert_ne!(bits(&fused), bits(&split), "the readings differ");
        let sequential = product
            .fast(|run| run.with("order sequential"))
            .get::<f32>(4);
        assert_ne!(bits(&fused), bits(&sequential), "the orders differ");
        product.is_right(&sequential);
    }
}

#[test]
#[ignore = "needs MLX's tree"]
fn the_wide_kernel_rounds_otherwise_and_reads_the_weights_once_a_tile() {
    let product = Product::new(5, 64, 512, 4, 64);
    let fast = product.fast(Run::metered);
    let wide = product.wide(5, Run::metered);
    let weights = (64 * 512 / 2) as u64;
    assert_eq!(fast.loaded[&0], 5 * weights);
    assert_eq!(wide.loaded[&0], weights);
    assert_eq!(product.wide(3, Run::metered).loaded[&0], 2 * weights);
    assert_eq!((fast.stored[&4], wide.stored[&4]), (5 * 64 * 4, 5 * 64 * 4));
    assert!(wide.written[&4].iter().all(|&mark| mark == 1));
    let (fast, wide) = (fast.get::<f32>(4), wide.get::<f32>(4));
    product.is_right(&wide);
    assert_ne!(bits(&fast), bits(&wide));
}

#[test]
#[ignore = "needs MLX's tree"]
fn metering_does_not_change_results() {
    let product = Product::new(3, 64, 512, 4, 64);
    let plain = product.fast(|run| run).get::<f32>(4);
    assert_eq!(
        bits(&plain),
        bits(&product.fast(Run::metered).get::<f32>(4))
    );
    assert_eq!(
        bits(&plain),
        bits(&product.fast(|run| run.with("reverse")).get::<f32>(4))
    );
}

#[test]
#[ignore = "needs MLX's tree"]
fn steel_gemm_is_right_at_ragged_edges() {
    let (m, n, k) = (70usize, 45usize, 37usize);
    let value = |i: usize| ((i * 7919) % 199) as f32 / 64.0 - 1.5;
    let a: Vec<f32> = (0..m * k).map(value).collect();
    let b: Vec<f32> = (0..k * n).map(|i| value(i + 31)).collect();
    let mut params = Vec::new();
    for v in [m, n, k, k, n, n, n.div_ceil(32), m.div_ceil(32)] {
        params.extend((v as i32).to_le_bytes());
    }
    params.extend([0u8; 24]);
    for v in [0, (k / 16) as i32, 1, 0] {
        params.extend(v.to_le_bytes());
    }
    let out = Run::library(
        library(),
        "steel_gemm_fused_nn_float32_float32_bm32_bn32_bk16_wm2_wn2",
    )
    .buffer(0, &a)
    .buffer(1, &b)
    .buffer(3, &vec![f32::NAN; m * n])
    .buffer(4, &params)
    .with("constant 10 53 0 constant 100 53 0 constant 110 53 0")
    .with("constant 200 53 0 constant 201 53 0 constant 202 53 0")
    .with(&format!(
        "groups {} {} 1 group 32 2 2 workers 2",
        n.div_ceil(32),
        m.div_ceil(32)
    ))
    .go()
    .get::<f32>(3);
    for row in 0..m {
        for column in 0..n {
            let term = |i| f64::from(a[row * k + i]) * f64::from(b[i * n + column]);
            assert_sum(out[row * n + column], (0..k).map(term));
        }
    }
}

#[test]
#[ignore = "needs MLX's tree"]
fn run_time_text_is_made_by_mlx_own_script() {
    let folder = tempfile::tempdir().unwrap();
    let xcrun = folder.path().join("xcrun");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_metal-simc"), &xcrun).unwrap();
    let path = format!(
        "{}:{}",
        folder.path().display(),
        std::env::var("PATH").unwrap()
    );
    let preamble = |file: &str| {
        support::run(
            Command::new("bash")
                .arg(mlx().join("mlx/backend/metal/make_compiled_preamble.sh"))
                .arg(folder.path())
                .arg("unused")
                .arg(mlx())
                .args([file, "-DX=1"])
                .env("PATH", &path)
                .env("MTL_SIM_CACHE", cache()),
        );
        let name = file.rsplit('/').next().unwrap();
        let text = std::fs::read_to_string(folder.path().join(format!("{name}.cpp"))).unwrap();
        let text = text.split_once("R\"preamble(").unwrap().1;
        text.rsplit_once(")preamble\"").unwrap().0.to_owned()
    };
    let utils = preamble("utils");
    // Headers come before those that include them; none is the shim's.
    let order: Vec<&str> = utils
        .lines()
        .filter_map(|line| line.strip_prefix("#line 1 \"mlx/backend/metal/kernels/"))
        .collect();
    assert_eq!(order.last(), Some(&"utils.h\""));
    assert!(order.contains(&"complex.h\"") && !utils.contains("mtlsim"));
    let text = [
        utils,
        preamble("steel/gemm/gemm"),
        preamble("quantized_utils"),
        preamble("quantized"),
        "template [[host_name(\"jit\")]] [[kernel]] decltype(affine_qmv_fast<float, 64, 4, 0, 0, 0, 4>) \
         affine_qmv_fast<float, 64, 4, 0, 0, 0, 4>;\n"
            .to_owned(),
    ]
    .concat();
    let product = Product::new(2, 32, 1024, 4, 64);
    let ahead = product.fast(|run| run).get::<f32>(4);
    let jit = metal_sim::library_from_text(&toolchain(), &text).unwrap();
    let late = product.fast(|run| run.of(&jit, "jit")).get::<f32>(4);
    assert_eq!(bits(&ahead), bits(&late));
}

/// The headers still compile with `msl-cuda`, the shim with which `bench/nvidia` compiles the kernels for an NVIDIA
/// GPU. clang needs no CUDA for that; checking the products needs such a GPU.
#[test]
#[ignore = "needs MLX's tree"]
fn the_kernels_compile_for_an_nvidia_gpu() {
    // Not the entries for batches: clang keeps calls in them, of functions that are only declared, which NVRTC folds
    // away.
    compiles_for_an_nvidia_gpu(
        &["quantized.h", "qmv_streamed.h"],
        &[
            "QMV_ONE_ROW(one_row, affine_qmv_fast, bfloat, 64, 4, true, false)",
            "QMV_ONE_ROW(one_row_tail, affine_qmv, half, 64, 3, false, false)",
            "QMV_STREAMED(streamed, float, 64, 4, 8, 4, 8, true, false)",
            "QMV_STREAMED(streamed_tail, half, 64, 3, 2, 2, 0, false, false)",
            "QMV_WIDE(wide, bfloat, 64, 4, 8)",
        ],
    );
    compiles_for_an_nvidia_gpu(
        &["fp_quantized.h", "fp_qmv_streamed.h"],
        &[
            "QMV_FP_ONE_ROW(one_row, fp_qmv_fast, bfloat, 32, 8, true, false, false, 4)",
            "QMV_FP_ONE_ROW(one_row_tail, fp_qmv, half, 16, 4, false, false, true, 4)",
            "QMV_FP_WIDE(wide, bfloat, 32, 4, 5)",
            "QMV_FP_STREAMED(streamed, float, 32, 4, 8, 4, 4, true, false, false)",
            "QMV_FP_STREAMED(streamed_tail, half, 16, 4, 2, 2, 0, false, false, true)",
        ],
    );
}

/// Headers of MLX's folder of kernels, and entries of `bench/nvidia/entry.h`.
fn compiles_for_an_nvidia_gpu(headers: &[&str], entries: &[&str]) {
    let mut text = String::new();
    for header in headers {
        text += &format!("#include \"mlx/backend/metal/kernels/{header}\"\n");
    }
    text += "#include \"entry.h\"\n";
    text += &entries.join("\n");
    let folder = tempfile::tempdir().unwrap();
    let text = compile_for_an_nvidia_gpu(&text, folder.path(), &["-O1"]);
    for entry in entries {
        let name = entry.split(['(', ',']).nth(1).unwrap();
        assert!(text.contains(&format!(".entry {name}(")), "{name}");
    }
    // Functions that are only declared must not be used.
    assert!(!text.contains(".extern .func"), "{text}");
}

/// clang's output for the text: assembly, or what the flags request. Headers in the folder take precedence over MLX's.
fn compile_for_an_nvidia_gpu(text: &str, folder: &Path, flags: &[&str]) -> String {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (source, out) = (folder.join("kernels.cu"), folder.join("kernels.out"));
    let text = format!("#pragma clang force_cuda_host_device begin\n{text}\n");
    std::fs::write(&source, text).unwrap();
    let include = |folder: &Path| format!("-I{}", folder.display());
    support::run(
        Command::new(toolchain().compiler())
            .args(["-x", "cuda", "--cuda-device-only", "--cuda-gpu-arch=sm_90"])
            .args(["-nocudainc", "-nocudalib", "-std=c++20", "-S"])
            // Attributes that exist only in Metal.
            .args(["-Wno-unknown-attributes", "-Wno-ignored-attributes"])
            .args(flags)
            .arg(include(folder))
            .arg(include(&here.join("msl-cuda")))
            .arg(include(&here.join("../../bench/nvidia")))
            .arg(include(&mlx()))
            .arg("-o")
            .args([&out, &source]),
    );
    std::fs::read_to_string(out).unwrap()
}

/// Apple's front end does not unroll loops. A value that is constant only in an unrolled loop is then computed at run
/// time, unless the GPU's back end unrolls it, and a division costs many times as much as the product next to it.
#[test]
#[ignore = "needs MLX's tree"]
fn streamed_kernels_divide_in_no_rolled_loop() {
    let divisions = |edit: [&str; 2], kernels: &[String]| {
        let code = streamed_kernels(kernels, "unroll(disable)", edit);
        operations(&code, |operation, line| {
            // As in upstream's text: the scale of the whole matrix divided by F8E4M3_MAX * F4E2M1_MAX, before any loop.
            ["fdiv", "sdiv", "udiv", "srem", "urem"].contains(&operation)
                && !line.contains(", 2.688000e+03")
        })
    };
    let [affine, fp] = representatives();
    for kernels in [&affine, &fp] {
        assert_eq!(divisions(["", ""], kernels), [""; 0]);
    }
    // The check can fail.
    let value = "x_thread[i] = U(v[i]);";
    let divided = "x_thread[i] = U(v[i]) / (1 << place(i));";
    assert_ne!(divisions([value, divided], &affine[..1]), [""; 0]);
}

/// An array that is indexed in a rolled loop is in memory instead of registers: forced unrolling leaves none.
#[test]
#[ignore = "needs MLX's tree"]
fn unrolled_as_asked_streamed_kernels_have_no_array_in_memory() {
    let arrays = |edit: [&str; 2], kernels: &[String]| {
        let code = streamed_kernels(kernels, "unroll(full)", edit);
        operations(&code, |operation, _| operation == "alloca")
    };
    let [affine, fp] = representatives();
    for kernels in [&affine, &fp] {
        assert_eq!(arrays(["", ""], kernels), [""; 0]);
    }
    let unrolled = "STEEL_PRAGMA_UNROLL\n    for (int i = 0; i < x_step; i++) {";
    let rolled = unrolled.strip_prefix("STEEL_PRAGMA_UNROLL\n").unwrap();
    assert_ne!(arrays([unrolled, rolled], &affine[..1]), [""; 0]);
}

/// The streamed kernels of single products in half precision, in tiles of 2 and 8 rows, in every instantiated
/// arrangement, with the names of a `.metal` file: affine in groups of 64, and those of the fp modes.
fn representatives() -> [Vec<String>; 2] {
    let library = Library::read(library()).unwrap();
    let of = |affine: bool| {
        library
            .names()
            .filter(|name| {
                name.contains("_qmv_streamed_fast_float16_t_")
                    && name.contains("_batch_0")
                    && (name.contains("_nv_2_") || name.contains("_nv_8_"))
                    && name.starts_with("affine_") == affine
                    && (!affine || name.contains("_gs_64_"))
            })
            .map(|name| library.entry(name).unwrap().expression.clone())
            .collect::<Vec<_>>()
    };
    let all = [of(true), of(false)];
    // Widths and fp modes, nvfp4 also with a global scale; other arrangements are added.
    for (kernels, modes) in all.iter().zip([7, 4]) {
        assert!(kernels.len() >= 2 * modes, "{kernels:?}");
    }
    all
}

/// LLVM's optimised code of these kernels, with the loops unrolled as the pragma requests and no others; `edit` is a
/// change of their text, which must apply.
fn streamed_kernels(kernels: &[String], unroll: &str, [from, to]: [&str; 2]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let path = "mlx/backend/metal/kernels";
    std::fs::create_dir_all(folder.path().join(path)).unwrap();
    let prefix = if kernels[0].starts_with("fp_") {
        "fp_"
    } else {
        ""
    };
    let streamed = format!("{prefix}qmv_streamed.h");
    let mut edited = from.is_empty();
    for header in ["streamed_tile.h", &streamed] {
        let text = std::fs::read_to_string(mlx().join(path).join(header)).unwrap();
        edited |= text.contains(from);
        let text = text
            .replace(from, to)
            .replace(
                "STEEL_PRAGMA_UNROLL",
                &format!("_Pragma(\"clang loop {unroll}\")"),
            )
            // Not per lane.
            .replace(
                "threadgroup float4 shared[Tile::shared_size];",
                "threadgroup float4* const shared = threadgroup_memory();",
            );
        assert!(!text.contains("float4 shared["), "{header}");
        std::fs::write(folder.path().join(path).join(header), text).unwrap();
    }
    assert!(edited, "the kernels have no longer: {from}");
    let mut text = format!(
        "#include \"{path}/{prefix}quantized.h\"\nfloat4* threadgroup_memory();\n#include \"{path}/{streamed}\"\n"
    );
    for (number, kernel) in kernels.iter().enumerate() {
        // The requested kernels were compiled.
        text += &format!("auto kernel_{number}() {{ return &{kernel}; }}\n");
    }
    let flags = "-O2 -fno-unroll-loops -ffp-contract=on -emit-llvm";
    let flags: Vec<&str> = flags.split(' ').collect();
    let code = compile_for_an_nvidia_gpu(&text, folder.path(), &flags);
    let defined = code.matches("\ndefine ").count();
    assert!(defined >= 2 * kernels.len(), "{defined} of {kernels:?}");
    code
}

/// The matching instructions of LLVM's text, with their functions.
fn operations(code: &str, wanted: impl Fn(&str, &str) -> bool) -> Vec<String> {
    let mut function = "";
    let mut found = Vec::new();
    for line in code.lines() {
        if line.starts_with("define ") {
            function = line.split(['@', '(']).nth(1).unwrap();
        }
        let operation = line.split_once(" = ").map_or("", |(_, rest)| rest);
        if wanted(operation.split(' ').next().unwrap(), line) {
            found.push(format!("{function}: {}", line.trim()));
        }
    }
    found
}
