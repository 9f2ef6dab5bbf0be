//! Ways in which a product can leave its stream, and therefore its policy: each is prevented or detected. Without a GPU,
//! real or simulated, every test is listed as ignored.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use dispatch_plan::function_of;
use libtest_mimic::{Arguments, Failed, Trial};
use mlx_overlay::{
    Array, Device, Error, Quantization, QuantizationMode, RowPolicy, Stream, quantize,
    quantized_matmul, record_kernels,
};
use mlx_overlay_sys::{self as sys, ArrayRef, ElementKind};

type Outcome = Result<(), Failed>;

fn main() {
    let mut arguments = Arguments::from_args();
    let missing = support::without_policies();
    if let Some(why) = &missing {
        eprintln!("tests of traps are ignored: {why}");
    }
    let trial = |name: &str, test: fn() -> Outcome| {
        Trial::test(name, test).with_ignored_flag(missing.is_some())
    };
    let tests = vec![
        trial(
            "an_imported_function_is_noticed",
            an_imported_function_is_noticed,
        ),
        trial(
            "another_thread_is_refused_the_product",
            another_thread_is_refused_the_product,
        ),
        trial(
            "a_thread_local_stream_is_no_other_stream",
            a_thread_local_stream_is_no_other_stream,
        ),
        trial("unknown_streams_are_named", unknown_streams_are_named),
        trial(
            "products_without_rows_are_refused",
            products_without_rows_are_refused,
        ),
        trial(
            "plans_are_of_floats_that_can_be_indexed",
            plans_are_of_floats_that_can_be_indexed,
        ),
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

/// An import puts every stream of a device on the process's first stream of that device.
fn an_imported_function_is_noticed() -> Outcome {
    let first = Stream::default_of(Device::Gpu)?;
    let exact = Stream::with_policy(RowPolicy::EXACT)?;
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("product.mlxfn");
    let imported = bridge_testing::probe_imported(file.to_str().unwrap(), raw(&exact))?;
    let array = imported.as_ref().unwrap();
    let findings = sys::check_operations(&[ArrayRef { array }], raw(&exact))?;
    let found: Vec<_> = findings
        .iter()
        .map(|finding| (finding.primitive.as_str(), finding.shape.as_slice()))
        .collect();
    assert_eq!(found, [("QuantizedMatmul", [6, 64].as_slice())]);
    let index = findings[0].stream.index;
    assert!(index <= first.index(), "it is on stream {index}");
    Ok(())
}

/// In Rust, an unevaluated array stays on its thread (`compile_fail/array_is_not_send.rs`). In C++ it can move to another
/// thread.
fn another_thread_is_refused_the_product() -> Outcome {
    let exact = Stream::with_policy(RowPolicy::EXACT)?;
    let said = bridge_testing::probe_on_another_thread(raw(&exact))?;
    let expected = format!(
        "There is no Stream(gpu, {}) in current thread.",
        exact.index()
    );
    assert_eq!(said, expected);
    Ok(())
}

/// Its index is of another kind: it does not refer to an exact stream with the same number.
fn a_thread_local_stream_is_no_other_stream() -> Outcome {
    let exact = Stream::with_policy(RowPolicy::EXACT)?;
    let (index, kernels) = record_kernels(|| bridge_testing::probe_thread_local(raw(&exact)))?;
    assert_eq!(index?, exact.index());
    let of_product = |name: &&String| function_of(name).is_some();
    let kernel = kernels.iter().rfind(of_product).ok_or("no product ran")?;
    assert!(!kernel.contains("streamed"), "{kernels:?}");
    Ok(())
}

fn unknown_streams_are_named() -> Outcome {
    let made = Stream::with_policy(RowPolicy::EXACT)?.index() + 1;
    for index in [-1, made, i32::MAX] {
        let said = sys::stream_policy(index).unwrap_err().to_string();
        let expected = format!("there is no stream {index}: this process has made {made}");
        assert_eq!(said, expected);
        let exact = sys::RowPolicy { kind: 1, rows: 16 };
        let said = sys::set_stream_policy(index, exact)
            .unwrap_err()
            .to_string();
        assert_eq!(said, expected);
    }
    for (kind, rows) in [(4, 16), (-1, 0), (1, -1)] {
        let policy = sys::RowPolicy { kind, rows };
        let said = sys::new_policy_stream(policy).unwrap_err().to_string();
        let expected = format!(
            "must be a kind from 0 to 3 and a number of rows (0 for no limit), found {kind} and {rows}"
        );
        assert!(said.ends_with(&expected), "{said}");
    }
    Ok(())
}

/// MLX's host functions divide by the number of rows.
fn products_without_rows_are_refused() -> Outcome {
    let w = Array::from_slice(&vec![0.5f32; 8 * 512], &[8, 512])?;
    let w = quantize(&w, Quantization::affine(4, 64)?)?;
    for &policy in RowPolicy::KINDS {
        let x = Array::from_slice::<f32>(&[], &[0, 512])?;
        let refused = Stream::with_policy(policy)?.scope(|| quantized_matmul(&x, &w));
        let empty = matches!(refused, Err(Error::Empty { argument: "x", .. }));
        assert!(empty, "{policy}: {refused:?}");
    }
    Ok(())
}

/// There are no kernels for integers.
fn plans_are_of_floats_that_can_be_indexed() -> Outcome {
    let stream = raw(&Stream::default_of(Device::Gpu)?);
    let plan = |m, dtype| {
        let product = sys::ProductShape {
            m,
            n: 64,
            k: 64,
            format: sys::WeightFormat {
                mode: QuantizationMode::Affine as i32,
                bits: 4,
                group_size: 32,
            },
            dtype,
        };
        sys::plan_product(&product, stream).map(drop)
    };
    plan(1, ElementKind::Bf16)?;
    let refused = |m, dtype| plan(m, dtype).unwrap_err().to_string();
    for kind in [ElementKind::U32, ElementKind::U8, ElementKind { repr: 9 }] {
        let said = refused(1, kind);
        assert!(
            said.contains("x must have the type f32, f16 or bf16"),
            "{said}"
        );
    }
    let said = refused(i32::MAX, ElementKind::F32);
    assert!(said.contains("2^31"), "{said}");
    Ok(())
}
