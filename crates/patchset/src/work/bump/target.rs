//! The target of a bump: turns a version, tag or commit into a tree in the store and a new `mlx.toml`.

use camino::Utf8Path;
use fs_err as fs;
use git2::{Oid, Repository};
use serde::{Deserialize, Serialize};

use super::history;
use super::pin::{self, NewPin};
use crate::error::{Error, Result};
use crate::model::lock::{Confirmed, Verdict};
use crate::model::manifest::{GitSource, Manifest, Pin, Source, TreeOrigin};
use crate::place::workspace::Workspace;
use crate::progress::{Event, Progress};
use crate::project::Project;
use crate::read::hex;
use crate::sources::address::{host_and_path, is_remote, without_credentials};
use crate::sources::local::{self, Local};
use crate::sources::store::Store;
use crate::sources::{self, Request};
use crate::tree::{Listing, Snapshot};
use crate::work::renames::Renames;

/// Options of a bump.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// A version, tag or commit.
    pub wanted: String,
    /// A folder, repository, archive or repository address to use.
    pub source: Option<String>,
    /// The expected tree id.
    pub tree: Option<Oid>,
    /// Remove absorbed patches from the series.
    pub drop_absorbed: bool,
    /// Write only the cache of fetched files.
    pub dry_run: bool,
    /// Use no network.
    pub offline: bool,
}

/// The new pin; its tree is in the store.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Target {
    /// `mlx.toml` with the new pin.
    pub(super) manifest: String,
    /// The new base.
    #[serde(with = "hex")]
    pub(super) tree: Oid,
    /// A description of its source.
    pub(super) source: String,
    /// A git source's verdict on a reconstructed tree id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) confirmed: Option<Confirmed>,
    /// The repository with upstream's history, if the source has any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) history: Option<String>,
    /// Whether a local repository has the commit and no public one is known to have it.
    #[serde(default)]
    pub(super) only_here: bool,
}

impl Target {
    pub(super) fn pin(&self) -> Result<Pin> {
        let manifest: Manifest = toml::from_str(&self.manifest)
            .map_err(|error| Error::source("the new mlx.toml", error))?;
        Ok(manifest.mlx)
    }

    /// The lock's record of the new base.
    pub(super) fn verdict(&self) -> Option<Verdict> {
        self.confirmed.clone().map(Verdict::Confirmed)
    }

    /// Updates the watch list for upstream's renames.
    pub(super) fn follow(&mut self, renames: &Renames) -> Result<()> {
        self.manifest = pin::follow(&self.manifest, renames)?;
        Ok(())
    }

    /// A description of its source without the paths of this machine.
    pub(super) fn source_for_others(&self) -> String {
        let begins = |at: &usize| {
            let (before, path) = self.source.split_at(*at);
            let starts = ["/", "./", "../", "~", "file://"];
            (before.is_empty() || before.ends_with(' '))
                && (starts.iter().any(|start| path.starts_with(start)) || self.is_local(path))
        };
        let mut places = self.source.char_indices().map(|(at, _)| at);
        let Some(start) = places.find(begins) else {
            return self.source.clone();
        };
        let (before, path) = self.source.split_at(start);
        let commit = path.find(", commit ").map_or("", |end| &path[end..]);
        format!("{before}a copy on one machine{commit}")
    }

    /// Whether it starts with the name of something in the current folder.
    fn is_local(&self, text: &str) -> bool {
        let name = text.split(", commit ").next().unwrap_or_default();
        !name.is_empty() && Utf8Path::new(name).exists()
    }
}

/// Fetches and verifies the target of a bump.
///
/// # Errors
/// The pin is already there; no source provides it; a source without a tree id to compare with; a tree that cannot be
/// MLX (submodules, LFS pointers, no version).
pub(super) fn find(
    project: &Project,
    store: &Store,
    options: &Options,
    progress: Progress<'_>,
) -> Result<Target> {
    let (workspace, manifest) = (&project.workspace, &project.manifest);
    let text = fs::read_to_string(workspace.manifest_path())?;
    let history = options.source.as_deref().and_then(history::folder);
    let target = match manifest.pin(&options.wanted) {
        Ok(pin) => {
            let (tree, source, confirmed) = fetch_known(workspace, store, pin, options, progress)?;
            Target {
                manifest: pin::to_known(&text, pin)?,
                tree,
                source,
                confirmed,
                history,
                only_here: false,
            }
        }
        Err(_) => {
            let (new, tree, source) = fetch_unknown(store, manifest, options, progress)?;
            let only_here = new.commit.is_some() && new.origin == TreeOrigin::Reconstructed;
            Target {
                manifest: pin::to_new(&text, &new)?,
                tree,
                source,
                confirmed: None,
                history,
                only_here,
            }
        }
    };
    check_tree(store.repo(), target.tree, &target.source)?;
    Ok(target)
}

