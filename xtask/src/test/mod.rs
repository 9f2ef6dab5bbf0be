//! `cargo xtask test`: builds, checks and tests everything on one machine, step by step.
//!
//! Hosted CI runs it too, and adds what it leaves out (`ci/hosted.sh`): the CPU back-end alone, Macs, the oldest Rust,
//! advisories.

mod report;

use anyhow::{Context, Result};
use camino::{Utf8Path, Utf8PathBuf};
use mlx_prefix::Backend;

use crate::build::backend;
use crate::cargo;
use crate::check;
use crate::host::{Host, Os};
use crate::proc::Cmd;
use crate::requirements::{self, Missing, Remedy};
use report::Step;

/// The cargo-deny that CI uses; other releases may have other checks.
pub const CARGO_DENY: &str = "0.20.2";

/// The clang-format of Debian 12. Other releases format some code differently.
const CLANG_FORMAT: &str = "clang-format-14";

/// Makes symbols of the static library visible to Python's bindings.
const OBJCOPY: &str = "llvm-objcopy-19";

/// Build, check and test everything on this machine
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  cargo xtask test --install-deps           a fresh machine
  cargo xtask test --full                   also run the long tests")]
pub struct Args {
    /// Install what is missing: packages with the system's package manager, cargo-deny below target/.
    #[arg(long)]
    install_deps: bool,
    /// Also run the tests that are ignored because they take long.
    #[arg(long)]
    full: bool,
}

/// Runs every step, even if some fail, and fails once at the end.
pub fn run(args: Args) -> Result<()> {
    let host = backend::with_deployment_target(Host::current())?;
    let root = crate::root()?;
    let check = || missing(&host, &root, args.full);
    requirements::ensure(&host, &root, args.install_deps, check)?;
    report::run(steps(&host, &root, args.full)?)
}

/// Returns what is missing for the builds, the checkers, and (with `full`) the long tests.
pub fn missing(host: &Host, root: &Utf8Path, full: bool) -> Vec<Missing> {
    // The steps include the CPU back-end in every build that makes it optional.
    let mut all = requirements::missing(host, backend::default_for(host), true);
    let lack = |expected: &str, found: &str, remedy| Missing {
        expected: expected.to_owned(),
        found: found.to_owned(),
        remedy,
    };
    let absent = "it is not on PATH";
    if host.find("shellcheck").is_none() {
        let remedy = Remedy::Packages {
            apt: &["shellcheck"],
            brew: &["shellcheck"],
        };
        all.push(lack("shellcheck", absent, remedy));
    }
    if lacks_sanitizers(host) {
        let remedy = Remedy::Packages {
            apt: &["libclang-rt-19-dev"],
            brew: &[],
        };
        all.push(lack(
            "the sanitizers of clang 19",
            "its headers are missing",
            remedy,
        ));
    }
    if backend::default_for(host) == Backend::Sim {
        // ci/python-env.sh links PyPI's bindings against the build.
        let usable = "import ensurepip, sys; assert sys.version_info >= (3, 11)";
        if host.cmd("python3").args(["-c", usable]).read().is_err() {
            let remedy = Remedy::Packages {
                apt: &["python3", "python3-venv"],
                brew: &[],
            };
            let found = "python3 is missing, too old, or has no ensurepip";
            all.push(lack("Python 3.11 with venv", found, remedy));
        }
        if host.find(OBJCOPY).is_none() {
            let remedy = Remedy::Packages {
                apt: &["llvm-19"],
                brew: &[],
            };
            all.push(lack(OBJCOPY, absent, remedy));
        }
    }
    if clang_format(host).is_none() {
        let remedy = Remedy::Packages {
            apt: &["clang-format-14"],
            brew: &["clang-format@14"],
        };
        all.push(lack(CLANG_FORMAT, absent, remedy));
    }
    if ["fmt", "clippy"]
        .iter()
        .any(|name| host.cmd("cargo").args([name, "--version"]).read().is_err())
    {
        let remedy = Remedy::Command(&["rustup", "component", "add", "rustfmt", "clippy"]);
        all.push(lack(
            "rustfmt and clippy",
            "cargo does not find them",
            remedy,
        ));
    }
    if cargo_deny(host, root).is_none() {
        // The release profile would take minutes more to build; a check takes one second.
        let remedy = Remedy::Command(&[
            "cargo",
            "install",
            "--locked",
            "--debug",
            "--root",
            "target/tools",
            "--version",
            CARGO_DENY,
            "cargo-deny",
        ]);
        all.push(lack(
            &format!("cargo-deny {CARGO_DENY}"),
            "this release is not on PATH and not in target/tools",
            remedy,
        ));
    }
    if full && host.os == Os::Linux {
        let absent = ["qemu-aarch64-static", "aarch64-linux-gnu-g++"]
            .into_iter()
            .filter(|program| host.find(program).is_none())
            .collect::<Vec<_>>();
        if !absent.is_empty() {
            let remedy = Remedy::Packages {
                apt: &["qemu-user-static", "g++-aarch64-linux-gnu"],
                brew: &[],
            };
            let found = format!("not on PATH: {}", absent.join(", "));
            all.push(lack(
                "a compiler and an emulator for aarch64",
                &found,
                remedy,
            ));
        }
    }
    all
}

