//! The kernels to run, and how upstream's host code launches them.
//!
//! Deliberately independent of `dispatch-plan` and `mlx-terms`: an oracle that shared their tables would share their
//! faults. Names, grids and sizes follow `qmv_quad`, `qmv`, `qmv_wide` and `dispatch_qmv` in upstream's
//! `mlx/backend/metal/quantized.cpp`.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Integers with a scale and a bias per group.
    Affine,
    /// FP4 elements with a power of two per group of 32.
    Mxfp4,
    /// FP8 elements with a power of two per group of 32.
    Mxfp8,
    /// FP4 elements with an FP8 scale per group of 16.
    Nvfp4,
}

impl Mode {
    /// The prefix of host names.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Affine => "affine",
            Self::Mxfp4 => "mxfp4",
            Self::Mxfp8 => "mxfp8",
            Self::Nvfp4 => "nvfp4",
        }
    }
}

/// The type of x and y, and of affine scales and biases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Element {
    /// 32 bits.
    Float,
    /// 16 bits, 10 of them mantissa.
    Half,
    /// 16 bits, 7 of them mantissa.
    Bfloat,
}

impl Element {
    /// The name in host names.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Float => "float",
            Self::Half => "float16_t",
            Self::Bfloat => "bfloat16_t",
        }
    }

    /// Bytes of one value.
    pub(crate) fn size(self) -> usize {
        if self == Self::Float { 4 } else { 2 }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Path {
    /// `qmv_fast`: K fills whole blocks; `results` rows per simdgroup.
    Fast {
        /// 4, or 2 on one device for nvfp4.
        results: usize,
    },
    /// `qmv`: any K.
    Plain,
    /// `qmv_wide`: several vectors share the weights.
    Wide {
        /// Vectors per threadgroup.
        vectors: usize,
    },
    /// `qmv_quad`: K of 64 or 128, which is part of the name.
    Quad,
}

impl Path {
    /// The kernel's name in upstream's source.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Fast { .. } => "qmv_fast",
            Self::Plain => "qmv",
            Self::Wide { .. } => "qmv_wide",
            Self::Quad => "qmv_quad",
        }
    }
}

/// One product: y (M x N) = x (M x K) times the transpose of w (N x K, quantized).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Case {
    pub(crate) mode: Mode,
    /// Type of x and y.
    pub(crate) element: Element,
    pub(crate) path: Path,
    /// Values that share a scale.
    pub(crate) group: usize,
    /// Bits per value.
    pub(crate) bits: usize,
    /// Whether a per-tensor scale is applied (nvfp4's second level).
    pub(crate) global_scale: bool,
    /// Rows of x.
    pub(crate) m: usize,
    /// Rows of w.
    pub(crate) n: usize,
    /// Columns of both.
    pub(crate) k: usize,
}

impl Case {
    /// The host name of the kernel.
    pub(crate) fn kernel(&self) -> String {
        let Self {
            mode,
            element,
            path,
            group,
            bits,
            ..
        } = self;
        let head = format!(
            "{}_{}_{}_gs_{group}_b_{bits}",
            mode.name(),
            path.name(),
            element.name()
        );
        match path {
            Path::Fast { .. } | Path::Plain => {
                let (fast, results) = match path {
                    Path::Fast { results } => (true, *results),
                    _ => (false, 4),
                };
                let partial = u8::from(fast && !self.n.is_multiple_of(8));
                format!(
                    "{head}_batch_0_pr_{partial}_hgs_{}_r_{results}",
                    u8::from(self.global_scale)
                )
            }
            Path::Wide { vectors } => {
                format!("{head}_nv_{vectors}_kl_{}_batch_0", self.lanes_along_k())
            }
            Path::Quad => format!("{head}_d_{}_batch_0", self.k),
        }
    }

    /// Threadgroups in each direction, and threads per threadgroup.
    pub(crate) fn grid(&self) -> ([u32; 3], [u32; 3]) {
        let (x, rows, simdgroups) = match self.path {
            Path::Fast { results } => (self.m, 2 * results, 2),
            Path::Plain => (self.m, 8, 2),
            Path::Wide { vectors } => {
                (self.m.div_ceil(vectors), 2 * (32 / self.lanes_along_k()), 2)
            }
            Path::Quad => (self.m, 64, 1),
        };
        (
            [x as u32, self.n.div_ceil(rows) as u32, 1],
            [32, simdgroups, 1],
        )
    }

    fn lanes_along_k(&self) -> usize {
        if self.mode == Mode::Affine { 8 } else { 16 }
    }
}