fn fetch_known(
    workspace: &Workspace,
    store: &Store,
    pin: &Pin,
    options: &Options,
    progress: Progress<'_>,
) -> Result<(Oid, String, Option<Confirmed>)> {
    if let Some(tree) = options.tree.filter(|tree| *tree != pin.tree) {
        let message = format!(
            "expected tree {} for {} (from mlx.toml), asked for {tree}",
            pin.tree,
            pin.name()
        );
        return Err(Error::source("--tree", message));
    }
    let mut request = Request {
        pin,
        lock: None,
        offline: options.offline,
        refresh: false,
        source: None,
        accept: None,
    };
    let Some(url) = options
        .source
        .as_deref()
        .filter(|source| !Utf8Path::new(source).exists())
    else {
        request.source = options.source.as_deref().map(Utf8Path::new);
        let fetched = sources::fetch(workspace, store, request, progress)?;
        let confirmed = match fetched.verdict {
            Some(Verdict::Confirmed(confirmed)) => Some(confirmed),
            _ => None,
        };
        return Ok((fetched.tree, fetched.source, confirmed));
    };
    let sources = vec![Source::Git(GitSource {
        url: url.to_owned(),
    })];
    let from_url = Pin {
        sources,
        ..pin.clone()
    };
    let request = Request {
        pin: &from_url,
        refresh: true,
        ..request
    };
    let fetched = sources::fetch(workspace, store, request, progress)?;
    // Only the pin's own sources confirm its commit; seven digits of an id are easily forged.
    Ok((fetched.tree, fetched.source, None))
}

fn fetch_unknown(
    store: &Store,
    manifest: &Manifest,
    options: &Options,
    progress: Progress<'_>,
) -> Result<(NewPin, Oid, String)> {
    let from = options.source.as_deref();
    if let Some(path) = from.map(Utf8Path::new).filter(|path| path.exists()) {
        progress(Event::Trying(path.as_str()));
        return match Local::at(path)? {
            Local::Repository(repo) => {
                local::complete(path, from_repository(store, &repo, path, manifest, options))
            }
            Local::Archive | Local::Folder => from_files(store, path, options),
        };
    }
    let urls: Vec<_> = match from {
        Some(url) => vec![url.to_owned()],
        None => git_urls(&manifest.mlx),
    };
    let mut reasons = Vec::new();
    for url in &urls {
        if options.offline && is_remote(url) {
            reasons.push(format!("{}: not tried: offline", without_credentials(url)));
            continue;
        }
        match from_url(store, url, options, progress) {
            Ok(found) => return Ok(found),
            Err(error) => reasons.push(error.to_string()),
        }
    }
    let known: Vec<_> = std::iter::once(&manifest.mlx)
        .chain(&manifest.known)
        .map(Pin::name)
        .collect();
    Err(Error::NoSuchPin {
        wanted: options.wanted.clone(),
        known,
        reasons,
    })
}

fn git_urls(pin: &Pin) -> Vec<String> {
    let url = |source: &Source| match source {
        Source::Git(source) => Some(source.url.clone()),
        _ => None,
    };
    pin.sources.iter().filter_map(url).collect()
}

/// A local repository: its objects are copied, however much of its history it has.
fn from_repository(
    store: &Store,
    repo: &Repository,
    path: &Utf8Path,
    manifest: &Manifest,
    options: &Options,
) -> Result<(NewPin, Oid, String)> {
    let wanted = &options.wanted;
    let is_hex = wanted.len() >= 7 && wanted.bytes().all(|byte| byte.is_ascii_hexdigit());
    let digits = is_hex.then_some(wanted.as_str());
    let named = format!("a tag or commit {wanted}");
    let (commit, tag) = local::find_commit(repo, path, named, &tag_names(wanted), digits)?;
    let tree = commit.tree_id();
    check_tree(repo, tree, path.as_str())?;
    let snapshot = Snapshot::of_tree(repo, tree)?;
    store.insert(&snapshot, &snapshot.listing()?)?;
    let source = format!("{path}, commit {}", commit.id());
    store.adopt(tree, &source)?;
    let mut new = new_pin(store, options, tree, tag, Some(commit.id()), None)?;
    if !is_upstreams(repo, path, &git_urls(&manifest.mlx), commit.id())? {
        // The pin has upstream's address; the commit was not seen there.
        new.origin = TreeOrigin::Reconstructed;
    }
    Ok((new, tree, source))
}

