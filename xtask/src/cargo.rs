//! Cargo, run on this repository's own programs.

use anyhow::{Context, Result};
use camino::{Utf8Path, Utf8PathBuf};

use crate::host::Host;
use crate::proc::Cmd;

/// The example that shows what the overlay does.
const EXAMPLE: &str = "quantized_matmul";
const PACKAGE: &str = "mlx-overlay";

/// Runs the example.
const RUN_EXAMPLE: [&str; 7] = ["run", "-q", "-p", PACKAGE, "--example", EXAMPLE, "--"];

/// Runs the example; its own arguments come next.
pub(crate) fn run_example(host: &Host, root: &Utf8Path) -> Cmd {
    cargo(host).args(RUN_EXAMPLE).dir(root)
}

/// The example that compares rows of other operations with rows alone.
const OTHER_EXAMPLE: &str = "rows_alone";

/// Builds both examples and returns where cargo put them.
pub(crate) fn build_examples(host: &Host, root: &Utf8Path) -> Result<[Utf8PathBuf; 2]> {
    let example = |name| build(host, root, &["-p", PACKAGE, "--example"], name);
    Ok([example(EXAMPLE)?, example(OTHER_EXAMPLE)?])
}

/// Builds a program in `dir` and tells where cargo put it. `kind` says what kind of target `name` is.
pub(crate) fn build(host: &Host, dir: &Utf8Path, kind: &[&str], name: &str) -> Result<Utf8PathBuf> {
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
        .with_context(|| format!("cargo built {name}, but does not say where it is"))
}

/// The cargo that runs this program, else the one on `PATH`.
fn cargo(host: &Host) -> Cmd {
    host.cmd(host.var("CARGO").unwrap_or("cargo"))
}
