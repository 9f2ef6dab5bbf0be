//! Finds compiler flags in the environment that break the claims about bits, and lists files that it cannot inspect.

use std::fmt;

use camino::{Utf8Path, Utf8PathBuf};

use crate::host::Host;

/// Flags that let the compiler reorder sums, so that two builds may differ.
const UNSAFE: [&str; 10] = [
    "-ffast-math",
    "-Ofast",
    "--optimize=fast",
    "-funsafe-math-optimizations",
    "-fassociative-math",
    "-freciprocal-math",
    "-ffp-model=fast",
    "-ffp-model=aggressive",
    // A flag of nvcc.
    "-use_fast_math",
    "--use_fast_math",
];

/// Macros that compilers define if such a flag reaches them in any way.
const DEFINED: [&str; 3] = [
    "__FAST_MATH__",
    "__ASSOCIATIVE_MATH__",
    "__RECIPROCAL_MATH__",
];

/// How deep files that include others are followed.
const DEEPEST: usize = 8;

/// A place that sets such a flag.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UnsafeFlag {
    place: String,
    flag: &'static str,
}

impl UnsafeFlag {
    /// The first such flag that a build on `host` would use.
    pub(crate) fn find(host: &Host) -> Option<Self> {
        let named = variables(host).find_map(|variable| Self::find_in(host, &variable));
        named
            .or_else(|| {
                let mut files = set(host, TOOLCHAIN).into_iter();
                files.find_map(|(_, file)| {
                    let text = fs_err::read_to_string(file).ok()?;
                    let code = text.lines().map(|line| line.split('#').next());
                    let code: Vec<_> = code.flatten().collect();
                    in_text(file, &code.join("\n"), 0)
                })
            })
            .or_else(|| by_the_compiler(host))
    }

    /// The first such flag in one variable.
    pub(crate) fn find_in(host: &Host, variable: &str) -> Option<Self> {
        in_text(variable, host.var(variable)?, 0)
    }

    pub(crate) fn place(&self) -> String {
        format!("{} has {}", self.place, self.flag)
    }

    pub(crate) fn remedy(&self) -> String {
        format!("remove it from {}", self.place)
    }
}

impl fmt::Display for UnsafeFlag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: the compiler may reorder sums, which breaks the claims about bits",
            self.place()
        )
    }
}

const TOOLCHAIN: &str = "CMAKE_TOOLCHAIN_FILE";

/// The variables from which the cc crate and clang read flags.
fn variables(host: &Host) -> impl Iterator<Item = String> {
    let of_cc = ["CXXFLAGS", "CFLAGS"]
        .into_iter()
        .flat_map(|name| host.forms(name));
    of_cc.chain(["CCC_OVERRIDE_OPTIONS", "CCC_ADD_ARGS"].map(str::to_owned))
}

/// A setting in every form in which it is set.
fn set<'a>(host: &'a Host, name: &str) -> Vec<(String, &'a str)> {
    let forms = host.forms(name).into_iter();
    forms
        .filter_map(|form| host.var(&form).map(|value| (form, value)))
        .collect()
}

/// The programs that a setting names, else the default one.
fn programs<'a>(host: &'a Host, name: &str, usual: &'a str) -> Vec<(String, &'a str)> {
    let set = set(host, name);
    match set[..] {
        [] => vec![(name.to_owned(), usual)],
        _ => set,
    }
}

/// The words that reach the compiler, without the quotes and backslashes that a shell removes.
fn words(text: &str) -> impl Iterator<Item = String> {
    let plain: String = text
        .chars()
        .filter(|c| !matches!(c, '"' | '\'' | '\\'))
        .collect();
    let words: Vec<_> = plain.split_whitespace().map(str::to_owned).collect();
    words.into_iter()
}

/// The file of `@file`, from which a compiler reads more flags.
fn named_file(word: &str) -> Option<&Utf8Path> {
    word.strip_prefix('@').map(Utf8Path::new)
}

fn in_text(place: &str, text: &str, depth: usize) -> Option<UnsafeFlag> {
    words(text).find_map(|word| {
        // `+` and `^` are clang's CCC_OVERRIDE_OPTIONS, `)` ends a command of CMake.
        let flag = word.trim_start_matches(['+', '^']).trim_end_matches(')');
        if let Some(flag) = UNSAFE.into_iter().find(|known| *known == flag) {
            let place = place.to_owned();
            return Some(UnsafeFlag { place, flag });
        }
        let file = named_file(&word).filter(|_| depth < DEEPEST)?;
        in_text(
            file.as_str(),
            &fs_err::read_to_string(file).ok()?,
            depth + 1,
        )
    })
}

