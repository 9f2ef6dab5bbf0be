//! Moves the pin in the text of `mlx.toml` and keeps its comments.

use git2::Oid;
use toml_edit::{ArrayOfTables, DocumentMut, InlineTable, Item, Table, value};

use crate::error::{Error, Result};
use crate::model::manifest::{Pin, TreeOrigin};
use crate::work::renames::Renames;

/// A pin that `mlx.toml` does not know yet.
#[derive(Debug)]
pub(super) struct NewPin {
    pub(super) version: String,
    pub(super) tag: Option<String>,
    pub(super) commit: Option<Oid>,
    pub(super) tree: Oid,
    pub(super) origin: TreeOrigin,
    /// The repository that provided it; without one, the old pin's sources are kept.
    pub(super) url: Option<String>,
}

/// Makes a known pin the pin, and the old pin a known one in its place.
pub(super) fn to_known(text: &str, pin: &Pin) -> Result<String> {
    let mut document = parse(text)?;
    let Some(index) = position(&document, pin.tree) else {
        return Err(Error::source(
            "mlx.toml",
            format!("it pins {} already", pin.name()),
        ));
    };
    let mut old = take_pin(&mut document)?;
    let known = known(&mut document)?;
    let slot = known.get_mut(index).ok_or_else(|| malformed("known"))?;
    std::mem::swap(slot, &mut old);
    // A comment above a table header is about the place in the file, not about the version.
    std::mem::swap(slot.decor_mut(), old.decor_mut());
    finish(document, old)
}

/// Makes a new pin, and keeps the old one as the first known pin.
pub(super) fn to_new(text: &str, new: &NewPin) -> Result<String> {
    let mut document = parse(text)?;
    let old = take_pin(&mut document)?;
    let mut pin = Table::new();
    *pin.decor_mut() = old.decor().clone();
    pin["version"] = value(&new.version);
    if let Some(tag) = &new.tag {
        pin["tag"] = value(tag);
    }
    if let Some(commit) = new.commit {
        pin["commit"] = value(commit.to_string());
    }
    pin["tree"] = value(new.tree.to_string());
    pin["tree-origin"] = value(match new.origin {
        TreeOrigin::Upstream => "upstream",
        TreeOrigin::Reconstructed => "reconstructed",
    });
    if let Some(licence) = old.get("licence") {
        pin["licence"] = licence.clone();
    }
    pin["source"] = Item::ArrayOfTables(git_sources(&old, new.url.as_deref()));

    let mut all = ArrayOfTables::new();
    let mut kept = old;
    kept.decor_mut().set_prefix("\n");
    let others = std::mem::take(known(&mut document)?);
    let mut others = others.into_iter();
    if let Some(mut first) = others.next() {
        // The comment above the first known pin is about all of them.
        std::mem::swap(first.decor_mut(), kept.decor_mut());
        all.push(kept);
        all.push(first);
    } else {
        all.push(kept);
    }
    all.extend(others);
    *known(&mut document)? = all;
    finish(document, pin)
}

/// Updates the watch list to upstream's current paths.
pub(super) fn follow(text: &str, renames: &Renames) -> Result<String> {
    let mut document = parse(text)?;
    let Some(watch) = document
        .get_mut("watch")
        .and_then(Item::as_array_of_tables_mut)
    else {
        return Ok(text.to_owned());
    };
    for entry in watch.iter_mut() {
        if let Some(Item::Value(file)) = entry.get_mut("file")
            && let Some(old) = file.as_str()
        {
            let new = renames.new_path(old);
            if new != old {
                let decor = file.decor().clone();
                *file = new.into();
                *file.decor_mut() = decor;
            }
        }
    }
    Ok(document.to_string())
}

fn git_sources(old: &Table, url: Option<&str>) -> ArrayOfTables {
    let of_old = || {
        let sources = old
            .get("source")
            .and_then(Item::as_array_of_tables)
            .into_iter()
            .flatten();
        sources
            .filter(|source| source.contains_key("git"))
            .cloned()
            .collect()
    };
    let Some(url) = url else { return of_old() };
    let mut git = InlineTable::new();
    git.insert("url", url.into());
    let mut source = Table::new();
    source["git"] = value(git);
    std::iter::once(source).collect()
}

fn parse(text: &str) -> Result<DocumentMut> {
    text.parse()
        .map_err(|error: toml_edit::TomlError| Error::source("mlx.toml", error.message()))
}

