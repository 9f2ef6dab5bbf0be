//! Builds on a scratch workspace.

use anyhow::Result;
use camino::Utf8Path;
use mlx_prefix::Backend;
use xtask::build::Options;
use xtask::build::prefix::{self, Built, Job, Source};
use xtask::host::Host;

pub(crate) use crate::scratch::Scratch;

impl Scratch {
    /// Builds `source` with `tree` as its tree id.
    pub(crate) fn build(
        &self,
        host: &Host,
        backend: Backend,
        jit: bool,
        source: &Utf8Path,
        tree: &str,
    ) -> Result<Built> {
        let options = Options {
            backend,
            cpu: false,
            jit,
            cuda_architectures: None,
        };
        self.build_with(host, &options, source, tree)
    }

    /// The same with all options.
    pub(crate) fn build_with(
        &self,
        host: &Host,
        options: &Options,
        source: &Utf8Path,
        tree: &str,
    ) -> Result<Built> {
        let inputs = self.path("inputs");
        prefix::build(&Job {
            host,
            xtask: Utf8Path::new(env!("CARGO_BIN_EXE_xtask")),
            root: &self.path("root"),
            source: &Source {
                path: source.to_owned(),
                version: "0.32.4".to_owned(),
                base_tree: "base".to_owned(),
                final_tree: tree.to_owned(),
                pristine: false,
            },
            input: &|name| Ok(inputs.join(name)),
            options,
            jobs: Some(2),
        })
    }
}

/// The complete chain of an error, as `main` prints it.
pub(crate) fn chain<T>(result: Result<T>) -> String {
    match result {
        Ok(_) => panic!("this should have failed"),
        Err(error) => format!("{error:#}"),
    }
}