/// Asks the compilers which macros they define with the flags of the environment. This also sees flags that a wrapper
/// adds.
fn by_the_compiler(host: &Host) -> Option<UnsafeFlag> {
    let asked = |program: &str, flags: &str, language: &str| {
        host.find(program)?;
        let flags = set(host, flags).into_iter();
        let output = host
            .cmd(program)
            .args(flags.flat_map(|(_, flags)| words(flags)))
            .args(["-x", language, "-dM", "-E", "-"])
            .output_with_input("")
            .ok()?;
        let defined = String::from_utf8_lossy(&output.stdout).into_owned();
        let flag = DEFINED.into_iter().find(|name| {
            let on = format!("#define {name} 1");
            defined.lines().any(|line| line == on)
        })?;
        let place = format!("{program} with the flags of this environment");
        Some(UnsafeFlag { place, flag })
    };
    let of_language = |variable: &str, usual: &str, flags: &str, language: &str| {
        let mut programs = programs(host, variable, usual).into_iter();
        programs.find_map(|(_, program)| asked(program, flags, language))
    };
    of_language("CXX", "c++", "CXXFLAGS", "c++").or_else(|| of_language("CC", "cc", "CFLAGS", "c"))
}

/// Compilers and launchers that are scripts.
fn scripts(host: &Host) -> Vec<(String, Utf8PathBuf)> {
    let mut named = programs(host, "CC", "cc");
    named.extend(programs(host, "CXX", "c++"));
    for launcher in [
        "CMAKE_C_COMPILER_LAUNCHER",
        "CMAKE_CXX_COMPILER_LAUNCHER",
        "CCACHE_PREFIX",
    ] {
        named.extend(host.var(launcher).map(|value| (launcher.to_owned(), value)));
    }
    // Launchers count if they are on PATH.
    named.extend(["ccache", "sccache"].map(|name| (name.to_owned(), name)));
    let found = named.into_iter().filter_map(|(variable, program)| {
        let path = host.find(program)?;
        let begins = fs_err::read(&path).ok()?.starts_with(b"#!");
        begins.then_some((variable, path))
    });
    found.collect()
}

/// The files that affect how code is compiled, with their contents: part of the build's key.
pub(super) fn files(host: &Host) -> Vec<(String, String)> {
    let mut paths: Vec<_> = scripts(host).into_iter().map(|(_, path)| path).collect();
    let toolchains = set(host, TOOLCHAIN).into_iter();
    paths.extend(toolchains.map(|(_, file)| Utf8PathBuf::from(file)));
    for variable in variables(host) {
        add_named(host.var(&variable).unwrap_or_default(), &mut paths, 0);
    }
    let read = |path: Utf8PathBuf| {
        let text = fs_err::read(&path).ok()?;
        Some((path.into_string(), String::from_utf8_lossy(&text).into()))
    };
    paths.into_iter().filter_map(read).collect()
}

fn add_named(text: &str, paths: &mut Vec<Utf8PathBuf>, depth: usize) {
    for word in words(text) {
        let Some(file) = named_file(&word).filter(|_| depth < DEEPEST) else {
            continue;
        };
        paths.push(file.to_owned());
        let text = fs_err::read_to_string(file).unwrap_or_default();
        add_named(&text, paths, depth + 1);
    }
}

