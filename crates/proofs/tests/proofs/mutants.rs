//! Copies of the streamed kernels, each with one change in the order of sums. The comparison must catch every one; the
//! accuracy check must not, or the mutant would change more than the order.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use cli::println;
use dispatch_plan::{Mode, Policy};
use metal_sim::{Device, Library, Toolchain, default_cache_folder, metal};
use proofs::{Case, Driver, FloatFormat, How, Kind, Prefix, products};

const KERNELS: &str = "mlx/backend/metal/kernels";

pub(crate) struct Mutant {
    pub(crate) name: &'static str,
    /// A text, how often it occurs, and its replacement.
    pub(crate) edits: &'static [(&'static str, usize, &'static str)],
}

/// The code shared by the kernels of all formats; an edit may be in it or in a format's own header.
const TILE: &str = "streamed_tile";

const LAST_TO_FIRST: Mutant = Mutant {
    name: "the values of a chunk are added last to first",
    edits: &[
        (
            "for (int quad0 = 0; quad0 < quads; quad0 += at_once)",
            1,
            "for (int quad0 = quads - at_once; quad0 >= 0; quad0 -= at_once)",
        ),
        (
            "Format::dot(quad0 + i, w[i][row], x_thread + 4 * i, accum[v][row]);",
            1,
            "const int j = at_once - 1 - i;\n\
             Format::dot(quad0 + j, w[j][row], x_thread + 4 * j, accum[v][row]);",
        ),
    ],
};

const NEIGHBOURS_FIRST: Mutant = Mutant {
    name: "neighbouring lanes are added first",
    edits: &[(
        "const float total = weights.total(simd_sum(result[v][row]));",
        1,
        "float lanes = result[v][row];\n\
         for (ushort s = 1; s < 32; s *= 2) { lanes += simd_shuffle_xor(lanes, s); }\n\
         const float total = weights.total(lanes);",
    )],
};

const MUTANTS: [Mutant; 6] = [
    Mutant {
        name: "another lane takes a chunk of K",
        // Rotates the bits of the lane's number: the tree of simd_sum must not map onto itself.
        edits: &[
            (
                "lane * Format::values",
                2,
                "((lane << 1 | lane >> 4) & 31) * Format::values",
            ),
            (
                "lane * chunk_bytes",
                1,
                "((lane << 1 | lane >> 4) & 31) * chunk_bytes",
            ),
            (
                "lane / (group_size / values)",
                1,
                "((lane << 1 | lane >> 4) & 31) / (group_size / values)",
            ),
        ],
    },
    Mutant {
        name: "a lane takes half a chunk",
        edits: &[("packs = fast && bits > 2 ? 2 : 1;", 1, "packs = 1;")],
    },
    LAST_TO_FIRST,
    NEIGHBOURS_FIRST,
    Mutant {
        name: "the two parts of a chunk are added one after the other",
        edits: &[(
            "result[row] += Format::finish(chunk[row], sum, accum[row]);",
            1,
            "result[row] += chunk[row].scale * accum[row];\n\
             result[row] += sum * chunk[row].bias;",
        )],
    },
    Mutant {
        name: "weights are dequantized before they are multiplied",
        edits: &[
            (
                "at_once == quads || !Format::has_sum || V == 2;",
                1,
                "true;",
            ),
            (
                "Format::unpack(chunk[row], quad0 + i, w[i][row]);",
                1,
                "Format::unpack(chunk[row], quad0 + i, w[i][row]);\n\
                 for (int j = 0; j < 4; j++) {\n\
                 w[i][row][j] = chunk[row].scale * w[i][row][j] + chunk[row].bias * (1 << 4 * j);\n}",
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
                "lane * Format::values",
                2,
                "((lane << 1 | lane >> 4) & 31) * Format::values",
            ),
            ("lane * words", 1, "((lane << 1 | lane >> 4) & 31) * words"),
            (
                "lane / (group_size / values)",
                1,
                "((lane << 1 | lane >> 4) & 31) / (group_size / values)",
            ),
        ],
    },
    Mutant {
        name: "a lane takes half a chunk",
        edits: &[("words = fast ? 2 : 1;", 1, "words = 1;")],
    },
    LAST_TO_FIRST,
    NEIGHBOURS_FIRST,
    Mutant {
        name: "weights are scaled before they are multiplied",
        // Four bits of a scale and two of a weight are exact in a half.
        edits: &[
            (
                "Format::unpack(chunk[row], quad0 + i, w[i][row]);",
                1,
                "Format::unpack(chunk[row], quad0 + i, w[i][row]);\n\
                 for (int j = 0; j < 4; j++) {\n\
                 w[i][row][j] = half(chunk[row].scale * w[i][row][j]);\n}",
            ),
            ("return chunk.scale * accum;", 1, "return accum;"),
        ],
    },
    Mutant {
        name: "each lane applies the global scale",
        edits: &[(
            "weights.total(simd_sum(result[v][row]))",
            1,
            "simd_sum(weights.total(result[v][row]))",
        )],
    },
];

pub(crate) fn caught() -> Result<()> {
    // A chunk has halves at 4 bits and 16 values per lane: qmv_fast.
    let cases = Vec::from_iter(Case::new(4, 64, Kind::Fast, [8]));
    let bytes = Vec::from_iter(Case::new(8, 64, Kind::Fast, [8]));
    catch("qmv_streamed", &MUTANTS, &cases, &bytes)
}

