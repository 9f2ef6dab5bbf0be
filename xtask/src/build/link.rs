//! The libraries that a program must link with MLX, read from the package file that CMake wrote.
//!
//! The list in `MLXTargets.cmake` follows what upstream's CMake files found on this machine (which BLAS, which
//! frameworks, whether jaccl), so nothing is guessed here.

use anyhow::{Context, Result};
use camino::{Utf8Path, Utf8PathBuf};

/// The link interface of the installed library.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Link {
    /// Include folders, relative to the prefix.
    pub include: Vec<String>,
    /// Static libraries in the prefix, in link order.
    pub static_libs: Vec<String>,
    /// System libraries without duplicates, in link order.
    pub system_libs: Vec<String>,
    /// Folders of the libraries that CMake gave with a path.
    pub search: Vec<String>,
    pub frameworks: Vec<String>,
    pub defines: Vec<String>,
}

impl Link {
    /// Reads the package files below `prefix`.
    pub(super) fn read(prefix: &Utf8Path) -> Result<Self> {
        let path = prefix.join("share/cmake/MLX/MLXTargets.cmake");
        let text = fs_err::read_to_string(&path)?;
        Self::parse(&text).with_context(|| format!("{path} is not a package file of CMake"))
    }

    fn parse(text: &str) -> Result<Self> {
        let mut link = Self {
            static_libs: vec!["mlx".to_owned()],
            ..Self::default()
        };
        if let Some(defines) = property(text, "INTERFACE_COMPILE_DEFINITIONS") {
            link.defines = defines.split(';').map(str::to_owned).collect();
        }
        let folders = property(text, "INTERFACE_INCLUDE_DIRECTORIES").unwrap_or_default();
        for folder in folders.split(';') {
            if let Some(relative) = folder.strip_prefix("${_IMPORT_PREFIX}/") {
                push_once(&mut link.include, relative);
            }
        }
        // A shared library loads its own dependencies.
        if text.contains("add_library(mlx SHARED IMPORTED)") {
            link.system_libs = std::mem::take(&mut link.static_libs);
            return Ok(link);
        }
        let libraries = property(text, "INTERFACE_LINK_LIBRARIES")
            .context("it has no INTERFACE_LINK_LIBRARIES")?;
        for item in libraries.split(';') {
            // A static library that is installed next to MLX and exported with it.
            if text.contains(&format!("add_library({item} STATIC IMPORTED)")) {
                push_once(&mut link.static_libs, item);
            } else {
                link.add(item);
            }
        }
        Ok(link)
    }

    fn add(&mut self, item: &str) {
        // A static library's private dependencies are wrapped: \$<LINK_ONLY:x>.
        let item = item.trim_start_matches('\\');
        let item = item
            .strip_prefix("$<LINK_ONLY:")
            .and_then(|inner| inner.strip_suffix('>'))
            .unwrap_or(item);
        let path = Utf8PathBuf::from(item);
        if item.is_empty() {
        } else if path.extension() == Some("framework") {
            push_once(&mut self.frameworks, path.file_stem().unwrap_or(item));
        } else if let Some((_package, target)) = item.split_once("::") {
            push_once(&mut self.static_libs, target);
        } else if path.is_absolute() {
            let stem = path.file_stem().unwrap_or(item);
            push_once(
                &mut self.system_libs,
                stem.strip_prefix("lib").unwrap_or(stem),
            );
            if let Some(dir) = path.parent() {
                push_once(&mut self.search, dir.as_str());
            }
        } else {
            push_once(
                &mut self.system_libs,
                item.strip_prefix("-l").unwrap_or(item),
            );
        }
    }
}

fn push_once(list: &mut Vec<String>, item: &str) {
    if !list.iter().any(|have| have == item) {
        list.push(item.to_owned());
    }
}

/// The quoted value after `name` in a `set_target_properties` call.
fn property<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(&format!("{name} \""))?;
    rest.split_once('"').map(|(value, _)| value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn linux_with_openblas() {
        let link = Link::parse(
            r#"set_target_properties(mlx PROPERTIES
  INTERFACE_COMPILE_DEFINITIONS "MLX_STATIC"
  INTERFACE_LINK_LIBRARIES "\$<LINK_ONLY:dl>;\$<LINK_ONLY:pthread>;/usr/lib/x86_64-linux-gnu/libopenblas.so;\$<LINK_ONLY:-lm>;\$<LINK_ONLY:-ldl>;/usr/lib/x86_64-linux-gnu/libopenblas.so;\$<LINK_ONLY:>"
)"#,
        )
        .unwrap();
        assert_eq!(link.static_libs, ["mlx"]);
        assert_eq!(link.system_libs, ["dl", "pthread", "openblas", "m"]);
        assert_eq!(link.search, ["/usr/lib/x86_64-linux-gnu"]);
        assert_eq!(link.defines, ["MLX_STATIC"]);
        assert!(link.frameworks.is_empty());
    }

    #[test]
    fn macos_with_frameworks_and_jaccl() {
        let link = Link::parse(
            r#"set_target_properties(mlx PROPERTIES
  INTERFACE_INCLUDE_DIRECTORIES "${_IMPORT_PREFIX}/include/metal_cpp;${_IMPORT_PREFIX}/include;${_IMPORT_PREFIX}/include"
  INTERFACE_LINK_LIBRARIES "/S/Frameworks/Metal.framework;/S/Frameworks/Accelerate.framework;\$<LINK_ONLY:jaccl::jaccl>"
)"#,
        )
        .unwrap();
        assert_eq!(link.include, ["include/metal_cpp", "include"]);
        assert_eq!(link.frameworks, ["Metal", "Accelerate"]);
        assert_eq!(link.static_libs, ["mlx", "jaccl"]);
        assert!(link.system_libs.is_empty() && link.search.is_empty());
    }

    #[test]
    fn linux_with_the_simulated_device() {
        let link = Link::parse(
            r#"add_library(mlx STATIC IMPORTED)
set_target_properties(mlx PROPERTIES
  INTERFACE_LINK_LIBRARIES "metalsim;metalsim;\$<LINK_ONLY:dl>;\$<LINK_ONLY:pthread>"
)
add_library(metalsim STATIC IMPORTED)
set_target_properties(metalsim PROPERTIES
  INTERFACE_LINK_LIBRARIES "pthread;dl"
)"#,
        )
        .unwrap();
        assert_eq!(link.static_libs, ["mlx", "metalsim"]);
        assert_eq!(link.system_libs, ["dl", "pthread"]);
    }

    #[test]
    fn a_shared_library_is_linked_by_its_name() {
        let link = Link::parse(
            r#"add_library(mlx SHARED IMPORTED)
set_target_properties(mlx PROPERTIES
  INTERFACE_COMPILE_FEATURES "cxx_std_20"
  INTERFACE_INCLUDE_DIRECTORIES "${_IMPORT_PREFIX}/include"
)"#,
        )
        .unwrap();
        assert_eq!(link.system_libs, ["mlx"]);
        assert_eq!(link.include, ["include"]);
        assert!(link.static_libs.is_empty());
    }

    #[test]
    fn another_file_is_an_error() {
        assert!(Link::parse("project(mlx)").is_err());
    }
}