/// All cases.
pub(crate) fn all() -> Vec<Case> {
    let mut cases = Vec::new();
    for element in [Element::Float, Element::Half, Element::Bfloat] {
        // f32 output shows every bit; the 16-bit types repeat a part of the cases to test their conversions.
        let full = element == Element::Float;
        for (bits, group) in affine_formats(full) {
            affine(&mut cases, element, bits, group, full);
        }
        for (mode, bits, group) in [
            (Mode::Mxfp4, 4, 32),
            (Mode::Mxfp8, 8, 32),
            (Mode::Nvfp4, 4, 16),
        ] {
            floating(
                &mut cases,
                Case {
                    mode,
                    element,
                    path: Path::Plain,
                    group,
                    bits,
                    global_scale: false,
                    m: 1,
                    n: 0,
                    k: 0,
                },
            );
        }
    }
    cases
}

fn affine_formats(full: bool) -> Vec<(usize, usize)> {
    let bits: &[usize] = if full {
        &[1, 2, 3, 4, 5, 6, 8]
    } else {
        &[3, 4, 8]
    };
    let groups: &[usize] = if full { &[32, 64, 128] } else { &[64] };
    bits.iter()
        .flat_map(|bits| groups.iter().map(|group| (*bits, *group)))
        .collect()
}

fn affine(cases: &mut Vec<Case>, element: Element, bits: usize, group: usize, full: bool) {
    let case = |path, m, n, k| Case {
        mode: Mode::Affine,
        element,
        path,
        group,
        bits,
        global_scale: false,
        m,
        n,
        k,
    };
    let block = if bits == 1 { 2048 } else { 512 };
    let fast = Path::Fast { results: 4 };
    cases.push(case(fast, 1, 32, 2 * block));
    cases.push(case(fast, 3, 20, block));
    // A K that is not a multiple of any block, with more and with fewer rows than a threadgroup computes.
    cases.push(case(Path::Plain, 2, 36, block + 128));
    cases.push(case(Path::Plain, 1, 5, 384 + 128));
    // The group size hardly matters here: every tile for one of them.
    let vectors = if full && group == 64 { 2..=5 } else { 5..=5 };
    for vectors in vectors {
        cases.push(case(Path::Wide { vectors }, vectors, 36, 640));
    }
    // Two tiles, the second one not full.
    cases.push(case(Path::Wide { vectors: 4 }, 7, 16, 1024));
    for k in [64, 128] {
        if bits.is_power_of_two() && group <= k && (k == 128 || bits >= 2) {
            cases.push(case(Path::Quad, 2, 64, k));
        }
    }
}

fn floating(cases: &mut Vec<Case>, format: Case) {
    let fast = Path::Fast { results: 4 };
    for global_scale in [false, true] {
        cases.push(Case {
            path: fast,
            global_scale,
            m: 2,
            n: 32,
            k: 1024,
            ..format
        });
        cases.push(Case {
            path: Path::Plain,
            global_scale,
            m: 2,
            n: 36,
            k: 640 - 32,
            ..format
        });
    }
    cases.push(Case {
        path: fast,
        m: 1,
        n: 20,
        k: 512,
        ..format
    });
    if format.mode == Mode::Nvfp4 {
        cases.push(Case {
            path: Path::Fast { results: 2 },
            m: 1,
            n: 32,
            k: 512,
            ..format
        });
    }
    for vectors in 2..=5 {
        cases.push(Case {
            path: Path::Wide { vectors },
            m: vectors,
            n: 36,
            k: 608,
            ..format
        });
    }
    cases.push(Case {
        path: Path::Wide { vectors: 4 },
        m: 7,
        n: 16,
        k: 1024,
        ..format
    });
    for k in [64, 128] {
        cases.push(Case {
            path: Path::Quad,
            m: 2,
            n: 64,
            k,
            ..format
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_grids_are_upstreams() {
        let case = Case {
            mode: Mode::Affine,
            element: Element::Bfloat,
            path: Path::Wide { vectors: 4 },
            group: 64,
            bits: 4,
            global_scale: false,
            m: 7,
            n: 20,
            k: 512,
        };
        assert_eq!(
            case.kernel(),
            "affine_qmv_wide_bfloat16_t_gs_64_b_4_nv_4_kl_8_batch_0"
        );
        assert_eq!(case.grid(), ([2, 3, 1], [32, 2, 1]));
        let narrow = Case {
            mode: Mode::Nvfp4,
            group: 16,
            path: Path::Fast { results: 2 },
            global_scale: true,
            ..case
        };
        assert_eq!(
            narrow.kernel(),
            "nvfp4_qmv_fast_bfloat16_t_gs_16_b_4_batch_0_pr_1_hgs_1_r_2"
        );
        assert_eq!(narrow.grid(), ([7, 5, 1], [32, 2, 1]));
        let quad = Case {
            path: Path::Quad,
            k: 128,
            ..case
        };
        assert_eq!(
            quad.kernel(),
            "affine_qmv_quad_bfloat16_t_gs_64_b_4_d_128_batch_0"
        );
        assert_eq!(quad.grid(), ([7, 1, 1], [32, 1, 1]));
    }
}
