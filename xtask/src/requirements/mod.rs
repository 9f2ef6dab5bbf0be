//! What a build needs on the machine, and how each item is found.

pub mod cuda;
mod install;

use std::fmt;

use anyhow::Result;
use camino::Utf8PathBuf;
use metal_sim::Toolchain;
use mlx_prefix::Backend;

use crate::host::{Host, Os};

pub use install::{ensure, install_commands, report};

/// The oldest CMake that MLX's `cmake_minimum_required` accepts; Debian 12 has 3.25.1.
pub const CMAKE_MINIMUM: (u32, u32) = (3, 25);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tool {
    pub path: Utf8PathBuf,
    /// The first line of its version output.
    pub version: String,
}

impl fmt::Display for Tool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.version, self.path)
    }
}

/// Something that a build needs and this machine lacks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    /// What was expected, with the version if one matters.
    pub expected: String,
    pub found: String,
    /// How to install it.
    pub remedy: Remedy,
}

/// How a missing item is installed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Remedy {
    /// Packages, by their names in Debian and in Homebrew.
    Packages {
        /// Names for `apt-get`.
        apt: &'static [&'static str],
        /// Names for `brew`.
        brew: &'static [&'static str],
    },
    /// A command.
    Command(&'static [&'static str]),
    /// Something that only a person can do, as text.
    Manual(String),
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.expected, self.found)
    }
}

/// Checks everything that building `backend` needs and returns what is missing. `cpu` includes the CPU back-end if the
/// back-end makes it optional.
pub fn missing(host: &Host, backend: Backend, cpu: bool) -> Vec<Missing> {
    let mut all = vec![
        cmake(host).err(),
        ninja(host).err(),
        cxx_compiler(host).err(),
    ];
    if backend == Backend::Cuda {
        // Its CMake is a newer one.
        all[0] = None;
        all.extend(cuda::missing(host, cpu).into_iter().map(Some));
    } else if host.os == Os::Linux && (cpu || backend == Backend::Cpu) {
        all.push(blas_for_build(host).err());
    }
    if backend == Backend::Metal {
        all.push(metal_toolchain(host).err());
    }
    if backend == Backend::Sim {
        all.push(kernel_clang(host).err());
    }
    all.into_iter().flatten().collect()
}

/// A variable that names a compiler instead of the usual one.
struct Choice {
    variable: &'static str,
    /// The variable for the compiler's flags.
    flags: &'static str,
    /// What the variable should name.
    what: &'static str,
}

const CC: Choice = Choice {
    variable: "CC",
    flags: "CFLAGS",
    what: "a C compiler",
};
const CXX: Choice = Choice {
    variable: "CXX",
    flags: "CXXFLAGS",
    what: "a C++20 compiler",
};
const KERNEL_CXX: Choice = Choice {
    variable: "MTL_SIM_CXX",
    flags: "MTL_SIM_CXXFLAGS",
    what: "clang++ 16 or newer",
};

impl Choice {
    /// Explains what is missing if the variable is set, because installing another compiler does not help then. If it
    /// is not set, the program that would be found decides.
    fn explain(&self, host: &Host, usual: &str, missing: Missing) -> Missing {
        let Some((variable, value)) = host.setting(self.variable) else {
            return mind_path(host, usual, missing);
        };
        let Self { flags, what, .. } = self;
        let named = format!("{variable} names {value}");
        let unset = format!("unset {variable} or set it to {what}");
        let (found, remedy) = if host.find(value).is_some() {
            (format!("{named}: {}", missing.found), unset)
        } else if has_arguments(host, value) {
            let remedy =
                format!("{variable} must be only the name of a program; put flags into {flags}");
            (format!("{variable} is `{value}`"), remedy)
        } else {
            (format!("{named}, which does not exist"), unset)
        };
        Missing {
            found,
            remedy: Remedy::Manual(remedy),
            ..missing
        }
    }
}

