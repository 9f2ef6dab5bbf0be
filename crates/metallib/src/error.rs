//! Errors of a container, with their positions.

use crate::tag_name::TagName;

/// Why a file, or a part of it, cannot be read. Offsets are bytes from the start of the file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The first four bytes are not `MTLB`.
    #[error("expected the magic `MTLB` at offset 0, found {found:02x?}{}", magic_hint(.found))]
    Magic {
        /// Up to four first bytes of the file.
        found: Vec<u8>,
    },
    /// The bytes end before a field does.
    #[error(
        "expected {what} ({expected} bytes) at offset {offset}, but only {available} bytes are left there"
    )]
    Truncated {
        /// The field.
        what: &'static str,
        /// Where the field starts.
        offset: u64,
        /// Its size.
        expected: u64,
        /// The bytes left in the part that should contain it.
        available: u64,
    },
    /// The size in the header is not the size of the file.
    #[error(
        "the header (offset 16) gives a file size of {stored} bytes, but the file has {actual}: it was truncated, or something was appended"
    )]
    FileSize {
        /// The size in the header.
        stored: u64,
        /// The size of the file.
        actual: u64,
    },
    /// An offset and a size outside the part of the file they point into.
    #[error(
        "{what} (named at offset {named_at}) spans {size} bytes from {start}, outside {container}, which has {limit} bytes"
    )]
    OutOfBounds {
        /// What the range should contain.
        what: &'static str,
        /// Where the offset or the size was read.
        named_at: u64,
        /// First byte, relative to `container`.
        start: u64,
        /// Number of bytes.
        size: u64,
        /// The part that the range must be in.
        container: &'static str,
        /// Size of `container` in bytes.
        limit: u64,
    },
    /// A tag whose payload does not have the size of its type.
    #[error("tag {tag} at offset {offset} holds {found} bytes, expected {expected}")]
    TagSize {
        /// The tag.
        tag: TagName,
        /// Where the tag starts.
        offset: u64,
        /// The size of its type.
        expected: u64,
        /// The size of the payload.
        found: u64,
    },
    /// A tag group whose size is too small for itself, or that ends without `ENDT`.
    #[error("{what} at offset {offset}: {problem}")]
    Group {
        /// The group.
        what: &'static str,
        /// Where the group starts.
        offset: u64,
        /// What was expected and found.
        problem: GroupProblem,
    },
    /// A C string that is not terminated, or not UTF-8.
    #[error("{what} at offset {offset}: expected {expected}")]
    Text {
        /// The string.
        what: &'static str,
        /// Where it starts.
        offset: u64,
        /// What was expected.
        expected: &'static str,
    },
    /// The function list claims more functions than its bytes can contain.
    #[error(
        "the function list at offset {offset} claims {claimed} functions, but its {size} bytes can contain at most {possible}"
    )]
    FunctionCount {
        /// Where the count was read.
        offset: u64,
        /// The count.
        claimed: u32,
        /// Size of the list without the count.
        size: u64,
        /// The most that fit.
        possible: u64,
    },
    /// A function without one of the tags that every version writes.
    #[error("function {index} at offset {offset} has no tag {tag}")]
    MissingTag {
        /// Position in the function list.
        index: u32,
        /// Where the function's group starts.
        offset: u64,
        /// The tag.
        tag: TagName,
    },
    /// Parts that would have to overlap to fit; reading them all would take more than linear time.
    #[error(
        "the functions claim {claimed} bytes of {what}, more than the {available} that exist: ranges overlap"
    )]
    Overlap {
        /// Which parts.
        what: &'static str,
        /// Sum of their sizes, up to the first one over the limit.
        claimed: u64,
        /// The limit.
        available: u64,
    },
}

/// The error in a tag group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GroupProblem {
    /// The size is smaller than that of an empty group.
    #[error("its size is {0}, but an empty group has 8")]
    TooSmall(u32),
    /// The bytes end without the end mark.
    #[error("expected ENDT before its end at offset {end}")]
    NoEnd {
        /// Where the group ends.
        end: u64,
    },
}

/// Names the format that the first bytes belong to, so that users know what file they have.
fn magic_hint(found: &[u8]) -> &'static str {
    match found {
        [] => " (the file is empty)",
        [0xcb, 0xfe, 0xba, 0xbe] | [0xca, 0xfe, 0xba, 0xbe] => {
            " (a universal binary: extract one architecture with `metal-lipo -thin` first)"
        }
        [b'P', b'K', ..] => " (a zip archive or a wheel: unpack it first)",
        [0x1f, 0x8b, ..] => " (gzip: unpack it first)",
        [b'B', b'C', 0xc0, 0xde] | [0xde, 0xc0, 0x17, 0x0b] => " (bare LLVM bitcode, an .air file)",
        b"vers" => " (a Git LFS pointer: fetch the file first)",
        _ => "",
    }
}
