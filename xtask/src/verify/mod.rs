//! `cargo xtask verify`: what must be true of the patched sources and no build shows.

mod closure;
mod spaces;

use anyhow::{Result, bail, ensure};
use camino::Utf8PathBuf;
use cli::println;
use patchset::lock::Lock;
use patchset::series::Series;
use patchset::tree::Listing;
use patchset::{Manifest, Workspace};

use crate::Reported;
use crate::kernels::instantiations;

/// Check the lock, the budget, and properties of the patched sources that no build shows
///
/// Without options, all of them; every failure is told, and one is enough for exit code 1.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  cargo xtask verify
  cargo xtask verify --closure
  cargo xtask verify --msl --kernel affine_qmv")]
pub struct Args {
    /// mlx.lock belongs to mlx.toml and patches/, and vendor/mlx is its final tree
    #[arg(long)]
    lock: bool,
    /// The patches change no more upstream lines than mlx.toml allows
    #[arg(long)]
    budget: bool,
    /// Every kernel that the dispatch can ask for is instantiated (ahead of time) and has its function in the sources
    /// that are compiled at run time (JIT)
    #[arg(long)]
    closure: bool,
    /// Compile the Metal kernels with their address spaces as types of their own
    ///
    /// A `device`, `constant`, `thread` or `threadgroup` that is missing or wrong is an error here as on a Mac, where the
    /// simulated device, having one address space, would not notice.
    #[arg(long)]
    msl: bool,
    /// The MLX tree whose kernels --closure and --msl check
    #[arg(long, value_name = "FOLDER", default_value = "vendor/mlx")]
    tree: Utf8PathBuf,
    /// Kernels for --msl, by a part of their host name; one of every kernel function without it
    #[arg(long, value_name = "TEXT", requires = "msl")]
    kernel: Option<String>,
}

/// Runs the checks that were asked for, tells every failure, and fails once.
pub fn run(args: Args) -> Result<()> {
    let workspace = Workspace::discover()?;
    let tree = workspace.root().join(&args.tree);
    let all = !(args.lock || args.budget || args.closure || args.msl);
    let mut failed = false;
    let mut check = |name: &str, wanted: bool, run: &dyn Fn() -> Result<String>| {
        if !(all || wanted) {
            return;
        }
        match run() {
            Ok(told) => println!("{name}: {told}"),
            Err(error) => {
                eprintln!("error: {name}: {error:#}");
                failed = true;
            }
        }
    };
    check("lock", args.lock, &|| lock(&workspace));
    check("budget", args.budget, &|| budget(&workspace));
    if all || args.closure || args.msl {
        // Both read the same library, and it takes seconds to make.
        let library = instantiations(&tree);
        let library = || {
            library
                .as_ref()
                .map_err(|error| anyhow::anyhow!("{error:#}"))
        };
        check("closure, ahead of time", args.closure, &|| {
            closure::ahead_of_time(library()?)
        });
        check("closure, JIT", args.closure, &|| {
            closure::at_run_time(&tree, library()?)
        });
        check("address spaces", args.msl, &|| {
            spaces::check(&tree, args.kernel.as_deref())
        });
    }
    if failed {
        return Err(Reported.into());
    }
    Ok(())
}

/// The lock is of this pin and these patches, and the tree is the lock's.
fn lock(workspace: &Workspace) -> Result<String> {
    let manifest = Manifest::load(&workspace.manifest_path())?;
    let series = Series::load(&workspace.patches())?;
    let lock = Lock::load_for(&workspace.lock_path(), &manifest.mlx, &series)?;
    let tree = workspace.tree();
    if !tree.is_dir() {
        bail!("{tree} is missing; `cargo xtask apply-overlay` makes it");
    }
    let found = Listing::of_dir(&tree)?.tree_id()?;
    ensure!(
        found == lock.final_tree,
        "{tree} holds tree {found}, and mlx.lock says {}; `cargo xtask status` tells the difference",
        lock.final_tree
    );
    Ok(format!("vendor/mlx is its tree {found}"))
}

/// The patches keep to their budget.
fn budget(workspace: &Workspace) -> Result<String> {
    let manifest = Manifest::load(&workspace.manifest_path())?;
    let series = Series::load(&workspace.patches())?;
    let (changed, most) = (series.changed_lines(), manifest.overlay.budget_lines);
    ensure!(
        changed <= most,
        "the patches change {changed} upstream lines, the budget in mlx.toml is {most}"
    );
    Ok(format!(
        "{changed} of at most {most} upstream lines changed"
    ))
}
