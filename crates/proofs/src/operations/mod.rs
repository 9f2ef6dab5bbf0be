//! The other operations of a forward pass: each row of a block of attention, dense products, gathers and gated delta
//! has the same bits as alone.

mod case;
mod matrix;
mod names;
mod page;
mod pairwise;
mod run;

pub use case::{
    Block, Experts, Mask, Operation, OperationAnswer, Product, RowsAlone, Setting, Shape,
};
pub use matrix::{Family, Job, jobs};
pub use names::{Names, architectures, check_names};
pub use page::render_operations;
pub use run::{Compared, Comparison, compare};
