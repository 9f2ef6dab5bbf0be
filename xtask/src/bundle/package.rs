//! Files for other build systems: the CMake package, made relocatable, and a pkg-config file.

use anyhow::{Context, Result};
use camino::Utf8Path;
use mlx_prefix::{Backend, Stamp, sums};

/// The package file that CMake wrote for MLX.
const TARGETS: &str = "share/cmake/MLX/MLXTargets.cmake";
const CONFIG: &str = "share/cmake/MLX/MLXConfig.cmake";

/// The bundle's guide; a prefix has none.
pub(super) const GUIDE: &str = "README.md";

/// A CMake function that copies the kernels to the folder that a program searches first.
const PLACE_KERNELS: &str = r#"# mlx_overlay_place_kernels(<target>): puts MLX's compiled kernels next to the program, the first place where MLX looks
# for them. The program can then be moved and passed on without this folder.
get_filename_component(MLX_OVERLAY_PREFIX "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
function(mlx_overlay_place_kernels target)
  foreach(file @FILES@)
    add_custom_command(
      TARGET ${target}
      POST_BUILD
      COMMAND ${CMAKE_COMMAND} -E copy_if_different "${MLX_OVERLAY_PREFIX}/${file}" "$<TARGET_FILE_DIR:${target}>"
      VERBATIM)
  endforeach()
endfunction()
"#;

/// Removes the builder's paths from the CMake package and adds what a moved prefix needs.
pub(super) fn relocate(bundle: &Utf8Path, stamp: &Stamp) -> Result<()> {
    let targets = bundle.join(TARGETS);
    let text = fs_err::read_to_string(&targets)?;
    let text = by_name(&text)
        .with_context(|| format!("{targets} does not have the format that CMake writes"))?;
    fs_err::write(&targets, text)?;

    if stamp.metallib.is_some() {
        let mut files = stamp.metallib.clone().unwrap_or_default();
        if stamp.backend == Backend::Sim {
            // The simulated device compiles kernels when a program runs.
            files += " bin/metal-simc";
        }
        let function = bundle.join("share/cmake/MLX/mlx-overlay.cmake");
        fs_err::write(function, PLACE_KERNELS.replace("@FILES@", &files))?;
        let config = bundle.join(CONFIG);
        let mut text = fs_err::read_to_string(&config)?;
        text += "\ninclude(\"${CMAKE_CURRENT_LIST_DIR}/mlx-overlay.cmake\")\n";
        fs_err::write(config, text)?;
    }

    let folder = bundle.join(&stamp.lib).join("pkgconfig");
    fs_err::create_dir_all(&folder)?;
    fs_err::write(folder.join("mlx.pc"), pkg_config(stamp))?;
    Ok(())
}

/// The package with each system library by name instead of its path on the builder's machine.
fn by_name(text: &str) -> Option<String> {
    const PROPERTY: &str = "INTERFACE_LINK_LIBRARIES \"";
    let mut result = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(PROPERTY) {
        let (value, _) = after.split_once('"')?;
        let items: Vec<_> = value.split(';').map(item_by_name).collect();
        result += before;
        result += PROPERTY;
        result += &items.join(";");
        rest = &after[value.len()..];
    }
    Some(result + rest)
}

fn item_by_name(item: &str) -> String {
    let path = Utf8Path::new(item);
    let Some(stem) = path.file_stem().filter(|_| path.is_absolute()) else {
        return item.to_owned();
    };
    match path.extension() {
        Some("framework") => format!("-framework {stem}"),
        _ => format!("-l{}", stem.strip_prefix("lib").unwrap_or(stem)),
    }
}

fn pkg_config(stamp: &Stamp) -> String {
    let include: Vec<_> = stamp
        .include
        .iter()
        .map(|folder| format!("-I${{prefix}}/{folder}"))
        .collect();
    let defines: Vec<_> = stamp
        .defines
        .iter()
        .map(|name| format!("-D{name}"))
        .collect();
    let mut libraries = vec![format!("-L${{prefix}}/{}", stamp.lib)];
    libraries.extend(stamp.static_libs.iter().map(|name| format!("-l{name}")));
    libraries.extend(stamp.system_libs.iter().map(|name| format!("-l{name}")));
    libraries.extend(
        stamp
            .frameworks
            .iter()
            .map(|name| format!("-framework {name}")),
    );
    let mut text = String::from("prefix=${pcfiledir}/../..\n");
    if let Some(metallib) = &stamp.metallib {
        text += &format!("metallib=${{prefix}}/{metallib}\n");
    }
    text += &format!(
        "\nName: mlx\nDescription: MLX with the overlay (tree {})\nVersion: {}\nCflags: -std={} {} {}\nLibs: {}\n",
        stamp.final_tree,
        stamp.version,
        stamp.cxx_std,
        defines.join(" "),
        include.join(" "),
        libraries.join(" "),
    );
    text
}

/// Writes the guide for the bundle's users.
pub(super) fn write_guide(bundle: &Utf8Path, stamp: &Stamp) -> Result<()> {
    let kernels = match (&stamp.metallib, stamp.backend) {
        (None, _) => "It has no Metal kernels.\n".to_owned(),
        (Some(metallib), backend) => {
            let compiler = if backend == Backend::Sim {
                "\nThe simulated device compiles each kernel on first use, with `bin/metal-simc` and clang 16 or \
                 newer. It searches for metal-simc at MTL_SIM_COMPILER, next to the metallib, and in `../bin` from \
                 there.\n"
            } else {
                ""
            };
            format!(
                "A program needs the kernels in `{metallib}` when it runs. It searches for them\n\n\
                 1. (programs that use the Rust crates) in the file given by MLX_OVERLAY_METALLIB;\n\
                 2. next to the program: `mlx.metallib`, then `Resources/mlx.metallib`;\n\
                 3. (programs that use the Rust crates) in the prefix that the program was linked with;\n\
                 4. at the path that MLX was built with, on the builder's machine.\n\n\
                 CMake's `mlx_overlay_place_kernels(<target>)` puts them next to a program; C++ may also call \
                 `mlx::core::metal::set_metallib_path` before anything else.\n{compiler}"
            )
        }
    };
    let text = format!(
        "# MLX {version} with the overlay, {backend} back-end\n\n\
         Source tree {tree} (upstream's: {base}). `{manifest}` lists all files: `sha256sum -c {manifest}` checks them. \
         `licences/` has the licence texts for everything in the bundle.\n\n\
         This folder can be moved. Use it\n\n\
         - from Rust: `MLX_OVERLAY_PREFIX=<this folder> cargo build`, or that variable in `.cargo/config.toml`;\n\
         - from CMake: `find_package(MLX CONFIG REQUIRED)` with `-DMLX_DIR=<this folder>/share/cmake/MLX`;\n\
         - with pkg-config: `PKG_CONFIG_PATH=<this folder>/lib/pkgconfig pkg-config --cflags --libs mlx`.\n\n\
         {kernels}",
        version = stamp.version,
        backend = stamp.backend,
        tree = stamp.final_tree,
        base = stamp.base_tree,
        manifest = sums::FILE_NAME,
    );
    fs_err::write(bundle.join(GUIDE), text)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn system_libraries_lose_their_folders_and_the_rest_stays() {
        let text = r#"set_target_properties(mlx PROPERTIES
  INTERFACE_INCLUDE_DIRECTORIES "${_IMPORT_PREFIX}/include"
  INTERFACE_LINK_LIBRARIES "metalsim;\$<LINK_ONLY:dl>;/usr/lib/x86_64-linux-gnu/libopenblas.so;/sdk/System/Library/Frameworks/Metal.framework"
)
set_target_properties(metalsim PROPERTIES
  INTERFACE_LINK_LIBRARIES "pthread;dl"
)
"#;
        let expected = text
            .replace("/usr/lib/x86_64-linux-gnu/libopenblas.so", "-lopenblas")
            .replace(
                "/sdk/System/Library/Frameworks/Metal.framework",
                "-framework Metal",
            );
        assert_eq!(by_name(text), Some(expected));
        assert_eq!(by_name("INTERFACE_LINK_LIBRARIES \"cut off"), None);
    }
}
