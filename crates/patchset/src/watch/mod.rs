//! The watch list: upstream functions that the overlay's claims rest on. A bump compares them token by token, comments
//! and white space aside, and reports one that changed even where every hunk still applies.

mod lex;

use std::fmt;

use git2::{Oid, Repository};

use crate::error::{Error, Result};
use crate::manifest::Watch;
use lex::Token;

/// What a watched name is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A function; all definitions of that name in the file together.
    Function,
    /// A macro.
    Macro,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Function => "function",
            Self::Macro => "macro",
        })
    }
}

/// What became of a watched name between two trees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// The same tokens.
    Same,
    /// Other tokens; a unified diff of the source text.
    Changed(String),
    /// Only the new tree defines it.
    Appeared,
    /// Only the old tree defines it.
    Gone,
    /// Neither tree defines it.
    Absent,
}

/// A watched name and what became of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Watched {
    /// The file, in MLX's tree.
    pub file: String,
    /// What it is.
    pub kind: Kind,
    /// Its name.
    pub name: String,
    /// What became of it.
    pub change: Change,
}

/// Compares every watched name in two trees.
///
/// # Errors
/// Objects that are missing, and definitions whose brackets do not close.
pub fn compare(repo: &Repository, old: Oid, new: Oid, list: &[Watch]) -> Result<Vec<Watched>> {
    let mut watched = Vec::new();
    for entry in list {
        let before = text_of(repo, old, &entry.file)?;
        let after = text_of(repo, new, &entry.file)?;
        let functions = entry.functions.iter().map(|name| (Kind::Function, name));
        let macros = entry.macros.iter().map(|name| (Kind::Macro, name));
        for (kind, name) in functions.chain(macros) {
            let change = change(kind, name, before.as_deref(), after.as_deref())
                .map_err(|message| Error::source(entry.file.as_str(), message))?;
            watched.push(Watched {
                file: entry.file.clone(),
                kind,
                name: name.clone(),
                change,
            });
        }
    }
    Ok(watched)
}

/// A file of a tree; `None` where the tree has none.
fn text_of(repo: &Repository, tree: Oid, path: &str) -> Result<Option<String>> {
    let tree = repo.find_tree(tree)?;
    let Ok(entry) = tree.get_path(path.as_ref()) else {
        return Ok(None);
    };
    let blob = repo.find_blob(entry.id())?;
    Ok(Some(String::from_utf8_lossy(blob.content()).into_owned()))
}

fn change(kind: Kind, name: &str, old: Option<&str>, new: Option<&str>) -> Result<Change, String> {
    let find =
        |text: Option<&str>| text.map_or(Ok(Vec::new()), |text| definitions(kind, name, text));
    let (old, new) = (find(old)?, find(new)?);
    Ok(match (old.is_empty(), new.is_empty()) {
        (true, true) => Change::Absent,
        (true, false) => Change::Appeared,
        (false, true) => Change::Gone,
        (false, false) if same_tokens(&old, &new) => Change::Same,
        (false, false) => Change::Changed(unified(&old, &new)),
    })
}

/// One definition: its source text and its tokens.
struct Definition {
    text: String,
    tokens: Vec<String>,
}

fn same_tokens(old: &[Definition], new: &[Definition]) -> bool {
    old.iter()
        .map(|one| &one.tokens)
        .eq(new.iter().map(|one| &one.tokens))
}

fn unified(old: &[Definition], new: &[Definition]) -> String {
    let text = |all: &[Definition]| {
        all.iter()
            .map(|one| format!("{}\n", one.text))
            .collect::<String>()
    };
    let (old, new) = (text(old), text(new));
    diffy::create_patch(&old, &new)
        .to_string()
        .lines()
        .skip(2)
        .map(|line| format!("{line}\n"))
        .collect()
}

fn definitions(kind: Kind, name: &str, text: &str) -> Result<Vec<Definition>, String> {
    let tokens = lex::tokens(text);
    let ranges = match kind {
        Kind::Function => functions(&tokens, name)?,
        Kind::Macro => macros(&tokens, name),
    };
    Ok(ranges
        .into_iter()
        .map(|range| Definition {
            text: text[tokens[range.start].start..tokens[range.end - 1].end()]
                .trim_end()
                .to_owned(),
            tokens: tokens[range]
                .iter()
                .map(|token| token.text.to_owned())
                .collect(),
        })
        .collect())
}

