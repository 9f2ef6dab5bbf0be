use std::fmt;

use crate::Path;

/// How many quantized products took a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct DispatchCount {
    /// What computed them.
    pub path: Path,
    /// Whether that path's kernel for K that needs no tail did.
    pub fast: bool,
    /// How many there were.
    pub products: u64,
}

impl DispatchCount {
    /// MLX's counters, `mlx_row_counts` in `mlx/row_policy.h`: two a path, the second for its fast kernel. Paths that none
    /// took are left out, and so are those of a later MLX, which are not known here.
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
