//! JSON as Python writes and reads it: with `Infinity`, `-Infinity` and `NaN`, and numbers beyond the range of a
//! double.

use std::borrow::Cow;

use serde_json::Value;

/// The form in which transformers writes a non-finite number as valid JSON: `{"__float__": "Infinity"}`.
const TAG: &str = "__float__";

/// Parses a text. Non-finite numbers are returned with a tag; [`number`] reads them.
pub(super) fn parse(text: &str) -> serde_json::Result<Value> {
    serde_json::from_str(&tagged(text))
}

/// A number, finite or not.
pub(super) fn number(value: &Value) -> Option<f64> {
    let Some(fields) = value.as_object() else {
        return value.as_f64();
    };
    match (fields.len(), fields.get(TAG)?.as_str()?) {
        (1, "Infinity") => Some(f64::INFINITY),
        (1, "-Infinity") => Some(f64::NEG_INFINITY),
        (1, "NaN") => Some(f64::NAN),
        _ => None,
    }
}

/// The text with tags for numbers that JSON cannot express. Line numbers do not change, because errors use them.
fn tagged(text: &str) -> Cow<'_, str> {
    let mut out = String::new();
    let mut copied = 0;
    let mut at = 0;
    let bytes = text.as_bytes();
    while let Some(&byte) = bytes.get(at) {
        if byte == b'"' {
            at = after_string(bytes, at);
            continue;
        }
        let word = bytes[at..]
            .iter()
            .take_while(|b| b.is_ascii_alphanumeric() || b"+-.".contains(b))
            .count();
        // A word is ASCII; the text between words may start in the middle of a character.
        let found = text.get(at..at + word).and_then(not_finite);
        if let Some(name) = found {
            out.push_str(&text[copied..at]);
            out.push_str(&format!("{{\"{TAG}\":\"{name}\"}}"));
            copied = at + word;
        }
        at += word.max(1);
    }
    if copied == 0 {
        return Cow::Borrowed(text);
    }
    out.push_str(&text[copied..]);
    Cow::Owned(out)
}

/// The first byte after the string that starts here.
fn after_string(bytes: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while let Some(&byte) = bytes.get(at) {
        match byte {
            b'"' => return at + 1,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    bytes.len()
}

fn not_finite(word: &str) -> Option<&'static str> {
    match word {
        "Infinity" => return Some("Infinity"),
        "-Infinity" => return Some("-Infinity"),
        "NaN" => return Some("NaN"),
        _ => {}
    }
    // `1e999` is infinite in Python. Rust's own "inf" is not a number in JSON.
    let digits = word.strip_prefix('-').unwrap_or(word);
    let overflows = digits.starts_with(|c: char| c.is_ascii_digit())
        && word.parse::<f64>().is_ok_and(f64::is_infinite);
    overflows.then_some(if word.starts_with('-') {
        "-Infinity"
    } else {
        "Infinity"
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_python() {
        let text = r#"{"a": Infinity, "b": [-Infinity, NaN], "c": -1e999, "d": "NaN, \"Infinity", "e": 1.5,
            "f": {"__float__": "NaN"}, "g": {"__float__": "NaN", "h": 1}}"#;
        let value = parse(text).unwrap();
        let get = |name: &str| number(&value[name]);
        assert_eq!(get("a"), Some(f64::INFINITY));
        assert_eq!(number(&value["b"][0]), Some(f64::NEG_INFINITY));
        assert!(number(&value["b"][1]).unwrap().is_nan());
        assert_eq!(get("c"), Some(f64::NEG_INFINITY));
        assert_eq!(value["d"], "NaN, \"Infinity");
        assert_eq!(get("d"), None);
        assert_eq!(get("e"), Some(1.5));
        assert!(get("f").unwrap().is_nan());
        assert_eq!(get("g"), None);
    }

    #[test]
    fn what_python_refuses_is_refused() {
        for text in [
            "{\"a\": infinity}",
            "{\"a\": +Infinity}",
            "{\"a\": Infinit}",
            "{\"a\": \"",
            "{\"a\": \"\\",
            "\u{feff}{}",
            "{é: NaN}",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
