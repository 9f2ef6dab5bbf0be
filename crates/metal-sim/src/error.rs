use std::io;
use std::path::PathBuf;

use crate::check::Finding;

/// What can go wrong between Metal source and a loaded kernel.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Source that is not what the lowering understands.
    #[error("{place}: {message}")]
    Syntax {
        /// File and line.
        place: String,
        /// What is wrong there.
        message: String,
    },
    /// A declaration that the simulator cannot give Metal's meaning.
    #[error("{file}: {message}")]
    Unsupported {
        /// Source file.
        file: String,
        /// What it is and why.
        message: String,
    },
    /// Text that the Metal specification excludes.
    #[error("{}", listed(.0))]
    Refused(Vec<Finding>),
    /// The name is not in the library.
    #[error("no kernel named {name} in {library}: its table has {count} names")]
    NoKernel {
        /// Host name that was asked for.
        name: String,
        /// The library's file.
        library: PathBuf,
        /// Names that it has.
        count: usize,
    },
    /// Not a library of ours.
    #[error(
        "{path} is not a metal-sim library ({found}); expected a file that metal-simc's \
         `metal` or `library` command wrote"
    )]
    NotALibrary {
        /// The file.
        path: PathBuf,
        /// What is there instead.
        found: String,
    },
    /// No compiler that can build kernels.
    #[error(
        "no clang of version 16 or later for kernels; looked for {tried}. Install clang-19 or \
         name one in MTL_SIM_CXX"
    )]
    NoCompiler {
        /// Program names that were tried.
        tried: String,
    },
    /// The folder for compiled kernels cannot be used.
    #[error(
        "kernels cannot be kept in {folder}: {reason}. Set MTL_SIM_CACHE to a folder that you own and that no other \
         user can write"
    )]
    Cache {
        /// The folder.
        folder: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The compiler refused something.
    #[error("{what}\n{diagnostics}")]
    Compile {
        /// What was compiled.
        what: String,
        /// The compiler's own words.
        diagnostics: String,
    },
    /// An option that `metal` or `xcrun` does not take here.
    #[error("{0}")]
    Usage(String),
    /// A file or a program could not be used.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// The findings as a compiler shows its errors, each with its line: text that
/// a program made is in no file that could be opened.
fn listed(findings: &[Finding]) -> String {
    let mut text = "this is not Metal: Apple's compiler would refuse it \
                    (MTL_SIM_LANGUAGE=unchecked leaves out most of these checks)"
        .to_owned();
    for finding in findings {
        text.push_str(&format!("\n{finding}"));
        if !finding.excerpt.is_empty() {
            text.push_str(&format!("\n    {}", finding.excerpt));
        }
    }
    text
}
