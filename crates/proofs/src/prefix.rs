//! Builds of MLX for the simulated device.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use mlx_prefix::{Backend, Ids, Search, Stamp};

/// An installed build for the simulated device, whose kernels are compiled ahead of time.
#[derive(Debug, Clone)]
pub struct Prefix {
    pub(crate) built: mlx_prefix::Prefix,
}

pub(crate) fn workspace() -> &'static Path {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.ancestors().nth(2).unwrap_or(manifest)
}

fn ids() -> Result<Ids> {
    Ok(Ids::read(workspace().join("mlx.lock"))?)
}

impl Prefix {
    /// The patched build: `MLX_OVERLAY_PREFIX`, else the workspace's own.
    ///
    /// # Errors
    /// If there is none, or it is from another tree or for another device; the error names the command that makes it.
    pub fn patched() -> Result<Self> {
        let search = Search {
            pristine: false,
            ..Search::from_environment(workspace(), ".")
        };
        Self::of(search.resolve(&ids()?))
            .context("there is no MLX to test: run `cargo xtask build --backend sim`")
    }

    /// The unpatched build: `MLX_PRISTINE_PREFIX`, else the one in the workspace.
    ///
    /// # Errors
    /// See [`Prefix::patched`].
    pub fn pristine() -> Result<Self> {
        let search = |named| Search {
            named: Some(named),
            pristine: true,
            ..Search::from_environment(workspace(), ".")
        };
        let ids = ids()?;
        let find = || match std::env::var_os("MLX_PRISTINE_PREFIX") {
            Some(named) => Self::of(search(named.into()).resolve(&ids)),
            None => mlx_prefix::built(workspace())?
                .into_iter()
                .filter(|built| built.stamp.pristine)
                .find_map(|built| Self::of(search(built.root).resolve(&ids)).ok())
                .with_context(|| format!("none in {}", workspace().display())),
        };
        find().context(
            "there is no pristine MLX to compare with: run `cargo xtask build --backend sim --pristine`",
        )
    }

    fn of(found: mlx_prefix::Result<mlx_prefix::Prefix>) -> Result<Self> {
        let built = found?;
        let Stamp { backend, jit, .. } = built.stamp;
        ensure!(
            backend == Backend::Sim && !jit,
            "{}: expected a build for the simulated device, found one for {backend}{}",
            built.root.display(),
            if jit { " with JIT" } else { "" }
        );
        Ok(Self { built })
    }

    pub fn stamp(&self) -> &Stamp {
        &self.built.stamp
    }

    /// Its include folder for kernels.
    pub fn include(&self) -> PathBuf {
        self.built.root.join("include")
    }

    /// The build's table of kernels.
    ///
    /// # Errors
    /// If the build has none.
    pub fn metallib(&self) -> Result<PathBuf> {
        self.built.metallib().context("no metallib")
    }
}
