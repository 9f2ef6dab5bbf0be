//! The `metal` command that MLX's CMake files call through `xcrun`.
//!
//! Only the options used by those calls have an effect. Options for diagnostics, optimisation and
//! deployment are ignored.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use rayon::prelude::*;
use sha2::{Digest, Sha256};

use crate::cache::{self, Entry};
use crate::library::Library;
use crate::parse::Source;
use crate::toolchain::Toolchain;
use crate::{Error, Version, language};

/// A parsed command line.
#[derive(Debug, Default, PartialEq, Eq)]
struct Call {
    preprocess: bool,
    compile: bool,
    /// Options passed to the preprocessor.
    preprocessor: Vec<OsString>,
    inputs: Vec<String>,
    output: Option<PathBuf>,
    /// The language version from `-std`.
    version: Option<Version>,
}

/// Runs `metal` with its arguments. Writes its standard output and error to `out` and `err`.
///
/// # Errors
/// [`Error::Usage`] for an unknown option; errors of the compiler.
pub fn metal(
    toolchain: &Toolchain,
    arguments: &[String],
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> Result<(), Error> {
    if arguments
        .iter()
        .any(|a| a == "--version" || a == "-v" || a == "--help")
    {
        writeln!(
            out,
            "metal-sim metal, version {}",
            env!("CARGO_PKG_VERSION")
        )?;
        return Ok(());
    }
    let call = parse(arguments)?;
    if call.preprocess {
        preprocess(toolchain, &call, out, err)
    } else if call.compile {
        compile(toolchain, &call, err)
    } else {
        link(&call)
    }
}

fn parse(arguments: &[String]) -> Result<Call, Error> {
    let mut call = Call::default();
    let mut rest = arguments.iter();
    let missing = |option: &str| Error::Usage(format!("metal: option {option} needs a value"));
    while let Some(argument) = rest.next() {
        match argument.as_str() {
            "-E" => call.preprocess = true,
            "-c" => call.compile = true,
            "-P" | "-C" | "-CC" | "-H" => call.preprocessor.push(argument.into()),
            "-x" => match rest.next().map(String::as_str) {
                Some("metal") => {}
                other => {
                    return Err(Error::Usage(format!(
                        "metal: -x {} is not supported; expected -x metal",
                        other.unwrap_or_default()
                    )));
                }
            },
            "-o" => call.output = Some(rest.next().ok_or_else(|| missing("-o"))?.into()),
            "-I" | "-D" | "-U" | "-isystem" | "-include" => {
                call.preprocessor.push(argument.into());
                call.preprocessor
                    .push(rest.next().ok_or_else(|| missing(argument))?.into());
            }
            "-" => call.inputs.push("-".to_owned()),
            _ if ["-I", "-D", "-U"]
                .iter()
                .any(|option| argument.starts_with(option)) =>
            {
                call.preprocessor.push(argument.into());
            }
            _ if argument.starts_with("-std=") => {
                // `metal3.2`, and the older form `macos-metal2.4`.
                let version = argument.rsplit("metal").next().unwrap_or_default();
                call.version = Some(version.parse()?);
            }
            _ if ["-W", "-w", "-f", "-g", "-O", "-m"]
                .iter()
                .any(|option| argument.starts_with(option)) => {}
            _ if argument.starts_with('-') => {
                return Err(Error::Usage(format!(
                    "metal: metal-sim does not support option {argument}"
                )));
            }
            _ => call.inputs.push(argument.clone()),
        }
    }
    if call.inputs.is_empty() {
        return Err(Error::Usage(
            "metal: no input files; expected a .metal file, or .air files to link".to_owned(),
        ));
    }
    Ok(call)
}

fn preprocess(
    toolchain: &Toolchain,
    call: &Call,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> Result<(), Error> {
    for input in &call.inputs {
        let result = expand(toolchain, call, input)?;
        err.write_all(result.diagnostics.as_bytes())?;
        match &call.output {
            Some(path) if path.as_os_str() != "-" => cli::file::write(path, result.text)?,
            _ => out.write_all(result.text.as_bytes())?,
        }
    }
    Ok(())
}

fn expand(
    toolchain: &Toolchain,
    call: &Call,
    input: &str,
) -> Result<crate::toolchain::Preprocessed, Error> {
    let mut arguments = call.preprocessor.clone();
    let version = call.version.unwrap_or_else(Version::simulated);
    if input == "-" {
        let mut source = String::new();
        std::io::stdin().read_to_string(&mut source)?;
        return toolchain.preprocess("standard input", &arguments, Some(&source), version);
    }
    arguments.push(input.into());
    toolchain.preprocess(input, &arguments, None, version)
}

fn compile(toolchain: &Toolchain, call: &Call, err: &mut dyn Write) -> Result<(), Error> {
    let [input] = call.inputs.as_slice() else {
        return Err(Error::Usage(format!(
            "metal -c: expected one input, got {}",
            call.inputs.len()
        )));
    };
    let expanded = expand(toolchain, call, input)?;
    err.write_all(expanded.diagnostics.as_bytes())?;
    let name = Path::new(input)
        .file_name()
        .unwrap_or(input.as_ref())
        .to_string_lossy();
    let mut text = without_folders(&expanded.text, &call.preprocessor);
    if let Some(version) = call.version {
        text = version.mark(&text);
    }
    let library = Library::from_source(&name, &text)?;
    language::accept(toolchain, &library, 0)?;
    let output = call
        .output
        .clone()
        .unwrap_or_else(|| Path::new(input).with_extension("air"));
    write(&output, &library)
}

/// Replaces file names in line markers by paths relative to their include folder (`-I`), so that
/// neither a library nor its compiled kernels depend on where the sources are.
fn without_folders(text: &str, options: &[OsString]) -> String {
    let follows = std::iter::once(None).chain(options.iter().map(Some));
    let prefixes: Vec<String> = follows
        .zip(options)
        .filter_map(|(before, option)| {
            let option = option.to_str()?;
            let folder = match before {
                Some(before) if before == "-I" => option,
                _ => option.strip_prefix("-I")?,
            };
            (!folder.is_empty()).then(|| format!("\"{}/", folder.trim_end_matches('/')))
        })
        .collect();
    let mut shorter = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let prefix = prefixes
            .iter()
            .find(|prefix| line.starts_with("# ") && line.contains(prefix.as_str()));
        match prefix {
            Some(prefix) => shorter += &line.replacen(prefix.as_str(), "\"", 1),
            None => shorter += line,
        }
    }
    shorter
}

/// Links `.air` files. The result does not depend on their order, which in MLX's CMake depends on
/// the build.
fn link(call: &Call) -> Result<(), Error> {
    let mut inputs: Vec<&String> = call.inputs.iter().collect();
    inputs.sort();
    let mut library = Library::default();
    for input in inputs {
        library.merge(Library::read(Path::new(input))?);
    }
    let output = call
        .output
        .clone()
        .unwrap_or_else(|| "default.metallib".into());
    write(&output, &library)
}

fn write(path: &Path, library: &Library) -> Result<(), Error> {
    if let Some(folder) = path.parent() {
        fs_err::create_dir_all(folder)?;
    }
    Ok(cli::file::write(path, library.to_bytes())?)
}

/// Runs `metallib`, which only links.
///
/// # Errors
/// As for [`metal`].
pub fn metallib(arguments: &[String]) -> Result<(), Error> {
    link(&parse(arguments)?)
}

/// Builds a library of every `.metal` file of an MLX tree, like MLX's build, and returns its path
/// in the cache. The same sources give the same file.
///
/// # Errors
/// If the tree has no kernels, or a source cannot be preprocessed.
pub fn library_of_tree(toolchain: &Toolchain, tree: &Path) -> Result<PathBuf, Error> {
    let kernels = tree.join("mlx/backend/metal/kernels");
    let mut sources = Vec::new();
    find_sources(&kernels, &mut sources)?;
    if sources.is_empty() {
        return Err(Error::Usage(format!(
            "no .metal files in {}; expected an MLX source tree",
            kernels.display()
        )));
    }
    let include = format!("-I{}", tree.display());
    let parts: Result<Vec<_>, Error> = sources
        .par_iter()
        .map(|source| {
            let arguments = [OsString::from(&include), source.into()];
            let text = toolchain
                .preprocess(
                    &source.to_string_lossy(),
                    &arguments,
                    None,
                    Version::simulated(),
                )?
                .text;
            Library::from_source(
                &source.file_name().unwrap_or_default().to_string_lossy(),
                &without_folders(&text, &arguments),
            )
        })
        .collect();
    let mut library = Library::default();
    for part in parts? {
        library.merge(part);
    }
    let bytes = library.to_bytes();
    let key = cache::short_hex(Sha256::new_with_prefix(&bytes));
    Entry::new(toolchain.cache(), "tree", &key, "metallib")
        .find_or_make(|made| Ok(fs_err::write(made, bytes)?))
}

/// The kernel functions, templates or not, that a header of an MLX tree and its includes define:
/// what a kernel compiled at run time from this header can instantiate. `header` is relative to the
/// kernels folder.
///
/// # Errors
/// If the header cannot be preprocessed or parsed.
pub fn kernel_functions(
    toolchain: &Toolchain,
    tree: &Path,
    header: &str,
) -> Result<BTreeSet<String>, Error> {
    let kernels = tree.join("mlx/backend/metal/kernels");
    // The options of make_compiled_preamble.sh.
    let arguments = [
        OsString::from(format!("-I{}", tree.display())),
        format!("-I{}", kernels.join("jit").display()).into(),
        "-DMLX_METAL_JIT".into(),
        kernels.join(header).into(),
    ];
    let text = toolchain
        .preprocess(header, &arguments, None, Version::simulated())?
        .text;
    let functions = Source::parse(&text)?.kernels()?;
    Ok(functions.into_iter().map(|kernel| kernel.name).collect())
}

fn find_sources(folder: &Path, sources: &mut Vec<PathBuf>) -> Result<(), Error> {
    let mut paths = Vec::new();
    for entry in fs_err::read_dir(folder)? {
        paths.push(entry?.path());
    }
    paths.sort();
    for path in paths {
        if path.is_dir() {
            find_sources(&path, sources)?;
        } else if path
            .extension()
            .is_some_and(|extension| extension == "metal")
        {
            sources.push(path);
        }
    }
    Ok(())
}

/// Compiles source text made at run time into a library in the cache and returns its path. The same
/// text gives the same file.
///
/// # Errors
/// [`Error::Compile`], [`Error::Syntax`] and [`Error::Refused`], with line numbers of the text.
pub fn library_from_text(toolchain: &Toolchain, source: &str) -> Result<PathBuf, Error> {
    library_of_version(toolchain, source, Version::simulated())
}

/// Like [`library_from_text`], for a given version of the language.
///
/// # Errors
/// As for [`library_from_text`].
pub fn library_of_version(
    toolchain: &Toolchain,
    source: &str,
    version: Version,
) -> Result<PathBuf, Error> {
    let mut hash = Sha256::new();
    hash.update(source);
    hash.update([0]);
    hash.update(crate::shim::digest());
    hash.update(version.to_string());
    hash.update(language::RECIPE);
    hash.update([u8::from(language::is_checked()?)]);
    let key = cache::short_hex(hash);
    Entry::new(toolchain.cache(), "jit", &key, "metallib").find_or_make(|made| {
        let none: [&str; 0] = [];
        let expanded = toolchain.preprocess("source text", &none, Some(source), version)?;
        let mut text = expanded.text;
        if version != Version::simulated() {
            text = version.mark(&text);
        }
        let library = Library::from_source("JIT", &text)?;
        language::accept(toolchain, &library, 0)?;
        Ok(fs_err::write(made, library.to_bytes())?)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Call, Error> {
        parse(
            &line
                .split_whitespace()
                .map(str::to_owned)
                .collect::<Vec<_>>(),
        )
    }

    #[test]
    fn line_markers_do_not_tell_where_the_sources_lie() {
        let text = "# 1 \"/a/mlx/k.metal\"\nint x; // \"/a/\"\n# 3 \"/a/mlx/utils.h\" 1\n# 1 \"/ab/c.h\" 1\n";
        let short =
            "# 1 \"mlx/k.metal\"\nint x; // \"/a/\"\n# 3 \"mlx/utils.h\" 1\n# 1 \"/ab/c.h\" 1\n";
        for options in [
            &["-I/a", "-DX"][..],
            &["-I", "/a/"],
            &["-DI", "-I/b", "-I/a"],
        ] {
            let options: Vec<_> = options.iter().map(OsString::from).collect();
            assert_eq!(without_folders(text, &options), short);
        }
        assert_eq!(without_folders(text, &["-D".into(), "/a".into()]), text);
    }

    #[test]
    fn reads_the_calls_of_mlx() {
        let call = parsed("-x metal -Wall -fno-fast-math -c k.metal -Idir -DX=1 -o k.air").unwrap();
        assert!(call.compile && !call.preprocess);
        assert_eq!(call.inputs, ["k.metal"]);
        assert_eq!(call.preprocessor, ["-Idir", "-DX=1"]);
        assert_eq!(call.output.unwrap(), Path::new("k.air"));
        let call = parsed("-x metal -I/a -E -P -CC -C -H k.h -w").unwrap();
        assert!(call.preprocess);
        assert_eq!(call.preprocessor, ["-I/a", "-P", "-CC", "-C", "-H"]);
        let call = parsed("-std=metal3.2 -c k.metal").unwrap();
        assert_eq!(call.version, Some(Version(320)));
        let call = parsed("-mmacosx-version-min=26.0 a.air b.air -o x/mlx.metallib").unwrap();
        assert_eq!(call.inputs, ["a.air", "b.air"]);
    }

    #[test]
    fn refuses_what_it_does_not_know() {
        assert!(
            parsed("--frobnicate k.metal")
                .unwrap_err()
                .to_string()
                .contains("--frobnicate")
        );
        assert!(parsed("-x c k.c").unwrap_err().to_string().contains("-x c"));
        assert!(parsed("-c").unwrap_err().to_string().contains("no input"));
        let error = parsed("-std=c++17 -c k.metal").unwrap_err().to_string();
        assert!(error.contains("not a version of Metal"), "{error}");
        assert!(parsed("k.metal -o").unwrap_err().to_string().contains("-o"));
    }

    /// `-o /dev/null` only asks whether a source compiles. The test goes through a link, so that a
    /// bug cannot replace the machine's device.
    #[test]
    fn a_device_is_written_into() {
        use std::os::unix::fs::{FileTypeExt, symlink};
        let folder = tempfile::tempdir().unwrap();
        let null = folder.path().join("null");
        symlink("/dev/null", &null).unwrap();
        let library = Library::from_source("none", "").unwrap();
        write(&null, &library).unwrap();
        assert!(
            std::fs::metadata(&null)
                .unwrap()
                .file_type()
                .is_char_device()
        );
        let new = folder.path().join("a/b.air");
        write(&new, &library).unwrap();
        assert!(new.is_file());
    }
}
