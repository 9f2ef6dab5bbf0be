//! Rebases one patch onto another base: a 3-way merge on trees, and the places where it conflicts.

use git2::{FileFavor, Index, IndexEntry, MergeFileOptions, MergeOptions, Oid, Repository};

use crate::error::{Error, Result};
use crate::tree::{Mode, path};
use crate::work::memory::{Decision, Memory};

/// The start of a conflict's marker lines: our side, the ancestor, the end.
pub(crate) const MARKERS: [&str; 3] = ["<<<<<<< ", "||||||| ", ">>>>>>> "];

/// A file in which a patch does not fit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    pub path: String,
    /// The reason in a few words.
    pub reason: String,
    /// The places where both sides changed the same lines.
    pub places: Vec<Place>,
    /// Whether it was resolved in an earlier bump.
    pub decided: bool,
}

/// A place where upstream and a patch change the same lines.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Place {
    /// The lines at the new pin.
    pub upstream: String,
    /// The patch's changes to the old pin's lines, as a unified diff.
    pub patch: String,
}

/// A merge that succeeded, or its conflicts.
pub(crate) enum Merged {
    Tree(Oid),
    Clashes(Clashes),
}

/// The conflicts of a merge.
pub(crate) struct Clashes {
    pub(crate) each: Vec<Clash>,
    /// The merge with each conflict resolved as before, or else in the patch's favour.
    pub(crate) tree: Oid,
    /// The merge with conflicts resolved in upstream's favour.
    pub(crate) without: Oid,
}

/// One conflict.
pub(crate) struct Clash {
    pub(crate) conflict: Conflict,
    /// The name under which its resolution is remembered.
    pub(crate) key: String,
    /// The text with markers.
    marked: Option<String>,
    /// The earlier resolution: the text, or `None` if the file is removed.
    pub(crate) decided: Option<Option<String>>,
    /// The mode for such a text; `None` if upstream has a link, which is not remembered.
    pub(crate) mode: Option<Mode>,
}

impl Clashes {
    /// Whether a person resolved all of them before.
    pub(crate) fn are_decided(&self) -> bool {
        self.each.iter().all(|clash| clash.decided.is_some())
    }

    pub(crate) fn conflicts(self) -> Vec<Conflict> {
        self.each.into_iter().map(|clash| clash.conflict).collect()
    }
}

/// Applies the change from `parent` to `patched` to `onto`, like a cherry-pick on trees. A file that upstream renamed
/// has its new path in all three.
pub(crate) fn merge(
    repo: &Repository,
    memory: &Memory,
    name: &str,
    parent: Oid,
    patched: Oid,
    onto: Oid,
) -> Result<Merged> {
    let tree = |id| repo.find_tree(id);
    let mut index = repo.merge_trees(
        &tree(parent)?,
        &tree(onto)?,
        &tree(patched)?,
        Some(MergeOptions::new().find_renames(false)),
    )?;
    if !index.has_conflicts() {
        return Ok(Merged::Tree(index.write_tree_to(repo)?));
    }
    let conflicts = index.conflicts()?.collect::<Result<Vec<_>, _>>()?;
    let mut each = Vec::new();
    let (mut settled, mut without) = (Vec::new(), Vec::new());
    for conflict in conflicts {
        let sides = [&conflict.ancestor, &conflict.our, &conflict.their].map(Option::as_ref);
        let clash = clash(repo, memory, name, sides)?;
        let entry = settle(repo, &clash, sides)?;
        without.extend(if clash.decided.is_some() {
            entry.as_ref().map(settled_as)
        } else {
            sides[1].map(settled_as)
        });
        settled.extend(entry);
        each.push(clash);
    }
    for clash in &each {
        index.conflict_remove(clash.conflict.path.as_ref())?;
    }
    let mut with = |entries: &[IndexEntry]| {
        for clash in &each {
            index.remove_path(clash.conflict.path.as_ref())?;
        }
        entries
            .iter()
            .try_for_each(|entry| add(&mut index, entry))?;
        Ok::<_, Error>(index.write_tree_to(repo)?)
    };
    let (without, tree) = (with(&without)?, with(&settled)?);
    Ok(Merged::Clashes(Clashes {
        each,
        tree,
        without,
    }))
}

