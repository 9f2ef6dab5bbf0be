//! GPUs by Metal's names.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use crate::named;

named! {
    /// Size class of a GPU: the last letter of its architecture's name.
    #[non_exhaustive]
    "size class" SizeClass {
        /// The A series (phones).
        Phone => "p",
        /// The plain M series.
        Base => "g",
        /// Pro and Max.
        Max => "s",
        /// The larger kind of Max.
        MaxLarge => "c",
        /// Ultra: two dies.
        Ultra => "d",
    }
}

/// The basis on which MLX chooses kernels: `applegpu_g15d` is generation 15, size class `d`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Architecture {
    generation: u8,
    class: SizeClass,
}

/// A name that is not in [`Architecture::GENERATIONS`], or not an architecture at all.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{found:?}: expected an architecture such as applegpu_g15d, with generation {first} to {last} and a size class of p, g, s, c or d",
    first = Architecture::GENERATIONS.start(),
    last = Architecture::GENERATIONS.end()
)]
pub struct UnknownArchitecture {
    found: String,
}

impl Architecture {
    /// Generations of Apple's GPUs for Macs, 13 for the M1.
    pub const GENERATIONS: RangeInclusive<u8> = 13..=18;

    /// `None` for a generation outside [`Architecture::GENERATIONS`].
    #[must_use]
    pub fn new(generation: u8, class: SizeClass) -> Option<Self> {
        Self::GENERATIONS
            .contains(&generation)
            .then_some(Self { generation, class })
    }

    /// Every architecture, by generation.
    pub fn all() -> impl Iterator<Item = Self> {
        Self::GENERATIONS.flat_map(|generation| {
            SizeClass::ALL
                .iter()
                .map(move |&class| Self { generation, class })
        })
    }

    /// The generation, 15 of `applegpu_g15d`.
    #[must_use]
    pub const fn generation(self) -> u8 {
        self.generation
    }

    /// Whether the GPU has matrix units that MLX uses if the OS allows it (`is_nax_available` in `device.cpp`).
    #[must_use]
    pub const fn has_matrix_units(self) -> bool {
        let first = if matches!(self.class, SizeClass::Phone) {
            18
        } else {
            17
        };
        self.generation >= first
    }

    /// The size class, `d` of `applegpu_g15d`.
    #[must_use]
    pub const fn class(self) -> SizeClass {
        self.class
    }
}

impl fmt::Display for Architecture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("applegpu_g{}{}", self.generation, self.class))
    }
}

impl FromStr for Architecture {
    type Err = UnknownArchitecture;

    /// Accepts Metal's name with or without its prefix: `applegpu_g15d`, `g15d`.
    fn from_str(name: &str) -> Result<Self, UnknownArchitecture> {
        let parse = || {
            let rest = name.strip_prefix("applegpu_").unwrap_or(name);
            let rest = rest.strip_prefix('g')?;
            let (last, _) = rest.char_indices().next_back()?;
            let (number, letter) = rest.split_at(last);
            if number.len() != 2 || !number.bytes().all(|byte| byte.is_ascii_digit()) {
                return None;
            }
            Self::new(number.parse().ok()?, letter.parse().ok()?)
        };
        parse().ok_or_else(|| UnknownArchitecture {
            found: name.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        assert_eq!(Architecture::all().count(), 6 * 5);
        for architecture in Architecture::all() {
            let name = architecture.to_string();
            assert_eq!(name.parse(), Ok(architecture));
            let short = name.strip_prefix("applegpu_").unwrap();
            assert_eq!(short.parse(), Ok(architecture));
        }
        assert_eq!(
            "g14g".parse::<Architecture>().unwrap().to_string(),
            "applegpu_g14g"
        );
    }

    #[test]
    fn matrix_units_come_a_generation_later_on_phones() {
        let with: Vec<_> = Architecture::all()
            .filter(|architecture| architecture.has_matrix_units())
            .map(|architecture| architecture.to_string())
            .collect();
        let names = [
            "g17g", "g17s", "g17c", "g17d", "g18p", "g18g", "g18s", "g18c", "g18d",
        ];
        assert_eq!(with, names.map(|name| format!("applegpu_{name}")));
    }

    #[test]
    fn other_names_are_refused() {
        for name in [
            "",
            "applegpu_",
            "applegpu_g15",
            "applegpu_gxd",
            "applegpu_g123d",
            "applegpu_g12s",
            "applegpu_g19s",
            "applegpu_g15x",
            "applegpu_15s",
            "applegpu_g+15s",
            "applegpu_g015s",
            "applegpu_gs",
            "applegpu_g15é",
            "M3 Ultra",
        ] {
            let error = name.parse::<Architecture>().unwrap_err().to_string();
            assert!(error.contains("applegpu_g15d"), "{error}");
        }
    }
}
