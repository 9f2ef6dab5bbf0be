//! `cargo xtask doctor`: looks for common problems on this machine and names a remedy for each.
//!
//! Every check is a function of a [`Host`] and folders, so that tests can describe a machine with fake programs. The
//! checks for macOS run on any system against programs that print what Apple's print.

mod apple;
mod builds;
mod checkout;
mod finding;
mod git;
mod tools;
mod variables;

use anyhow::Result;
use camino::{Utf8Path, Utf8PathBuf};
use cli::println;
use mlx_prefix::Backend;
use patchset::Workspace;
use patchset::project::Parts;
use serde::Serialize;

use crate::Reported;
use crate::build::backend;
use crate::host::{Host, Os};

pub use finding::{Finding, Status};

/// Look for problems that keep MLX from being built, linked or run here, and name remedies
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  cargo xtask doctor                  all checks, with remedies
  cargo xtask doctor --json | jq '.findings[] | select(.status != \"ok\")'

The exit code is 1 if there is an error, else 0, also with warnings. The ids in --json keep their meaning.\n\
The doctor changes nothing.")]
pub struct Args {
    /// Print one JSON object with stable fields: format, host, backend, findings (each with id, status, found, remedy)
    #[arg(long)]
    json: bool,
}

/// Version of the JSON output.
const FORMAT: u32 = 1;

#[derive(Serialize)]
struct Report<'a> {
    format: u32,
    host: &'a str,
    backend: Backend,
    findings: &'a [Finding],
}

/// Runs every check and prints the findings.
pub fn run(args: Args) -> Result<()> {
    let host = Host::current();
    let root = root()?;
    let findings = examine(&host, &root);
    if args.json {
        let report = Report {
            format: FORMAT,
            host: &host.target,
            backend: backend::default_for(&host),
            findings: &findings,
        };
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        findings.iter().for_each(|finding| println!("{finding}"));
        println!("{}", summary(&findings));
    }
    if findings.iter().any(|f| f.status == Status::Error) {
        return Err(Reported.into());
    }
    Ok(())
}

/// The root of the checkout around the current folder, even if its `mlx.toml` is gone.
fn root() -> Result<Utf8PathBuf> {
    crate::root().or_else(|error| {
        let lost = matches!(error.downcast_ref(), Some(patchset::Error::NoWorkspace(_)));
        let here = Utf8PathBuf::try_from(std::env::current_dir()?)?;
        // The top of a repository, recognized by its other files.
        let top = here
            .ancestors()
            .find(|folder| folder.join(".git").exists())
            .filter(|top| top.join("mlx.lock").is_file() || top.join("patches/series").is_file());
        match top {
            Some(top) if lost => Ok(top.to_owned()),
            _ => Err(error),
        }
    })
}

/// All findings for `host` and the checkout at `root`.
pub fn examine(host: &Host, root: &Utf8Path) -> Vec<Finding> {
    let mut findings = tools::examine(host);
    if host.os == Os::MacOs {
        findings.extend(apple::examine(host));
    }
    findings.push(variables::examine(host));
    findings.extend(checkout::examine(host, root));
    // Builds are compared with the lock only if the lock can be trusted.
    let lock = if findings
        .iter()
        .any(|finding| ["lock", "lock-held", "merge"].contains(&finding.id))
    {
        None
    } else {
        Parts::read(&Workspace::at(root)).lock.ok().flatten()
    };
    findings.extend(builds::examine(host, root, lock.as_ref()));
    findings
}

fn summary(findings: &[Finding]) -> String {
    let count = |status| findings.iter().filter(|f| f.status == status).count();
    match (count(Status::Error), count(Status::Warning)) {
        (0, 0) => "no problems found".to_owned(),
        (errors, warnings) => format!(
            "{}, {}",
            counted(errors, "error"),
            counted(warnings, "warning")
        ),
    }
}

fn counted(count: usize, what: &str) -> String {
    match count {
        1 => format!("1 {what}"),
        _ => format!("{count} {what}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_no_plural() {
        let error = || Finding::error("a", "", "");
        let warning = || Finding::warning("b", "", "");
        assert_eq!(summary(&[Finding::ok("a", "")]), "no problems found");
        assert_eq!(summary(&[error(), warning()]), "1 error, 1 warning");
        let text = summary(&[error(), error()]);
        assert_eq!(text, "2 errors, 0 warnings");
    }
}
