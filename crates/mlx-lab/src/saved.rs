//! The format number in the files that this crate writes.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The format of a report or a certificate. Reading a file of another format is an error. Format 1 had no field for it,
/// and policies without blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Layout<const NUMBER: u32 = 2>;

impl<const NUMBER: u32> Serialize for Layout<NUMBER> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u32(NUMBER)
    }
}

impl<'de, const NUMBER: u32> Deserialize<'de> for Layout<NUMBER> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // A missing field is read as `None`.
        match Option::<u32>::deserialize(deserializer)? {
            Some(found) if found == NUMBER => Ok(Self),
            Some(other) => Err(D::Error::custom(format!(
                "format {other}, expected {NUMBER}: create it again"
            ))),
            None => Err(D::Error::custom(format!(
                "no format, expected {NUMBER}: it was made when policies had no blocks and \"exact\" was called \"streamed\"; create it again"
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct File {
        format: Layout,
    }

    #[test]
    fn other_layouts_are_refused() {
        let text = serde_json::to_string(&File { format: Layout }).unwrap();
        assert_eq!(text, r#"{"format":2}"#);
        assert_eq!(
            serde_json::from_str::<File>(&text).unwrap(),
            File { format: Layout }
        );
        for (text, expected) in [
            (r#"{"format":1}"#, "format 1, expected 2: create it again"),
            ("{}", "\"exact\" was called \"streamed\"; create it again"),
        ] {
            let error = serde_json::from_str::<File>(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
