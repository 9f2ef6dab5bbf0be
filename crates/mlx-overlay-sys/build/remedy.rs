//! What to do where no MLX can be linked. In a checkout that is a command; who has this crate from cargo has no such
//! command, and takes a bundle.

use std::path::Path;

use crate::prefix::{Request, STAMP};

/// Where a prefix is named once, for every build of a project.
const CONFIG: &str = "`.cargo/config.toml`";

impl Request {
    /// The command that makes what is asked for, in a checkout.
    pub(crate) fn command(&self) -> &'static str {
        if self.pristine {
            "cargo xtask build --pristine"
        } else {
            "cargo xtask build"
        }
    }

    /// Whether this crate lies in a checkout that can build MLX. Cargo's copy of the repository has all of it but is
    /// not for working in: cargo marks it, and its registry's packages, with `.cargo-ok`.
    fn in_checkout(&self) -> bool {
        let has = |name: &str| self.workspace.join(name).exists();
        has("mlx.toml") && has("xtask") && !has(".cargo-ok")
    }

    /// How to make what was found anew.
    pub(crate) fn again(&self) -> String {
        let command = self.command();
        if !self.in_checkout() {
            return "bundle again, with `cargo xtask bundle` in a checkout of the same revision (docs/downstream.md)"
                .to_owned();
        }
        match self.prefix {
            Some(_) => format!("run `{command}`, and bundle again if it is a bundle"),
            None => format!("run `{command}`"),
        }
    }

    /// The same where what was found is of another revision.
    pub(crate) fn same_revision(&self) -> String {
        let again = self.again();
        if self.in_checkout() {
            again
        } else {
            format!("the dependency's `rev` and the bundle's checkout must be the same: {again}")
        }
    }

    /// That the variable names nothing.
    pub(crate) fn empty_name(&self) -> String {
        let unset = if self.in_checkout() {
            ", or unset it to take this checkout's own"
        } else {
            " (docs/downstream.md)"
        };
        format!("MLX_OVERLAY_PREFIX is empty: name the folder of a bundle or prefix{unset}")
    }

    /// That `root` is no prefix, and why.
    pub(crate) fn nothing_built(&self, root: &Path) -> String {
        let remedy = if self.in_checkout() {
            format!(
                "run `{}`, or set MLX_OVERLAY_PREFIX to a prefix that it made, or to a bundle of the same revision",
                self.command()
            )
        } else {
            format!(
                "set MLX_OVERLAY_PREFIX, for example in {CONFIG}, to a bundle that `cargo xtask bundle` made in a \
                 checkout of the same revision (docs/downstream.md)"
            )
        };
        match &self.prefix {
            None if !self.in_checkout() => {
                format!("no built MLX: MLX_OVERLAY_PREFIX is not set: {remedy}")
            }
            Some(prefix) if prefix.is_relative() => format!(
                "{}: `{}` is relative to this package's folder, where cargo runs build scripts: give an absolute path, \
                 or `MLX_OVERLAY_PREFIX = {{ value = \"…\", relative = true }}` in {CONFIG}, which is relative to the \
                 folder that `.cargo` is in",
                not_built(root),
                prefix.display()
            ),
            _ => format!("{}: {remedy}", not_built(root)),
        }
    }
}

fn not_built(root: &Path) -> String {
    let why = if root.is_file() {
        "which is a file (unpack an archive first)".to_owned()
    } else if root.exists() {
        format!("which has no {STAMP}")
    } else {
        "which does not exist".to_owned()
    };
    format!("no built MLX in `{}`, {why}", root.display())
}
