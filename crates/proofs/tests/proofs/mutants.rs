//! Copies of the streamed kernels that differ from them in the order of sums, one each: the
//! comparison must catch every one, and accuracy must not, or the mutant would be no mere reorder.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use cli::println;
use dispatch_plan::{Mode, Policy};
use metal_sim::{Device, Library, Toolchain, default_cache_folder, metal};
use proofs::{Case, Driver, FloatFormat, How, Kind, Prefix, products};

const KERNELS: &str = "mlx/backend/metal/kernels";

pub(crate) struct Mutant {
    pub(crate) name: &'static str,
    /// Text, how often it is there, and what takes its place.
    pub(crate) edits: &'static [(&'static str, usize, &'static str)],
}

const MUTANTS: [Mutant; 6] = [
    Mutant {
        name: "another lane takes a chunk of K",
        // The bits of the lane's number rotated: the tree of simd_sum must not map onto itself.
        edits: &[
            (
                "simd_lid * packs_per_thread",
                1,
                "((simd_lid << 1 | simd_lid >> 4) & 31) * packs_per_thread",
            ),
            (
                "simd_lid / scale_step_per_thread",
                2,
                "((simd_lid << 1 | simd_lid >> 4) & 31) / scale_step_per_thread",
            ),
            (
                "simd_lid * values_per_thread",
                1,
                "((simd_lid << 1 | simd_lid >> 4) & 31) * values_per_thread",
            ),
            (
                "static_cast<int>(simd_lid) * values_per_thread",
                1,
                "static_cast<int>((simd_lid << 1 | simd_lid >> 4) & 31) * values_per_thread",
            ),
        ],
    },
    Mutant {
        name: "16 lanes take the chunks of 32",
        edits: &[(
            WHOLE_BLOCK,
            1,
            "    if (simd_lid < 16) {\n\
             qmv_streamed_chunk<bits, values_per_thread>(tile);\n\
             qmv_streamed_advance<group_size, bits>(16 * values_per_thread, tile);\n\
             qmv_streamed_chunk<bits, values_per_thread>(tile);\n\
             qmv_streamed_advance<group_size, bits>(-16 * values_per_thread, tile);\n\
             }\n\
             qmv_streamed_advance<group_size, bits>(block_size, tile);\n",
        )],
    },
    Mutant {
        name: "half a chunk is added at a time",
        edits: &[(
            WHOLE_BLOCK,
            1,
            "    qmv_streamed_chunk<bits, values_per_thread / 2>(tile);\n\
             qmv_streamed_advance<group_size, bits>(values_per_thread / 2, tile);\n\
             qmv_streamed_chunk<bits, values_per_thread / 2>(tile);\n\
             qmv_streamed_advance<group_size, bits>(-values_per_thread / 2, tile);\n\
             qmv_streamed_advance<group_size, bits>(block_size, tile);\n",
        )],
    },
    Mutant {
        name: "the steps of a chunk are added last to first",
        edits: &[
            (
                "(packed[row], step0 + i, w[i][row])",
                1,
                "(packed[row], steps - 1 - step0 - i, w[i][row])",
            ),
            (
                "x + (step0 + i) * Step::values",
                1,
                "x + (steps - 1 - step0 - i) * Step::values",
            ),
        ],
    },
    Mutant {
        name: "neighbouring lanes are added first",
        edits: &[(
            "const float total = simd_sum(tile.result[v][row]);",
            1,
            "float total = tile.result[v][row];\n\
             for (ushort s = 1; s < 32; s *= 2) { total += simd_shuffle_xor(total, s); }",
        )],
    },
    Mutant {
        name: "weights are dequantized before they are multiplied",
        edits: &[
            (
                "qmv_unpack_step<bits>(packed[row], step0 + i, w[i][row]);",
                1,
                "qmv_unpack_step<bits>(packed[row], step0 + i, w[i][row]);\n\
                 for (int j = 0; j < 4; j++) {\n\
                 w[i][row][j] = scale[row] * w[i][row][j] + bias[row] * (1 << 4 * j);\n}",
            ),
            ("return scale * accum + sum * bias;", 1, "return accum;"),
        ],
    },
];

