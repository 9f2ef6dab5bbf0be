//! `cargo xtask quickstart`: from nothing to a program that runs on the patched MLX.

use anyhow::{Context, Result};

use crate::build::{Backend, backend, prefix, stamp::Stamp};
use crate::demonstration;
use crate::host::Host;
use crate::requirements;

/// From nothing to a program that runs on the patched MLX.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Install what is missing (apt-get, with sudo unless run as root; brew; Xcode's component).
    #[arg(long)]
    install_deps: bool,
}

/// The demonstration's widths in bits.
const BITS: [&str; 2] = ["4", "8"];

/// Checks the machine, fetches, applies, builds and runs the example.
pub fn run(args: Args) -> Result<()> {
    let host = backend::with_deployment_target(Host::current())?;
    let root = crate::root()?;
    let check = || requirements::missing(&host, Backend::default_for(&host));
    requirements::ensure(&host, &root, args.install_deps, check)?;

    let xtask = crate::this_program()?;
    for command in ["fetch", "apply-overlay", "build"] {
        println!("==> {command}");
        host.cmd(xtask.as_str()).arg(command).dir(&root).run()?;
    }
    let mut demonstrations = Vec::new();
    for bits in BITS {
        println!("==> quantized_matmul, {bits} bits");
        let example = [
            "run",
            "-q",
            "-p",
            "mlx-overlay",
            "--example",
            "quantized_matmul",
            "--",
        ];
        let command = host
            .cmd("cargo")
            .args(example)
            .args(["--bits", bits])
            .dir(&root);
        demonstrations.push(command.to_string());
        command.run()?;
    }

    let prefix = prefix::builds_dir(&root).join("current");
    let stamp = Stamp::read(&prefix).with_context(|| format!("{prefix} has no stamp"))?;
    if stamp.backend == Backend::Sim {
        println!("==> which kernel M rows take, on simulated GPUs");
        demonstration::run(&host, &root)?;
    }
    println!(
        "\nDone: MLX {} with the overlay, {} back-end",
        stamp.version, stamp.backend
    );
    println!(
        "  source    {} (tree {})",
        root.join("vendor/mlx"),
        stamp.final_tree
    );
    println!("  installed {}", prefix.canonicalize_utf8()?);
    println!("  again     {}", demonstrations.join("\n            "));
    Ok(())
}
