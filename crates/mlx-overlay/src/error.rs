use mlx_terms::{FormatError, PolicyError, UnknownName};

use crate::{Device, Dtype};

/// What every fallible function of this crate returns.
pub type Result<T> = std::result::Result<T, Error>;

/// Why an operation was refused or failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// MLX threw; its text.
    #[error("{0}")]
    Mlx(String),

    /// The number of elements does not fill the shape.
    #[error("{elements} elements do not fill the shape {shape:?}")]
    Length {
        /// Elements that were given.
        elements: usize,
        /// Extents that were asked for.
        shape: Vec<usize>,
    },

    /// Bytes that are not the elements of an array.
    #[error(
        "{bytes} bytes are not the elements of an array of {dtype} and shape {shape:?}: {}",
        why_not(*bytes, shape, *dtype)
    )]
    Bytes {
        /// Bytes that were given.
        bytes: usize,
        /// Extents that were asked for.
        shape: Vec<usize>,
        /// The type that was asked for.
        dtype: Dtype,
    },

    /// There is no memory for so many bytes: an array that is larger than MLX's limit ([`crate::memory::set_limit`]), or
    /// that the device has no room for. 0 if the number is not known.
    #[error("out of memory{}", wanted(*bytes))]
    OutOfMemory {
        /// Bytes that were asked for at once.
        bytes: usize,
    },

    /// An extent, or a product of extents, is larger than MLX's 32-bit integers.
    #[error("the shape {shape:?} is too large: {what} must be below {}", if *what == crate::ops::BYTES { "2^64" } else { "2^31" })]
    TooLarge {
        /// What is too large.
        what: &'static str,
        /// The shape in question.
        shape: Vec<usize>,
    },

    /// An operation was given an array without elements.
    #[error("{argument} has no elements: its shape is {shape:?}")]
    Empty {
        /// The argument's name.
        argument: &'static str,
        /// Its shape.
        shape: Vec<usize>,
    },

    /// A shape that the operation cannot take.
    #[error("{argument} has shape {shape:?}, expected {expected}")]
    Shape {
        /// The argument's name.
        argument: &'static str,
        /// Its shape.
        shape: Vec<usize>,
        /// What the operation takes.
        expected: String,
    },

    /// A type of element that the operation cannot take.
    #[error("{argument} has elements of type {found}, expected {expected}")]
    Dtype {
        /// The argument's name.
        argument: &'static str,
        /// Its type.
        found: Dtype,
        /// What the operation takes.
        expected: String,
    },

    /// A way to quantize that MLX has no kernels for.
    #[error("no such quantization: {0}")]
    Quantization(#[from] FormatError),

    /// A route for products that MLX has no kernels for.
    #[error("route {number}: {error}")]
    Route {
        /// Its place in the table, from 0.
        number: usize,
        /// What is wrong with its format.
        error: FormatError,
    },

    /// Biases for a mode without, or none for one with.
    #[error("{mode} weights {}", if *expected { "need biases beside their scales" } else { "have no biases" })]
    Biases {
        /// The quantization mode.
        mode: &'static str,
        /// Whether it has biases.
        expected: bool,
    },

    /// A dimension that the array does not have.
    #[error("{argument} has {dimensions} dimensions, and none is number {axis}")]
    Axis {
        /// The argument's name.
        argument: &'static str,
        /// The dimension that was asked for; negative ones count from the end.
        axis: isize,
        /// Dimensions that there are.
        dimensions: usize,
    },

    /// A file that could not be read or written.
    #[error("{}: {problem}", path.display())]
    File {
        /// The file.
        path: std::path::PathBuf,
        /// What is wrong with it.
        problem: String,
    },

    /// A position that MLX's 32-bit integers cannot hold.
    #[error("position {position} is too large: it must be below 2^31")]
    Position {
        /// The position.
        position: usize,
    },

    /// An index past the end of a dimension.
    #[error("index {index} is past the {length} entries of the first dimension")]
    Index {
        /// The index.
        index: u32,
        /// Entries that there are.
        length: usize,
    },

    /// This build, or this machine, has no such device.
    #[error("no {device} device: {}", why_none(*.0), device = .0)]
    NoDevice(Device),

    /// The linked MLX is pristine, or has the CPU back-end only.
    #[error(
        "the linked MLX has no kernels for policies: they come with the overlay's Metal back-end (`--backend metal` or `sim`)"
    )]
    NoPolicies,

    /// A policy with 0 rows or too many, or a text that is no policy.
    #[error(transparent)]
    Policy(#[from] PolicyError),

    /// An evaluation inside of a policy hook, which must only answer.
    #[error(
        "a policy hook evaluates: the evaluation that asked it is waiting for its answer; decide from the operation alone, or evaluate before"
    )]
    InPolicyHook,

    /// A name that nothing of its kind has.
    #[error(transparent)]
    UnknownName(#[from] UnknownName),

    /// A recording of kernels inside of another one.
    #[error("kernels are being recorded on this thread already: recordings do not nest")]
    Recording,

    /// Operations whose rows would not keep their bits; [`crate::Stream::check_operations`] found them.
    #[error(
        "on stream {stream}, rows would not keep their bits:{}",
        listed(findings)
    )]
    Unkept {
        /// The index of the stream for which they were looked at.
        stream: i32,
        /// The operations, the last that would run first.
        findings: Vec<Finding>,
    },

    /// An earlier evaluation that was to compute this array, or one that it depends on, failed. Build it anew.
    #[error(
        "an evaluation that this array depends on failed: its contents are unknown; build it anew"
    )]
    Lost,

    /// MLX's variables of this thread are destroyed.
    #[error("this thread is ending, and MLX's part of it is gone")]
    ThreadEnding,

    /// The process is exiting.
    #[error("the process is exiting, and MLX is closed")]
    ProcessEnding,

    /// This process was made by `fork`, by one that had used MLX. It lacks the threads that MLX works with.
    #[error(
        "this process was forked from one that had used MLX, and cannot use it: start a program instead"
    )]
    ProcessForked,
}