fn malformed(key: &str) -> Error {
    Error::source(
        "mlx.toml",
        format!("expected `{key}` as a table of its own, under a head in brackets"),
    )
}

fn position(document: &DocumentMut, tree: Oid) -> Option<usize> {
    let known = document.get("known")?.as_array_of_tables()?;
    let tree = tree.to_string();
    known
        .iter()
        .position(|table| table.get("tree").and_then(Item::as_str) == Some(&tree))
}

fn take_pin(document: &mut DocumentMut) -> Result<Table> {
    let item = document.get_mut("mlx").ok_or_else(|| malformed("mlx"))?;
    match std::mem::replace(item, Item::Table(Table::new())) {
        Item::Table(table) => Ok(table),
        _ => Err(malformed("mlx")),
    }
}

fn known(document: &mut DocumentMut) -> Result<&mut ArrayOfTables> {
    let item = document
        .entry("known")
        .or_insert_with(|| Item::ArrayOfTables(ArrayOfTables::new()));
    item.as_array_of_tables_mut()
        .ok_or_else(|| malformed("known"))
}

fn finish(mut document: DocumentMut, pin: Table) -> Result<String> {
    document["mlx"] = Item::Table(pin);
    let mut next = 0;
    number(document.as_table_mut(), &mut next);
    let text = document.to_string();
    // The written text must parse to what was intended.
    let _: crate::Manifest =
        toml::from_str(&text).map_err(|error| Error::source("the new mlx.toml", error))?;
    Ok(text)
}

/// Tables are printed in the order of these numbers; a moved table needs a new number.
fn number(table: &mut Table, next: &mut isize) {
    table.set_position(Some(*next));
    *next += 1;
    for (_, item) in table.iter_mut() {
        match item {
            Item::Table(table) => number(table, next),
            Item::ArrayOfTables(tables) => tables.iter_mut().for_each(|table| number(table, next)),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Manifest;

    const TEXT: &str = include_str!("../../../../../mlx.toml");

    fn read(text: &str) -> Manifest {
        toml::from_str(text).unwrap()
    }

    fn comments(text: &str) -> Vec<&str> {
        let mut comments: Vec<_> = text
            .lines()
            .filter_map(|line| Some(line.split_once('#')?.1.trim()))
            .collect();
        comments.sort_unstable();
        comments
    }

    #[test]
    fn there_and_back_is_the_same_text() {
        let manifest = read(TEXT);
        for known in &manifest.known {
            let there = to_known(TEXT, known).unwrap();
            assert_eq!(read(&there).mlx.tree, known.tree);
            assert_eq!(comments(&there), comments(TEXT));
            assert_eq!(read(&there).known.len(), manifest.known.len());
            assert_eq!(
                to_known(&there, &manifest.mlx).unwrap(),
                TEXT,
                "through {}",
                known.name()
            );
        }
        assert!(to_known(TEXT, &manifest.mlx).is_err());
    }

    #[test]
    fn a_new_pin_keeps_the_old_one_as_known() {
        let new = NewPin {
            version: "9.0.1".into(),
            tag: Some("v9.0.1".into()),
            commit: Some(Oid::from_str("0123456789012345678901234567890123456789").unwrap()),
            tree: Oid::from_str("1123456789012345678901234567890123456789").unwrap(),
            origin: TreeOrigin::Upstream,
            url: None,
        };
        let text = to_new(TEXT, &new).unwrap();
        let (before, after) = (read(TEXT), read(&text));
        assert_eq!(
            (after.mlx.version.as_str(), after.mlx.tree),
            ("9.0.1", new.tree)
        );
        assert_eq!(
            after.mlx.sources.len(),
            1,
            "only a git repository can have an unknown commit"
        );
        assert_eq!(after.known.len(), before.known.len() + 1);
        assert_eq!(after.known[0].tree, before.mlx.tree);
        assert_eq!(after.known[0].sources.len(), before.mlx.sources.len());
        assert_eq!(comments(&text), comments(TEXT));
        let with_url = to_new(
            TEXT,
            &NewPin {
                url: Some("https://example.org/mlx".into()),
                ..new
            },
        )
        .unwrap();
        assert!(
            with_url.contains("git = { url = \"https://example.org/mlx\" }"),
            "{with_url}"
        );
    }
}
