//! Each mistake with an address space that a Mac's compiler would reject is found here, and correct code is accepted.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use metal_sim::{Compiler, Error, Finding, Options, library_from_text};
use support::toolchain;

/// Correct, and every qualifier in it is necessary.
const CORRECT: &str = "#include <metal_stdlib>
#include <metal_atomic>
using namespace metal;
constant bool flag [[function_constant(0)]];
struct Params { int n; float scale; };
template <typename T> struct tile { threadgroup T* rows; const device T* from; };
template <typename T> METAL_FUNC T sum(const device T* x, int n) { T s = 0; for (int i = 0; i < n; i++) s += x[i]; return s; }
template <typename T> METAL_FUNC void scale(thread T* x, constant Params& p) { x[0] *= p.scale; }
METAL_FUNC void fill(threadgroup float* t, uint i, float v) { t[i] = v; }
METAL_FUNC void bump(device float& x) { x += 1; }
METAL_FUNC int count(constant const int64_t strides[2], constant int* shape) { return int(strides[1]) + shape[0]; }
template <typename T> [[kernel]] void k(device T* y [[buffer(0)]], const device T* x [[buffer(1)]], constant Params& p [[buffer(2)]],
    constant const int64_t* s [[buffer(3)]], constant int* shape [[buffer(4)]], device atomic<uint>* a [[buffer(5)]],
    uint i [[thread_position_in_threadgroup]]) {
  threadgroup T shared[64];
  tile<T> t{shared, x};
  T mine[2] = {sum(x, p.n), t.from[i]};
  scale(mine, p);
  fill(shared, i, mine[0]);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  device T* out = y + i;
  out[0] = t.rows[63 - i] + vec<T, 2>(mine[0], mine[1]).x + (flag ? count(s, shape) : 0);
  bump(y[0]);
  atomic_fetch_add_explicit(a, 1u, memory_order_relaxed);
}
template [[host_name(\"k\")]] [[kernel]] decltype(k<float>) k<float>;
";

fn check(source: &str) -> Vec<Finding> {
    let library = match library_from_text(&toolchain(), source) {
        Ok(library) => library,
        Err(Error::Refused(found)) => return found,
        Err(error) => panic!("{error}"),
    };
    Compiler::new(toolchain(), Options::default())
        .check(&library, &["k".to_owned()])
        .unwrap()
}

#[test]
fn correct_code_is_not_blamed() {
    assert_eq!(check(CORRECT), []);
}

#[test]
fn mistakes_are_found() {
    let mistakes = [
        (
            "a missing device",
            "sum(const device T* x",
            "sum(const T* x",
        ),
        (
            "a wrong device",
            "sum(const device T* x",
            "sum(const threadgroup T* x",
        ),
        (
            "constant for device",
            "sum(const device T* x",
            "sum(constant T* x",
        ),
        (
            "a missing constant",
            "constant Params& p) { x",
            "const Params& p) { x",
        ),
        (
            "device for constant",
            "constant Params& p) { x",
            "const device Params& p) { x",
        ),
        (
            "a missing threadgroup",
            "fill(threadgroup float* t",
            "fill(float* t",
        ),
        (
            "device for threadgroup",
            "fill(threadgroup float* t",
            "fill(device float* t",
        ),
        (
            "threadgroup for thread",
            "scale(thread T* x",
            "scale(threadgroup T* x",
        ),
        (
            "a missing device on a reference",
            "bump(device float& x)",
            "bump(float& x)",
        ),
        (
            "a missing threadgroup in a struct",
            "struct tile { threadgroup T* rows;",
            "struct tile { T* rows;",
        ),
        (
            "a wrong space in a struct",
            "const device T* from; }",
            "const threadgroup T* from; }",
        ),
        (
            "a missing device on a variable",
            "  device T* out = y",
            "  T* out = y",
        ),
        (
            "a variable that is not shared",
            "  threadgroup T shared[64];",
            "  T shared[64];",
        ),
        (
            "a missing constant on an array",
            "count(constant const int64_t strides[2]",
            "count(const int64_t strides[2]",
        ),
        (
            "a write to constant memory",
            "  scale(mine, p);",
            "  scale(mine, p); p.scale = 1;",
        ),
        (
            "an atomic in private memory",
            "  bump(y[0]);",
            "  atomic<uint> b; atomic_load_explicit(&b, memory_order_relaxed);",
        ),
        (
            "a device pointer kept as constant",
            "  bump(y[0]);",
            "  constant T* c = x; bump(y[c[0] > 0]);",
        ),
    ];
    for (what, correct, wrong) in mistakes {
        let source = CORRECT.replace(correct, wrong);
        assert_ne!(source, CORRECT, "{what}");
        let findings = check(&source);
        assert!(!findings.is_empty(), "not found: {what}");
        assert!(
            findings
                .iter()
                .all(|finding| finding.line > 0 && finding.column > 0),
            "{findings:?}"
        );
    }
}
