//! Fetches the pinned MLX and its build inputs. Records in the lock whether git confirmed a reconstructed tree, or
//! which tree the user accepted instead.

use camino::Utf8PathBuf;
use git2::{Oid, Repository};

use crate::error::{Error, Result};
use crate::model::lock::Lock;
use crate::model::manifest::Pin;
use crate::model::series::Series;
use crate::place::vendor::Vendor;
use crate::place::workspace::Workspace;
use crate::progress::Progress;
use crate::project::Parts;
use crate::sources::inputs::{self, Unpacked};
use crate::sources::store::Store;
use crate::sources::{self, Fetched, Request};

/// Options of [`fetch()`].
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Use no network; cargo's own cache still counts.
    pub offline: bool,
    /// Fetch again even if the tree is here.
    pub refresh: bool,
    /// A folder, repository or archive to use instead of the pin's sources.
    pub source: Option<Utf8PathBuf>,
    /// The tree to use instead of a reconstructed one.
    pub accept: Option<Oid>,
    /// The back-end whose own inputs are fetched as well.
    pub backend: Option<String>,
}

/// The result of [`fetch()`].
#[derive(Debug)]
pub struct Outcome {
    /// The pinned version.
    pub version: String,
    /// The tree and its source.
    pub mlx: Fetched,
    /// The build inputs.
    pub inputs: Vec<Unpacked>,
    /// Whether the lock was written: a reconstructed tree was confirmed or replaced.
    pub lock_written: bool,
}

/// Fetches MLX and its build inputs into `target/overlay`.
///
/// # Errors
/// No source provides the pinned tree or an input; a patch does not apply to the tree that the user accepts.
pub fn fetch(workspace: &Workspace, options: &Options, progress: Progress<'_>) -> Result<Outcome> {
    let _vendor = Vendor::lock(workspace, progress)?;
    // Patches that cannot be read do not prevent a fetch.
    let Parts {
        manifest,
        series,
        lock,
    } = Parts::read(workspace);
    let (manifest, old) = (manifest?, lock?);
    let pin = &manifest.mlx;
    let store = Store::open(workspace)?;
    let request = Request {
        pin,
        lock: old.as_ref(),
        offline: options.offline,
        refresh: options.refresh,
        source: options.source.as_deref(),
        accept: options.accept,
    };
    if options.accept.is_some() && old.is_none() {
        // A verdict on the tree is recorded in the lock.
        return Err(Error::LockMissing);
    }
    let mlx = sources::fetch(workspace, &store, request, progress)?;
    let mut lock_written = false;
    if let Some(old) = &old
        && (mlx.verdict.is_some() || options.accept.is_some())
    {
        let lock = next_lock(&store.overlay()?, pin, &series?, Some(old), &mlx, false)?;
        lock_written = lock.save(workspace)?;
    }
    let mut wanted = manifest.inputs;
    wanted.retain(|input| input.backend.is_none() || input.backend == options.backend);
    let inputs = inputs::fetch(workspace, &wanted, options.offline, progress)?;
    Ok(Outcome {
        version: pin.version.clone(),
        mlx,
        inputs,
        lock_written,
    })
}

/// The lock for a fetched tree and the patches. `repo` gets their objects.
///
/// # Errors
/// A patch does not apply exactly, or lint forbids what it does; the old lock does not match and `update` does not
/// allow a new one.
pub(crate) fn next_lock(
    repo: &Repository,
    pin: &Pin,
    series: &Series,
    old: Option<&Lock>,
    fetched: &Fetched,
    update: bool,
) -> Result<Lock> {
    if !update {
        Lock::of(old, pin, series)?;
    }
    let resolved = series.resolve(repo, fetched.tree)?;
    if let Some(fault) = series.faults(repo, &resolved)?.into_iter().next() {
        return Err(fault);
    }
    // An earlier verdict on a reconstructed pin stays until there is a new one.
    let verdict = fetched.verdict.clone().or_else(|| {
        old.and_then(|lock| lock.verdict_for(pin))
            .filter(|verdict| verdict.tree() == fetched.tree)
    });
    let lock = Lock::new(pin, verdict, series, &resolved);
    match old {
        // Only a different base may change the trees.
        Some(old) if !update && lock.base_tree == old.base_tree && !lock.same_trees(old) => {
            let (found, locked) = (lock.final_tree, old.final_tree);
            Err(Error::LockDiffers(vec![format!(
                "the patches produce tree {found}, but it has {locked}"
            )]))
        }
        _ => Ok(lock),
    }
}
