//! Puts one patch onto another base: a 3-way merge on trees, and the places where it does not go.

use git2::{IndexEntry, MergeFileOptions, MergeOptions, Oid, Repository};

use crate::error::Result;

/// How the lines of a conflict begin: our side, the ancestor, the end.
pub(crate) const MARKERS: [&str; 3] = ["<<<<<<< ", "||||||| ", ">>>>>>> "];

/// A file in which a patch does not fit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    /// The file.
    pub path: String,
    /// What is the matter, in a few words.
    pub reason: String,
    /// Each place in which both sides changed the same lines.
    pub places: Vec<Place>,
}

/// A place in which upstream and a patch change the same lines.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Place {
    /// The lines at the new pin.
    pub upstream: String,
    /// What the patch does to the old pin's lines, as a unified diff.
    pub patch: String,
}

/// A merge that came out, or the places where it did not.
pub(crate) enum Merged {
    Tree(Oid),
    Conflicts(Vec<Conflict>),
}

/// The change from `parent` to `patched`, made to `onto`: what a cherry-pick does, on trees.
pub(crate) fn merge(
    repo: &Repository,
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
        Some(&MergeOptions::new()),
    )?;
    if !index.has_conflicts() {
        return Ok(Merged::Tree(index.write_tree_to(repo)?));
    }
    let mut conflicts = Vec::new();
    for conflict in index.conflicts()? {
        let conflict = conflict?;
        let sides = [&conflict.ancestor, &conflict.our, &conflict.their];
        let path = sides
            .iter()
            .find_map(|side| side.as_ref())
            .map(|entry| entry.path.clone())
            .unwrap_or_default();
        let (reason, places) = match sides.map(Option::as_ref) {
            [Some(ancestor), Some(ours), Some(theirs)] => {
                clash(repo, name, ancestor, ours, theirs)?
            }
            [Some(_), None, Some(_)] => (
                "upstream removed or renamed the file that the patch edits".to_owned(),
                Vec::new(),
            ),
            [None, Some(_), Some(_)] => (
                "upstream has a file of its own where the patch adds one".to_owned(),
                Vec::new(),
            ),
            _ => (
                "upstream and the patch moved it to different places".to_owned(),
                Vec::new(),
            ),
        };
        conflicts.push(Conflict {
            path: String::from_utf8_lossy(&path).into_owned(),
            reason,
            places,
        });
    }
    Ok(Merged::Conflicts(conflicts))
}

fn clash(
    repo: &Repository,
    name: &str,
    ancestor: &IndexEntry,
    ours: &IndexEntry,
    theirs: &IndexEntry,
) -> Result<(String, Vec<Place>)> {
    let crlf =
        |entry: &IndexEntry| Ok::<_, git2::Error>(has_crlf(repo.find_blob(entry.id)?.content()));
    let mut options = MergeFileOptions::new();
    options
        .style_diff3(true)
        .ancestor_label("the old pin")
        .our_label("the new pin")
        .their_label(name);
    let merged = repo.merge_file_from_index(ancestor, ours, theirs, Some(&mut options))?;
    let places = places(&String::from_utf8_lossy(merged.content()));
    let reason = if crlf(ours)? && !crlf(ancestor)? {
        "upstream's file has Windows line ends now, so every line differs".to_owned()
    } else {
        let (count, these) = (
            places.len(),
            if places.len() == 1 { "place" } else { "places" },
        );
        format!("upstream and the patch change the same lines in {count} {these}")
    };
    Ok((reason, places))
}

fn has_crlf(bytes: &[u8]) -> bool {
    bytes.windows(2).any(|two| two == b"\r\n")
}

/// Takes a merged text in diff3 style apart.
fn places(text: &str) -> Vec<Place> {
    let [ours, ancestor, end] = MARKERS;
    let mut places = Vec::new();
    // Upstream's lines, the old pin's, the patch's; and which of them the line belongs to.
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