/// Whether upstream has the commit, as far as this repository knows: the repository is upstream's own, or one of
/// upstream's branches leads to it.
fn is_upstreams(repo: &Repository, path: &Utf8Path, urls: &[String], commit: Oid) -> Result<bool> {
    let here = path.canonicalize_utf8().ok();
    let is_own = |url: &String| {
        let place = Utf8Path::new(url.strip_prefix("file://").unwrap_or(url));
        here.is_some() && place.canonicalize_utf8().ok() == here
    };
    if urls.iter().any(is_own) {
        return Ok(true);
    }
    for name in repo.remotes()?.iter().flatten().flatten() {
        let remote = repo.find_remote(name)?;
        let url = host_and_path(remote.url().unwrap_or_default());
        if !urls.iter().any(|known| host_and_path(known) == url) {
            continue;
        }
        for branch in repo.references_glob(&format!("refs/remotes/{name}/*"))? {
            let Some(tip) = branch?.resolve().ok().and_then(|branch| branch.target()) else {
                continue;
            };
            if tip == commit || repo.graph_descendant_of(tip, commit).unwrap_or(false) {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

fn from_url(
    store: &Store,
    url: &str,
    options: &Options,
    progress: Progress<'_>,
) -> Result<(NewPin, Oid, String)> {
    let wanted = &options.wanted;
    let shown = without_credentials(url);
    let is_hex = wanted.len() >= 7 && wanted.bytes().all(|byte| byte.is_ascii_hexdigit());
    if is_hex && wanted.len() < 40 {
        let message = format!(
            "expected a complete commit id of 40 digits, found {wanted}; a server does not accept short ones"
        );
        return Err(Error::source(shown, message));
    }
    let names = if is_hex {
        vec![None]
    } else {
        tag_names(wanted).into_iter().map(Some).collect()
    };
    let mut last = None;
    for tag in names {
        let name = tag
            .as_ref()
            .map_or_else(|| wanted.clone(), |tag| format!("refs/tags/{tag}"));
        progress(Event::Trying(&format!("git {shown} {name}")));
        match sources::fetch_name(store, url, &name, progress) {
            Ok((commit, tree)) => {
                check_tree(store.repo(), tree, &shown)?;
                let source = format!("git {shown}, commit {commit}");
                store.adopt(tree, &source)?;
                let new = new_pin(store, options, tree, tag, Some(commit), Some(url))?;
                return Ok((new, tree, source));
            }
            // The first name is the requested one; its error is more useful.
            Err(error) => last = last.or(Some(error)),
        }
    }
    Err(last.unwrap_or_else(|| Error::source(shown, "nothing to ask for")))
}

/// Files without a commit: the tree id is the given one, or is computed and marked as such.
fn from_files(store: &Store, path: &Utf8Path, options: &Options) -> Result<(NewPin, Oid, String)> {
    let snapshot = sources::unpack_or_read(path)?;
    let listing = snapshot.listing()?;
    let tree = listing.tree_id()?;
    if let Some(expected) = options.tree.filter(|expected| *expected != tree) {
        return Err(Error::TreeMismatch {
            expected,
            found: tree,
            difference: None,
        });
    }
    store.insert(&snapshot, &listing)?;
    store.adopt(tree, path.as_str())?;
    let new = new_pin(store, options, tree, None, None, None)?;
    // A tag or commit needs a repository; files have a version.
    if options.wanted.trim_start_matches('v') != new.version {
        let message = format!(
            "files have no tags and commits: expected the version in their mlx/version.h, {}, found {}",
            new.version, options.wanted
        );
        return Err(Error::source(path.as_str(), message));
    }
    Ok((new, tree, path.to_string()))
}

/// The tags that the user may mean: the given name, and for a version also upstream's name with `v`.
fn tag_names(wanted: &str) -> Vec<String> {
    let mut names = vec![wanted.to_owned()];
    if wanted.starts_with(|c: char| c.is_ascii_digit()) {
        names.insert(0, format!("v{wanted}"));
    }
    names
}

fn new_pin(
    store: &Store,
    options: &Options,
    tree: Oid,
    tag: Option<String>,
    commit: Option<Oid>,
    url: Option<&str>,
) -> Result<NewPin> {
    if let Some(expected) = options.tree.filter(|expected| *expected != tree) {
        return Err(Error::TreeMismatch {
            expected,
            found: tree,
            difference: None,
        });
    }
    let version = version(store.repo(), tree)?;
    if let Some(tag) = tag
        .as_deref()
        .filter(|tag| tag.trim_start_matches('v') != version && is_release(tag))
    {
        let message = format!("expected version {tag}, but mlx/version.h has {version}");
        return Err(Error::source(options.wanted.as_str(), message));
    }
    let origin = if commit.is_some() {
        TreeOrigin::Upstream
    } else {
        TreeOrigin::Reconstructed
    };
    // A folder on this machine is of no use to others.
    let url = url.filter(|url| is_remote(url));
    let url = url.map(without_credentials);
    Ok(NewPin {
        version,
        tag,
        commit,
        tree,
        origin,
        url,
    })
}

fn is_release(tag: &str) -> bool {
    tag.trim_start_matches('v')
        .split('.')
        .all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()))
}

/// The version in `mlx/version.h`.
fn version(repo: &Repository, tree: Oid) -> Result<String> {
    const FILE: &str = "mlx/version.h";
    let none = || {
        Error::source(
            format!("tree {tree}"),
            format!("expected MLX's version in {FILE}; is this MLX?"),
        )
    };
    let entry = repo
        .find_tree(tree)?
        .get_path(FILE.as_ref())
        .map_err(|_| none())?;
    let blob = repo.find_blob(entry.id())?;
    let text = String::from_utf8_lossy(blob.content()).into_owned();
    let part = |name: &str| {
        let line = text.lines().find_map(|line| {
            line.strip_prefix("#define ")?
                .trim_start()
                .strip_prefix(name)
        })?;
        line.trim().parse::<u32>().ok()
    };
    let parts = [
        "MLX_VERSION_MAJOR",
        "MLX_VERSION_MINOR",
        "MLX_VERSION_PATCH",
    ]
    .map(part);
    match parts {
        [Some(major), Some(minor), Some(patch)] => Ok(format!("{major}.{minor}.{patch}")),
        _ => Err(none()),
    }
}

/// Checks that a tree can be pinned: only files and links, and the real files, not placeholders.
fn check_tree(repo: &Repository, tree: Oid, origin: &str) -> Result<()> {
    const POINTER: &[u8] = b"version https://git-lfs.github.com/spec/";
    const LONGEST_POINTER: usize = 1024;
    let odb = repo.odb()?;
    let mut pointers = Vec::new();
    let listing = Listing::of_tree(repo, tree)?;
    listing.check_size(repo, tree)?;
    for (path, entry) in listing.0 {
        let (size, _) = odb.read_header(entry.blob)?;
        if size < LONGEST_POINTER && repo.find_blob(entry.blob)?.content().starts_with(POINTER) {
            pointers.push(path);
        }
    }
    if pointers.is_empty() {
        return Ok(());
    }
    let message = format!(
        "expected the files themselves, found Git LFS pointers for {}",
        pointers.join(", ")
    );
    Err(Error::source(origin, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(source: &str) -> String {
        let target = Target {
            manifest: String::new(),
            tree: Oid::ZERO_SHA1,
            source: source.to_owned(),
            confirmed: None,
            history: None,
            only_here: false,
        };
        target.source_for_others()
    }

    #[test]
    fn a_report_for_others_holds_no_path_of_this_machine() {
        let here = "a copy on one machine";
        for (source, expected) in [
            ("/home/me/my mlx, commit 12", format!("{here}, commit 12")),
            ("../mlx", here.to_owned()),
            ("src, commit 12", format!("{here}, commit 12")),
            (
                "git file:///srv/mlx v1, commit 12",
                format!("git {here}, commit 12"),
            ),
            ("git /srv/m l x v1", format!("git {here}")),
            (
                "git https://a.org/mlx v1, commit 12",
                "git https://a.org/mlx v1, commit 12".to_owned(),
            ),
            (
                "crates.io carrier c 1 (sha256 0)",
                "crates.io carrier c 1 (sha256 0)".to_owned(),
            ),
        ] {
            assert_eq!(told(source), expected, "{source}");
        }
    }
}
