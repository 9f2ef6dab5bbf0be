//! A git repository below `target/` in which a person works on the pinned MLX with any tool. It borrows its objects from
//! the cache, so it takes no time to make.

use camino::{Utf8Path, Utf8PathBuf};
use fs_err as fs;
use git2::build::CheckoutBuilder;
use git2::{CherrypickOptions, Oid, Repository, RepositoryInitOptions, Signature, Time};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{Error, Result};
use crate::place::disk;
use crate::place::workspace::Workspace;
use crate::read;
use crate::sources::store::Store;
use crate::tree::{Listing, Snapshot};

/// The branch that a person works on.
pub(crate) const BRANCH: &str = "overlay";

/// A folder below `target/` where a person decides something: a worktree, and what the next run has to know of it.
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
        self.folder.join("worktree")
    }

    fn state(&self) -> Utf8PathBuf {
        self.folder.join("state.toml")
    }

    /// What was saved; `None` if nothing waits here.
    pub(crate) fn load<T: DeserializeOwned>(&self) -> Result<Option<T>> {
        let file = self.state();
        file.exists().then(|| read::toml(&file)).transpose()
    }

    /// Saves the state. Something waits from now on, so the worktree comes first.
    pub(crate) fn save(&self, state: &impl Serialize) -> Result<()> {
        let file = self.state();
        let text = toml::to_string(state).map_err(|error| Error::source(file.as_str(), error))?;
        disk::replace(&file, text.as_bytes())
    }

    /// Removes all of it.
    pub(crate) fn clear(&self) -> Result<()> {
        // The state goes first: without it the rest is only rubbish.
        let state = self.state();
        if state.exists() {
            disk::remove_file(&state)?;
        }
        disk::remove_tree(&self.folder)
    }
}

/// A repository with a worktree.
pub(crate) struct Workbench {
    repo: Repository,
    folder: Utf8PathBuf,
}

impl Workbench {
    /// Makes an empty one.
    pub(crate) fn create(folder: &Utf8Path, store: &Store) -> Result<Self> {
        fs::create_dir_all(folder)?;
        let mut options = RepositoryInitOptions::new();
        options.external_template(false).initial_head(BRANCH);
        let repo = Repository::init_opts(folder, &options)?;
        // The content counts byte by byte, whatever the person has set for other repositories.
        let mut config = repo.config()?;
        for (key, value) in [
            ("core.autocrlf", "false"),
            ("core.fileMode", "true"),
            ("core.symlinks", "true"),
            // Those of the person may ask for other line ends.
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

    /// Opens one that is there.
    pub(crate) fn open(folder: &Utf8Path) -> Result<Self> {
        Ok(Self {
            repo: Repository::open(folder)?,
            folder: folder.to_owned(),
        })
    }

    pub(crate) fn repo(&self) -> &Repository {
        &self.repo
    }

    /// Makes a commit of a tree. Nobody's name and no time: the same trees give the same commits.
    pub(crate) fn commit(&self, message: &str, tree: Oid, parent: Option<Oid>) -> Result<Oid> {
        self.commit_as(&Who::nobody(), message, tree, parent)
    }

    /// Makes a commit in a person's name.
    pub(crate) fn commit_as(
        &self,
        who: &Who,
        message: &str,
        tree: Oid,
        parent: Option<Oid>,
    ) -> Result<Oid> {
        let who = Signature::new(&who.name, &who.email, &Time::new(0, 0))?;
        let tree = self.repo.find_tree(tree)?;
        let parent = parent
            .map(|parent| self.repo.find_commit(parent))
            .transpose()?;
        let parents: Vec<_> = parent.iter().collect();
        Ok(self
            .repo
            .commit(None, &who, &who, message, &tree, &parents)?)
    }

    /// Puts a branch at a commit and its files into the folder.
    pub(crate) fn check_out(&self, branch: &str, commit: Oid) -> Result<()> {
        let name = format!("refs/heads/{branch}");
        self.repo.reference(&name, commit, true, "mlx-overlay")?;
        self.repo.set_head(&name)?;
        Ok(self
            .repo
            .checkout_head(Some(CheckoutBuilder::new().force()))?)
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

    /// Gives new commits a text to begin with.
    pub(crate) fn set_template(&self, text: &str) -> Result<()> {
        let file = self.folder.join(".git/overlay-template");
        fs::write(&file, text)?;
        Ok(self
            .repo
            .config()?
            .set_str("commit.template", ".git/overlay-template")?)
    }

    /// The files as they lie in the folder.
    pub(crate) fn files(&self) -> Result<(Snapshot, Listing)> {
        let snapshot = Snapshot::of_dir(&self.folder)?;
        let listing = snapshot.listing()?;
        Ok((snapshot, listing))
    }
}

/// In whose name a commit is made.
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

    /// The person whom git's settings name.
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
