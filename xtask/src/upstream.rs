//! `cargo xtask upstream`: prepares a patch for a pull request to MLX. It pushes nothing and opens nothing.

use anyhow::bail;
use camino::Utf8PathBuf;
use cli::println;
use patchset::Workspace;
use patchset::upstream::{self, Options};

use crate::progress::Line;

/// Prepare the bundle for a pull request to MLX; pushes and opens nothing.
///
/// A person must write the description and the commit messages, in the patch's folder below `upstream/`. As long as a
/// placeholder remains, or a table from an Apple GPU is missing, the bundle is made but not called ready, and the
/// command fails.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  cargo xtask upstream affine-tile-cap")]
pub struct Args {
    /// The patch's name
    patch: String,
    /// Base the branch on `main` of this repository instead of the pin
    #[arg(long, value_name = "URL")]
    main_of: Option<String>,
    /// The clang-format to check with [default: the one on PATH]
    #[arg(long, value_name = "PROGRAM")]
    clang_format: Option<Utf8PathBuf>,
}

/// Makes the bundle and prints its checklist.
pub fn run(args: Args) -> anyhow::Result<()> {
    let workspace = Workspace::discover()?;
    let line = Line::new();
    let clang_format = args.clang_format.or_else(crate::patch::clang_format);
    let options = Options {
        patch: args.patch,
        main_of: args.main_of,
        clang_format,
    };
    let bundle = upstream::bundle(&workspace, &options, &|event| line.show(event))?;
    drop(line);
    for point in &bundle.points {
        let mark = if point.missing.is_none() {
            "done   "
        } else {
            "MISSING"
        };
        println!("{mark}  {}", point.what);
    }
    println!("the bundle is in {}", bundle.folder);
    let missing: Vec<_> = bundle
        .missing()
        .filter_map(|point| point.missing.as_deref())
        .collect();
    if !missing.is_empty() {
        bail!("the bundle is not ready:\n  - {}", missing.join("\n  - "));
    }
    println!("it is ready for a person to send");
    Ok(())
}