/// With nvfp4's scales, because multiplying by those of mxfp4 and mxfp8, which are powers of two, rounds nothing.
pub(crate) fn fp_caught() -> Result<()> {
    let nvfp4 = FloatFormat::ALL
        .into_iter()
        .filter(|format| format.mode == Mode::Nvfp4);
    let cases: Vec<_> = nvfp4
        .filter_map(|format| format.case(Kind::Fast, [8]))
        .collect();
    let mxfp8 = FloatFormat::ALL
        .into_iter()
        .filter(|format| format.mode == Mode::Mxfp8);
    let bytes: Vec<_> = mxfp8
        .filter_map(|format| format.case(Kind::Fast, [8]))
        .collect();
    catch("fp_qmv_streamed", &FP_MUTANTS, &cases, &bytes)
}

/// Plants each mutant of a kernel's headers: an output of one of the cases must differ, in both arrangements. Mutants
/// that change an order in every format must also differ at 8 bits, where there is a third.
fn catch(kernel: &str, mutants: &[Mutant], cases: &[Case], bytes: &[Case]) -> Result<()> {
    let prefix = Prefix::patched()?;
    let driver = Driver::build(&prefix)?;
    let others: Vec<_> = cases
        .iter()
        .filter_map(Case::in_the_other_arrangement)
        .collect();
    ensure!(others.len() == cases.len(), "one arrangement only");
    let run = |metallib: &Path, cases: &[Case], arrangement: &str| -> Result<(u64, f64)> {
        let how = How {
            device: Device::new(),
            policy: Policy::EXACT,
            metallib: Some(metallib.to_owned()),
        };
        let (mut differing, mut error) = (0, 0.0_f64);
        for answer in driver.run(&how, cases)? {
            let together = answer.together.first().context("no answer")?;
            ensure!(
                products(&together.kernels)
                    .keys()
                    .all(|name| name.contains("streamed") && name.contains(arrangement)),
                "{:?}",
                together.kernels
            );
            differing += together.differing;
            error = error.max(together.error);
        }
        Ok((differing, error))
    };
    let folder = tempfile::tempdir()?;
    // Built in the same way without an edit, so that differences below come from the edits.
    let unedited = Mutant {
        name: "unedited",
        edits: &[],
    };
    let unedited = unedited.plant(kernel, &prefix, folder.path())?;
    let arrangements = [
        (cases, "_r_2_s_0_"),
        (&others, "_r_4_s_"),
        (bytes, "_r_4_s_0_"),
    ];
    for (cases, arrangement) in arrangements {
        let (differing, _) = run(&unedited, cases, arrangement)?;
        ensure!(
            differing == 0,
            "unedited, {arrangement}: {differing} outputs differ"
        );
    }
    let mut missed = Vec::new();
    for mutant in mutants {
        let library = mutant.plant(kernel, &prefix, folder.path())?;
        let of_any_format = [
            "another lane takes a chunk of K",
            "a lane takes half a chunk",
            LAST_TO_FIRST.name,
            NEIGHBOURS_FIRST.name,
        ]
        .contains(&mutant.name);
        let tried = if of_any_format { 3 } else { 2 };
        for (cases, arrangement) in arrangements.into_iter().take(tried) {
            let (differing, error) =
                run(&library, cases, arrangement).with_context(|| mutant.name)?;
            ensure!(
                error < 2e-7,
                "{}, {arrangement}: error {error:e}: not only another order",
                mutant.name
            );
            if differing == 0 {
                missed.push((mutant.name, arrangement));
            }
            println!(
                "{}, {arrangement}: {differing} of {} outputs differ",
                mutant.name,
                128 * cases.len()
            );
        }
    }
    ensure!(missed.is_empty(), "not caught: {missed:?}");
    Ok(())
}

/// The folder of the files that the patches add, at MLX's paths.
fn files() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../patches/files")
}

impl Mutant {
    /// The edited text of one of the patches' files.
    pub(crate) fn edit(&self, file: &Path) -> Result<String> {
        let mut texts = self.edit_all(&[file.to_owned()])?;
        texts.pop().context("no text")
    }

    /// The edited texts of several files; each edit must occur as often as stated in all together.
    fn edit_all(&self, files: &[PathBuf]) -> Result<Vec<String>> {
        let mut texts = files
            .iter()
            .map(|file| fs_err::read_to_string(self::files().join(file)))
            .collect::<Result<Vec<_>, _>>()?;
        for (part, times, other) in self.edits {
            let found: usize = texts.iter().map(|text| text.matches(part).count()).sum();
            ensure!(
                found == *times,
                "{}: expected {part:?} {times} times in {files:?}, found it {found} times; update the \
                 mutant",
                self.name,
            );
            for text in &mut texts {
                *text = text.replace(part, other);
            }
        }
        Ok(texts)
    }

    /// Makes a library with the edited headers of one kernel and the build's own kernels otherwise.
    pub(crate) fn plant(&self, kernel: &str, prefix: &Prefix, folder: &Path) -> Result<PathBuf> {
        let source_name = format!("{kernel}.metal");
        let folder = folder.join(self.name);
        fs_err::create_dir_all(folder.join(KERNELS))?;
        let files = files();
        let tile = kernel.ends_with("qmv_streamed").then_some(TILE);
        let headers: Vec<_> = std::iter::once(kernel)
            .chain(tile)
            .map(|name| Path::new(KERNELS).join(format!("{name}.h")))
            .collect();
        for (header, text) in headers.iter().zip(self.edit_all(&headers)?) {
            fs_err::write(folder.join(header), text)?;
        }
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
        // If both have a name, the first one is used: the linker sorts by path.
        let mut linked = Library::read(Path::new(&air))?;
        linked.merge(Library::read(&prefix.metallib()?)?);
        fs_err::write(&library, linked.to_bytes())?;
        Ok(library)
    }
}
