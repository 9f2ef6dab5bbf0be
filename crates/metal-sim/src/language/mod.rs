//! Refuses code that C++ accepts but the Metal specification excludes, with file, line, column and
//! section.
//!
//! There are three checks. Reserved words and attributes are found in the tokens. clang, run for
//! C++17 with Metal's address spaces as types, reports its own errors ([`clang`]) and prints its
//! syntax tree ([`tree`]), to which the rules are applied ([`rules`]). A text is checked once, with
//! one instantiation of each of its kernels, and the result is cached by content. The shim checks
//! every other instantiation when it is compiled.

mod clang;
mod rules;
mod tokens;
mod tree;

use std::borrow::Cow;
use std::ffi::OsString;
use std::str::FromStr;
use std::{env, fmt};

use crate::check::Finding;
use crate::compile::{Compiler, Options};
use crate::lexer::Kind;
use crate::library::Library;
use crate::parse::{Kernel, Source, UNSUPPORTED};
use crate::toolchain::Toolchain;
use crate::{Error, cache, lower};

/// A version of the language.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(pub(crate) u32);

/// The first line of a text that was compiled for its own version.
const VERSION_PRAGMA: &str = "#pragma mtlsim version ";

impl Version {
    /// The simulated version: `MTL_SIM_METAL_VERSION`, else 4.0.
    pub fn simulated() -> Self {
        Self::set().unwrap_or(Version(400))
    }

    /// The version in `MTL_SIM_METAL_VERSION`. An invalid version is refused when a text is
    /// accepted.
    pub fn set() -> Option<Self> {
        Self::wanted().ok().flatten()
    }

    /// `MTL_SIM_METAL_VERSION`, as `320` or `3.2`.
    fn wanted() -> Result<Option<Self>, Error> {
        let Some(text) = env::var_os("MTL_SIM_METAL_VERSION").filter(|text| !text.is_empty())
        else {
            return Ok(None);
        };
        let text = text.to_string_lossy();
        let version = match text.parse() {
            Ok(digits) => Version(digits),
            Err(_) => text.parse().unwrap_or(Version(0)),
        };
        if (100..1000).contains(&version.0) && version.0 % 10 == 0 {
            return Ok(Some(version));
        }
        Err(Error::Usage(format!(
            "MTL_SIM_METAL_VERSION is {text:?}; expected a version of Metal such as 3.2, or 320"
        )))
    }

    /// The version of a preprocessed text: its own, else the simulated one.
    fn of(text: &str) -> Self {
        text.lines()
            .next()
            .and_then(|line| line.strip_prefix(VERSION_PRAGMA)?.parse().ok())
            .map_or_else(Self::simulated, Version)
    }

    /// Marks a preprocessed text as written for this version.
    pub(crate) fn mark(self, text: &str) -> String {
        format!("{VERSION_PRAGMA}{}\n{text}", self.0)
    }
}

/// The form of `__METAL_VERSION__`: 320 is 3.2.
impl From<Version> for u32 {
    fn from(version: Version) -> Self {
        version.0
    }
}

/// Accepts `3.2`.
impl FromStr for Version {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        text.split_once('.')
            .and_then(|(major, minor)| {
                let (major, minor): (u32, u32) = (major.parse().ok()?, minor.parse().ok()?);
                (major < 100 && minor < 10).then_some(Version(major * 100 + minor * 10))
            })
            .ok_or_else(|| {
                Error::Usage(format!(
                    "{text:?} is not a version of Metal: expected one such as 3.2 or 4.0"
                ))
            })
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0 / 100, self.0 / 10 % 10)
    }
}

/// Code that is not Metal.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Refusal {
    /// Byte offset in the source's text.
    pub(crate) at: usize,
    /// Section of the Metal Shading Language Specification, version 4.
    pub(crate) section: Cow<'static, str>,
    pub(crate) message: String,
}

/// Whether texts are checked, according to `MTL_SIM_LANGUAGE`.
///
/// # Errors
/// [`Error::Usage`] if it has another value, or if `MTL_SIM_METAL_VERSION` is not a version.
pub(crate) fn is_checked() -> Result<bool, Error> {
    Version::wanted()?;
    match env::var("MTL_SIM_LANGUAGE").as_deref() {
        Ok("unchecked") => Ok(false),
        Ok("" | "checked") | Err(_) => Ok(true),
        Ok(other) => Err(Error::Usage(format!(
            "MTL_SIM_LANGUAGE is {other:?}; expected checked or unchecked"
        ))),
    }
}

