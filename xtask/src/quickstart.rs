//! `cargo xtask quickstart`: from nothing to a program that runs on the patched MLX.

use anyhow::Result;
use camino::Utf8PathBuf;
use cli::println;
use mlx_prefix::{Backend, CURRENT, Stamp};

use crate::Usage;
use crate::build::backend;
use crate::cargo;
use crate::demonstration;
use crate::host::Host;
use crate::requirements;
use crate::steps::Steps;

/// From nothing to a program that runs on the patched MLX.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  cargo xtask quickstart --install-deps     a fresh machine
  cargo xtask quickstart --backend cpu      without a GPU, not even a simulated one (Linux)
  cargo xtask quickstart --backend cuda     on the NVIDIA GPU of this machine (Linux; nvcc and cuDNN)
  cargo xtask quickstart --offline          without a network (docs/guide/offline.md)
  cargo xtask quickstart --ladder ladder.md the kernels of 1 to 16 rows too, in a file (some minutes more; Linux)")]
pub struct Args {
    /// Install what is missing (apt-get, with sudo unless run as root; brew; Xcode's component).
    #[arg(long)]
    install_deps: bool,
    /// The back-end [default: metal on macOS, sim on Linux]
    #[arg(long, value_parser = backend::parser())]
    backend: Option<Backend>,
    /// Use no network: MLX, its inputs and the Rust packages must be here (docs/guide/offline.md)
    #[arg(long, conflicts_with = "install_deps")]
    offline: bool,
    /// Use MLX from this folder, git repository or archive; it must hash to the pinned tree id
    #[arg(long, value_name = "PATH")]
    source: Option<Utf8PathBuf>,
    /// Also write which kernel 1 to 16 rows take on simulated GPUs, how often it reads the weights, and which rows keep
    /// their bits
    #[arg(long, value_name = "FILE")]
    ladder: Option<Utf8PathBuf>,
}

/// Checks the machine, fetches, applies, builds, and compares rows together with rows alone.
pub fn run(args: Args) -> Result<()> {
    let mut host = backend::with_deployment_target(Host::current())?;
    if args.offline {
        // For every cargo that is started from here.
        host = host.with("CARGO_NET_OFFLINE", "true");
    }
    let root = crate::root()?;
    let backend = args.backend.unwrap_or_else(|| backend::default_for(&host));
    if args.ladder.is_some() && backend != Backend::Sim {
        let text = format!("--ladder needs the simulated device, not the back-end {backend}");
        return Err(Usage(text).into());
    }
    let ladder = args.ladder.map(std::path::absolute).transpose()?;

    let mut steps = Steps::new(5 + usize::from(ladder.is_some()));
    println!("Up to ten minutes on two cores, most of them in steps 4 and 5.");
    steps.step("check this machine's tools", || {
        let check = || requirements::missing(&host, backend, false);
        requirements::ensure(&host, &root, args.install_deps, check)
    })?;

    let xtask = crate::this_program()?;
    let name = backend.to_string();
    let mut fetch = vec!["fetch"];
    if backend == Backend::Cuda {
        fetch.extend(["--backend", &name]);
    }
    if args.offline {
        fetch.push("--offline");
    }
    // Commands run in the root, wherever this one was started.
    let source = args.source.map(std::path::absolute).transpose()?;
    let source = source.map(Utf8PathBuf::try_from).transpose()?;
    if let Some(source) = &source {
        fetch.extend(["--source", source.as_str()]);
    }
    let build = vec!["build", "--backend", &name];
    for (what, command) in [
        ("fetch MLX and verify it", fetch),
        ("apply the patches", vec!["apply-overlay"]),
        ("build MLX", build),
    ] {
        let command = host.cmd(xtask.as_str()).args(command).dir(&root);
        steps.step(what, || command.run())?;
    }
    if backend == Backend::Cuda {
        // Programs find libmlx.so there.
        host = host.with("LD_LIBRARY_PATH", root.join(CURRENT).join("lib"));
    }
    let stamp = Stamp::read(root.join(CURRENT))?;
    let shown = steps.step("compile the examples and run them", || {
        if matches!(stamp.backend, Backend::Cpu | Backend::Cuda) {
            // The Rust crate has no policies to compare there.
            return cargo::run_example(&host, &root).run().map(|()| None);
        }
        demonstration::summary(&host, &root, stamp.backend).map(Some)
    })?;
    if let Some(file) = &ladder {
        let page = steps.step("run the ladder", || {
            demonstration::ladder(&host, &root, &stamp)
        })?;
        cli::file::write(file, page)?;
    }
    if let Some(shown) = shown {
        println!("\n{shown}");
    }
    println!(
        "\nDone in {}: MLX {} with the overlay, {} back-end, in {CURRENT}",
        steps.elapsed(),
        stamp.version,
        stamp.backend
    );
    println!("\nNext:{NEXT}");
    Ok(())
}

/// What to do afterwards.
const NEXT: &str = "
  cargo run -p mlx-overlay --example server     sequences of different lengths in one batch
  cargo xtask bundle --output ~/mlx-overlay     the build, for your own program: docs/guide/rust.md
  cargo xtask env --consumer python             under mlx-lm, mlx-rs, C++: docs/guide/bindings.md
  docs/guide/policies.md                        what each policy promises and costs";
