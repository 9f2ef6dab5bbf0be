//! Command line of the kernel compiler, also run as `xcrun`.

use std::env;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::builder::PossibleValuesParser;
use clap::{Args, Parser, Subcommand};
use cli::{Progress, println};
use metal_sim::{
    Compiler, Contraction, Error, Library, Options, Toolchain, Variant, Version,
    default_cache_folder, library_of_version, metal, metallib,
};

/// Compiles Metal kernels for the simulated device.
#[derive(Debug, Parser)]
#[command(version, about)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Print the path of a kernel's shared object, and compile it if it is not cached.
    ///
    /// Exits with 3 if the library has no such name.
    Kernel {
        /// Library that contains the kernel.
        #[arg(long)]
        library: PathBuf,
        /// Host name of the kernel.
        #[arg(long)]
        name: String,
        #[command(flatten)]
        how: How,
    },
    /// Build a library from source text and print its path.
    Library {
        /// Metal source, `-` for standard input.
        #[arg(long, default_value = "-")]
        source: PathBuf,
        /// Language version, such as 3.2; MTL_SIM_METAL_VERSION takes precedence.
        #[arg(long)]
        language_version: Option<Version>,
    },
    /// Compile many kernels of a library in parallel.
    Warm {
        /// Library that contains the kernels.
        #[arg(long)]
        library: PathBuf,
        /// Number of kernels to compile at once [default: number of cores].
        #[arg(long)]
        jobs: Option<usize>,
        /// Host names; `-` reads them from standard input, one per line.
        #[arg(required = true)]
        names: Vec<String>,
        #[command(flatten)]
        how: How,
    },
    /// Check that kernels are valid Metal and that their address spaces are right. Running them
    /// does not show this.
    Check {
        /// Library that contains the kernels.
        #[arg(long, required_unless_present = "source", requires = "names")]
        library: Option<PathBuf>,
        /// Check all kernels of this Metal source instead.
        #[arg(long, conflicts_with_all = ["library", "names"])]
        source: Option<PathBuf>,
        /// Host names; `-` reads them from standard input, one per line.
        names: Vec<String>,
    },
    /// List the host names of a library.
    Names {
        /// Library to list.
        #[arg(long)]
        library: PathBuf,
    },
    /// Act as Apple's `xcrun` for MLX's build: `xcrun -sdk macosx metal ...`.
    #[command(disable_help_flag = true)]
    Xcrun {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
}

#[derive(Debug, Args)]
struct How {
    /// How a product and a sum in one expression are rounded: together (fused) or separately
    /// (split).
    #[arg(long, env = "MTL_SIM_CONTRACT", default_value = "fused", value_parser = PossibleValuesParser::new(["fused", "split"]))]
    contract: String,
    /// `metered` counts bytes and checks every access, `checked` also finds races and more,
    /// `tracked` finds uses of uninitialized values.
    #[arg(long, default_value = "plain", value_parser = PossibleValuesParser::new(Variant::NAMES.map(|(name, _)| name)))]
    variant: String,
}

impl How {
    fn options(&self) -> Options {
        fn pick<T: Copy + Default>(names: &[(&str, T)], wanted: &str) -> T {
            names
                .iter()
                .find(|(name, _)| *name == wanted)
                .map_or_else(T::default, |(_, value)| *value)
        }
        Options {
            contraction: pick(&Contraction::NAMES, &self.contract),
            variant: pick(&Variant::NAMES, &self.variant),
        }
    }

    fn compiler(&self) -> Result<Compiler, Error> {
        Ok(Compiler::new(toolchain()?, self.options()))
    }
}

fn toolchain() -> Result<Toolchain, Error> {
    Toolchain::find(default_cache_folder())
}

fn main() -> ExitCode {
    let called = env::args_os().next().unwrap_or_default();
    let result = if Path::new(&called)
        .file_stem()
        .is_some_and(|name| name == "xcrun")
    {
        xcrun(&env::args().skip(1).collect::<Vec<_>>())
    } else {
        run(Cli::parse().command)
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let missing = matches!(error.downcast_ref(), Some(Error::NoKernel { .. }));
            eprintln!("error: {error:#}");
            ExitCode::from(if missing { 3 } else { 1 })
        }
    }
}

fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Kernel { library, name, how } => {
            println!("{}", how.compiler()?.kernel(&library, &name)?.display());
            Ok(())
        }
        Command::Library {
            source,
            language_version,
        } => {
            println!("{}", library(&source, language_version)?.display());
            Ok(())
        }
        Command::Warm {
            library,
            jobs,
            names,
            how,
        } => warm(&library, jobs, names, &how),
        Command::Check {
            library: Some(library),
            names,
            ..
        } => check(&library, read_names(names)?),
        Command::Check { source, .. } => {
            let path = library(&source.unwrap_or_default(), None)?;
            let names = Library::read(&path)?.names().map(str::to_owned).collect();
            check(&path, names)
        }
        Command::Names { library } => {
            let library = Library::read(&library)?;
            for name in library.names() {
                println!("{name}");
            }
            Ok(())
        }
        Command::Xcrun { arguments } => xcrun(&arguments),
    }
}

fn warm(library: &Path, jobs: Option<usize>, names: Vec<String>, how: &How) -> anyhow::Result<()> {
    let names = read_names(names)?;
    rayon::ThreadPoolBuilder::new()
        .num_threads(jobs.unwrap_or(0))
        .build_global()
        .context("cannot start the compile threads")?;
    let failures = how.compiler()?.warm(library, &names)?;
    for (name, error) in &failures {
        eprintln!("error: {name}: {error}");
    }
    if !failures.is_empty() {
        bail!(
            "{} of {} kernels failed to compile",
            failures.len(),
            names.len()
        );
    }
    Ok(())
}

fn read_names(names: Vec<String>) -> io::Result<Vec<String>> {
    if names == ["-"] {
        return io::stdin().lines().collect();
    }
    Ok(names)
}

/// Builds a library from source text; `-` is standard input.
fn library(source: &Path, language_version: Option<Version>) -> anyhow::Result<PathBuf> {
    let text = if source.as_os_str() == "-" {
        let mut text = String::new();
        io::stdin().read_to_string(&mut text)?;
        text
    } else {
        // A line marker, so that errors name the file.
        let text = fs_err::read_to_string(source)?;
        format!("#line 1 {:?}\n{text}", source.display().to_string())
    };
    let version = Version::set()
        .or(language_version)
        .unwrap_or_else(Version::simulated);
    Ok(library_of_version(&toolchain()?, &text, version)?)
}

fn check(library: &Path, names: Vec<String>) -> anyhow::Result<()> {
    let compiler = Compiler::new(toolchain()?, Options::default());
    let line = Progress::counted("kernels");
    line.count(0, names.len());
    let findings =
        compiler.check_telling(library, &names, &|done| line.count(done, names.len()))?;
    drop(line);
    for finding in &findings {
        println!("{finding} [{}]", finding.kernel);
    }
    if !findings.is_empty() {
        bail!("found {} errors in {} kernels", findings.len(), names.len());
    }
    Ok(())
}

/// Handles `xcrun [-sdk NAME] TOOL ...` and the queries of build files.
fn xcrun(arguments: &[String]) -> anyhow::Result<()> {
    let mut rest = arguments;
    loop {
        match rest {
            [sdk, _, after @ ..] if sdk == "-sdk" || sdk == "--sdk" => rest = after,
            [show, ..] if show == "--show-sdk-version" || show == "-show-sdk-version" => {
                println!(
                    "{}",
                    env::var("MTL_SIM_SDK_VERSION").unwrap_or_else(|_| "26.2".to_owned())
                );
                return Ok(());
            }
            [tool, after @ ..] if tool == "metal" => {
                return Ok(metal(
                    &toolchain()?,
                    after,
                    &mut io::stdout(),
                    &mut io::stderr(),
                )?);
            }
            [tool, after @ ..] if tool == "metallib" => return Ok(metallib(after)?),
            [other, ..] => bail!(
                "xcrun: {other} is not simulated; expected metal, metallib or --show-sdk-version"
            ),
            [] => bail!("xcrun: no tool given; expected metal or metallib"),
        }
    }
}
