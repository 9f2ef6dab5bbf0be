//! The project: the pin, the patches and the lock, read together.

use fs_err as fs;
use git2::{ObjectType, Oid};

use crate::error::{Error, Result};
use crate::model::lock::Lock;
use crate::model::manifest::Manifest;
use crate::model::series::Series;
use crate::place::holder::Held;
use crate::place::vendor::Vendor;
use crate::place::workspace::Workspace;
use crate::progress::Progress;
use crate::sources::store::Store;
use crate::sources::{self, Request};
use crate::tree::Listing;

/// The three parts of a project, each as far as it can be read. For code that reports what is wrong with them; all
/// other code opens a [`Project`].
#[derive(Debug)]
pub struct Parts {
    /// `mlx.toml`.
    pub manifest: Result<Manifest>,
    /// `patches/`.
    pub series: Result<Series>,
    /// `mlx.lock`, whether or not it matches the others; `None` if there is none.
    pub lock: Result<Option<Lock>>,
}

impl Parts {
    /// Reads all three.
    pub fn read(workspace: &Workspace) -> Self {
        Self {
            manifest: Manifest::load(&workspace.manifest_path()),
            series: Series::load(&workspace.patches()),
            lock: Lock::load(&workspace.lock_path()),
        }
    }
}

/// A project that can be read. While it is open, no run changes it.
#[derive(Debug)]
pub struct Project {
    pub workspace: Workspace,
    /// `mlx.toml`.
    pub manifest: Manifest,
    /// `patches/`.
    pub series: Series,
    /// The current content of `mlx.lock`.
    pub(crate) locked: Option<Lock>,
    _held: Option<Held>,
}

impl Project {
    /// Opens a project to read it. Waits for a run that changes it, and finishes a change that a killed run decided;
    /// writes nothing else.
    ///
    /// # Errors
    /// One of the three files cannot be read.
    pub fn open(workspace: &Workspace, progress: Progress<'_>) -> Result<Self> {
        let held = hold(workspace, progress)?;
        Self::read(workspace, held)
    }

    /// Opens a project to change it. No other run reads or changes it until the vendor folder is dropped.
    pub(crate) fn open_to_change(
        workspace: &Workspace,
        progress: Progress<'_>,
    ) -> Result<(Vendor, Self)> {
        let vendor = Vendor::lock(workspace, progress)?;
        Ok((vendor, Self::read(workspace, None)?))
    }

    fn read(workspace: &Workspace, held: Option<Held>) -> Result<Self> {
        let Parts {
            manifest,
            series,
            lock,
        } = Parts::read(workspace);
        Ok(Self {
            workspace: workspace.clone(),
            manifest: manifest?,
            series: series?,
            locked: lock?,
            _held: held,
        })
    }

    /// The lock of this pin and these patches.
    ///
    /// # Errors
    /// There is no lock, or it does not match.
    pub fn lock(&self) -> Result<&Lock> {
        Lock::of(self.locked.as_ref(), &self.manifest.mlx, &self.series)
    }

    /// Checks that the patches change no more upstream lines than `mlx.toml` allows.
    ///
    /// # Errors
    /// [`Error::OverBudget`].
    pub(crate) fn within_budget(&self) -> Result<()> {
        let changed = self.series.changed_lines();
        let most = self.manifest.overlay.budget_lines;
        if changed > most {
            return Err(Error::OverBudget { changed, most });
        }
        Ok(())
    }

    /// The pinned tree, fetched unless it is in the cache.
    pub(crate) fn fetch_base(
        &self,
        store: &Store,
        offline: bool,
        progress: Progress<'_>,
    ) -> Result<Oid> {
        let request = Request {
            pin: &self.manifest.mlx,
            lock: self.locked.as_ref(),
            offline,
            refresh: false,
            source: None,
            accept: None,
        };
        Ok(sources::fetch(&self.workspace, store, request, progress)?.tree)
    }
}

/// Blocks runs that would change the project, until the file is dropped. `None` if there is no lock file yet.
///
/// # Errors
/// The lock's file cannot be opened or locked; a change that a killed run decided cannot be finished.
pub fn hold(workspace: &Workspace, progress: Progress<'_>) -> Result<Option<Held>> {
    Vendor::lock_to_read(workspace, progress)
}

/// A description of the run that is changing the project, with its start time; `None` if it can be read at once.
///
/// # Errors
/// The lock's file cannot be opened.
pub fn changed_by(workspace: &Workspace) -> Result<Option<String>> {
    Vendor::holder(workspace)
}

/// A fingerprint of the three parts: work that began with others would undo a change to them.
pub(crate) fn fingerprint(workspace: &Workspace) -> Result<String> {
    let mut text = String::new();
    for file in [workspace.manifest_path(), workspace.lock_path()] {
        text += &format!("{} ", Oid::hash_object(ObjectType::Blob, &fs::read(file)?)?);
    }
    Ok(text
        + &Listing::of_dir(&workspace.patches())?
            .tree_id()?
            .to_string())
}
