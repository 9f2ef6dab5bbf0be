//! Tests what the quantized kernels and their dispatch promise, on the simulated device.
//!
//! A device and a policy belong to a process and are fixed at first use. So products are evaluated by a small program
//! ([`Driver`]), one process per setting, linked to a patched or pristine build. What is expected of them comes from
//! the plan (`dispatch-plan`) and from rules stated here; `tests/proofs/` compares both with what ran.

mod accuracy;
mod cap;
mod case;
mod driver;
mod fp;
mod identity;
mod matrix;
mod operations;
mod prefix;
mod report;

pub use accuracy::Accuracy;
pub use cap::{compare_with_pristine, compare_with_smaller_tiles};
pub use case::{BITS, Case, GROUPS, Kind, Record};
pub use driver::{Alone, Answer, Driver, How, Together, products};
pub use fp::{FloatFormat, SEEDS, control, differing};
pub use identity::{Group, Outcome, Tally, Tier, check, kernels, run, tolerance};
pub use matrix::{Modes, groups};
pub use operations::{
    Block, Compared, Comparison, Experts, Family, Job, Mask, Names, Operation, OperationAnswer,
    Product, RowsAlone, Setting, Shape, architectures, check_names, compare, jobs,
    render_operations,
};
pub use prefix::Prefix;
pub use report::render;