/// From `#` to the line end, for each `#define` of this name.
fn macros(tokens: &[Token<'_>], name: &str) -> Vec<std::ops::Range<usize>> {
    let with_arguments = format!("{name}(");
    let defines = tokens.windows(3).enumerate().filter(|(_, three)| {
        three[0].text == "#"
            && three.iter().all(|token| token.directive)
            && three[1].text == "define"
            && (three[2].text == name || three[2].text == with_arguments)
    });
    defines
        .map(|(start, _)| {
            let length = tokens[start..].iter().position(|token| token.text == "\n");
            start..length.map_or(tokens.len(), |length| start + length + 1)
        })
        .collect()
}

/// From the first word of the declaration (`template`, say) to the closing brace, for each definition.
fn functions(tokens: &[Token<'_>], name: &str) -> Result<Vec<std::ops::Range<usize>>, String> {
    let wanted: Vec<_> = lex::tokens(name)
        .into_iter()
        .map(|token| token.text)
        .collect();
    let mut found = Vec::new();
    let mut at = 0;
    while at + wanted.len() < tokens.len() {
        let here = &tokens[at..];
        let named = here
            .iter()
            .zip(&wanted)
            .all(|(token, wanted)| !token.directive && token.text == *wanted);
        let whole = at == 0 || tokens[at - 1].text != "::";
        if named
            && whole
            && here[wanted.len()].text == "("
            && let Some(open) = body(tokens, at + wanted.len())
        {
            let end = closing(tokens, open, "{", "}")
                .ok_or_else(|| format!("the braces of {name} do not close"))?;
            found.push(declaration_start(tokens, at)..end + 1);
            at = end;
        }
        at += 1;
    }
    Ok(found)
}

/// Where the body opens, if these arguments are those of a definition.
fn body(tokens: &[Token<'_>], arguments: usize) -> Option<usize> {
    let mut at = closing(tokens, arguments, "(", ")")? + 1;
    loop {
        match tokens.get(at)?.text {
            "{" => return Some(at),
            "(" => at = closing(tokens, at, "(", ")")? + 1,
            "[" => at = closing(tokens, at, "[", "]")? + 1,
            "const" | "noexcept" | "override" | "final" | "->" | "::" | "<" | ">" | "&" | "*" => {
                at += 1
            }
            // The words of a trailing return type.
            text if tokens[arguments..at].iter().any(|token| token.text == "->")
                && is_name(text) =>
            {
                at += 1
            }
            _ => return None,
        }
    }
}

fn is_name(text: &str) -> bool {
    text.chars().all(|c| c.is_alphanumeric() || c == '_')
}

fn closing(tokens: &[Token<'_>], open: usize, opens: &str, closes: &str) -> Option<usize> {
    let mut depth = 0_usize;
    for (at, token) in tokens
        .iter()
        .enumerate()
        .skip(open)
        .filter(|(_, token)| !token.directive)
    {
        if token.text == opens {
            depth += 1;
        } else if token.text == closes {
            depth -= 1;
            if depth == 0 {
                return Some(at);
            }
        }
    }
    None
}

fn declaration_start(tokens: &[Token<'_>], name: usize) -> usize {
    let before = |token: &Token<'_>| token.directive || matches!(token.text, ";" | "}" | "{");
    tokens[..name]
        .iter()
        .rposition(before)
        .map_or(0, |end| end + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "\
#include <x>
namespace a {
float g(int);
template <typename T, int bits>
inline T f(const device T* x, /* why */ thread T* y) {
  if (bits == 4) { return g(1); }
  return y[0];
}
[[kernel]] void g(int a) { f<float, 4>(a, { 1 }); }
void C::g(int b) {}
#define M(a) \\
  f(a)
}
";

    fn changed(kind: Kind, name: &str, from: &str, to: &str) -> Change {
        assert!(SOURCE.contains(from));
        change(kind, name, Some(SOURCE), Some(&SOURCE.replace(from, to))).unwrap()
    }

    #[test]
    fn finds_the_whole_definition_and_nothing_else() {
        let all = definitions(Kind::Function, "f", SOURCE).unwrap();
        assert_eq!(all.len(), 1);
        assert!(
            all[0].text.starts_with("template <typename T")
                && all[0].text.ends_with("return y[0];\n}")
        );
        assert_eq!(
            definitions(Kind::Function, "g", SOURCE).unwrap()[0].text,
            "[[kernel]] void g(int a) { f<float, 4>(a, { 1 }); }"
        );
        assert_eq!(
            definitions(Kind::Function, "C::g", SOURCE).unwrap().len(),
            1
        );
        assert_eq!(
            definitions(Kind::Macro, "M", SOURCE).unwrap()[0].text,
            "#define M(a) \\\n  f(a)"
        );
    }

    #[test]
    fn comments_and_space_do_not_count() {
        assert_eq!(
            changed(Kind::Function, "f", "/* why */", "// because\n  "),
            Change::Same
        );
        assert_eq!(
            changed(
                Kind::Function,
                "f",
                "{ return g(1); }",
                "{\n    return g( 1 );\n  }"
            ),
            Change::Same
        );
        assert_eq!(
            changed(Kind::Macro, "M", "M(a) \\\n  f(a)", "M(a) f(a) // one line"),
            Change::Same
        );
    }

    #[test]
    fn every_token_counts() {
        let Change::Changed(diff) = changed(Kind::Function, "f", "y[0]", "y[1]") else {
            panic!("not seen")
        };
        assert!(
            diff.contains("-  return y[0];\n+  return y[1];\n"),
            "{diff}"
        );
        for (from, to) in [
            ("int bits>", "int bits = 2>"),
            ("inline T f", "T f"),
            ("bits == 4", "bits = =4"),
        ] {
            assert!(
                matches!(changed(Kind::Function, "f", from, to), Change::Changed(_)),
                "{from}"
            );
        }
        assert!(matches!(
            changed(Kind::Macro, "M", "f(a)\n", "f(a + 1)\n"),
            Change::Changed(_)
        ));
        assert_eq!(
            changed(Kind::Function, "f", "inline T f(", "inline T ff("),
            Change::Gone
        );
        assert_eq!(
            change(Kind::Function, "h", Some(SOURCE), None),
            Ok(Change::Absent)
        );
        assert_eq!(
            change(Kind::Function, "f", None, Some(SOURCE)),
            Ok(Change::Appeared)
        );
        assert!(change(Kind::Function, "f", Some("int f() {"), None).is_err());
    }
}