/// The sides of a conflict: the old pin's file, the new pin's, the patch's.
type Sides<'a> = [Option<&'a IndexEntry>; 3];

fn clash(repo: &Repository, memory: &Memory, name: &str, sides: Sides<'_>) -> Result<Clash> {
    let path = sides.iter().flatten().next().map(|entry| &entry.path);
    let path = String::from_utf8_lossy(path.map_or(&[], Vec::as_slice)).into_owned();
    let mut marked = None;
    let mut places = Vec::new();
    let reason = match sides {
        [Some(ancestor), Some(ours), Some(_)] if is_link(ours) != is_link(ancestor) => {
            "upstream made a link of the file that the patch edits".to_owned()
        }
        [Some(ancestor), Some(ours), Some(theirs)] => {
            let text = merge_text(repo, name, [ancestor, ours, theirs], None)?;
            places = self::places(&String::from_utf8_lossy(&text));
            marked = String::from_utf8(text).ok().filter(|_| !places.is_empty());
            let crlf = |entry: &IndexEntry| {
                Ok::<_, git2::Error>(has_crlf(repo.find_blob(entry.id)?.content()))
            };
            if crlf(ours)? && !crlf(ancestor)? {
                "upstream's file has Windows line ends now, so every line differs".to_owned()
            } else {
                let (count, these) = (
                    places.len(),
                    if places.len() == 1 { "place" } else { "places" },
                );
                format!("upstream and the patch change the same lines in {count} {these}")
            }
        }
        [Some(_), None, Some(_)] => "upstream removed the file that the patch edits".to_owned(),
        [None, Some(_), Some(_)] => {
            "upstream has a file of its own where the patch adds one".to_owned()
        }
        [_, None, Some(_)] => "upstream has a folder where the patch adds a file".to_owned(),
        _ => "upstream has a file where the patch has a folder".to_owned(),
    };
    // Like git's rerere: equal conflicting lines are one conflict, regardless of the lines around
    // them.
    let parts: Vec<_> = if marked.is_some() {
        let lines = |place: &Place| [place.upstream.clone(), place.patch.clone()];
        places.iter().flat_map(lines).collect()
    } else {
        let id = |side: Option<&IndexEntry>| side.map_or(String::new(), |side| side.id.to_string());
        sides.map(id).to_vec()
    };
    let parts = parts.iter().map(String::as_str);
    let key = Memory::key([name, &path].into_iter().chain(parts))?;
    let mode = match sides[1] {
        Some(ours) if is_link(ours) => None,
        _ => mode(sides).and_then(|mode| Mode::from_git(mode.cast_signed())),
    };
    let decided = mode.and_then(|_| memory.recall(&key)).and_then(|decision| {
        match (&marked, &decision.after) {
            (Some(marked), Some(_)) => decision.replay(marked).map(Some),
            _ => Some(decision.after),
        }
    });
    let conflict = Conflict {
        path,
        reason,
        places,
        decided: decided.is_some(),
    };
    Ok(Clash {
        conflict,
        key,
        marked,
        decided,
        mode,
    })
}

/// The mode of the merged file. The patch changes no mode; if upstream did, its mode is kept.
fn mode([ancestor, ours, theirs]: Sides<'_>) -> Option<u32> {
    let kept = ancestor.is_some().then_some(ours).flatten();
    let kept = kept.filter(|ours| !is_link(ours));
    kept.or(theirs).or(ours).map(|side| side.mode)
}