/// Whether `value` is a program followed by arguments.
fn has_arguments(host: &Host, value: &str) -> bool {
    let mut words = value.split_whitespace();
    let program = words.next().and_then(|program| host.find(program));
    program.is_some() && words.next().is_some()
}

/// Explains what is missing if another `program` than the package's comes first on `PATH`.
fn mind_path(host: &Host, program: &str, missing: Missing) -> Missing {
    let Some((path, folder)) = host.in_front_of_packages(program) else {
        return missing;
    };
    let mut remedy = format!("{path} comes first on PATH: remove it, or put {folder} before it");
    if let Remedy::Packages { apt, brew } = &missing.remedy
        && !folder.join(program).is_file()
    {
        let packages = match host.os {
            Os::Linux => apt,
            Os::MacOs => brew,
        };
        remedy += &format!(", then install {}", packages.join(" "));
    }
    Missing {
        remedy: Remedy::Manual(remedy),
        ..missing
    }
}

/// Git, which fetches MLX.
pub fn git(host: &Host) -> Result<Tool, Missing> {
    tool(host, "git").map_err(|found| {
        let missing = Missing {
            expected: "git".to_owned(),
            found,
            remedy: Remedy::Packages {
                // Without the certificates from a recommended package, https does not work.
                apt: &["git", "ca-certificates"],
                brew: &["git"],
            },
        };
        mind_path(host, "git", missing)
    })
}

/// CMake, at least [`CMAKE_MINIMUM`].
pub fn cmake(host: &Host) -> Result<Tool, Missing> {
    let (major, minor) = CMAKE_MINIMUM;
    let missing = |found: String| {
        let missing = Missing {
            expected: format!("cmake {major}.{minor} or newer"),
            found,
            remedy: Remedy::Packages {
                apt: &["cmake"],
                brew: &["cmake"],
            },
        };
        mind_path(host, "cmake", missing)
    };
    let tool = tool(host, "cmake").map_err(missing)?;
    match parse_version(&tool.version) {
        Some(version) if version >= CMAKE_MINIMUM => Ok(tool),
        Some(_) => Err(missing(format!(
            "{} is too old ({})",
            tool.path, tool.version
        ))),
        None => Err(missing(format!("{} printed `{}`", tool.path, tool.version))),
    }
}

/// Ninja: without it the cmake crate builds serially, and there is no progress to show.
pub fn ninja(host: &Host) -> Result<Tool, Missing> {
    tool(host, "ninja").map_err(|found| {
        let missing = Missing {
            expected: "ninja".to_owned(),
            found,
            remedy: Remedy::Packages {
                apt: &["ninja-build"],
                brew: &["ninja"],
            },
        };
        mind_path(host, "ninja", missing)
    })
}

/// The C++ compiler that the cmake crate will use (`CXX`, else `c++`), if it compiles C++20.
pub fn cxx_compiler(host: &Host) -> Result<Tool, Missing> {
    let missing = |found| missing_compiler(host, &CXX, "c++", &["g++"], found);
    let program = program(host, "CXX", "c++");
    let tool = tool(host, program).map_err(missing)?;
    // `<version>` is enough to see the level of language and library, and compiles in milliseconds.
    let source = "#include <version>\n#if __cplusplus < 202002L || !defined(__cpp_lib_bit_cast)\n\
                  #error not C++20\n#endif\n";
    match compiles(host, program, source, &["-std=c++20", "-fsyntax-only"]) {
        Ok(()) => Ok(tool),
        Err(why) => Err(missing(format!("{} ({}): {why}", tool.path, tool.version))),
    }
}

/// The program that the cc crate uses.
fn program<'a>(host: &'a Host, setting: &str, usual: &'a str) -> &'a str {
    host.setting(setting).map_or(usual, |(_, program)| program)
}