/// An operation whose rows would not keep their bits.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// MLX's name of the primitive.
    pub primitive: String,
    /// The shape of its first output.
    pub shape: Vec<usize>,
    /// The device that it would run on.
    pub device: Device,
    /// The index of the stream that it would run on.
    pub stream: i32,
    /// What is wrong, of the operation as the subject.
    pub why: String,
    /// What to do.
    pub remedy: String,
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            primitive,
            shape,
            device,
            stream,
            why,
            remedy,
        } = self;
        write!(
            f,
            "{primitive} {shape:?} on {device} stream {stream} {why}: {remedy}"
        )
    }
}

/// A line for each finding. A model has many layers: what differs in shape alone shares a line.
fn listed(findings: &[Finding]) -> String {
    let mut lines: Vec<(&Finding, usize)> = Vec::new();
    for finding in findings {
        let same = |(other, _): &&mut (&Finding, usize)| {
            let key = |f: &Finding| (f.primitive.clone(), f.why.clone(), f.stream);
            key(other) == key(finding)
        };
        match lines.iter_mut().find(same) {
            Some((_, count)) => *count += 1,
            None => lines.push((finding, 1)),
        }
    }
    lines
        .into_iter()
        .map(|(finding, count)| match count {
            1 => format!("\n  {finding}"),
            _ => format!("\n  {finding} ({} more like this)", count - 1),
        })
        .collect()
}

fn why_none(device: Device) -> &'static str {
    match device {
        Device::Cpu => "the linked MLX was built without the CPU back-end (`--cpu`)",
        Device::Gpu => "the linked MLX has no Metal back-end, or the machine has no GPU for it",
    }
}

fn why_not(bytes: usize, shape: &[usize], dtype: Dtype) -> String {
    match crate::ops::elements(shape).and_then(|count| count.checked_mul(dtype.size())) {
        Some(expected) if expected == bytes => "a bool is 0 or 1".to_owned(),
        Some(expected) => format!("they are {expected} bytes"),
        None => "they are more than there can be".to_owned(),
    }
}

fn wanted(bytes: usize) -> String {
    match bytes {
        0 => String::new(),
        _ => format!(
            ": {bytes} bytes are larger than MLX's memory limit, or than what the device has left"
        ),
    }
}

/// The bytes that MLX, its allocators or its device wanted and did not get.
fn out_of_memory(text: &str) -> Option<usize> {
    let number = |rest: &str| {
        let digits = rest.split(|c: char| !c.is_ascii_digit()).next()?;
        digits.parse().ok()
    };
    for before in [
        mlx_overlay_sys::OUT_OF_MEMORY,
        "[malloc] Unable to allocate ",
        "[metal::malloc] Attempting to allocate ",
    ] {
        if let Some((_, rest)) = text.split_once(before) {
            return number(rest);
        }
    }
    let unknown = [
        "std::bad_alloc",
        "kIOGPUCommandBufferCallbackErrorOutOfMemory",
    ];
    unknown.iter().any(|name| text.contains(name)).then_some(0)
}

impl From<cxx::Exception> for Error {
    fn from(exception: cxx::Exception) -> Self {
        match exception.what() {
            mlx_overlay_sys::THREAD_ENDING => Self::ThreadEnding,
            mlx_overlay_sys::PROCESS_ENDING => Self::ProcessEnding,
            mlx_overlay_sys::PROCESS_FORKED => Self::ProcessForked,
            text => match out_of_memory(text) {
                Some(bytes) => Self::OutOfMemory { bytes },
                None => Self::Mlx(text.to_owned()),
            },
        }
    }
}