/// Files that may change objects but are not inspected.
pub(super) fn unseen(host: &Host) -> Vec<String> {
    let mut unseen: Vec<_> = scripts(host)
        .into_iter()
        .map(|(variable, path)| {
            format!(
                "{variable}: {path} is a script; it is part of the build's key, but the files that it runs and reads are not"
            )
        })
        .collect();
    for (variable, file) in set(host, TOOLCHAIN) {
        unseen.push(format!(
            "{variable}: {file} is part of the build's key, but the files that it includes are not"
        ));
    }
    let files = files(host);
    for variable in variables(host) {
        let value = host.var(&variable).unwrap_or_default();
        for word in words(value) {
            let missing = named_file(&word)
                .is_some_and(|file| files.iter().all(|(path, _)| path != file.as_str()));
            if missing {
                unseen.push(format!("{variable}: {word} cannot be read from here"));
            } else if word.contains('$') || word.contains('`') {
                unseen.push(format!(
                    "{variable}: a shell expands {word}, so its value is not known here"
                ));
            }
        }
    }
    unseen
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::Os;

    fn found(variable: &str, value: &str) -> Option<String> {
        let host = Host::new(Os::Linux, "x86_64", []).with(variable, value);
        UnsafeFlag::find(&host).map(|found| found.place())
    }

    #[test]
    fn quoted_flags_and_those_in_files_are_found() {
        for value in [
            "-O2 -ffast-math",
            "\"-ffast-math\"",
            "'-ffast-math'",
            "-ffast\"-math\"",
            "-O2\t\\-ffast-math",
            "-DX='a b' '-ffast-math'",
        ] {
            let place = found("CXXFLAGS", value);
            assert_eq!(
                place.as_deref(),
                Some("CXXFLAGS has -ffast-math"),
                "{value}"
            );
        }
        assert_eq!(found("CXXFLAGS", "-O2 -fno-fast-math -g"), None);
        assert!(found("CCC_OVERRIDE_OPTIONS", "+-ffast-math").is_some());

        let scratch = tempfile::tempdir().unwrap();
        let path = |name: &str| scratch.path().join(name).to_str().unwrap().to_owned();
        let (one, two) = (path("one"), path("two"));
        fs_err::write(&one, format!("-g\n@{two}\n")).unwrap();
        fs_err::write(&two, "-O1 '-Ofast'").unwrap();
        let place = found("CFLAGS", &format!("\"@{one}\""));
        assert_eq!(place, Some(format!("{two} has -Ofast")));
        // A cycle.
        fs_err::write(&two, format!("@{one}")).unwrap();
        assert_eq!(found("CFLAGS", &format!("@{one}")), None);

        let toolchain = "# no -Ofast\nset(CMAKE_CXX_FLAGS_INIT \"-O2 -Ofast\")\n";
        fs_err::write(&one, toolchain).unwrap();
        assert_eq!(found(TOOLCHAIN, &one), Some(format!("{one} has -Ofast")));
        fs_err::write(&one, "# no -Ofast\n").unwrap();
        assert_eq!(found(TOOLCHAIN, &one), None);
    }

    /// Only the compiler knows what its wrapper adds.
    #[test]
    fn a_wrapper_that_adds_such_a_flag_is_found_and_said_to_be_a_script() {
        let scratch = tempfile::tempdir().unwrap();
        let wrapper = scratch.path().join("wrapper");
        let wrap = |flag: &str| {
            let text = format!("#!/bin/sh\nexec c++ {flag} \"$@\"\n");
            fs_err::write(&wrapper, text).unwrap();
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
            fs_err::set_permissions(&wrapper, mode).unwrap();
        };
        for form in Host::current().forms("CXX") {
            let host = Host::current().with(&form, wrapper.as_os_str());
            wrap("-O1");
            assert_eq!(UnsafeFlag::find(&host), None);
            let unseen = unseen(&host);
            assert!(
                unseen.len() == 1
                    && unseen[0].starts_with(&form)
                    && unseen[0].contains("is a script"),
                "{unseen:?}"
            );
            wrap("-ffast-math");
            let place = UnsafeFlag::find(&host).unwrap().place();
            assert!(place.ends_with("has __FAST_MATH__"), "{form}: {place}");
        }
    }

    #[test]
    fn a_toolchain_file_of_this_target_is_read() {
        let scratch = tempfile::tempdir().unwrap();
        let file = scratch.path().join("toolchain.cmake");
        fs_err::write(&file, "set(CMAKE_CXX_FLAGS_INIT -Ofast)\n").unwrap();
        let host = Host::new(Os::Linux, "x86_64", []);
        for form in [
            "CMAKE_TOOLCHAIN_FILE",
            "CMAKE_TOOLCHAIN_FILE_x86_64-unknown-linux-gnu",
            "CMAKE_TOOLCHAIN_FILE_x86_64_unknown_linux_gnu",
            "HOST_CMAKE_TOOLCHAIN_FILE",
            "TARGET_CMAKE_TOOLCHAIN_FILE",
        ] {
            let host = host.clone().with(form, file.as_os_str());
            assert!(UnsafeFlag::find(&host).is_some(), "{form}");
            assert_eq!(files(&host).len(), 1, "{form}");
            assert!(unseen(&host)[0].starts_with(form), "{form}");
        }
    }

    #[test]
    fn what_is_not_looked_into_is_said() {
        let of = |value: &str| unseen(&Host::new(Os::Linux, "x86_64", []).with("CFLAGS", value));
        assert_eq!(of("-O2 -g"), [""; 0]);
        assert!(of("@not-there")[0].contains("cannot be read"));
        assert!(of("$(cat flags)")[0].contains("a shell expands"));
    }
}
