//! The answers of every back-end about policies, and the check of operations. Tests that need a GPU are in `findings.rs`.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::process::Command;

use mlx_overlay::{
    Array, Backend, Device, Error, Quantization, RowPolicy, Stream, add, build_info,
    dispatch_stats, has_policies, matmul, process_policy, quantize, quantized_matmul,
    remove_policy_hook, set_routes, transpose,
};

#[test]
fn operations_on_the_cpu_are_named() {
    if build_info().unwrap().pristine {
        return;
    }
    let stream = Stream::new(Device::Cpu).unwrap();
    let x = Array::from_slice(&vec![1.0f32; 2 * 64], &[2, 64]).unwrap();
    let w = Array::from_slice(&vec![0.5f32; 64 * 64], &[64, 64]).unwrap();
    let w = quantize(&w, Quantization::affine(4, 64).unwrap()).unwrap();
    let graph = || {
        let first = quantized_matmul(&x, &w)?;
        matmul(&first, &transpose(&first)?)
    };
    let graph = stream.scope(graph).unwrap();
    // Each once, even if requested twice.
    let error = stream.check_operations([&graph, &graph]).unwrap_err();
    let at = stream.index();
    let rest = format!(
        "on CPU stream {at} runs on the CPU, which keeps no policy: build it on a GPU stream with a policy"
    );
    assert_eq!(
        error.to_string(),
        format!(
            "on stream {at}, rows would not keep their bits:\n  Matmul [2, 2] {rest}\n  QuantizedMatmul [2, 64] {rest}"
        )
    );
    // Other operations are not checked there, and an operation that has run will not run again.
    let sum = stream.scope(|| add(&graph, &graph)).unwrap();
    graph.evaluate().unwrap();
    assert_eq!(stream.check_operations([&sum]), Ok(()));
}

#[test]
fn functions_of_policies_say_where_there_are_none() {
    let info = build_info().unwrap();
    let pristine = info.pristine.then_some(Error::NoPolicies);
    let no_kernels = (info.pristine || info.backend == Backend::Cpu).then_some(Error::NoPolicies);
    assert_eq!(has_policies(), no_kernels.is_none());
    assert_eq!(process_policy().err(), pristine);
    assert_eq!(remove_policy_hook().err(), pristine);
    assert_eq!(dispatch_stats().err(), no_kernels);
    assert_eq!(set_routes(&[]).err(), no_kernels);
    // A CPU build and a Mac without a GPU have no stream for policies.
    let error = Stream::with_policy(RowPolicy::EXACT).err();
    if info.metal_available || info.pristine {
        assert_eq!(error, pristine);
    } else {
        let said = error.unwrap().to_string();
        assert_eq!(
            said,
            "[new_policy_stream] this build of MLX has no kernels that keep the bits of a row: only builds with its Metal or CUDA back-end have them"
        );
    }
}

#[test]
fn names_of_policies_are_read_back() {
    for &policy in RowPolicy::KINDS {
        assert_eq!(policy.to_string().parse(), Ok(policy));
    }
    let error = "fast".parse::<RowPolicy>().unwrap_err().to_string();
    assert_eq!(
        error,
        "found \"fast\"; a policy is default, exact, narrow or wide, with \":R\" for blocks of R rows (1 or more, 16 if not given) or \":all\" for blocks without limit"
    );
}

/// A build without kernels for policies rejects the process's policy at the first operation that policies cover, not at
/// other operations.
#[test]
fn a_build_without_kernels_refuses_the_policy_of_the_process() {
    const EXPECTED: &str = "POLICY_EXPECTED";
    let info = build_info().unwrap();
    if info.pristine || info.metal_available {
        return;
    }
    let Ok(expected) = std::env::var(EXPECTED) else {
        let fast = "fast".parse::<RowPolicy>().unwrap_err();
        for (name, value, expected) in [
            ("MLX_ROW_POLICY", "default", String::new()),
            (
                "MLX_ROW_POLICY",
                "exact",
                "[Matmul] MLX_ROW_POLICY asks for rows that keep their bits, and this build of MLX has no kernels that keep the bits of a row: only builds with its Metal or CUDA back-end have them; unset it, or set it to default".to_owned(),
            ),
            (
                "MLX_ROW_POLICY",
                "fast",
                format!("[Matmul] [row policy] MLX_ROW_POLICY is no policy: {fast}"),
            ),
            (
                "MLX_QMV_POLICY",
                "streamed",
                "[Matmul] [row policy] MLX_QMV_POLICY is set (to \"streamed\") and is no longer read: set MLX_ROW_POLICY, where \"streamed\" is now \"exact\" and the former \"exact\" is \"exact:all\"".to_owned(),
            ),
        ] {
            let output = Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "a_build_without_kernels_refuses_the_policy_of_the_process"])
                .env(name, value)
                .env(EXPECTED, expected)
                .output()
                .unwrap();
            let text = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success() && text.contains("1 passed"), "{text}");
        }
        return;
    };
    let stream = Stream::new(Device::Cpu).unwrap();
    let a = Array::from_slice(&[1.0f32, 0.0, 0.0, 2.0], &[2, 2]).unwrap();
    let sum = stream.scope(|| add(&a, &a)).unwrap();
    assert_eq!(sum.to_vec::<f32>().unwrap(), [2.0, 0.0, 0.0, 4.0]);
    let product = stream.scope(|| matmul(&a, &a)).unwrap().to_vec::<f32>();
    match product {
        Ok(product) => assert_eq!(
            (product, expected),
            (vec![1.0, 0.0, 0.0, 4.0], String::new())
        ),
        Err(error) => assert_eq!(error.to_string(), expected),
    }
    let said = stream.set_policy(RowPolicy::EXACT).unwrap_err().to_string();
    assert!(
        said.contains("is one of the CPU, which keeps no policy but default"),
        "{said}"
    );
    stream.set_policy(RowPolicy::DEFAULT).unwrap();
}
