use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::{Error, Found, Result, names};

/// A back-end of MLX.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Backend {
    /// The CPU back-end only.
    Cpu,
    /// NVIDIA's GPUs, in a shared library.
    Cuda,
    /// Apple's GPUs, with the CPU back-end.
    Metal,
    /// The Metal back-end on a simulated device.
    Sim,
}

impl Backend {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Cpu, Self::Cuda, Self::Metal, Self::Sim];

    /// The name in stamps and on command lines.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Cuda => "cuda",
            Self::Metal => "metal",
            Self::Sim => "sim",
        }
    }

    /// Whether the overlay has kernels for it, and therefore policies.
    pub const fn has_policies(self) -> bool {
        match self {
            Self::Cpu | Self::Cuda => false,
            Self::Metal | Self::Sim => true,
        }
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The name of a back-end is unknown.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{name}` is not a back-end: expected {}", Backend::ALL.map(Backend::name).join(", "))]
pub struct UnknownBackend {
    /// The name.
    pub name: String,
}

impl FromStr for Backend {
    type Err = UnknownBackend;

    fn from_str(name: &str) -> std::result::Result<Self, UnknownBackend> {
        let found = Self::ALL.into_iter().find(|backend| backend.name() == name);
        found.ok_or_else(|| UnknownBackend {
            name: name.to_owned(),
        })
    }
}

/// How a prefix was built, and how a program links it. Paths are relative to the prefix unless they are absolute.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stamp {
    /// MLX's version.
    pub version: String,
    /// Git tree id of the unpatched source.
    pub base_tree: String,
    /// Git tree id of the source that was built.
    pub final_tree: String,
    /// Whether this is the unpatched source.
    pub pristine: bool,
    /// The back-end that was built.
    pub backend: Backend,
    /// Whether Metal kernels are compiled at run time.
    pub jit: bool,
    /// Whether the CPU back-end is included.
    pub cpu: bool,
    /// Include folders.
    pub include: Vec<String>,
    /// The folder of the static libraries.
    pub lib: String,
    /// Static libraries in it, in link order.
    pub static_libs: Vec<String>,
    /// System libraries, in link order.
    pub system_libs: Vec<String>,
    /// Folders of system libraries that the linker may not search by default.
    #[serde(default)]
    pub link_search: Vec<String>,
    /// Apple frameworks.
    #[serde(default)]
    pub frameworks: Vec<String>,
    /// Macros to define in code that includes MLX's headers.
    pub defines: Vec<String>,
    /// C++ standard for such code, as the compiler spells it.
    pub cxx_std: String,
    /// The compiled Metal kernels.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metallib: Option<String>,
    /// The oldest macOS that MLX was built for: the `MACOSX_DEPLOYMENT_TARGET` of programs that link it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deployment_target: Option<String>,
    /// clang's run-time library, which is linked last (macOS).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clang_rt: Option<PathBuf>,
    /// The tools that built it, with their versions.
    #[serde(default)]
    pub tools: BTreeMap<String, String>,
}

/// The first field of the file; the others depend on it.
#[derive(Deserialize)]
struct Format {
    format: u32,
}

#[derive(Serialize)]
struct File<'a> {
    format: u32,
    #[serde(flatten)]
    stamp: &'a Stamp,
}

impl Stamp {
    /// The file's name in the root of a prefix.
    pub const FILE_NAME: &'static str = names::STAMP;

    /// The format that is written and read.
    pub const FORMAT: u32 = names::STAMP_FORMAT;

    /// Reads the stamp of a prefix.
    ///
    /// # Errors
    ///
    /// [`Error::NoPrefix`] if there is none, [`Error::OtherFormat`] if another version of this crate wrote it,
    /// [`Error::File`] and [`Error::Invalid`] if it is damaged.
    pub fn read(prefix: impl AsRef<Path>) -> Result<Self> {
        let root = prefix.as_ref();
        let path = root.join(Self::FILE_NAME);
        if !path.is_file() {
            return Err(Error::NoPrefix {
                root: root.to_owned(),
                found: Found::at(root),
            });
        }
        let text = crate::text(&path)?;
        let Format { format } = crate::parse(&path, &text)?;
        if format != Self::FORMAT {
            return Err(Error::OtherFormat {
                path,
                found: format,
            });
        }
        crate::parse(&path, &text)
    }

    /// Writes the stamp of a prefix.
    ///
    /// # Errors
    ///
    /// If the file cannot be written.
    pub fn write(&self, prefix: impl AsRef<Path>) -> Result<()> {
        let path = prefix.as_ref().join(Self::FILE_NAME);
        let file = File {
            format: Self::FORMAT,
            stamp: self,
        };
        let text = toml::to_string(&file).map_err(|error| Error::Invalid {
            path: path.clone(),
            message: error.to_string(),
        })?;
        fs::write(&path, text).map_err(|error| Error::file(&path, error))
    }

    /// Whether this build has row policies: they are part of the overlay's kernels.
    pub fn has_policies(&self) -> bool {
        !self.pristine && self.backend.has_policies()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamp() -> Stamp {
        Stamp {
            version: "0.32.4".to_owned(),
            base_tree: "0b3d".to_owned(),
            final_tree: "1111".to_owned(),
            pristine: false,
            backend: Backend::Sim,
            jit: false,
            cpu: true,
            include: vec!["include".to_owned()],
            lib: "lib".to_owned(),
            static_libs: vec!["mlx".to_owned()],
            system_libs: vec!["openblas".to_owned()],
            link_search: vec!["/opt/lib".to_owned()],
            frameworks: Vec::new(),
            defines: vec!["MLX_STATIC".to_owned()],
            cxx_std: "c++20".to_owned(),
            metallib: Some("lib/mlx.metallib".to_owned()),
            deployment_target: None,
            clang_rt: Some("/xcode/libclang_rt.osx.a".into()),
            tools: [("c++".to_owned(), "g++ 12.2.0".to_owned())].into(),
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let prefix = tempfile::tempdir().unwrap();
        stamp().write(prefix.path()).unwrap();
        assert_eq!(Stamp::read(prefix.path()).unwrap(), stamp());
        let text = fs::read_to_string(prefix.path().join("mlx-overlay.toml")).unwrap();
        // Scripts read single lines.
        for line in [
            "format = 1",
            "final_tree = \"1111\"",
            "backend = \"sim\"",
            "jit = false",
        ] {
            assert!(text.lines().any(|other| other == line), "{text}");
        }
        assert!(text.starts_with("format"), "{text}");
    }

    #[test]
    fn each_reason_is_told_apart() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let found = |name: &str| match Stamp::read(at(name)).unwrap_err() {
            Error::NoPrefix { root, found } if root == at(name) => found,
            error => panic!("{error}"),
        };
        assert_eq!(found("none"), Found::Nothing);
        fs::write(at("file"), "").unwrap();
        assert_eq!(found("file"), Found::File);
        std::os::unix::fs::symlink("gone", at("link")).unwrap();
        assert_eq!(found("link"), Found::DeadLink);
        fs::create_dir(at("prefix")).unwrap();
        assert_eq!(found("prefix"), Found::NoStamp);

        stamp().write(at("prefix")).unwrap();
        let file = at("prefix").join(Stamp::FILE_NAME);
        let good = fs::read_to_string(&file).unwrap();
        let read = |from: &str, to: &str| {
            let bad = good.replace(from, to);
            assert_ne!(bad, good);
            fs::write(&file, bad).unwrap();
            Stamp::read(at("prefix")).unwrap_err()
        };
        // Another format is reported as such even if nothing else in it can be read.
        let other = read("format = 1\nversion", "format = 2\nname");
        assert!(
            matches!(other, Error::OtherFormat { found: 2, .. }),
            "{other}"
        );
        for (from, to, message) in [
            ("lib = \"lib\"\n", "", "missing field `lib`"),
            ("\"sim\"", "\"gpu\"", "unknown variant `gpu`"),
            ("format = 1\n", "", "missing field `format`"),
            ("format = 1", "format =", "mlx-overlay.toml: "),
        ] {
            let error = read(from, to);
            assert!(matches!(error, Error::Invalid { .. }), "{error}");
            let text = error.to_string();
            assert!(text.contains(message) && !text.contains('\n'), "{text}");
        }
    }

    #[test]
    fn names_of_back_ends_are_those_of_stamps() {
        for backend in Backend::ALL {
            let text = toml::Value::try_from(backend).unwrap();
            assert_eq!(text.as_str(), Some(backend.name()));
            assert_eq!(backend.name().parse(), Ok(backend));
        }
        let error = "gpu".parse::<Backend>().unwrap_err().to_string();
        assert_eq!(
            error,
            "`gpu` is not a back-end: expected cpu, cuda, metal, sim"
        );
    }
}
