//! The library container: the content of `.air` and `.metallib` files here.
//!
//! Plain text. The index comes first, so a reader need not load the sources:
//!
//! ```text
//! mtlsim-metallib 1
//! names <count> sources <count>
//! <host name>\t<source number>\t<expression>      sorted by name
//! <source number>\t<byte length>\t<file name>
//! <the sources, one after another>
//! ```
//!
//! A source is preprocessed Metal without its explicit instantiations. An expression such as
//! `affine_qmv<float, 64, 4>` names the function of a host name. A library refers to no other file.

use std::collections::BTreeMap;
use std::path::Path;

use crate::Error;
use crate::parse::{Source, UNSUPPORTED};

const MAGIC: &str = "mtlsim-metallib 1";

/// The table entry of a kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub source: usize,
    /// The function, with its template arguments.
    pub expression: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceText {
    /// The file name, for messages.
    pub file: String,
    /// Self-contained Metal Shading Language.
    pub text: String,
}

/// Sources and the table of host names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Library {
    names: BTreeMap<String, Entry>,
    sources: Vec<SourceText>,
}

impl Library {
    /// Makes a library of one preprocessed source.
    ///
    /// # Errors
    /// [`Error::Syntax`] if the source is not well formed.
    pub fn from_source(file: &str, preprocessed: &str) -> Result<Self, Error> {
        let source = Source::parse(preprocessed)?;
        let mut library = Library::default();
        for name in source.host_names()? {
            let entry = Entry {
                source: 0,
                expression: name.expression,
            };
            if library.names.contains_key(&name.host_name) {
                let message = format!("two functions have the host name '{}'", name.host_name);
                return Err(source.refused(name.token, "5.1.10", message));
            }
            library.names.insert(name.host_name, entry);
        }
        library.sources.push(SourceText {
            file: file.to_owned(),
            text: crate::lower::without_instantiations(&source),
        });
        Ok(library)
    }

    /// Adds everything in `other`. If both have a name, the first is kept.
    pub fn merge(&mut self, other: Library) {
        let offset = self.sources.len();
        self.sources.extend(other.sources);
        for (name, entry) in other.names {
            self.names.entry(name).or_insert(Entry {
                source: entry.source + offset,
                ..entry
            });
        }
    }

