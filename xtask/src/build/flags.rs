//! Compiler flags with which the claims about bits do not hold.

use std::fmt;

use crate::host::Host;

/// They let the compiler change sums: then not even one build agrees with the next.
const UNSAFE: [&str; 7] = [
    "-ffast-math",
    "-Ofast",
    "-funsafe-math-optimizations",
    "-fassociative-math",
    "-freciprocal-math",
    "-ffp-model=fast",
    "-ffp-model=aggressive",
];

/// A variable that has such a flag.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UnsafeFlag {
    variable: String,
    flag: &'static str,
}

impl UnsafeFlag {
    /// The first that a build on `host` would take.
    pub(crate) fn find(host: &Host) -> Option<Self> {
        variables(host).find_map(|variable| Self::find_in(host, &variable))
    }

    /// The first in one variable.
    pub(crate) fn find_in(host: &Host, variable: &str) -> Option<Self> {
        let flag = host
            .var(variable)?
            .split_whitespace()
            .find_map(|flag| UNSAFE.into_iter().find(|known| *known == flag))?;
        Some(Self {
            variable: variable.to_owned(),
            flag,
        })
    }

    /// Where it stands.
    pub(crate) fn place(&self) -> String {
        format!("{} has {}", self.variable, self.flag)
    }

    /// What to do about it.
    pub(crate) fn remedy(&self) -> String {
        format!("take it out of {}", self.variable)
    }
}

impl fmt::Display for UnsafeFlag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: host code may add in any order, and the claims about bits do not hold",
            self.place()
        )
    }
}

/// Where the cc crate looks for flags.
fn variables(host: &Host) -> impl Iterator<Item = String> {
    let target = &host.target;
    let underscores = target.replace('-', "_");
    ["CXXFLAGS", "CFLAGS"].into_iter().flat_map(move |name| {
        [
            name.to_owned(),
            format!("HOST_{name}"),
            format!("TARGET_{name}"),
            format!("{name}_{target}"),
            format!("{name}_{underscores}"),
        ]
    })
}