/// Refuses a source of a library if it is not Metal. The result is cached by content.
///
/// # Errors
/// [`Error::Refused`].
pub(crate) fn accept(toolchain: &Toolchain, library: &Library, source: usize) -> Result<(), Error> {
    if !is_checked()? {
        return Ok(());
    }
    let checker = checker(toolchain);
    let text = &library.sources()[source].text;
    let version = Version::of(text);
    let names = library.representatives_of(source);
    let mut parts = vec!["language", RECIPE, text];
    let digits = version.0.to_string();
    parts.push(&digits);
    parts.extend(names.iter().map(|(_, expression)| *expression));
    let key = checker.key(&parts);
    let clean = cache::Entry::new(toolchain.cache(), "language", &key, "clean");
    if clean.find().is_some() {
        return Ok(());
    }
    let file = &library.sources()[source].file;
    let parsed = Source::parse(text)?;
    let mut found = tokens::find(&parsed, version)?;
    let mut is_clean = found.is_empty();
    if found.is_empty() && text.contains(UNSUPPORTED) {
        // Sources for unsupported hardware include headers that are not available.
        eprintln!(
            "{file}: warning: its hardware is not simulated: only its tokens were checked, \
             not its declarations and calls"
        );
        is_clean = false;
    } else if found.is_empty() {
        let kernels = names
            .iter()
            .map(|(name, expression)| {
                Ok((lower::find(&parsed, file, name, expression)?, *expression))
            })
            .collect::<Result<Vec<_>, Error>>()?;
        let examination = examine(&checker, &parsed, &kernels, true)?;
        // Errors of C++ may have hidden others. Compiling the text will report them.
        is_clean = examination.is_clean();
        found = examination.refusals;
    }
    if is_clean {
        return clean.mark();
    }
    if found.is_empty() {
        return Ok(());
    }
    found.sort();
    found.dedup();
    let finding = |refusal: &Refusal| {
        Finding::at(text, refusal.at, &refusal.section, refusal.message.clone())
    };
    Err(Error::Refused(found.iter().map(finding).collect()))
}

/// The code that decides the result of a check. If it changes, texts are checked again.
pub(crate) const RECIPE: &str = concat!(
    include_str!("clang.rs"),
    include_str!("mod.rs"),
    include_str!("rules.rs"),
    include_str!("tokens.rs"),
    include_str!("tree.rs"),
    include_str!("../items.rs"),
    include_str!("../lexer.rs"),
    include_str!("../lower/descriptor.rs"),
    include_str!("../lower/edits.rs"),
    include_str!("../lower/examined.rs"),
    include_str!("../lower/mod.rs"),
    include_str!("../lower/spaces.rs"),
    include_str!("../lower/vectors.rs"),
    include_str!("../lower/words.rs"),
    include_str!("../parse.rs"),
);

/// A compiler for checks: C++17, with address spaces as types.
pub(crate) fn checker(toolchain: &Toolchain) -> Compiler {
    let flags = [
        "-DMTLSIM_CHECK",
        "-std=c++17",
        "-Werror=vla",
        "-Werror=vla-cxx-extension",
        "-fno-caret-diagnostics",
        "-ferror-limit=0",
    ];
    Compiler::new(toolchain.clone().with_flags(flags), Options::default())
}

/// Replaces the folder of the checked text in the compiler's output.
const EXAMINED_IN: &str = "/examined";

/// The result of checking kernels of a source.
#[derive(Debug)]
pub(crate) struct Examination {
    pub(crate) refusals: Vec<Refusal>,
    /// Other compiler errors: byte offset in the source, and text.
    pub(crate) errors: Vec<(usize, String)>,
}

impl Examination {
    pub(crate) fn is_clean(&self) -> bool {
        self.refusals.is_empty() && self.errors.is_empty()
    }

    /// All errors, as places in the source's text.
    pub(crate) fn findings(self, text: &str) -> Vec<Finding> {
        let refused = self
            .refusals
            .into_iter()
            .map(|refusal| Finding::at(text, refusal.at, &refusal.section, refusal.message));
        let errors = self
            .errors
            .into_iter()
            .map(|(at, message)| Finding::at(text, at, "", message));
        refused.chain(errors).collect()
    }
}

