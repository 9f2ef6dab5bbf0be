//! The cache of fetched objects: a bare repository below `target/overlay`.
//!
//! Objects are named by their content and libgit2 hashes what it reads, so a damaged cache is an error and never gives
//! wrong files. A tree counts as present once its reference is written, which happens after all its objects.

use camino::{Utf8Path, Utf8PathBuf};
use fs_err as fs;
use git2::{ObjectType, Oid, Repository, RepositoryInitOptions};

use crate::error::Result;
use crate::place::disk;
use crate::place::exchange;
use crate::place::scratch::Scratch;
use crate::place::workspace::{SCRATCH, Workspace};
use crate::tree::{Listing, Snapshot};

/// The cache of fetched objects.
pub struct Store {
    repo: Repository,
    folder: Utf8PathBuf,
}

impl Store {
    /// Opens the cache; makes it if there is none.
    pub fn open(workspace: &Workspace) -> Result<Self> {
        workspace.sweep_scratch();
        match Self::open_existing(workspace) {
            Some(store) => Ok(store),
            None => Self::create(workspace),
        }
    }

    /// Makes the cache next to its place: libgit2 uses a lock file to write a configuration, and one left by a killed
    /// run would stop every later run.
    fn create(workspace: &Workspace) -> Result<Self> {
        let scratch = workspace.scratch()?;
        let beside = scratch.path();
        let made = beside.join("made");
        let mut options = RepositoryInitOptions::new();
        options.bare(true).external_template(false);
        Repository::init_opts(&made, &options)?;
        let folder = workspace.cache().join("mlx.git");
        // Another run may have been faster. A cache that cannot be opened was left unfinished by a killed run.
        if fs::rename(&made, &folder).is_err() && Self::open_existing(workspace).is_none() {
            exchange::put(&made, &folder, &beside.join("begun"))?;
        }
        let repo = Repository::open_bare(&folder)?;
        Ok(Self { repo, folder })
    }

    /// The cache, if it exists; `status` does not make one.
    pub fn open_existing(workspace: &Workspace) -> Option<Self> {
        let folder = workspace.cache().join("mlx.git");
        Repository::open_bare(&folder)
            .ok()
            .map(|repo| Self { repo, folder })
    }

    /// The repository, for reading.
    pub fn repo(&self) -> &Repository {
        &self.repo
    }

    /// A folder next to the cache for unfinished work.
    pub(crate) fn scratch(&self) -> Result<Scratch> {
        Scratch::new(self.folder.parent().unwrap_or(&self.folder), SCRATCH)
    }

    /// Its folder, for the `git` program.
    pub fn folder(&self) -> &Utf8Path {
        &self.folder
    }

    /// The source of a tree, if the tree is here completely.
    pub fn source_of(&self, tree: Oid) -> Option<String> {
        let reference = self.repo.find_reference(&tree_reference(tree)).ok()?;
        (reference.target()? == tree).then_some(())?;
        fs::read_to_string(self.label(tree)).ok()
    }

    /// Marks a tree as complete, and records its source.
    pub fn adopt(&self, tree: Oid, source: &str) -> Result<()> {
        fs::create_dir_all(self.folder.join("sources"))?;
        disk::replace(&self.label(tree), source.as_bytes())?;
        // Not with libgit2, which uses a lock file: one left by a killed run would stop every later run. The reference
        // is named by its content, so every writer writes the same.
        fs::create_dir_all(self.folder.join("refs/trees"))?;
        let reference = self.folder.join(tree_reference(tree));
        disk::replace(&reference, format!("{tree}\n").as_bytes())
    }

    /// Writes all objects of a snapshot.
    pub fn insert(&self, snapshot: &Snapshot, listing: &Listing) -> Result<Oid> {
        let odb = self.repo.odb()?;
        for file in snapshot.0.values() {
            odb.write(ObjectType::Blob, &file.bytes)?;
        }
        listing.build(&mut |kind, bytes| Ok(odb.write(kind, bytes)?))
    }

    /// A view of the cache whose writes stay in memory.
    pub fn overlay(&self) -> Result<Repository> {
        const BEFORE_DISK: i32 = 1000;
        let repo = Repository::open_bare(&self.folder)?;
        repo.odb()?.add_new_mempack_backend(BEFORE_DISK)?;
        Ok(repo)
    }

    fn label(&self, tree: Oid) -> Utf8PathBuf {
        self.folder.join("sources").join(tree.to_string())
    }
}

fn tree_reference(tree: Oid) -> String {
    format!("refs/trees/{tree}")
}
