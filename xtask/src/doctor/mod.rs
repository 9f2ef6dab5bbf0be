//! `cargo xtask doctor`: looks for what goes wrong on people's machines, and says what to do about each.
//!
//! Every check is a function of a [`Host`] and folders, so that tests describe a machine with fake programs; the checks
//! of macOS run anywhere against programs that print what Apple's print.

mod apple;
mod builds;
mod checkout;
mod tools;

use std::fmt;

use anyhow::Result;
use camino::Utf8Path;
use serde::Serialize;
use stdout::println;

use crate::Reported;
use crate::build::Backend;
use crate::host::{Host, Os};

/// Look for what keeps MLX from being built, linked or run here, and say what to do
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  cargo xtask doctor                  every check, with its remedy
  cargo xtask doctor --json | jq '.findings[] | select(.status != \"ok\")'

Ends with 1 if there is an error; a warning ends with 0. docs/doctor.md lists the checks.")]
pub struct Args {
    /// Print one JSON object with stable fields: format, host, backend, findings (each with id, status, found, remedy)
    #[arg(long)]
    json: bool,
}

/// Version of the JSON output.
const FORMAT: u32 = 1;

/// How a check ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// As it should be.
    Ok,
    /// Something works less well, or may fail later.
    Warning,
    /// Building, linking or running fails.
    Error,
}

/// The outcome of one check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The check's name; stable.
    pub id: &'static str,
    /// How it ended.
    pub status: Status,
    /// What is there.
    pub found: String,
    /// What to do; none where nothing is amiss.
    pub remedy: Option<String>,
}

impl Finding {
    fn ok(id: &'static str, found: impl Into<String>) -> Self {
        Self {
            id,
            status: Status::Ok,
            found: found.into(),
            remedy: None,
        }
    }

    fn warning(id: &'static str, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            id,
            status: Status::Warning,
            found: found.into(),
            remedy: Some(remedy.into()),
        }
    }

    fn error(id: &'static str, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            status: Status::Error,
            ..Self::warning(id, found, remedy)
        }
    }
}

#[derive(Serialize)]
struct Report<'a> {
    format: u32,
    host: &'a str,
    backend: Backend,
    findings: &'a [Finding],
}

/// Runs every check and prints what was found.
pub fn run(args: Args) -> Result<()> {
    let host = Host::current();
    let root = crate::root()?;
    let findings = examine(&host, &root);
    if args.json {
        let report = Report {
            format: FORMAT,
            host: &host.target,
            backend: Backend::default_for(&host),
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

/// All that can be said of `host` and of the checkout at `root`.
pub fn examine(host: &Host, root: &Utf8Path) -> Vec<Finding> {
    let mut findings = tools::examine(host);
    if host.os == Os::MacOs {
        findings.extend(apple::examine(host));
    }
    findings.extend(checkout::examine(host, root));
    findings.extend(builds::examine(host, root));
    findings
}

fn summary(findings: &[Finding]) -> String {
    let count = |status| findings.iter().filter(|f| f.status == status).count();
    match (count(Status::Error), count(Status::Warning)) {
        (0, 0) => "nothing is amiss".to_owned(),
        (errors, warnings) => format!("{errors} errors, {warnings} warnings"),
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mark = match self.status {
            Status::Ok => "ok",
            Status::Warning => "WARNING",
            Status::Error => "ERROR",
        };
        write!(f, "{mark:<8} {:<18} {}", self.id, self.found)?;
        if let Some(remedy) = &self.remedy {
            write!(f, "\n         {:<18} -> {remedy}", "")?;
        }
        Ok(())
    }
}