/// Checks kernels of a source, without its other kernels unless `whole` is set.
pub(crate) fn examine(
    checker: &Compiler,
    source: &Source<'_>,
    kernels: &[(Kernel<'_>, &str)],
    whole: bool,
) -> Result<Examination, Error> {
    let examined = lower::examine(source, kernels, whole)?;
    let cache = checker.toolchain.cache();
    let shim = checker.toolchain.shim()?;
    let prelude = checker.precompiled_shim()?;
    let scratch = cache::scratch(cache)?;
    let file = scratch.path().join("kernel.cpp");
    cache::write_new(&file, examined.text.as_bytes())?;
    let mut arguments = checker.arguments(&shim);
    // `-w` would hide warnings that count as errors here.
    arguments.retain(|argument| argument != "-w");
    arguments.extend(["-fsyntax-only", "-Xclang", "-ast-dump", "-include-pch"].map(OsString::from));
    arguments.extend([prelude.into(), file.into()]);
    let (dump, diagnostics, status) = checker.toolchain.examine(&arguments)?;
    let failed = |what: &str, diagnostics: &str| Error::Compile {
        what: format!(
            "cannot check a source: the compiler {what} \
             (set MTL_SIM_LANGUAGE=unchecked to compile without this check)"
        ),
        diagnostics: diagnostics.to_owned(),
    };
    if !dump.starts_with("TranslationUnitDecl") {
        return Err(failed("printed no tree", &diagnostics));
    }
    if !matches!(status, Some(0 | 1)) {
        return Err(failed("did not end by itself", &diagnostics));
    }
    // A path may contain characters that separate places and types in the dump.
    let folder = scratch.path().to_string_lossy();
    let plain = |text: &str| {
        text.replace(&*folder, EXAMINED_IN)
            .replace(&*cache.to_string_lossy(), "/cache")
    };
    let (dump, diagnostics) = (plain(&dump), plain(&diagnostics));
    let path = format!("{EXAMINED_IN}/kernel.cpp");
    let version = Version::of(source.tokens.text);
    let Some(mut refusals) = rules::find(source, &examined, &dump, &path, version)? else {
        return Err(failed("printed a tree without the source", &diagnostics));
    };
    let mut errors = Vec::new();
    let said = clang::errors(&diagnostics, &path);
    if status == Some(1)
        && !said
            .iter()
            .any(|error| error.is_limit || error.place.is_some())
    {
        return Err(failed("failed", &diagnostics));
    }
    for error in said.into_iter().filter(|error| !error.is_limit) {
        let Some(at) = error
            .place
            .and_then(|(line, column)| examined.origin(line, column))
        else {
            continue;
        };
        match clang::explained(error.message) {
            Some((section, message)) => refusals.push(Refusal {
                at,
                section,
                message,
            }),
            None if is_cxx20(source, at) || initialises_in_parentheses(&error) => {
                refusals.push(Refusal {
                    at,
                    section: "1.5".into(),
                    message: format!("Metal is C++17: {}", error.message),
                });
            }
            None => errors.push((at, clang::in_metal(error.message))),
        }
    }
    refusals.sort();
    refusals.dedup();
    Ok(Examination { refusals, errors })
}

/// The errors of one instantiation that come from the shim, among the diagnostics of its
/// compilation.
pub(crate) fn refused(diagnostics: &str) -> Option<Error> {
    let found: Vec<Finding> = clang::tagged(diagnostics);
    (!found.is_empty()).then_some(Error::Refused(found))
}

/// `S s(1, 2)` for a class without a constructor, which is C++20.
fn initialises_in_parentheses(error: &clang::Diagnostic<'_>) -> bool {
    error
        .message
        .starts_with("no matching constructor for initialization")
        && !error.is_of_spaces
}

/// Whether the line around a byte contains C++20 syntax. The compiler found an error there; this
/// identifies the cause.
fn is_cxx20(source: &Source<'_>, at: usize) -> bool {
    let t = &source.tokens;
    let line_of = |byte: usize| t.text[..byte].matches('\n').count();
    let line = line_of(at);
    let start = t.text[..at].rfind('\n').map_or(0, |end| end + 1);
    let first = t.tokens.partition_point(|token| token.start < start);
    (first..t.tokens.len())
        .take_while(|&i| line_of(t.tokens[i].start) == line)
        .any(|i| {
            (t.kind(i) == Some(Kind::Word)
                && matches!(
                    t.at(i),
                    "concept"
                        | "requires"
                        | "consteval"
                        | "constinit"
                        | "co_await"
                        | "co_yield"
                        | "co_return"
                        | "char8_t"
                ))
                || t.at(i) == "<=>"
                || (t.at(i) == "<=" && t.at(i + 1) == ">")
        })
}
