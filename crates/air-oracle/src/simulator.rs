//! Kernels compiled from Metal source by the simulator's compiler, for comparison.

use std::io;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use camino::{Utf8Path, Utf8PathBuf};
use metal_sim::{Compiler, Contraction, Options, Toolchain, Variant, default_cache_folder, metal};

/// The sources that instantiate the kernels of [`crate::case`].
const SOURCES: [&str; 2] = ["quantized", "fp_quantized"];

/// The simulator's library of a tree's quantized kernels.
pub(crate) struct Simulator {
    toolchain: Toolchain,
    library: PathBuf,
}

impl Simulator {
    /// Makes the library of `tree` in `folder`, with the arguments that MLX's build passes.
    pub(crate) fn new(tree: &Utf8Path, folder: &Utf8Path) -> Result<Self> {
        let toolchain = Toolchain::find(default_cache_folder())?;
        let library = folder.join("simulator.metallib");
        let mut objects = Vec::new();
        for source in SOURCES {
            let object = folder.join(source).with_added_extension("air");
            let file = tree.join(format!("mlx/backend/metal/kernels/{source}.metal"));
            call(
                &toolchain,
                &[
                    "-x",
                    "metal",
                    "-fno-fast-math",
                    "-c",
                    file.as_str(),
                    &format!("-I{tree}"),
                    "-o",
                    object.as_str(),
                ],
            )
            .with_context(|| format!("making a library of {file}"))?;
            objects.push(object);
        }
        let mut link: Vec<&str> = objects.iter().map(|object| object.as_str()).collect();
        link.extend(["-o", library.as_str()]);
        call(&toolchain, &link)?;
        Ok(Self {
            toolchain,
            library: library.into(),
        })
    }

    /// The shared object of kernel `name`.
    pub(crate) fn kernel(&self, name: &str, contraction: Contraction) -> Result<Utf8PathBuf> {
        let options = Options {
            contraction,
            variant: Variant::Plain,
        };
        let object = Compiler::new(self.toolchain.clone(), options).kernel(&self.library, name)?;
        Ok(Utf8PathBuf::try_from(object)?)
    }
}

fn call(toolchain: &Toolchain, arguments: &[&str]) -> Result<()> {
    let arguments: Vec<String> = arguments
        .iter()
        .map(|argument| (*argument).to_owned())
        .collect();
    let mut diagnostics = Vec::new();
    if let Err(error) = metal(toolchain, &arguments, &mut io::sink(), &mut diagnostics) {
        bail!("{error}: {}", String::from_utf8_lossy(&diagnostics).trim());
    }
    Ok(())
}