/// The file as it was resolved before, or else as in the patch.
fn settle(repo: &Repository, clash: &Clash, sides: Sides<'_>) -> Result<Option<IndexEntry>> {
    let text = match (&clash.decided, sides) {
        (Some(None), _) => return Ok(None),
        (Some(Some(text)), _) => Some(text.clone().into_bytes()),
        (None, [Some(ancestor), Some(ours), Some(theirs)]) if !clash.conflict.places.is_empty() => {
            let favour = Some(FileFavor::Theirs);
            Some(merge_text(repo, "", [ancestor, ours, theirs], favour)?)
        }
        (None, _) => None,
    };
    let [_, ours, theirs] = sides;
    let (Some(wanted), Some(mode)) = (theirs.or(ours), mode(sides)) else {
        return Ok(None);
    };
    let id = text.map_or(Ok(wanted.id), |text| repo.blob(&text))?;
    Ok(Some(IndexEntry {
        id,
        mode,
        ..settled_as(wanted)
    }))
}

/// The entry of one side, no longer in conflict.
fn settled_as(side: &IndexEntry) -> IndexEntry {
    IndexEntry {
        flags: 0,
        flags_extended: 0,
        path: side.path.clone(),
        ..*side
    }
}

impl Clash {
    /// The resolution that a person made of it.
    pub(crate) fn decision(&self, patch: &str, after: Option<String>) -> Decision {
        Decision {
            patch: patch.to_owned(),
            path: self.conflict.path.clone(),
            before: self.marked.clone(),
            after,
        }
    }
}

fn add(index: &mut Index, entry: &IndexEntry) -> Result<()> {
    path::check(&String::from_utf8_lossy(&entry.path), "a merge")?;
    Ok(index.add(entry)?)
}

fn is_link(entry: &IndexEntry) -> bool {
    Mode::from_git(entry.mode.cast_signed()) == Some(Mode::Link)
}

/// The merged text, with markers in diff3 style unless a side is favoured.
fn merge_text(
    repo: &Repository,
    name: &str,
    [ancestor, ours, theirs]: [&IndexEntry; 3],
    favour: Option<FileFavor>,
) -> Result<Vec<u8>> {
    let mut options = MergeFileOptions::new();
    options
        .style_diff3(true)
        .ancestor_label("the old pin")
        .our_label("the new pin")
        .their_label(name);
    if let Some(favour) = favour {
        options.favor(favour);
    }
    let merged = repo.merge_file_from_index(ancestor, ours, theirs, Some(&mut options))?;
    Ok(merged.content().to_vec())
}

fn has_crlf(bytes: &[u8]) -> bool {
    bytes.windows(2).any(|two| two == b"\r\n")
}

/// Splits a merged text in diff3 style into its conflicts.
fn places(text: &str) -> Vec<Place> {
    let [ours, ancestor, end] = MARKERS;
    let mut places = Vec::new();
    // Upstream's lines, the old pin's, the patch's; and which of them the current line belongs to.
    let mut sides: [String; 3] = Default::default();
    let mut side = None;
    for line in text.split_inclusive('\n') {
        if side.is_none() && line.starts_with(ours) {
            side = Some(0);
        } else if side == Some(0) && line.starts_with(ancestor) {
            side = Some(1);
        } else if side == Some(1) && line.trim_end() == "=======" {
            side = Some(2);
        } else if side == Some(2) && line.starts_with(end) {
            let [upstream, old, new] = std::mem::take(&mut sides);
            let patch = diffy::create_patch(&old, &new).to_string();
            let patch = patch.split_inclusive('\n').skip(2).collect();
            places.push(Place { upstream, patch });
            side = None;
        } else if let Some(side) = side {
            sides[side].push_str(line);
        }
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_merged_text_is_taken_apart() {
        let text = "a\n<<<<<<< new\nb2\n||||||| old\nb\n=======\nb\nc\n>>>>>>> patch\nd\n=======\n";
        let expected = Place {
            upstream: "b2\n".into(),
            patch: "@@ -1 +1,2 @@\n b\n+c\n".into(),
        };
        assert_eq!(places(text), [expected]);
        assert_eq!(places("a\n=======\n"), []);
    }
}
