use std::io;
use std::path::PathBuf;

use crate::check::Finding;

/// Errors between Metal source and a loaded kernel.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Source that the lowering does not support.
    #[error("{place}: {message}")]
    Syntax {
        /// File and line.
        place: String,
        message: String,
    },
    /// A declaration to which the simulator cannot give Metal's meaning.
    #[error("{file}: {message}")]
    Unsupported { file: String, message: String },
    /// Text that the Metal specification excludes.
    #[error("{}", listed(.0))]
    Refused(Vec<Finding>),
    /// The library has no kernel of this name.
    #[error(
        "no kernel named {name} in {library}, which has {count} names; `metal-simc names` lists them"
    )]
    NoKernel {
        name: String,
        library: PathBuf,
        /// Number of names in the library.
        count: usize,
    },
    /// The file is not a library of the simulator.
    #[error(
        "{path} is not a metal-sim library ({found}); expected a file written by metal-simc's \
         `metal` or `library` command"
    )]
    NotALibrary {
        path: PathBuf,
        /// A description of the file's content.
        found: String,
    },
    /// No suitable compiler was found.
    #[error(
        "no clang 16 or later was found to compile kernels; tried {tried}. Install clang-19, or \
         set MTL_SIM_CXX to a compiler"
    )]
    NoCompiler { tried: String },
    /// The cache folder cannot be used.
    #[error(
        "cannot keep kernels in {folder}: {reason}. Set MTL_SIM_CACHE to a folder that you own and that no other \
         user can write"
    )]
    Cache { folder: PathBuf, reason: String },
    /// The compiler refused a text.
    #[error("{what}\n{diagnostics}")]
    Compile {
        what: String,
        /// The compiler's diagnostics.
        diagnostics: String,
    },
    /// An option that `metal` or `xcrun` does not support here.
    #[error("{0}")]
    Usage(String),
    /// A file or a program could not be used.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Lists findings like compiler errors, each with its line of source, because text made at run time
/// is in no file that a reader could open.
fn listed(findings: &[Finding]) -> String {
    let mut text = "this is not Metal: Apple's compiler would refuse it \
                    (MTL_SIM_LANGUAGE=unchecked skips most of these checks)"
        .to_owned();
    for finding in findings {
        text.push_str(&format!("\n{finding}"));
        if !finding.excerpt.is_empty() {
            text.push_str(&format!("\n    {}", finding.excerpt));
        }
    }
    text
}
