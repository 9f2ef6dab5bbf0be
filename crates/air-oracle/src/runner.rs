//! The Rust interface of the C++ runner.

#[cfg(target_os = "linux")]
use std::ffi::{CStr, c_int};
use std::ffi::{CString, c_char, c_void};

use anyhow::{Context, Result, bail};
use camino::Utf8Path;

use crate::case::Case;
use crate::problem::{Problem, poison};

/// The order in which `simd_sum` adds the lanes; Apple does not document it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reduction {
    /// Lane i and lane i + 16, then 8, 4, 2, 1.
    Butterfly,
    /// Lane i and lane i + 1, then 2, 4, 8, 16.
    Neighbours,
}

impl Reduction {
    /// mtlsim_reduction in the simulator's engine.h.
    fn code(self) -> u32 {
        match self {
            Self::Butterfly => 0,
            Self::Neighbours => 1,
        }
    }
}

#[repr(C)]
struct Binding {
    name: *const c_char,
    data: *mut c_void,
    length: u64,
}

#[repr(C)]
struct Launch {
    object: *const c_char,
    bindings: *const Binding,
    binding_count: u32,
    threadgroups: [u32; 3],
    threads: [u32; 3],
    reduction: u32,
}

#[cfg(target_os = "linux")]
unsafe extern "C" {
    fn oracle_run(launch: *const Launch, message: *mut c_char, message_size: usize) -> c_int;
}

/// Runs the kernel in the shared object `object` on the inputs of `problem`; returns y.
pub(crate) fn run(
    object: &Utf8Path,
    case: &Case,
    problem: &Problem,
    reduction: Reduction,
) -> Result<Vec<u8>> {
    // Copies: the kernel gets addresses that it can write through.
    let mut buffers: Vec<(CString, Vec<u8>)> = Vec::new();
    for input in &problem.inputs {
        buffers.push((CString::new(input.name)?, input.bytes.clone()));
    }
    buffers.push((CString::new("y")?, poison(case)));
    let bindings: Vec<Binding> = buffers
        .iter_mut()
        .map(|(name, bytes)| Binding {
            name: name.as_ptr(),
            data: bytes.as_mut_ptr().cast(),
            length: bytes.len() as u64,
        })
        .collect();
    let path = CString::new(object.as_str())?;
    let (threadgroups, threads) = case.grid();
    let launch = Launch {
        object: path.as_ptr(),
        bindings: bindings.as_ptr(),
        binding_count: u32::try_from(bindings.len())?,
        threadgroups,
        threads,
        reduction: reduction.code(),
    };
    start(&launch)?;
    let (_, y) = buffers.pop().context("y was pushed last")?;
    Ok(y)
}

#[cfg(target_os = "linux")]
fn start(launch: &Launch) -> Result<()> {
    let mut message = [0 as c_char; 1024];
    // SAFETY: `launch` mirrors oracle_launch in runtime/runner.h; `run` fills it with addresses of memory that outlives
    // the call. The runner terminates the message within its size. The shared object was compiled from a kernel that
    // stays within the buffers of the case, whose sizes follow upstream's host code.
    let failed = unsafe { oracle_run(launch, message.as_mut_ptr(), message.len()) };
    if failed != 0 {
        // SAFETY: the array is zero-terminated: it was zero before, and the runner terminates what it writes.
        let message = unsafe { CStr::from_ptr(message.as_ptr()) };
        bail!("{}", message.to_string_lossy());
    }
    Ok(())
}

#[cfg(not(target_os = "linux"))]
fn start(_: &Launch) -> Result<()> {
    bail!("the simulator's engine, which runs the kernels, works only on Linux")
}
