//! The watch list: upstream functions that the overlay's claims depend on. A bump compares them token by token, without
//! comments and white space, and reports changes even if every hunk still applies.

mod definitions;
mod sums;

use git2::{Oid, Repository};

use crate::error::{Error, Result};
use crate::model::manifest::Watch;
use crate::tree::Listing;
use crate::work::renames::Renames;
use definitions::{Definition, definitions, names, text_of};

pub use definitions::Kind;
#[cfg(test)]
pub(crate) use definitions::all;
pub(crate) use sums::{Sums, follow, sums};

/// How a watched name differs between two trees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// The tokens are equal.
    Same,
    /// Different tokens; a unified diff of the source text.
    Changed(String),
    /// Only the new tree defines it.
    Appeared,
    /// Only the old tree defines it.
    Gone,
    /// Neither tree defines it.
    Absent,
}

/// A watched name and how it changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Watched {
    /// The file in MLX's old tree.
    pub file: String,
    /// Its path in the new tree, if upstream renamed it.
    pub renamed_to: Option<String>,
    pub kind: Kind,
    pub name: String,
    /// How it changed.
    pub change: Change,
    /// A file that upstream added or changed and that defines the name, if its own file no longer does.
    pub now_in: Option<String>,
}

/// Compares every watched name in two trees.
///
/// # Errors
/// Missing objects, and definitions whose brackets are not closed.
pub(crate) fn compare(
    repo: &Repository,
    old: Oid,
    new: Oid,
    list: &[Watch],
    renames: &Renames,
) -> Result<Vec<Watched>> {
    let mut watched = Vec::new();
    for entry in list {
        let path = renames.new_path(&entry.file);
        let before = text_of(repo, old, &entry.file)?;
        let after = text_of(repo, new, path)?;
        for (kind, name) in names(entry) {
            let change = change(kind, name, before.as_deref(), after.as_deref())
                .map_err(|message| Error::source(entry.file.as_str(), message))?;
            let now_in = match change {
                Change::Gone => elsewhere(repo, (old, new), kind, name)?,
                _ => None,
            };
            watched.push(Watched {
                file: entry.file.clone(),
                renamed_to: (path != entry.file).then(|| path.to_owned()),
                kind,
                name: name.to_owned(),
                change,
                now_in,
            });
        }
    }
    Ok(watched)
}

/// The first new or changed upstream file that defines a name.
fn elsewhere(
    repo: &Repository,
    (old, new): (Oid, Oid),
    kind: Kind,
    name: &str,
) -> Result<Option<String>> {
    let last = name.rsplit("::").next().unwrap_or(name);
    let (old, new) = (Listing::of_tree(repo, old)?, Listing::of_tree(repo, new)?);
    for (path, entry) in &new.0 {
        let is_code = [".h", ".cpp", ".metal"]
            .iter()
            .any(|end| path.ends_with(end));
        if !is_code || old.0.get(path) == Some(entry) {
            continue;
        }
        let blob = repo.find_blob(entry.blob)?;
        let text = String::from_utf8_lossy(blob.content());
        if text.contains(last) && definitions(kind, name, &text).is_ok_and(|all| !all.is_empty()) {
            return Ok(Some(path.clone()));
        }
    }
    Ok(None)
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
struct S;
template <int n>
struct S : A<n> { int f; };
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
        let structs = definitions(Kind::Struct, "S", SOURCE).unwrap();
        assert_eq!(structs.len(), 1);
        assert_eq!(
            structs[0].text,
            "template <int n>\nstruct S : A<n> { int f; }"
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
        assert!(matches!(
            changed(Kind::Macro, "M", "M(a)", "M (a)"),
            Change::Changed(_)
        ));
        assert!(matches!(
            changed(Kind::Struct, "S", "int f;", "long f;"),
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
