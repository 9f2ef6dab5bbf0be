//! Copies of the code that computes rows of attention, dense products and gated delta, each with one fault that a real
//! change might introduce. The comparison must catch every one. A copy without a fault must pass, and no fault may make
//! a result less accurate than its type: the difference must be in the order of sums, not in the value.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use cli::println;
use dispatch_plan::Dtype;
use proofs::{Driver, Mask, Operation, Prefix, Product, Setting, Shape};

use super::mutants::Mutant;

const METAL: &str = "mlx/backend/metal";

/// A fault in a host file, and the operation that shows it.
struct Host {
    file: &'static str,
    mutant: Mutant,
    architecture: &'static str,
    operation: fn() -> Operation,
}

const HOST: [Host; 4] = [
    Host {
        file: "attention_plan.cpp",
        mutant: Mutant {
            name: "the choice goes by the block's number of keys",
            edits: &[(
                "row_alone(p, call, attention_keys(p, call, r), unfused[r] != 0)",
                1,
                "row_alone(p, call, p.keys, unfused[r] != 0)",
            )],
        },
        architecture: "g15d",
        // Two passes start at 1,024 keys: the rows see 1,022 to 1,025.
        operation: || attention([4, 1], 1025, 4, Mask::Causal),
    },
    Host {
        file: "attention_rows.cpp",
        mutant: Mutant {
            name: "the number of blocks goes by all rows of a group",
            edits: &[("return in_group ? 1 : rows;", 1, "return rows;")],
        },
        architecture: "g15s",
        // With up to 4 heads per key head there are 64 blocks, and from 1,025 keys on more blocks for more heads.
        operation: || attention([4, 2], 1030, 4, Mask::None),
    },
    Host {
        file: "attention_plan.cpp",
        mutant: Mutant {
            name: "large groups of heads take the plain two-pass kernel",
            edits: &[(
                "shared ? MLX_ROW_ATTENTION_TWO_PASS_SHARED : MLX_ROW_ATTENTION_TWO_PASS",
                1,
                "shared ? MLX_ROW_ATTENTION_TWO_PASS : MLX_ROW_ATTENTION_TWO_PASS",
            )],
        },
        architecture: "g15d",
        operation: || attention([8, 1], 8193, 2, Mask::Causal),
    },
    Host {
        file: "gated_delta_rows.cpp",
        mutant: Mutant {
            name: "gated delta takes chunks of 8",
            edits: &[("keeps_rows(problem) ? 1 : tokens", 1, "tokens")],
        },
        architecture: "g15d",
        operation: || {
            let shape = Shape::GatedDelta {
                heads: 16,
                kv_heads: 16,
                head_dim: 128,
                value_dim: 128,
            };
            operation(shape, Dtype::Float32, 9)
        },
    },
];

/// A fault in a kernel's header, and the operations that show it.
struct Kernel {
    kernel: &'static str,
    mutant: Mutant,
    operation: fn() -> Operation,
}

const KERNELS: [Kernel; 6] = [
    Kernel {
        kernel: "gemv_rows",
        mutant: Mutant {
            name: "the bias is added before the sum is rounded",
            edits: &[(
                "static_cast<T>(alpha) * static_cast<T>(value) +\n          static_cast<T>(beta) *\n              \
                 bias[v * bias_ld + int64_t(column) * bias_stride];",
                1,
                "static_cast<T>(alpha * value + beta * float(bias[v * bias_ld + int64_t(column) * bias_stride]));",
            )],
        },
        operation: || {
            let shape = Shape::Addmm {
                product: product(64, 130, "nt"),
                alpha: "1",
                beta: "1",
                bias: "vector",
            };
            operation(shape, Dtype::Bfloat16, 5)
        },
    },
    Kernel {
        kernel: "gemv_rows",
        mutant: Mutant {
            name: "a lane's values of K are added last to first",
            edits: &[(
                "result[v][tm] += w[tm][tn] * coeff[tn];",
                2,
                "result[v][tm] += w[tm][TN - 1 - tn] * coeff[TN - 1 - tn];",
            )],
        },
        operation: || operation(Shape::Matmul(product(64, 130, "nt")), Dtype::Float32, 5),
    },
    Kernel {
        kernel: "gemv_rows",
        mutant: Mutant {
            name: "neighbouring lanes are added first",
            edits: &[(
                "for (ushort sn = SN / 2; sn >= 1; sn >>= 1)",
                1,
                "for (ushort sn = 1; sn < SN; sn <<= 1)",
            )],
        },
        operation: || operation(Shape::Matmul(product(64, 130, "nt")), Dtype::Float32, 5),
    },
    Kernel {
        kernel: "gemv_rows",
        mutant: Mutant {
            name: "a lane's values of K are added last to first, not transposed",
            edits: &[
                (
                    "static_cast<float>(x_v[tm])",
                    1,
                    "static_cast<float>(x_v[TM - 1 - tm])",
                ),
                (
                    "result[v][tn] += coeff * w[tm][tn];",
                    1,
                    "result[v][tn] += coeff * w[TM - 1 - tm][tn];",
                ),
            ],
        },
        operation: || operation(Shape::Matmul(product(100, 130, "nn")), Dtype::Float32, 5),
    },
    Kernel {
        kernel: "sdpa_rows",
        mutant: Mutant {
            name: "each row's keys are cut as those of the last row",
            edits: &[
                (
                    "const int chunk = (n0 + blocks - 1) / blocks;",
                    1,
                    "const int chunk = (N + blocks - 1) / blocks;",
                ),
                (
                    "row0 + p < rows && (n + blocks - 1) / blocks == chunk;",
                    1,
                    "row0 + p < rows && n > 0;",
                ),
            ],
        },
        // 8,192 keys are 128 blocks of 64; with one more the blocks have 65.
        operation: || attention([8, 1], 8193, 2, Mask::Causal),
    },
    Kernel {
        kernel: "sdpa_rows",
        mutant: Mutant {
            name: "a block's keys are cut into other parts",
            edits: &[(
                "const int sub = (chunk + parts - 1) / parts;",
                1,
                "const int sub = (chunk + parts - 1) / parts + 1;",
            )],
        },
        operation: || attention([8, 1], 8193, 2, Mask::Causal),
    },
];

