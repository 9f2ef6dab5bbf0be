//! Writes a new series patch by patch, with the files of the project that change with it.

use std::collections::BTreeMap;

use fs_err as fs;
use git2::{Delta, DiffDelta, Oid, Repository};

use crate::error::{Error, Result};
use crate::model::lock::{Lock, Verdict};
use crate::model::manifest::Pin;
use crate::model::patch::{self, Header, Patch};
use crate::model::series::{Series, name_in};
use crate::place::journal::Changes;
use crate::place::workspace::Workspace;
use crate::project::Project;
use crate::tree::{File, Mode};

/// The new series.
pub(crate) struct Rewritten {
    series: Series,
    /// The text of each patch.
    texts: BTreeMap<String, Vec<u8>>,
    base: Oid,
    tree: Oid,
}

impl Rewritten {
    /// A series without patches.
    pub(crate) fn new(base: Oid) -> Self {
        Self {
            series: Series::default(),
            texts: BTreeMap::new(),
            base,
            tree: base,
        }
    }

    /// The tree after the last patch.
    pub(crate) fn tree(&self) -> Oid {
        self.tree
    }

    pub(crate) fn has_patch(&self, name: &str) -> bool {
        self.texts.contains_key(name)
    }

    /// Whether one of the patches adds this file.
    pub(crate) fn adds(&self, path: &str) -> bool {
        self.series.files.contains_key(path)
    }

    /// Adds the patch that leads to `tree`, with the files that its header adds.
    pub(crate) fn push(
        &mut self,
        repo: &Repository,
        name: &str,
        header: &Header,
        tree: Oid,
    ) -> Result<()> {
        let adds: Vec<_> = header.adds().collect();
        let text = patch::export(repo, name, header, self.tree, tree, &adds)?;
        let patch = Patch::parse(name, &text)?;
        self.series.take_files(repo, &patch, tree)?;
        self.series.patches.push(patch);
        self.texts.insert(name.to_owned(), text);
        self.tree = tree;
        Ok(())
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.series.names()
    }

    /// The lock and the files of `patches/` that changed; they are checked by reading them as the next run will.
    pub(crate) fn changes(
        self,
        project: &Project,
        repo: &Repository,
        pin: &Pin,
        verdict: Option<Verdict>,
    ) -> Result<Changes> {
        let Self {
            series: new,
            texts,
            base,
            tree,
        } = self;
        let resolved = new.resolve(repo, base)?;
        if resolved.final_tree() != tree {
            return Err(Error::TreeMismatch {
                expected: tree,
                found: resolved.final_tree(),
                difference: None,
            });
        }
        let lock = Lock::new(pin, verdict, &new, &resolved);
        let old = &project.series;
        let mut changes = Changes::new();
        for (name, text) in texts {
            write(
                &mut changes,
                &project.workspace,
                format!("patches/{name}.patch"),
                text,
            )?;
        }
        for path in project.workspace.lock_files() {
            let text = lock.to_text()?.into_bytes();
            write(&mut changes, &project.workspace, path.to_owned(), text)?;
        }
        if old.names() != new.names() {
            let before = fs::read_to_string(project.workspace.patches().join("series"))?;
            let text = series_text(&before, &new.names()).into_bytes();
            write(
                &mut changes,
                &project.workspace,
                "patches/series".to_owned(),
                text,
            )?;
        }
        for (path, (entry, file)) in &new.files {
            if old.files.get(path).is_none_or(|(old, _)| old != entry) {
                changes.insert(format!("patches/files/{path}"), Some(file.clone()));
            }
        }
        let gone = old
            .files
            .keys()
            .filter(|path| !new.files.contains_key(*path));
        let dropped = old
            .names()
            .into_iter()
            .filter(|name| !new.names().contains(name));
        changes.extend(gone.map(|path| (format!("patches/files/{path}"), None)));
        changes.extend(dropped.map(|name| (format!("patches/{name}.patch"), None)));
        Ok(changes)
    }
}

/// The header of a patch between two trees: it adds the files that only the second one has, in the previous order, new
/// ones last.
pub(crate) fn added_by(
    repo: &Repository,
    header: &Header,
    before: Oid,
    after: Oid,
) -> Result<Header> {
    let (before, after) = (repo.find_tree(before)?, repo.find_tree(after)?);
    let diff = repo.diff_tree_to_tree(Some(&before), Some(&after), None)?;
    let added = diff.deltas().filter(|delta| delta.status() == Delta::Added);
    let path = |delta: DiffDelta<'_>| {
        String::from_utf8_lossy(delta.new_file().path_bytes().unwrap_or_default()).into_owned()
    };
    Ok(with_adds(header, added.map(path).collect()))
}

/// The header with these added files, in the previous order, new ones last.
pub(crate) fn with_adds(header: &Header, mut adds: Vec<String>) -> Header {
    let known: Vec<_> = header.adds().map(str::to_owned).collect();
    let place = |path: &String| {
        known
            .iter()
            .position(|known| known == path)
            .unwrap_or(known.len())
    };
    adds.sort_by(|one, other| place(one).cmp(&place(other)).then_with(|| one.cmp(other)));
    header.clone().with_adds(adds)
}

/// Adds a file unless it has this text already.
fn write(changes: &mut Changes, workspace: &Workspace, path: String, bytes: Vec<u8>) -> Result<()> {
    let file = workspace.root().join(&path);
    if !file.exists() || fs::read(&file)? != bytes {
        let mode = Mode::Regular;
        changes.insert(path, Some(File { mode, bytes }));
    }
    Ok(())
}

/// The names in a new order; text after a name stays with it. Comments on separate lines stay, but if the order
/// changes, only those at the top do.
fn series_text(before: &str, names: &[String]) -> String {
    let left: Vec<_> = before
        .lines()
        .filter(|line| name_in(line).is_empty() || names.iter().any(|name| name == name_in(line)))
        .collect();
    let in_order = left
        .iter()
        .map(|line| name_in(line))
        .filter(|name| !name.is_empty());
    let lines: Vec<_> = if in_order.eq(names.iter().map(String::as_str)) {
        left
    } else {
        let line = |name: &'_ String| left.iter().find(|line| name_in(line) == name).copied();
        let top = left
            .iter()
            .copied()
            .take_while(|line| name_in(line).is_empty());
        top.chain(names.iter().map(|name| line(name).unwrap_or(name)))
            .collect()
    };
    lines.iter().map(|line| format!("{line}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_of_the_series_stay_where_they_can() {
        let before = "# top\n\none # why\n# about two\ntwo\n";
        let text = |names: &[&str]| {
            let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
            series_text(before, &names)
        };
        assert_eq!(text(&["two"]), "# top\n\n# about two\ntwo\n");
        assert_eq!(text(&["one"]), "# top\n\none # why\n# about two\n");
        assert_eq!(
            text(&["two", "new", "one"]),
            "# top\n\ntwo\nnew\none # why\n"
        );
    }
}
