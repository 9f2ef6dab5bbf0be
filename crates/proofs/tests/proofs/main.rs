//! Proofs of what the quantized kernels and their dispatch promise. They need `cargo xtask build --backend sim`;
//! without it they are listed as ignored. The full comparison of row identity, which takes hours of CPU time, is a
//! command: `cargo run -p proofs -- --help`.

mod accuracy;
mod alignment;
mod canary;
mod cap;
mod closure;
mod dispatch;
mod fingerprint;
mod guard;
mod identity;
mod mutants;
mod operation_mutants;
mod operations;
mod page;
mod traffic;
mod wide;

use anyhow::Result;
use libtest_mimic::{Arguments, Trial};
use proofs::Prefix;

fn main() {
    let mut arguments = Arguments::from_args();
    let patched = Prefix::patched();
    if let Err(error) = &patched {
        eprintln!("ignored: {error:#}");
    }
    let trial = |name: &str, test: fn() -> Result<()>| {
        Trial::test(name, move || {
            Ok(test().map_err(|error| format!("{error:#}"))?)
        })
        .with_ignored_flag(patched.is_err())
    };
    let trials = vec![
        trial("rows_have_the_bits_they_have_alone", identity::core),
        trial("rows_of_fp_modes_have_them_too", identity::fp_core),
        trial("default_does_not_keep_them", identity::negative_control),
        trial(
            "default_does_not_keep_them_in_fp_modes",
            identity::fp_negative_control,
        ),
        trial("rows_of_attention_keep_their_bits", operations::attention),
        trial("rows_of_dense_products_keep_them", operations::dense),
        trial(
            "rows_of_gathers_and_gated_delta_keep_them",
            operations::rest,
        ),
        trial(
            "attention_dispatches_what_its_rows_dispatch_alone",
            operations::names,
        ),
        trial(
            "dense_products_dispatch_what_is_planned",
            operations::dense_names,
        ),
        trial(
            "the_page_on_policies_says_what_operations_take",
            page::operations,
        ),
        trial("a_kernel_in_another_order_is_caught", mutants::caught),
        trial(
            "an_fp_kernel_in_another_order_is_caught",
            mutants::fp_caught,
        ),
        trial(
            "operations_that_choose_for_the_block_are_caught",
            operation_mutants::host,
        ),
        trial(
            "kernels_of_operations_in_another_order_are_caught",
            operation_mutants::kernels,
        ),
        trial("rows_of_x_may_begin_anywhere", alignment::kept),
        trial("tiles_of_eight_keep_the_bits_of_five", cap::same_bits),
        trial("all_policies_are_as_accurate", accuracy::within_the_type),
        trial("memory_beyond_the_buffers_is_left_alone", guard::kept),
        trial("weights_are_read_as_often_as_planned", traffic::counted),
        trial(
            "operations_read_matrices_and_keys_as_often_as_planned",
            traffic::operations,
        ),
        trial("one_row_has_the_bits_it_had", canary::same_bits),
        trial(
            "every_name_a_dispatch_can_ask_for_exists",
            closure::complete,
        ),
        trial("kernels_of_another_build_are_refused", fingerprint::refused),
        trial(
            "each_architecture_takes_the_planned_kernels",
            dispatch::as_planned,
        ),
        trial("wide_has_one_order_for_any_number_of_rows", wide::one_order),
        trial(
            "the_narrow_nvfp4_kernel_has_the_same_order",
            dispatch::narrow_kernel,
        ),
    ];
    // Tests that cannot run here stay ignored even when the long tests are requested.
    arguments.include_ignored &= patched.is_ok();
    libtest_mimic::run(&arguments, trials).exit();
}