/// The C compiler (`CC`, else `cc`).
pub fn c_compiler(host: &Host) -> Result<Tool, Missing> {
    tool(host, program(host, "CC", "cc"))
        .map_err(|found| missing_compiler(host, &CC, "cc", &["gcc"], found))
}

fn missing_compiler(
    host: &Host,
    choice: &Choice,
    usual: &str,
    apt: &'static [&'static str],
    found: String,
) -> Missing {
    let missing = Missing {
        expected: choice.what.to_owned(),
        found,
        remedy: match host.os {
            Os::Linux => Remedy::Packages { apt, brew: &[] },
            Os::MacOs => Remedy::Command(&["xcode-select", "--install"]),
        },
    };
    choice.explain(host, usual, missing)
}

/// BLAS and LAPACK with their C headers, which MLX's CPU back-end links on Linux.
pub fn blas(host: &Host) -> Result<(), Missing> {
    let missing = |found: String| Missing {
        expected: "BLAS and LAPACK with cblas.h and lapacke.h".to_owned(),
        found,
        remedy: Remedy::Packages {
            apt: &["libopenblas-dev", "liblapacke-dev"],
            brew: &["openblas"],
        },
    };
    let program = program(host, "CXX", "c++");
    for header in ["cblas.h", "lapacke.h"] {
        compiles(
            host,
            program,
            &format!("#include <{header}>\n"),
            &["-fsyntax-only"],
        )
        .map_err(|why| missing(format!("{header}: {why}")))?;
    }
    // CMake also finds the reference implementation, which has two libraries.
    let links = |libs: &[&str]| {
        let source = "extern \"C\" void sgemm_(); extern \"C\" void cheev_();\n\
                      int main() { sgemm_(); cheev_(); }\n";
        let mut args = vec!["-o", "/dev/null"];
        args.extend_from_slice(libs);
        compiles(host, program, source, &args)
    };
    links(&["-lopenblas"])
        .or_else(|why| links(&["-llapack", "-lblas"]).map_err(|_| why))
        .map_err(|why| missing(format!("linking with -lopenblas: {why}")))
}

/// [`blas`], unless variables of CMake name other folders: then only CMake knows what it finds. With an unusable `CXX` nothing is
/// checked either; that is reported separately.
pub fn blas_for_build(host: &Host) -> Result<(), Missing> {
    const PLACES: [&str; 5] = [
        "BLAS_HOME",
        "BLAS_ROOT",
        "LAPACK_ROOT",
        "CMAKE_LIBRARY_PATH",
        "CMAKE_PREFIX_PATH",
    ];
    let no_compiler = || host.var(CXX.variable).is_some() && cxx_compiler(host).is_err();
    if PLACES.iter().any(|name| host.var(name).is_some()) || no_compiler() {
        return Ok(());
    }
    blas(host)
}

/// The clang with which metal-simc compiles kernels at run time: `MTL_SIM_CXX`, else the first that it would find
/// itself. GCC lacks the vector and half types that kernels need.
pub fn kernel_clang(host: &Host) -> Result<Tool, Missing> {
    let missing = |found: String| {
        let missing = Missing {
            expected: format!(
                "{}, which compiles kernels for the simulated device",
                KERNEL_CXX.what
            ),
            found,
            remedy: Remedy::Packages {
                apt: &["clang-19"],
                brew: &[],
            },
        };
        KERNEL_CXX.explain(host, "clang++-19", missing)
    };
    let candidates = match host.var("MTL_SIM_CXX") {
        Some(name) => vec![name],
        None => Toolchain::COMPILERS.to_vec(),
    };
    let name = candidates
        .iter()
        .find(|name| host.find(name).is_some())
        .ok_or_else(|| {
            missing(format!(
                "none of these is on PATH: {}",
                candidates.join(", ")
            ))
        })?;
    let tool = tool(host, name).map_err(missing)?;
    match parse_version(&tool.version) {
        Some((16.., _)) => Ok(tool),
        _ => Err(missing(format!("{} ({})", tool.path, tool.version))),
    }
}

