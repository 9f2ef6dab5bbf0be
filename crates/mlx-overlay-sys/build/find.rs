//! Finds the MLX to link, or reports what to do if there is none: in a checkout, which command to run; elsewhere, where
//! to get a bundle.

use std::path::Path;

use mlx_prefix::{Error, Found, Ids, Prefix, Search};

/// The file that sets the prefix for all builds of a project.
const CONFIG: &str = "`.cargo/config.toml`";

/// Returns the prefix to link.
///
/// # Errors
///
/// One line: what is missing or differs, and the remedy.
pub(crate) fn find(search: &Search, lock: &Path) -> Result<Prefix, String> {
    let ids =
        Ids::read(lock).map_err(|error| format!("{error}: run `cargo xtask apply-overlay`"))?;
    search
        .resolve(&ids)
        .map_err(|error| explain(search, &error))
}

fn explain(search: &Search, error: &Error) -> String {
    let again = again(search);
    match error {
        Error::EmptyName => {
            let unset = if in_checkout(search) {
                ", or unset it to take this checkout's own"
            } else {
                " (docs/guide/rust.md)"
            };
            format!("{error}: name the folder of a bundle or prefix{unset}")
        }
        Error::PristineUnnamed => format!(
            "{error}: name the prefix that `{}` printed",
            command(search)
        ),
        Error::NoPrefix { found, .. } => nothing_built(search, error, *found),
        Error::OtherTree { .. } if !in_checkout(search) => format!(
            "{error}: the dependency's `rev` and the bundle's checkout must be the same: {again}"
        ),
        _ => format!("{error}: {again}"),
    }
}

/// The command that builds the requested MLX in a checkout.
fn command(search: &Search) -> &'static str {
    if search.pristine {
        "cargo xtask build --pristine"
    } else {
        "cargo xtask build"
    }
}

/// Whether this crate is in a checkout that can build MLX. Cargo's copy of the repository looks like one but is not for
/// working in; cargo marks it, like packages of a registry, with `.cargo-ok`.
fn in_checkout(search: &Search) -> bool {
    let has = |name: &str| search.workspace.join(name).exists();
    has("mlx.toml") && has("xtask") && !has(".cargo-ok")
}

/// Says how to rebuild the prefix.
fn again(search: &Search) -> String {
    if !in_checkout(search) {
        return "bundle again, with `cargo xtask bundle` in a checkout of the same revision (docs/guide/rust.md)"
            .to_owned();
    }
    let command = command(search);
    match search.named {
        Some(_) if search.pristine => {
            format!("run `{command}`, and name the prefix that it prints")
        }
        // A build writes this checkout's own prefix, and does not touch the named one.
        Some(_) => "`unset MLX_OVERLAY_PREFIX` to link this checkout's own build, or bundle again"
            .to_owned(),
        None => format!("run `{command}`"),
    }
}

fn nothing_built(search: &Search, error: &Error, found: Found) -> String {
    let unpack = match found {
        Found::File => " (unpack an archive first)",
        _ => "",
    };
    let remedy = if in_checkout(search) {
        format!(
            "run `{}`, or set MLX_OVERLAY_PREFIX to a prefix that it made, or to a bundle of the same revision",
            command(search)
        )
    } else {
        format!(
            "set MLX_OVERLAY_PREFIX, for example in {CONFIG}, to a bundle that `cargo xtask bundle` made in a \
             checkout of the same revision (docs/guide/rust.md)"
        )
    };
    match &search.named {
        None if !in_checkout(search) => {
            format!("no built MLX: MLX_OVERLAY_PREFIX is not set: {remedy}")
        }
        Some(named) if named.is_relative() => format!(
            "{error}{unpack}: `{}` is relative to this package's folder, where cargo runs build scripts: give an \
             absolute path, or `MLX_OVERLAY_PREFIX = {{ value = \"…\", relative = true }}` in {CONFIG}, which is \
             relative to the folder that `.cargo` is in",
            named.display()
        ),
        _ => format!("{error}{unpack}: {remedy}"),
    }
}