const FP_MUTANTS: [Mutant; 6] = [
    Mutant {
        name: "another lane takes a chunk of K",
        edits: &[
            (
                "simd_lid * values_per_thread",
                2,
                "((simd_lid << 1 | simd_lid >> 4) & 31) * values_per_thread",
            ),
            (
                "simd_lid / scale_step_per_thread",
                1,
                "((simd_lid << 1 | simd_lid >> 4) & 31) / scale_step_per_thread",
            ),
            (
                "static_cast<int>(simd_lid) * values_per_thread",
                1,
                "static_cast<int>((simd_lid << 1 | simd_lid >> 4) & 31) * values_per_thread",
            ),
        ],
    },
    Mutant {
        name: "16 lanes take the chunks of 32",
        edits: &[(
            "    fp_qmv_streamed_chunk<T, group_size, bits, values_per_thread, rows, V>(\n        k, tile);\n  }\n",
            1,
            "    if (simd_lid < 16) {\n\
             fp_qmv_streamed_chunk<T, group_size, bits, values_per_thread, rows, V>(k, tile);\n\
             fp_qmv_streamed_chunk<T, group_size, bits, values_per_thread, rows, V>(\n\
             k + 16 * values_per_thread, tile);\n}\n  }\n",
        )],
    },
    Mutant {
        name: "half a chunk is added at a time",
        edits: &[(
            "    fp_qmv_streamed_chunk<T, group_size, bits, values_per_thread, rows, V>(\n        k, tile);\n  }\n",
            1,
            "    fp_qmv_streamed_chunk<T, group_size, bits, values_per_thread / 2, rows, V>(k, tile);\n\
             fp_qmv_streamed_chunk<T, group_size, bits, values_per_thread / 2, rows, V>(\n\
             k + values_per_thread / 2, tile);\n  }\n",
        )],
    },
    Mutant {
        name: "neighbouring lanes are added first",
        edits: &[(
            "float total = simd_sum(tile.result[v][row]);",
            1,
            "float total = tile.result[v][row];\n\
             for (ushort s = 1; s < 32; s *= 2) { total += simd_shuffle_xor(total, s); }",
        )],
    },
    Mutant {
        name: "weights are scaled before they are multiplied",
        edits: &[
            ("U(w[4 * i])", 1, "(scale * U(w[4 * i]))"),
            ("U(w[4 * i + 1])", 1, "(scale * U(w[4 * i + 1]))"),
            ("U(w[4 * i + 2])", 1, "(scale * U(w[4 * i + 2]))"),
            ("U(w[4 * i + 3])", 1, "(scale * U(w[4 * i + 3]))"),
            ("return scale * accum;", 1, "return accum;"),
        ],
    },
    Mutant {
        name: "each lane applies the global scale",
        edits: &[
            (
                "simd_sum(tile.result[v][row])",
                1,
                "simd_sum(tile.result[v][row] * inv_scale_enc)",
            ),
            ("total *= inv_scale_enc;", 1, ""),
        ],
    },
];

/// What the kernel does with a whole block of K.
const WHOLE_BLOCK: &str = "    qmv_streamed_chunk<bits, values_per_thread>(tile);
    qmv_streamed_advance<group_size, bits>(block_size, tile);
";

pub(crate) fn caught() -> Result<()> {
    // The halves of a chunk exist at 4 bits and 16 values a lane: qmv_fast.
    let cases = Vec::from_iter(Case::new(4, 64, Kind::Fast, [8]));
    catch("qmv_streamed", &MUTANTS, &cases)
}

/// With nvfp4's scales, since multiplying by those of mxfp4 and mxfp8, powers of two, rounds nothing.
pub(crate) fn fp_caught() -> Result<()> {
    let nvfp4 = FloatFormat::ALL
        .into_iter()
        .filter(|format| format.mode == Mode::Nvfp4);
    let cases: Vec<_> = nvfp4
        .filter_map(|format| format.case(Kind::Fast, [8]))
        .collect();
    catch("fp_qmv_streamed", &FP_MUTANTS, &cases)
}

