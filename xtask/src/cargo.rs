//! Runs cargo on this repository's own programs.

use anyhow::{Context, Result};
use camino::{Utf8Path, Utf8PathBuf};
use cli::Progress;

use crate::host::Host;
use crate::proc::Cmd;

/// The example that demonstrates the overlay.
const EXAMPLE: &str = "quantized_matmul";
const PACKAGE: &str = "mlx-overlay";

/// Cargo's arguments to run the example; the example's own follow.
const RUN_EXAMPLE: [&str; 7] = ["run", "-q", "-p", PACKAGE, "--example", EXAMPLE, "--"];

/// Runs the example; its own arguments follow.
pub(crate) fn run_example(host: &Host, root: &Utf8Path) -> Cmd {
    cargo(host).args(RUN_EXAMPLE).dir(root)
}

/// The example that compares rows in a block with the same rows alone, for other operations.
const OTHER_EXAMPLE: &str = "rows_alone";

/// Builds both examples and returns their paths.
pub(crate) fn build_examples(host: &Host, root: &Utf8Path) -> Result<[Utf8PathBuf; 2]> {
    let example = |name| build(host, root, &["-p", PACKAGE, "--example"], name);
    Ok([example(EXAMPLE)?, example(OTHER_EXAMPLE)?])
}

/// Builds a program in `dir` and returns its path. `kind` is the kind of target that `name` is.
pub(crate) fn build(host: &Host, dir: &Utf8Path, kind: &[&str], name: &str) -> Result<Utf8PathBuf> {
    // Cargo prints nothing with --quiet.
    let progress = Progress::spinning();
    progress.step(format!("compiling {name}"));
    cargo(host)
        .args(["build", "--quiet", "--message-format", "json"])
        .args(kind)
        .arg(name)
        .dir(dir)
        .read()?
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter(|message| message["target"]["name"] == name)
        .find_map(|message| message["executable"].as_str().map(Utf8PathBuf::from))
        .with_context(|| format!("cargo built {name}, but did not print its path"))
}

/// The cargo that started this program, else the one on `PATH`.
fn cargo(host: &Host) -> Cmd {
    host.cmd(host.var("CARGO").unwrap_or("cargo"))
}
