use mlx_terms::{FormatError, PolicyError, UnknownName};

use crate::{Device, Dtype};

/// The result type of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why an operation was rejected or failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The text of an exception from MLX.
    #[error("{0}")]
    Mlx(String),

    /// The number of elements does not fill the shape.
    #[error("{elements} elements do not fill the shape {shape:?}")]
    Length {
        /// Number of elements given.
        elements: usize,
        /// The requested extents.
        shape: Vec<usize>,
    },

    /// Bytes that are not valid elements of an array.
    #[error(
        "{bytes} bytes are not valid for an array of type {dtype} and shape {shape:?}: {}",
        why_not(*bytes, shape, *dtype)
    )]
    Bytes {
        /// Number of bytes given.
        bytes: usize,
        /// The requested extents.
        shape: Vec<usize>,
        /// The requested type.
        dtype: Dtype,
    },

    /// Not enough memory: an array is larger than MLX's limit ([`crate::memory::set_limit`]), or the device
    /// has no room for it. `bytes` is 0 if the number is not known.
    #[error("out of memory{}", wanted(*bytes))]
    OutOfMemory {
        /// Bytes requested at once.
        bytes: usize,
    },

    /// An extent, or a product of extents, is larger than MLX's 32-bit integers.
    #[error("the shape {shape:?} is too large: {what} must be below {}", if *what == crate::ops::BYTES { "2^64" } else { "2^31" })]
    TooLarge {
        /// The part that is too large.
        what: &'static str,
        /// The shape in question.
        shape: Vec<usize>,
    },

    /// An operation was given an array without elements.
    #[error("{argument} has no elements: its shape is {shape:?}")]
    Empty {
        /// The argument's name.
        argument: &'static str,
        /// The argument's shape.
        shape: Vec<usize>,
    },

    /// A shape that the operation does not accept.
    #[error("{argument} has shape {shape:?}, expected {expected}")]
    Shape {
        /// The argument's name.
        argument: &'static str,
        /// The argument's shape.
        shape: Vec<usize>,
        /// The accepted shape.
        expected: String,
    },

    /// An element type that the operation does not accept.
    #[error("{argument} has elements of type {found}, expected {expected}")]
    Dtype {
        /// The argument's name.
        argument: &'static str,
        /// The argument's type.
        found: Dtype,
        /// The accepted type.
        expected: String,
    },

    /// A quantization for which MLX has no kernels.
    #[error("no such quantization: {0}")]
    Quantization(#[from] FormatError),

    /// A route for products for which MLX has no kernels.
    #[error("route {number}: {error}")]
    Route {
        /// The route's position in the table, from 0.
        number: usize,
        /// The fault in the route's format.
        error: FormatError,
    },

    /// Biases for a mode without them, or missing biases for a mode with them.
    #[error("{mode} weights {}", if *expected { "need biases in addition to scales" } else { "take no biases" })]
    Biases {
        /// The quantization mode.
        mode: &'static str,
        /// Whether the mode has biases.
        expected: bool,
    },

    /// A dimension that the array does not have.
    #[error("{argument} has no dimension {axis}: it has {dimensions} dimensions")]
    Axis {
        /// The argument's name.
        argument: &'static str,
        /// The requested dimension; negative ones count from the end.
        axis: isize,
        /// Number of dimensions.
        dimensions: usize,
    },

    /// A file that could not be read or written.
    #[error("{}: {problem}", path.display())]
    File {
        /// The file.
        path: std::path::PathBuf,
        /// The problem.
        problem: String,
    },

    /// A position that does not fit into MLX's 32-bit integers.
    #[error("position {position} is too large: it must be below 2^31")]
    Position {
        /// The position.
        position: usize,
    },

    /// An index past the end of a dimension.
    #[error("index {index} is out of range: the first dimension has {length} entries")]
    Index {
        /// The index.
        index: u32,
        /// Number of entries.
        length: usize,
    },

    /// This build or this machine has no such device.
    #[error("no {device} device: {}", why_none(*.0), device = .0)]
    NoDevice(Device),

    /// The linked MLX is pristine, or has only the CPU back-end.
    #[error(
        "the linked MLX has no kernels for policies: only the overlay's Metal back-end has them (`--backend metal` or `sim`)"
    )]
    NoPolicies,

    /// A policy with an invalid number of rows, or text that is not a policy.
    #[error(transparent)]
    Policy(#[from] PolicyError),

    /// A policy hook started an evaluation. It must only return a policy.
    #[error(
        "a policy hook started an evaluation, while the evaluation that called the hook waits for its answer: decide from the operation alone, or evaluate before"
    )]
    InPolicyHook,

    /// An unknown name.
    #[error(transparent)]
    UnknownName(#[from] UnknownName),

    /// A recording of kernels was started inside another one.
    #[error("this thread is already recording kernels: recordings cannot be nested")]
    Recording,

    /// Operations whose rows would not keep their bits; [`crate::Stream::check_operations`] found them.
    #[error(
        "on stream {stream}, rows would not keep their bits:{}",
        listed(findings)
    )]
    Unkept {
        /// The index of the stream that was checked.
        stream: i32,
        /// The operations, in reverse order of execution.
        findings: Vec<Finding>,
    },

    /// An earlier evaluation that computed this array, or one that it depends on, failed. Build it again.
    #[error(
        "an evaluation that this array depends on failed, so its contents are unknown: build it again"
    )]
    Lost,

    /// MLX's variables of this thread have been destroyed.
    #[error("this thread is ending, and MLX's variables in it have been destroyed")]
    ThreadEnding,

    /// The process is exiting.
    #[error("the process is exiting, and MLX has been closed")]
    ProcessEnding,

    /// This process was forked from one that had used MLX. It lacks the threads that MLX needs.
    #[error(
        "this process was forked from one that had used MLX, so it cannot use MLX: start a new program instead, or fork earlier"
    )]
    ProcessForked,
}

/// An operation whose rows would not keep their bits.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// MLX's name for the primitive.
    pub primitive: String,
    /// The shape of its first output.
    pub shape: Vec<usize>,
    /// The device on which it would run.
    pub device: Device,
    /// The index of the stream on which it would run.
    pub stream: i32,
    /// The problem, as a sentence that starts after the operation's name.
    pub why: String,
    /// The remedy.
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

/// One line per finding. A model has many layers, so findings that differ only in shape share a line.
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
        Some(expected) if expected == bytes => "a bool must be 0 or 1".to_owned(),
        Some(expected) => format!("expected {expected} bytes"),
        None => "its size overflows".to_owned(),
    }
}

fn wanted(bytes: usize) -> String {
    match bytes {
        0 => String::new(),
        _ => {
            format!(": {bytes} bytes are more than MLX's memory limit, or than the device has left")
        }
    }
}

/// The number of bytes that MLX, its allocators or its device could not allocate.
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