/// Plants each mutant of a kernel's header: an output of one of the cases must differ.
fn catch(kernel: &str, mutants: &[Mutant], cases: &[Case]) -> Result<()> {
    let prefix = Prefix::patched()?;
    let driver = Driver::build(&prefix)?;
    let run = |metallib: Option<PathBuf>| -> Result<(u64, f64)> {
        let how = How {
            device: Device::new(),
            policy: Policy::EXACT,
            metallib,
        };
        let (mut differing, mut error) = (0, 0.0_f64);
        for answer in driver.run(&how, cases)? {
            let together = answer.together.first().context("no answer")?;
            ensure!(
                products(&together.kernels)
                    .keys()
                    .all(|name| name.contains("streamed")),
                "{:?}",
                together.kernels
            );
            differing += together.differing;
            error = error.max(together.error);
        }
        Ok((differing, error))
    };
    let folder = tempfile::tempdir()?;
    // Built the same way, without an edit: what differs below differs because of one.
    let unedited = Mutant {
        name: "unedited",
        edits: &[],
    };
    let (differing, error) = run(Some(unedited.plant(kernel, &prefix, folder.path())?))?;
    ensure!(differing == 0, "unedited: {differing} outputs differ");
    let mut missed = Vec::new();
    for mutant in mutants {
        let library = mutant.plant(kernel, &prefix, folder.path())?;
        let (differing, found) = run(Some(library)).with_context(|| mutant.name)?;
        ensure!(
            found < 2e-7,
            "{}: error {found:e} (unedited {error:e}): not only another order",
            mutant.name
        );
        if differing == 0 {
            missed.push(mutant.name);
        }
        println!(
            "{}: {differing} of {} outputs differ",
            mutant.name,
            128 * cases.len()
        );
    }
    ensure!(missed.is_empty(), "not caught: {missed:?}");
    Ok(())
}

/// The files that the patches add, at MLX's paths.
fn files() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../patches/files")
}

impl Mutant {
    /// The text of one of the patches' files, edited.
    pub(crate) fn edit(&self, file: &Path) -> Result<String> {
        let mut text = fs_err::read_to_string(files().join(file))?;
        for (part, times, other) in self.edits {
            let found = text.matches(part).count();
            ensure!(
                found == *times,
                "{}: expected {part:?} {times} times in {}, found it {found} times; bring the mutant \
                 up to date",
                self.name,
                file.display()
            );
            text = text.replace(part, other);
        }
        Ok(text)
    }

    /// Makes a library of it, with the build's own kernels for all else.
    pub(crate) fn plant(&self, kernel: &str, prefix: &Prefix, folder: &Path) -> Result<PathBuf> {
        let (header_name, source_name) = (format!("{kernel}.h"), format!("{kernel}.metal"));
        let folder = folder.join(self.name);
        fs_err::create_dir_all(folder.join(KERNELS))?;
        let files = files();
        let header = self.edit(&Path::new(KERNELS).join(&header_name))?;
        fs_err::write(folder.join(KERNELS).join(&header_name), header)?;
        let source = folder.join(KERNELS).join(&source_name);
        fs_err::copy(files.join(KERNELS).join(&source_name), &source)?;
        let air = folder.join("mutant.air").display().to_string();
        let arguments = [
            "-x".to_owned(),
            "metal".to_owned(),
            "-fno-fast-math".to_owned(),
            "-c".to_owned(),
            source.display().to_string(),
            format!("-I{}", folder.display()),
            format!("-I{}", prefix.include().display()),
            "-o".to_owned(),
            air.clone(),
        ];
        let toolchain = Toolchain::find(default_cache_folder())?;
        metal(&toolchain, &arguments, &mut Vec::new(), &mut Vec::new())?;
        let library = folder.join("mutant.metallib");
        // Of a name that both have, the first stays: the linker would take them by their paths.
        let mut linked = Library::read(Path::new(&air))?;
        linked.merge(Library::read(&prefix.metallib()?)?);
        fs_err::write(&library, linked.to_bytes())?;
        Ok(library)
    }
}
