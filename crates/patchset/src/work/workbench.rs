//! A git repository below `target/` in which a person works on the pinned MLX with any tool. It borrows its objects
//! from the cache, so making it takes no time.

use std::collections::BTreeSet;

use camino::{Utf8Path, Utf8PathBuf};
use fs_err as fs;
use git2::build::CheckoutBuilder;
use git2::{CherrypickOptions, Oid, Repository, RepositoryInitOptions, Signature, Time};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{Error, Result};
use crate::place::workspace::Workspace;
use crate::place::{disk, exchange};
use crate::read;
use crate::sources::store::Store;
use crate::tree::{Listing, Snapshot};

/// The branch that a person works on.
pub(crate) const BRANCH: &str = "overlay";

const WORKTREE: &str = "worktree";
const STATE: &str = "state.toml";

/// A folder below `target/` for a person's decision: a worktree, and the state that the next run needs.
pub(crate) struct Desk {
    folder: Utf8PathBuf,
}

impl Desk {
    /// `target/<name>`.
    pub(crate) fn below_target(workspace: &Workspace, name: &str) -> Self {
        Self {
            folder: workspace.root().join("target").join(name),
        }
    }

    pub(crate) fn worktree(&self) -> Utf8PathBuf {
        self.folder.join(WORKTREE)
    }

    fn state(&self) -> Utf8PathBuf {
        self.folder.join(STATE)
    }

    /// The saved state; `None` if there is none.
    pub(crate) fn load<T: DeserializeOwned>(&self) -> Result<Option<T>> {
        let file = self.state();
        if !file.exists() {
            return Ok(None);
        }
        read::toml(&file).map(Some).map_err(|error| match error {
            // Several folders have one.
            Error::Format { line, message, .. } => Error::Format {
                file,
                line,
                message,
            },
            error => error,
        })
    }

    /// Whether something is laid out here, even if its state cannot be read.
    pub(crate) fn is_laid_out(&self) -> bool {
        self.state().exists()
    }

    /// Saves the state.
    pub(crate) fn save(&self, state: &impl Serialize) -> Result<()> {
        write(&self.state(), state)
    }

    /// Replaces what is here with another worktree and its state, in one step.
    pub(crate) fn renew<T: Serialize>(
        &self,
        make: impl FnOnce(&Utf8Path) -> Result<T>,
    ) -> Result<()> {
        self.recover()?;
        let next = self.beside("next");
        disk::create_dir_all(&next)?;
        let state = make(&next.join(WORKTREE))?;
        write(&next.join(STATE), &state)?;
        exchange::put(&next, &self.folder, &self.beside("old"))?;
        // The old content is no longer needed.
        let _ = disk::remove_tree(&next);
        Ok(())
    }

    /// Removes what a killed run left next to it.
    pub(crate) fn recover(&self) -> Result<()> {
        exchange::recover(&self.folder, &self.beside("old"))?;
        disk::remove_tree(&self.beside("next"))
    }

    fn beside(&self, what: &str) -> Utf8PathBuf {
        self.folder.with_extension(what)
    }

    /// Removes all of it.
    pub(crate) fn clear(&self) -> Result<()> {
        // The state goes first: without it the rest is not used.
        let state = self.state();
        if state.exists() {
            disk::remove_file(&state)?;
        }
        disk::remove_tree(&self.folder)?;
        self.recover()
    }
}

fn write(file: &Utf8Path, state: &impl Serialize) -> Result<()> {
    let text = toml::to_string(state).map_err(|error| Error::source(file.as_str(), error))?;
    disk::replace(file, text.as_bytes())
}

/// A repository with a worktree.
pub(crate) struct Workbench {
    repo: Repository,
    folder: Utf8PathBuf,
}

impl Workbench {
    /// Makes an empty repository.
    pub(crate) fn create(folder: &Utf8Path, store: &Store) -> Result<Self> {
        fs::create_dir_all(folder)?;
        let mut options = RepositoryInitOptions::new();
        options.external_template(false).initial_head(BRANCH);
        let repo = Repository::init_opts(folder, &options)?;
        // The content must be exact byte for byte, whatever the person has set for other repositories.
        let mut config = repo.config()?;
        for (key, value) in [
            ("core.autocrlf", "false"),
            ("core.fileMode", "true"),
            ("core.symlinks", "true"),
            // The person's settings may ask for other line ends.
            ("core.attributesFile", "/dev/null"),
            ("merge.conflictStyle", "diff3"),
        ] {
            config.set_str(key, value)?;
        }
        let objects = fs::canonicalize(store.folder().join("objects"))?;
        let alternates = folder.join(".git/objects/info/alternates");
        fs::create_dir_all(folder.join(".git/objects/info"))?;
        fs::write(alternates, format!("{}\n", objects.display()))?;
        Self::open(folder)
    }

    /// Opens an existing repository.
    pub(crate) fn open(folder: &Utf8Path) -> Result<Self> {
        Ok(Self {
            repo: Repository::open(folder)?,
            folder: folder.to_owned(),
        })
    }

    pub(crate) fn repo(&self) -> &Repository {
        &self.repo
    }

    /// Makes a commit of a tree, without a person's name or the time: the same trees give the same commits.
    pub(crate) fn commit(&self, message: &str, tree: Oid, parent: Option<Oid>) -> Result<Oid> {
        let nobody = Who::nobody();
        let who = Signature::new(&nobody.name, &nobody.email, &Time::new(0, 0))?;
        self.commit_by(&who, message, tree, parent)
    }