/// Xcode's Metal compiler. Since Xcode 26 it is downloaded separately.
pub fn metal_toolchain(host: &Host) -> Result<Tool, Missing> {
    let missing = |found: String, remedy| Missing {
        expected: "the Metal compiler of Xcode".to_owned(),
        found,
        remedy,
    };
    let Some(path) = host.find("xcrun") else {
        let remedy = Remedy::Command(&["xcode-select", "--install"]);
        return Err(missing("xcrun is not on PATH".to_owned(), remedy));
    };
    let why = match host
        .cmd("xcrun")
        .args(["-sdk", "macosx", "metal", "--version"])
        .read()
    {
        Ok(text) => {
            return Ok(Tool {
                path,
                version: first_line(&text),
            });
        }
        Err(error) => error.to_string(),
    };
    // Without Xcode (only the command line tools), xcodebuild refuses to run.
    match host.cmd("xcodebuild").arg("-version").read() {
        Err(_) => Err(missing(
            format!("no Xcode is selected ({why})"),
            Remedy::Manual(
                "install Xcode from the App Store, then run \
                 `sudo xcode-select -s /Applications/Xcode.app`"
                    .to_owned(),
            ),
        )),
        Ok(_) => Err(missing(
            why,
            Remedy::Command(&["xcodebuild", "-downloadComponent", "MetalToolchain"]),
        )),
    }
}

/// A compiler from a conda environment that a build would use. It has its own SDK, linker and C++ library, and MLX
/// built with it cannot be linked into a Rust program of the system's toolchain.
pub fn conda_compiler(host: &Host) -> Option<Utf8PathBuf> {
    ["CC", "CXX"]
        .into_iter()
        .filter_map(|name| host.setting(name))
        .map(|(_, program)| program)
        .chain(["cc", "c++", "clang", "clang++", "ld", "ar"])
        .filter_map(|program| host.find(program))
        .find(|path| {
            let environment = path.parent().and_then(|bin| bin.parent());
            environment.is_some_and(|dir| dir.join("conda-meta").is_dir())
        })
}

fn tool(host: &Host, program: &str) -> Result<Tool, String> {
    let path = host
        .find(program)
        .ok_or_else(|| format!("`{program}` is not on PATH"))?;
    let text = host
        .cmd(path.as_str())
        .arg("--version")
        .read()
        // A program that prints nothing leaves the end of the message empty.
        .map_err(|error| format!("{error:#}").trim_end_matches(": ").to_owned())?;
    Ok(Tool {
        path,
        version: first_line(&text),
    })
}

fn compiles(host: &Host, program: &str, source: &str, args: &[&str]) -> Result<(), String> {
    let output = host
        .cmd(program)
        .args(["-x", "c++", "-"])
        .args(args)
        .output_with_input(source)
        .map_err(|error| error.to_string())?;
    if output.status.success() {
        return Ok(());
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    let telling = stderr
        .lines()
        .find(|line| line.contains("error") || line.contains("cannot"));
    Err(telling
        .or(stderr.lines().next())
        .unwrap_or("it failed")
        .trim()
        .to_owned())
}

/// The first `major.minor` in a line such as `cmake version 3.25.1`.
fn parse_version(line: &str) -> Option<(u32, u32)> {
    let word = line
        .split_whitespace()
        .find(|word| word.starts_with(|c: char| c.is_ascii_digit()))?;
    let mut numbers = word.split('.');
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_as_numbers() {
        assert_eq!(parse_version("cmake version 3.25.1"), Some((3, 25)));
        assert!(parse_version("cmake version 3.9.6").unwrap() < CMAKE_MINIMUM);
        assert!(parse_version("cmake version 4.0.3").unwrap() > CMAKE_MINIMUM);
        assert_eq!(parse_version("cmake suite"), None);
    }
}
