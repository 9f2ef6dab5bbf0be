//! The header of a patch: its reasons, and the files that it adds.

use crate::error::{Error, Result};
use crate::tree::path;

/// The header's fields, in their order.
pub const FIELDS: [&str; 6] = ["Subject", "Why", "Upstream", "Drop-When", "Adds", "Test"];

/// The header of a patch: the lines of each of [`FIELDS`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header([Vec<String>; FIELDS.len()]);

impl Header {
    /// The lines of a field.
    ///
    /// # Panics
    /// If `name` is not in [`FIELDS`].
    pub fn field(&self, name: &str) -> &[String] {
        let index = FIELDS
            .iter()
            .position(|field| *field == name)
            .expect("a field of the header");
        &self.0[index]
    }

    /// The first line of `Subject`.
    pub fn subject(&self) -> &str {
        self.field("Subject").first().map_or("", String::as_str)
    }

    /// The files of `patches/files` that the patch adds.
    pub fn adds(&self) -> impl Iterator<Item = &str> {
        self.field("Adds")
            .iter()
            .map(String::as_str)
            .filter(|path| *path != "none")
    }

    /// The header's text with the empty line that ends it.
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        for (name, lines) in FIELDS.iter().zip(&self.0) {
            text.push_str(&format!("{name}:"));
            for line in lines {
                text.push_str(&format!(" {line}\n"));
            }
        }
        text.push('\n');
        text
    }

    /// This header with other added files.
    #[must_use]
    pub fn with_adds(mut self, paths: impl IntoIterator<Item = String>) -> Self {
        let lines = &mut self.0[FIELDS.len() - 2];
        *lines = paths.into_iter().collect();
        if lines.is_empty() {
            lines.push("none".to_owned());
        }
        self
    }

    /// Parses a header with the empty line that ends it. `name` is the patch's name for errors.
    ///
    /// # Errors
    /// A missing, empty or misplaced field; a path in `Adds` that leads out of the tree.
    pub fn parse(name: &str, text: &str) -> Result<Self> {
        let mut fields: [Vec<String>; FIELDS.len()] = Default::default();
        let mut current = None;
        let body = text.strip_suffix("\n\n").ok_or_else(|| {
            Error::patch(
                name,
                format!(
                    "expected a header ({}) and one empty line before the diff",
                    FIELDS.join(", ")
                ),
            )
        })?;
        for line in body.split('\n') {
            let (index, value) = if let Some(rest) = line.strip_prefix(' ') {
                (
                    current.ok_or_else(|| {
                        Error::patch(name, "the header begins with a continued line")
                    })?,
                    rest,
                )
            } else {
                let expected = current.map_or(0, |index: usize| index + 1);
                let field = FIELDS.get(expected);
                let rest = field.and_then(|field| line.strip_prefix(field)?.strip_prefix(": "));
                let Some(rest) = rest else {
                    let wanted = field.map_or("the end of the header".to_owned(), |field| {
                        format!("`{field}: …`")
                    });
                    return Err(Error::patch(
                        name,
                        format!("expected {wanted}, found {line:?}"),
                    ));
                };
                (expected, rest)
            };
            if value.trim().is_empty() || value.trim_end() != value {
                let message = format!(
                    "{} has an empty line or a space at a line's end",
                    FIELDS[index]
                );
                return Err(Error::patch(name, message));
            }
            fields[index].push(value.to_owned());
            current = Some(index);
        }
        if current != Some(FIELDS.len() - 1) {
            let missing: Vec<_> = FIELDS
                .iter()
                .zip(&fields)
                .filter(|(_, lines)| lines.is_empty())
                .map(|(f, _)| *f)
                .collect();
            return Err(Error::patch(
                name,
                format!("the header lacks {}", missing.join(", ")),
            ));
        }
        let header = Self(fields);
        for added in header.adds() {
            path::check(added, &format!("patches/{name}.patch, Adds"))?;
        }
        Ok(header)
    }
}
