//! The machine that a build runs on, as a value: tests describe other machines with fake programs.

use std::collections::BTreeMap;
use std::env;
use std::ffi::OsString;
use std::path::Path;

use anyhow::{Context, Result};
use camino::{Utf8Path, Utf8PathBuf};

use crate::proc::Cmd;

/// The operating systems on which MLX can be built.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Os {
    /// Linux, with the CPU or the simulated Metal back-end.
    Linux,
    /// macOS, with the Metal back-end.
    MacOs,
}

/// A host: its system, and the environment of its programs.
#[derive(Debug, Clone)]
pub struct Host {
    pub os: Os,
    /// The target triple of this program and of the libraries it builds.
    pub target: String,
    vars: BTreeMap<OsString, OsString>,
    package_folders: Vec<Utf8PathBuf>,
    cuda_folders: Vec<Utf8PathBuf>,
}

impl Host {
    /// This machine, with this process's environment.
    pub fn current() -> Self {
        let os = if cfg!(target_os = "macos") {
            Os::MacOs
        } else {
            Os::Linux
        };
        // NVIDIA's own folder, then that of ci/cuda-toolkit.sh.
        let ours = crate::checkout().join("target/cuda/nvidia/cu13");
        Self {
            cuda_folders: vec!["/usr/local/cuda".into(), ours],
            ..Self::new(os, env::consts::ARCH, env::vars_os())
        }
    }

    /// A machine with exactly the given variables. `arch` is Rust's name (`x86_64`, `aarch64`).
    pub fn new(os: Os, arch: &str, vars: impl IntoIterator<Item = (OsString, OsString)>) -> Self {
        let target = match os {
            Os::Linux => format!("{arch}-unknown-linux-gnu"),
            Os::MacOs => format!("{arch}-apple-darwin"),
        };
        let package_folders: &[&str] = match os {
            Os::Linux => &["/usr/bin", "/bin"],
            Os::MacOs => &["/opt/homebrew/bin", "/usr/local/bin", "/usr/bin"],
        };
        Self {
            os,
            target,
            vars: vars.into_iter().collect(),
            package_folders: package_folders.iter().map(Utf8PathBuf::from).collect(),
            cuda_folders: Vec::new(),
        }
    }

    /// The same machine with `folder` as the place where packages install programs.
    #[must_use]
    pub fn with_packages_in(mut self, folder: Utf8PathBuf) -> Self {
        self.package_folders = vec![folder];
        self
    }

    /// The same machine with a CUDA toolkit in `folder`, which no variable names.
    #[must_use]
    pub fn with_cuda_in(mut self, folder: Utf8PathBuf) -> Self {
        self.cuda_folders.push(folder);
        self
    }

    /// The root folders of the system's packages.
    pub fn package_roots(&self) -> impl Iterator<Item = &Utf8Path> {
        self.package_folders
            .iter()
            .filter_map(|folder| folder.parent())
    }

    /// Folders of CUDA toolkits that no variable names.
    pub fn cuda_folders(&self) -> &[Utf8PathBuf] {
        &self.cuda_folders
    }

    /// The variable's value, if it is set, not empty, and UTF-8.
    pub fn var(&self, name: &str) -> Option<&str> {
        self.set(name).filter(|value| !value.is_empty())
    }

    /// The variable's value, if it is set and UTF-8, even if it is empty.
    pub fn set(&self, name: &str) -> Option<&str> {
        self.vars.get(OsString::from(name).as_os_str())?.to_str()
    }

    /// The variables that the cc and cmake crates read for a setting, in their order. The last one is for builds for
    /// another machine.
    pub fn forms(&self, name: &str) -> [String; 5] {
        [
            format!("{name}_{}", self.target),
            format!("{name}_{}", self.target.replace(['-', '.'], "_")),
            format!("HOST_{name}"),
            name.to_owned(),
            format!("TARGET_{name}"),
        ]
    }

    /// The variable of a setting that applies here, and its value.
    pub fn setting(&self, name: &str) -> Option<(String, &str)> {
        let forms = self.forms(name).into_iter().take(4);
        let mut set = forms.filter_map(|form| Some((self.var(&form)?, form)));
        set.next().map(|(value, form)| (form, value))
    }

    /// The names of all variables that are UTF-8.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.vars.keys().filter_map(|name| name.to_str())
    }

    /// The same machine with one variable set.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<OsString>) -> Self {
        self.vars.insert(name.into(), value.into());
        self
    }

    /// The same machine with `dir` first on `PATH`.
    pub fn with_path_first(self, dir: &Utf8PathBuf) -> Result<Self> {
        let rest = self
            .vars
            .get(OsString::from("PATH").as_os_str())
            .cloned()
            .unwrap_or_default();
        let path = env::join_paths(
            std::iter::once(dir.clone().into_std_path_buf()).chain(env::split_paths(&rest)),
        )
        .with_context(|| format!("`{dir}` cannot be put on PATH"))?;
        Ok(self.with("PATH", path))
    }

    /// The path of `program`: itself if it is a path, else the first match on `PATH`.
    pub fn find(&self, program: &str) -> Option<Utf8PathBuf> {
        let path = self.vars.get(OsString::from("PATH").as_os_str());
        let found = which::which_in(program, path, env::current_dir().ok()?).ok()?;
        Utf8PathBuf::from_path_buf(found).ok()
    }

    /// The `program` that is found on `PATH` before the system's packages, and the folder of its package. Installing the
    /// package would not change which one is found.
    pub fn in_front_of_packages(&self, program: &str) -> Option<(Utf8PathBuf, &Utf8Path)> {
        let found = self.find(program)?;
        let path = self.vars.get(OsString::from("PATH").as_os_str())?;
        let first = env::split_paths(path).find(|folder| {
            found.parent().is_some_and(|dir| dir == folder) || self.has_packages_in(folder)
        })?;
        if self.has_packages_in(&first) {
            return None;
        }
        let mut folders = self.package_folders.iter();
        let folder = folders
            .find(|folder| folder.join(program).is_file())
            .or(self.package_folders.first())?;
        Some((found, folder))
    }

    fn has_packages_in(&self, folder: &Path) -> bool {
        self.package_folders.iter().any(|place| place == folder)
    }

    /// A command on this machine, found on its `PATH` and run with its environment.
    pub fn cmd(&self, program: &str) -> Cmd {
        let path = self.find(program).unwrap_or_else(|| program.into());
        Cmd::new(path.as_std_path()).envs_only(&self.vars)
    }
}
