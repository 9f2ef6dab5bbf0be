use std::fmt;

use crate::Path;

/// How many quantized products took a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct DispatchCount {
    /// The path.
    pub path: Path,
    /// Whether the products took the path's kernel for a K without a tail.
    pub fast: bool,
    /// The number of products.
    pub products: u64,
}

impl DispatchCount {
    /// MLX's counters, `mlx_row_counts` in `mlx/row_policy.h`: two per path, the second for its fast kernel. Paths with
    /// a count of 0 are left out, and so are unknown paths of a later MLX.
    #[must_use]
    pub fn list(counts: &[u64]) -> Vec<Self> {
        let of_path = |(&path, counts): (&Path, &[u64])| {
            [(false, counts[0]), (true, counts[1])].map(|(fast, products)| Self {
                path,
                fast,
                products,
            })
        };
        let counts = Path::ALL.iter().zip(counts.chunks_exact(2));
        let counts = counts.flat_map(of_path);
        counts.filter(|count| count.products > 0).collect()
    }
}

impl fmt::Display for DispatchCount {
    /// `qmv_fast`, for example.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.path.kernel_name(self.fast))
    }
}