/// The simulator's tests run with the sanitizers of the clang that compiles its kernels, or that will be installed.
fn lacks_sanitizers(host: &Host) -> bool {
    if backend::default_for(host) != Backend::Sim {
        return false;
    }
    match host.cmd("clang++-19").arg("-print-resource-dir").read() {
        Ok(resources) => !Utf8Path::new(resources.trim())
            .join("include/sanitizer/common_interface_defs.h")
            .is_file(),
        Err(_) => requirements::kernel_clang(host).is_err(),
    }
}

fn clang_format(host: &Host) -> Option<Utf8PathBuf> {
    host.find(CLANG_FORMAT)
}

fn cargo_deny(host: &Host, root: &Utf8Path) -> Option<Utf8PathBuf> {
    let local = root.join("target/tools/bin/cargo-deny");
    let pinned = |program: &Utf8PathBuf| {
        let version = host.cmd(program.as_str()).arg("--version").read();
        version.is_ok_and(|version| version == format!("cargo-deny {CARGO_DENY}"))
    };
    [Some(local), host.find("cargo-deny")]
        .into_iter()
        .flatten()
        .find(pinned)
}

fn steps(host: &Host, root: &Utf8Path, full: bool) -> Result<Vec<Step>> {
    let command = |program: &str| host.cmd(program).dir(root);
    let cargo = |args: &[&str]| command("cargo").args(args);
    let xtask = crate::this_program()?;
    let xtask = |args: &[&str]| command(xtask.as_str()).args(args);
    let example = |bits: &str| {
        cargo::run_example(host, root).args([
            "--m", "8", "--n", "256", "--k", "512", "--group", "64", "--bits", bits,
        ])
    };
    let mut tests = cargo(&["test", "--workspace", "--no-fail-fast"]);
    if full {
        // Random histories for a bump; the short run tries only a few.
        tests = tests
            .args(["--", "--include-ignored"])
            .env("PROPTEST_CASES", "300");
    }
    let deny = cargo_deny(host, root).context("cargo-deny was installed, but is not found")?;
    let clang_format =
        clang_format(host).context("clang-format was installed, but is not found")?;

    let mut steps = vec![
        Step::new("Rust format", cargo(&["fmt", "--all", "--check"])),
        Step::new(
            "shell scripts",
            command("shellcheck").args(tracked(root, &["*.sh", ".ci/run"])?),
        ),
        Step::new("licences, bans, sources", {
            command(deny.as_str()).args(["check", "licenses", "bans", "sources"])
        }),
        Step::new("fetch", xtask(&["fetch"])),
        Step::new(
            "patches",
            xtask(&["check", "--clang-format", clang_format.as_str()]).args(check::names(false)),
        )
        .needs("fetch"),
        Step::new("apply", xtask(&["apply-overlay"])).needs("fetch"),
    ];
    if backend::default_for(host) == Backend::Sim {
        // Kernels compiled from source take another path through MLX; both paths must support the same products.
        let gpu = ["test", "-p", "mlx-overlay", "--test", "gpu"];
        steps.push(Step::new("build, JIT", xtask(&["build", "--jit", "--cpu"])).needs("apply"));
        steps.push(Step::new("tests, JIT", cargo(&gpu)).needs("build, JIT"));
        steps.push(Step::new("build", xtask(&["build", "--cpu"])).needs("apply"));
        let device = [
            "test",
            "-p",
            "metal-sim",
            "--test",
            "mlx",
            "--test",
            "smoke",
            "--",
            "--include-ignored",
        ];
        steps.push(Step::new("MLX on the simulated device", cargo(&device)).needs("build"));
        for (name, mode) in [
            ("mlx-lm's models", "core"),
            ("mlx-lm's first difference", "test"),
            ("mlx-lm's folders", "oracle"),
        ] {
            let models = command("ci/mlx-lm.sh")
                .arg(mode)
                .env("MLX_OVERLAY_PREFIX", root.join("target/mlx/current"))
                .env("PYTHON", "python3");
            steps.push(Step::new(name, models).needs("build"));
        }
        // Downloads nvcc, and no GPU is needed.
        let cuda = command("ci/cuda.sh").args((!full).then_some("--quick"));
        steps.push(Step::new("CUDA text", cuda).needs("apply"));
        if full {
            let fixes = command("ci/upstream-fixes.sh");
            steps.push(Step::new("fixes for upstream", fixes).needs("build"));
            // Needs libclang, and packages that are not in this workspace's lock.
            let mlx_rs = command("ci/mlx-rs.sh")
                .args(["examples/mlx-rs", "run", "--locked"])
                .env("ACCEPT", "0.32.2");
            steps.push(Step::new("mlx-rs", mlx_rs).needs("build"));
        }
        steps.push(
            Step::new(
                "patched sources",
                xtask(&["check"]).args(check::names(true)),
            )
            .needs("build"),
        );
    } else {
        steps.push(Step::new("build", xtask(&["build"])).needs("apply"));
    }
    let layout = |style: String, files: Vec<String>| {
        command(clang_format.as_str())
            .args(["--dry-run", "-Werror", &style])
            .args(files)
    };
    let ours = tracked(
        root,
        &[
            "crates/*.c",
            "crates/*.h",
            "crates/*.hpp",
            "crates/*.cpp",
            "crates/*.cc",
            "examples/*.cpp",
            "bench/*.h",
            "bench/*.cpp",
            "ci/*.c",
            "ci/*.h",
            "ci/*.cpp",
        ],
    )?;
    if !ours.is_empty() {
        steps.push(Step::new(
            "C++ format",
            layout("--style=file".to_owned(), ours),
        ));
    }
    let added = tracked(
        root,
        &[
            "patches/files/*.h",
            "patches/files/*.cpp",
            "patches/files/*.metal",
        ],
    )?;
    if !added.is_empty() {
        // clang-format takes MLX's own style from the vendored tree.
        let style = format!("--style=file:{root}/vendor/mlx/.clang-format");
        steps.push(Step::new("C++ format of added files", layout(style, added)).needs("apply"));
    }
    steps.extend([
        Step::new("clippy", {
            cargo(&[
                "clippy",
                "--workspace",
                "--all-targets",
                "--",
                "-D",
                "warnings",
            ])
        })
        .needs("build"),
        Step::new("rustdoc", {
            cargo(&["doc", "--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "-D warnings")
        })
        .needs("build"),
        Step::new("tests", tests).needs("build"),
        Step::new("example", example("4"))
            .then(example("8"))
            .then(cargo(&[
                "run",
                "--quiet",
                "-p",
                "mlx-overlay",
                "--example",
                "server",
            ]))
            .needs("build"),
        Step::new("packages", command("ci/packages.sh").arg("--no-verify")),
        // Last, because it hides the builds for a while.
        Step::new("downstream", command("ci/downstream.sh")).needs("build"),
    ]);
    Ok(steps)
}

/// The files of this repository that match, committed or not, as paths below its root.
///
/// # Errors
/// Git's, if it cannot list them.
pub fn tracked(root: &Utf8Path, patterns: &[&str]) -> Result<Vec<String>> {
    let list = Cmd::new("git")
        .args([
            "ls-files",
            "--cached",
            "--others",
            "--exclude-standard",
            "--",
        ])
        .args(patterns)
        .dir(root)
        .read()?;
    // A file deleted in the working tree is still in the index.
    Ok(list
        .lines()
        .filter(|file| root.join(file).exists())
        .map(str::to_owned)
        .collect())
}
