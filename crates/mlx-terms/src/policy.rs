//! Who decides between kernels that compute the same product, and what was decided. `named!` gives `FromStr`.

use crate::named;

named! {
    /// Who decides between kernels that compute the same product.
    ///
    /// MLX computes several rows faster than one by one, but then a row does not have the bits that it has alone. A
    /// policy says which products must keep them:
    ///
    /// | policy | below the batch limit | from there on | weights read |
    /// |---|---|---|---|
    /// | `Default` | as MLX does | as MLX does | as MLX does |
    /// | `Narrow` | bits of one row | as MLX does | once a row |
    /// | `Streamed` | bits of one row | as MLX does | once for 8 rows |
    /// | `Exact` | bits of one row | bits of one row | once for 8 rows |
    ///
    /// One row takes the same kernel under every policy. A policy holds for quantized products, not for attention or
    /// for products of dense matrices.
    #[non_exhaustive]
    "policy" Policy {
        /// MLX's own choice.
        Default => "default",
        /// One-row kernels for each row.
        Narrow => "narrow",
        /// Order-preserving kernels for several rows.
        Streamed => "streamed",
        /// Order-preserving kernels for any number of rows.
        Exact => "exact",
    }
}

named! {
    /// What computes a quantized product.
    #[non_exhaustive]
    "path" Path {
        /// Nothing: there is nothing to compute.
        None => "none",
        /// A row by quads of lanes: K is 64 or 128.
        Quad => "qmv_quad",
        /// One row at a time.
        Qmv => "qmv",
        /// Tiles of rows, in an order of their own.
        Wide => "qmv_wide",
        /// Tiles of rows, in the order of the one-row kernel.
        Streamed => "qmv_streamed",
        /// One of MLX's other kernels that go row by row: gathers, and weights that are not transposed.
        Rows => "rows",
        /// A matrix kernel.
        Matrix => "matrix",
        /// A matrix kernel over sorted picks of a gather that share weights.
        Sorted => "sorted",
    }
}

impl Path {
    /// Its name, with `_fast` for the kernel that takes K in whole blocks: `qmv_fast`.
    #[must_use]
    pub fn kernel_name(self, fast: bool) -> String {
        format!("{self}{}", if fast { "_fast" } else { "" })
    }
}
