//! Which kernel small products take and how many bytes of the weights it loads, on pristine MLX and with the overlay's
//! tile cap: `cargo run -p proofs --example tile_cap -- upstream/affine-tile-cap/evidence/simulated-device.tsv`
//!
//! Needs `cargo xtask build` and `cargo xtask build --pristine`.

use std::fmt::Write as _;
use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};
use dispatch_plan::Policy;
use metal_sim::Device;
use proofs::{Case, Driver, How, Kind, Prefix, Record, Together};

/// The first generation on which affine products take `qmv_wide`.
const ARCHITECTURE: &str = "applegpu_g15d";
/// Around 6 to 8, where one tile becomes enough, and around 9 to 16, where two do.
const ROWS: [u32; 10] = [4, 5, 6, 7, 8, 9, 10, 11, 12, 16];
const BITS: [u32; 3] = [4, 6, 8];
const GROUP: u32 = 64;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let (Some(file), None) = (args.next(), args.next()) else {
        bail!("expected one argument, the file to write");
    };
    let (pristine, patched) = (Prefix::pristine()?, Prefix::patched()?);
    let mut table = format!(
        "# device: simulated {ARCHITECTURE}; it counts, and says nothing of time\n\
         # command: cargo run -p proofs --example tile_cap -- {file}\n\
         # A: MLX {} as it is, tree {}\n\
         # B: the same with the overlay, no policy set, tree {}\n\
         # bytes_of_w: what the dispatch loaded; passes: that over the size of w; equal: all bits of the product are A's\n\
         label\tbits\tgroup\tK\tN\tM\tkernel\tbytes_of_w\tpasses\tequal\n",
        pristine.stamp().version,
        pristine.stamp().final_tree,
        patched.stamp().final_tree
    );
    let (a, b) = (Driver::build(&pristine)?, Driver::build(&patched)?);
    for bits in BITS {
        let case = Case::new(bits, GROUP, Kind::Fast, ROWS).context("no such K")?;
        // Enough outputs for the larger tiles, and the shortest K of qmv_fast.
        let case = Case {
            n: 2056,
            k: case.k / 3,
            record: Record::Dispatches,
            ..case
        };
        let before = products(&a, &case)?;
        let after = products(&b, &case)?;
        for (label, products) in [("A", &before), ("B", &after)] {
            for (product, reference) in products.iter().zip(&before) {
                let equal = product.bits.is_some() && product.bits == reference.bits;
                row(&mut table, label, &case, product, equal)?;
            }
        }
    }
    let path = std::path::Path::new(&file);
    if let Some(folder) = path.parent() {
        fs_err::create_dir_all(folder)?;
    }
    cli::file::write(path, table)?;
    Ok(())
}

/// The case's products, one for each number of rows.
fn products(driver: &Driver, case: &Case) -> Result<Vec<Together>> {
    let architecture = ARCHITECTURE.parse()?;
    let how = How {
        device: Device::new().architecture(architecture).meter(true),
        policy: Policy::DEFAULT,
        metallib: None,
    };
    let answer = driver.run(&how, std::slice::from_ref(case))?;
    Ok(answer.into_iter().next().context("no answer")?.together)
}

fn row(
    table: &mut String,
    label: &str,
    case: &Case,
    product: &Together,
    equal: bool,
) -> Result<()> {
    let [dispatch] = &product.dispatches[..] else {
        bail!(
            "{} dispatches at M = {}",
            product.dispatches.len(),
            product.m
        );
    };
    let loaded = dispatch
        .argument("w")
        .and_then(|weights| weights.loaded)
        .context("nothing counted for w")?;
    let size = u64::from(case.n * case.k * case.bits / 8);
    ensure!(
        loaded.is_multiple_of(size),
        "{} loads {loaded} bytes of {size}",
        dispatch.kernel
    );
    writeln!(
        table,
        "{label}\t{}\t{}\t{}\t{}\t{}\t{}\t{loaded}\t{}\t{}",
        case.bits,
        case.group,
        case.k,
        case.n,
        product.m,
        dispatch.kernel,
        loaded / size,
        if equal { "yes" } else { "no" }
    )?;
    Ok(())
}