    /// Host names, sorted.
    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.names.keys().map(String::as_str)
    }

    pub fn entry(&self, name: &str) -> Option<&Entry> {
        self.names.get(name)
    }

    /// One name for each kernel function: its instantiation for `float` if there is one. Sources
    /// for unsupported hardware are skipped.
    pub fn representatives(&self) -> Vec<&str> {
        (0..self.sources.len())
            .filter(|&source| !self.sources[source].text.contains(UNSUPPORTED))
            .flat_map(|source| self.representatives_of(source))
            .map(|(name, _)| name)
            .collect()
    }

    /// Like `representatives`, for one source, with their expressions.
    pub(crate) fn representatives_of(&self, source: usize) -> Vec<(&str, &str)> {
        let mut chosen: BTreeMap<&str, (&str, &str, u32)> = BTreeMap::new();
        for (name, entry) in self
            .names
            .iter()
            .filter(|(_, entry)| entry.source == source)
        {
            let (function, arguments) = entry.expression.split_at(
                entry
                    .expression
                    .find(['<', '('])
                    .unwrap_or(entry.expression.len()),
            );
            let rank = match arguments {
                _ if arguments.contains("complex") => 2,
                _ if arguments.starts_with("<float") => 0,
                _ => 1,
            };
            let best = chosen
                .entry(function)
                .or_insert((name, &entry.expression, rank));
            if rank < best.2 {
                *best = (name, &entry.expression, rank);
            }
        }
        chosen
            .into_values()
            .map(|(name, expression, _)| (name, expression))
            .collect()
    }

    pub fn sources(&self) -> &[SourceText] {
        &self.sources
    }

    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = format!(
            "{MAGIC}\nnames {} sources {}\n",
            self.names.len(),
            self.sources.len()
        );
        for (name, entry) in &self.names {
            out.push_str(&format!("{name}\t{}\t{}\n", entry.source, entry.expression));
        }
        for (number, source) in self.sources.iter().enumerate() {
            out.push_str(&format!(
                "{number}\t{}\t{}\n",
                source.text.len(),
                source.file
            ));
        }
        for source in &self.sources {
            out.push_str(&source.text);
        }
        out.into_bytes()
    }

    /// Reads a whole library.
    ///
    /// # Errors
    /// [`Error::NotALibrary`] if the file is something else or truncated.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let bytes = fs_err::read(path)?;
        Self::from_bytes(&bytes).map_err(|found| Error::NotALibrary {
            path: path.to_owned(),
            found,
        })
    }

    fn from_bytes(bytes: &[u8]) -> Result<Self, String> {
        if bytes.starts_with(b"MTLB") {
            return Err("a metallib from Apple's compiler".to_owned());
        }
        let text = std::str::from_utf8(bytes).map_err(|_| "binary data".to_owned())?;
        let mut rest = text;
        let mut line = || {
            let (line, after) = rest.split_once('\n').ok_or("it ends early")?;
            rest = after;
            Ok::<&str, String>(line)
        };
        let magic = line().unwrap_or_default();
        if magic != MAGIC {
            let shown: String = magic.chars().take(40).collect();
            return Err(format!("its first line is {shown:?}"));
        }
        let counts = line()?;
        let (names, sources) = counts
            .strip_prefix("names ")
            .and_then(|counts| counts.split_once(" sources "))
            .and_then(|(names, sources)| {
                Some((names.parse::<usize>().ok()?, sources.parse::<usize>().ok()?))
            })
            .ok_or_else(|| format!("its second line is {counts:?}"))?;
        let mut library = Library::default();
        for _ in 0..names {
            let row = line()?;
            let mut fields = row.splitn(3, '\t');
            let (Some(name), Some(Ok(source)), Some(expression)) =
                (fields.next(), fields.next().map(str::parse), fields.next())
            else {
                return Err(format!("an index line is {row:?}"));
            };
            if source >= sources {
                return Err(format!("{name} names source {source} of {sources}"));
            }
            let expression = expression.to_owned();
            library
                .names
                .insert(name.to_owned(), Entry { source, expression });
        }
        let mut lengths = Vec::new();
        for _ in 0..sources {
            let row = line()?;
            let mut fields = row.splitn(3, '\t').skip(1);
            let (Some(Ok(length)), Some(file)) =
                (fields.next().map(str::parse::<usize>), fields.next())
            else {
                return Err(format!("a source line is {row:?}"));
            };
            lengths.push((length, file));
        }
        for (length, file) in lengths {
            let text = rest.get(..length).ok_or("it ends early")?;
            rest = &rest[length..];
            library.sources.push(SourceText {
                file: file.to_owned(),
                text: text.to_owned(),
            });
        }
        if !rest.is_empty() {
            return Err(format!("{} bytes follow its last source", rest.len()));
        }
        Ok(library)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"
template <typename T, int n> [[kernel]] void scale(device T* x [[buffer(0)]], uint i [[thread_position_in_grid]]) { x[i] *= n; }
[[kernel]] void plain(device float* x, uint i [[thread_position_in_grid]]) { x[i] = 0; }
template [[host_name("scale_" "float_2")]] [[kernel]] decltype(scale<float, 2>) scale<float, 2>;
template [[host_name("scale_half")]] [[kernel]] void scale<half, 3>(device half* x, uint i);
"#;

    #[test]
    fn lists_instantiations_and_plain_kernels() {
        let library = Library::from_source("k.metal", TEXT).unwrap();
        let table: Vec<_> = library
            .names()
            .map(|name| (name, library.entry(name).unwrap().expression.as_str()))
            .collect();
        assert_eq!(
            table,
            [
                ("plain", "plain"),
                ("scale_float_2", "scale<float,2>"),
                ("scale_half", "scale<half,3>")
            ]
        );
        assert!(!library.sources()[0].text.contains("host_name"));
    }

    #[test]
    fn reads_what_it_writes() {
        let mut library = Library::from_source("k.metal", TEXT).unwrap();
        let other =
            "[[kernel]] void other(device int* x) {}\n[[kernel]] void plain(device int* x) {}\n";
        library.merge(Library::from_source("o.metal", other).unwrap());
        assert_eq!(library.entry("other").unwrap().source, 1);
        assert_eq!(library.entry("plain").unwrap().source, 0);
        assert_eq!(Library::from_bytes(&library.to_bytes()).unwrap(), library);
    }

    #[test]
    fn says_what_a_wrong_file_is() {
        let bytes = Library::from_source("k.metal", TEXT).unwrap().to_bytes();
        for (bytes, found) in [
            (&b"MTLB\0\0"[..], "Apple"),
            (b"\xff\xfe", "binary"),
            (b"hello\n", "first line"),
            (&bytes[..bytes.len() - 1], "ends early"),
            (&[&bytes[..], b"x"].concat(), "1 bytes follow"),
        ] {
            let error = Library::from_bytes(bytes).unwrap_err();
            assert!(error.contains(found), "{error}");
        }
    }
}
