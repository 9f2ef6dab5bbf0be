//! Reads the device's record of dispatches: one JSON object per line.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// One dispatch that ran.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Dispatch {
    /// Number of the dispatch in its process, from 1.
    pub dispatch: u64,
    /// Number of the command queue.
    pub queue: u64,
    /// Number of the command buffer.
    pub command_buffer: u64,
    /// The kernel's host name in its library.
    pub kernel: String,
    /// The program's name for the specialised function.
    pub function: String,
    /// Threadgroups per grid.
    pub grid: [u64; 3],
    /// Threads per threadgroup.
    pub group: [u64; 3],
    /// Threads per grid.
    pub threads: [u64; 3],
    /// Bound arguments, in the order of the kernel's parameters.
    pub arguments: Vec<Argument>,
    /// Lengths of dynamic threadgroup memory, in bytes.
    pub threadgroup_memory: Vec<u64>,
    /// The error, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
}

/// An argument of a dispatch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Argument {
    pub index: u32,
    /// The parameter's name in the kernel's source.
    pub name: String,
    /// Number of the buffer, if a buffer is bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub buffer: Option<u64>,
    /// Byte offset into that buffer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offset: Option<u64>,
    /// Bytes from there to the end of the buffer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub length: Option<u64>,
    /// The bytes of `setBytes`, in hex.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<String>,
    /// Bytes that the kernel loaded through this argument (metered device).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loaded: Option<u64>,
    /// Bytes that the kernel stored through this argument (metered device).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stored: Option<u64>,
}

impl Dispatch {
    /// The argument with this parameter name.
    pub fn argument(&self, name: &str) -> Option<&Argument> {
        self.arguments.iter().find(|argument| argument.name == name)
    }
}

impl Argument {
    /// A `setBytes` value as a little-endian 32-bit integer.
    pub fn as_i32(&self) -> Option<i32> {
        let hex = self.bytes.as_ref().filter(|hex| hex.len() == 8)?;
        u32::from_str_radix(hex, 16)
            .ok()
            .map(|value| value.swap_bytes().cast_signed())
    }
}

/// A line of a trace that is not a dispatch.
#[derive(Debug, thiserror::Error)]
#[error("line {line} of the trace: {source}; expected one dispatch as a JSON object")]
pub struct TraceError {
    line: usize,
    source: serde_json::Error,
}

/// Reads a whole trace. Skips empty lines.
///
/// # Errors
/// The first line that is not a dispatch.
pub fn read(text: &str) -> Result<Vec<Dispatch>, TraceError> {
    text.lines()
        .enumerate()
        .filter(|(_, line)| !line.trim().is_empty())
        .map(|(i, line)| {
            serde_json::from_str(line).map_err(|source| TraceError {
                line: i + 1,
                source,
            })
        })
        .collect()
}

/// Number of runs of each kernel, by host name.
pub fn counts(dispatches: &[Dispatch]) -> BTreeMap<&str, u64> {
    let mut counts = BTreeMap::new();
    for dispatch in dispatches {
        *counts.entry(dispatch.kernel.as_str()).or_default() += 1;
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = r#"{"dispatch":1,"queue":1,"command_buffer":2,"kernel":"k_float","function":"k_float_1","grid":[2,1,1],"group":[32,2,1],"threads":[64,2,1],"arguments":[{"index":0,"name":"w","buffer":3,"offset":16,"length":112,"loaded":64,"stored":0},{"index":5,"name":"n","bytes":"00fffeff"}],"threadgroup_memory":[128]}"#;

    #[test]
    fn reads_dispatches_and_their_arguments() {
        let failed = LINE.replace(
            "\"threadgroup_memory\":[128]",
            "\"threadgroup_memory\":[],\"fault\":\"no\"",
        );
        let trace = read(&format!("{LINE}\n\n{failed}\n")).unwrap();
        assert_eq!(trace.len(), 2);
        assert_eq!(trace[0].argument("w").unwrap().loaded, Some(64));
        assert_eq!(
            trace[0].argument("n").unwrap().as_i32(),
            Some(i32::from_le_bytes([0, 0xff, 0xfe, 0xff]))
        );
        assert_eq!(trace[1].fault.as_deref(), Some("no"));
        assert_eq!(counts(&trace), BTreeMap::from([("k_float", 2)]));
        assert_eq!(serde_json::to_string(&trace[0]).unwrap(), LINE);
    }

    #[test]
    fn names_the_line_that_is_wrong() {
        let error = read(&format!("{LINE}\nnope\n")).unwrap_err();
        assert!(
            error.to_string().starts_with("line 2 of the trace"),
            "{error}"
        );
    }
}