fn operation(shape: Shape, dtype: Dtype, rows: u32) -> Operation {
    Operation {
        shape,
        dtype,
        seed: 1,
        batch: 1,
        rows: vec![rows],
        policies: vec!["exact".to_owned()],
        run: true,
        record: true,
    }
}

fn attention([heads, kv_heads]: [u32; 2], keys: u32, rows: u32, mask: Mask) -> Operation {
    let shape = Shape::Attention {
        heads,
        kv_heads,
        head_dim: 64,
        value_dim: 64,
        keys,
        mask,
        sinks: false,
        layout: "heads",
    };
    operation(shape, Dtype::Float32, rows)
}

fn product(n: u32, k: u32, form: &'static str) -> Product {
    Product {
        n,
        k,
        form,
        weights: "matrix",
        heads: 1,
    }
}

const UNEDITED: Mutant = Mutant {
    name: "unedited",
    edits: &[],
};

/// Compiles each copy instead of the library's own object.
pub(crate) fn host() -> Result<()> {
    let prefix = Prefix::patched()?;
    let folder = tempfile::tempdir()?;
    let copy = |mutant: &Mutant, file: &str| -> Result<PathBuf> {
        let copy = folder.path().join(format!("{}-{file}", mutant.name));
        fs_err::write(&copy, mutant.edit(&Path::new(METAL).join(file))?)?;
        Ok(copy)
    };
    // Built in the same way without an edit, so that differences below come from the edits.
    let files: BTreeSet<&str> = HOST.iter().map(|host| host.file).collect();
    let copies: Vec<_> = files
        .into_iter()
        .map(|file| copy(&UNEDITED, file))
        .collect::<Result<_>>()?;
    let unedited = Driver::of_operations(&prefix, &copies)?;
    for host in &HOST {
        let mutant = Driver::of_operations(&prefix, &[copy(&host.mutant, host.file)?])?;
        let run = |driver| compared(driver, None, host.architecture, &(host.operation)());
        check(host.mutant.name, &run(&unedited)?, &run(&mutant)?)?;
    }
    Ok(())
}

/// Links each copy of a kernel before the build's own kernels.
pub(crate) fn kernels() -> Result<()> {
    let prefix = Prefix::patched()?;
    let driver = Driver::of_operations(&prefix, &[])?;
    let folder = tempfile::tempdir()?;
    let names: BTreeSet<&str> = KERNELS.iter().map(|kernel| kernel.kernel).collect();
    for name in names {
        let unedited = UNEDITED.plant(name, &prefix, folder.path())?;
        for kernel in KERNELS.iter().filter(|kernel| kernel.kernel == name) {
            let library = kernel.mutant.plant(name, &prefix, folder.path())?;
            let run = |library| compared(&driver, Some(library), "g15d", &(kernel.operation)());
            check(kernel.mutant.name, &run(&unedited)?, &run(&library)?)?;
        }
    }
    Ok(())
}

struct Found {
    outputs: u64,
    differing: u64,
    error: Option<f64>,
}

fn compared(
    driver: &Driver,
    metallib: Option<&Path>,
    architecture: &str,
    operation: &Operation,
) -> Result<Found> {
    let device = Setting::new(format!("applegpu_{architecture}").parse()?).device();
    let answers = driver.operations(&device, metallib, std::slice::from_ref(operation))?;
    let answer = answers.first().context("no answer")?;
    let block = answer.blocks.first().context("no block")?;
    Ok(Found {
        outputs: block.outputs,
        differing: block.differing,
        error: block.error,
    })
}

fn check(name: &str, unedited: &Found, mutant: &Found) -> Result<()> {
    println!(
        "{name}: {} of {} outputs differ",
        mutant.differing, mutant.outputs
    );
    ensure!(
        unedited.differing == 0,
        "{name}: {} outputs differ without the edit",
        unedited.differing
    );
    ensure!(mutant.differing > 0, "not caught: {name}");
    if let (Some(error), Some(found)) = (unedited.error, mutant.error) {
        ensure!(
            found < 2.0 * error,
            "{name}: error {found:e} (unedited {error:e}): not only another order"
        );
    }
    Ok(())
}