    /// Makes a commit in a person's name with the current time.
    pub(crate) fn commit_as(
        &self,
        who: &Who,
        message: &str,
        tree: Oid,
        parent: Option<Oid>,
    ) -> Result<Oid> {
        let who = Signature::now(&who.name, &who.email)?;
        self.commit_by(&who, message, tree, parent)
    }

    fn commit_by(
        &self,
        who: &Signature<'_>,
        message: &str,
        tree: Oid,
        parent: Option<Oid>,
    ) -> Result<Oid> {
        let tree = self.repo.find_tree(tree)?;
        let parent = parent
            .map(|parent| self.repo.find_commit(parent))
            .transpose()?;
        let parents: Vec<_> = parent.iter().collect();
        Ok(self.repo.commit(None, who, who, message, &tree, &parents)?)
    }

    /// Points a branch to a commit and checks out its files.
    pub(crate) fn check_out(&self, branch: &str, commit: Oid) -> Result<()> {
        let name = format!("refs/heads/{branch}");
        self.repo.reference(&name, commit, true, "mlx-overlay")?;
        self.repo.set_head(&name)?;
        Ok(self
            .repo
            .checkout_head(Some(CheckoutBuilder::new().force()))?)
    }

    /// Moves the current branch to a commit.
    pub(crate) fn advance(&self, commit: Oid) -> Result<()> {
        let head = self.repo.head()?;
        match head.shorthand() {
            Ok(branch) if head.is_branch() => self.check_out(branch, commit),
            _ => {
                self.repo.set_head_detached(commit)?;
                Ok(self
                    .repo
                    .checkout_head(Some(CheckoutBuilder::new().force()))?)
            }
        }
    }

    /// Begins a cherry-pick, and leaves its conflicts in the index and, with markers in diff3 style, in the files.
    pub(crate) fn cherry_pick(
        &self,
        commit: Oid,
        ours: &str,
        theirs: &str,
        ancestor: &str,
    ) -> Result<()> {
        let commit = self.repo.find_commit(commit)?;
        let mut checkout = CheckoutBuilder::new();
        checkout.conflict_style_diff3(true).allow_conflicts(true);
        checkout
            .our_label(ours)
            .their_label(theirs)
            .ancestor_label(ancestor)
            .force();
        let mut options = CherrypickOptions::new();
        options.checkout_builder(checkout);
        Ok(self.repo.cherrypick(&commit, Some(&mut options))?)
    }

    /// Treats a commit whose parents are not here as the first of the history, like a shallow clone.
    pub(crate) fn begin_at(&self, commit: Oid) -> Result<()> {
        Ok(fs::write(
            self.folder.join(".git/shallow"),
            format!("{commit}\n"),
        )?)
    }

    /// The paths that git would commit, without conflicts.
    pub(crate) fn staged(&self) -> Result<BTreeSet<String>> {
        const STAGE: u16 = 0x3000;
        let index = self.repo.index()?;
        let settled = index.iter().filter(|entry| entry.flags & STAGE == 0);
        Ok(settled
            .map(|entry| String::from_utf8_lossy(&entry.path).into_owned())
            .collect())
    }

    /// Gives the files in the folder the content that they have in a tree, and removes files that it does not have.
    pub(crate) fn put_files(&self, tree: Oid) -> Result<()> {
        let (_, found) = self.files()?;
        let wanted = Snapshot::of_tree(&self.repo, tree)?;
        let listing = wanted.listing()?;
        for path in found.0.keys() {
            if listing.0.get(path) != found.0.get(path) {
                fs::remove_file(self.folder.join(path))?;
            }
        }
        for (path, file) in &wanted.0 {
            if listing.0.get(path) != found.0.get(path) {
                disk::write_tree(
                    &self.folder,
                    &Snapshot([(path.clone(), file.clone())].into()),
                )?;
            }
        }
        Ok(())
    }

    /// Writes or removes one file.
    pub(crate) fn put_file(&self, path: &str, text: Option<&str>) -> Result<()> {
        let file = self.folder.join(path);
        match text {
            Some(text) => {
                file.parent().map_or(Ok(()), disk::create_dir_all)?;
                // Not the target of a link.
                if file.is_symlink() {
                    fs::remove_file(&file)?;
                }
                Ok(fs::write(file, text)?)
            }
            None if fs::symlink_metadata(&file).is_ok() => Ok(fs::remove_file(file)?),
            None => Ok(()),
        }
    }

    /// Sets the template for the messages of new commits.
    pub(crate) fn set_template(&self, text: &str) -> Result<()> {
        let file = self.folder.join(".git/overlay-template");
        fs::write(&file, text)?;
        Ok(self
            .repo
            .config()?
            .set_str("commit.template", ".git/overlay-template")?)
    }

    /// The current files in the folder.
    pub(crate) fn files(&self) -> Result<(Snapshot, Listing)> {
        let snapshot = Snapshot::of_dir(&self.folder)?;
        let listing = snapshot.listing()?;
        Ok((snapshot, listing))
    }
}

/// The author of a commit.
pub(crate) struct Who {
    name: String,
    email: String,
    known: bool,
}

impl Who {
    fn nobody() -> Self {
        Self {
            name: "mlx-overlay".to_owned(),
            email: "mlx-overlay@localhost".to_owned(),
            known: false,
        }
    }

    /// The person in git's settings.
    pub(crate) fn of_this_person(repo: &Repository) -> Self {
        let named = repo.signature().ok().and_then(|who| {
            Some(Self {
                name: who.name().ok()?.to_owned(),
                email: who.email().ok()?.to_owned(),
                known: true,
            })
        });
        named.unwrap_or_else(Self::nobody)
    }

    /// Whether git's settings name a person.
    pub(crate) fn is_known(&self) -> bool {
        self.known
    }
}
