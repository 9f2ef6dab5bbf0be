//! The question and the answer as Rust types.

use std::fmt;
use std::str::FromStr;

use crate::Error;
#[cfg(not(without_plan))]
use crate::ffi;

/// Declares an enum whose values have the numbers of the C interface and a name each.
macro_rules! named {
    ($(#[$doc:meta])* $kind:literal $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $text:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(i32)]
        pub enum $name { $($(#[$variant_doc])* $variant,)+ }

        impl $name {
            /// Every value, in the order of the C interface.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// Its name.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $text,)+ }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.name())
            }
        }

        impl FromStr for $name {
            type Err = Error;

            fn from_str(found: &str) -> Result<Self, Error> {
                Self::ALL.iter().copied().find(|value| value.name() == found).ok_or_else(|| Error::UnknownName {
                    kind: $kind,
                    expected: Self::ALL.iter().map(|value| value.name()).collect::<Vec<_>>().join(", "),
                    found: found.to_owned(),
                })
            }
        }
    };
}

named! {
    /// Who decides between kernels that compute the same product.
    "policy" Policy {
        /// MLX's own choice.
        Default = "default",
        /// One-row kernels below the batch limit.
        Narrow = "narrow",
        /// Order-preserving kernels below the batch limit.
        Streamed = "streamed",
        /// Order-preserving kernels at any number of rows.
        Exact = "exact",
    }
}

named! {
    /// The primitive that computes the product.
    "operation" Op {
        /// `quantized_matmul`.
        QuantizedMatmul = "quantized_matmul",
        /// `gather_qmm`.
        GatherQmm = "gather_qmm",
        /// `qqmm`.
        QqMatmul = "qqmm",
        /// `gather_qqmm`.
        GatherQqmm = "gather_qqmm",
    }
}

named! {
    /// The quantization mode.
    "mode" Mode {
        /// A scale and a bias a group.
        Affine = "affine",
        /// 4-bit floats with a shared exponent.
        Mxfp4 = "mxfp4",
        /// 8-bit floats with a shared exponent.
        Mxfp8 = "mxfp8",
        /// 4-bit floats with an 8-bit scale.
        Nvfp4 = "nvfp4",
    }
}

impl Mode {
    /// Bits a weight and weights a group, where the mode leaves no choice.
    #[must_use]
    pub const fn fixed(self) -> Option<(u32, u32)> {
        match self {
            Self::Affine => None,
            Self::Mxfp4 => Some((4, 32)),
            Self::Mxfp8 => Some((8, 32)),
            Self::Nvfp4 => Some((4, 16)),
        }
    }
}

named! {
    /// The type of x and of the result.
    "dtype" Dtype {
        /// 32 bits.
        Float32 = "float32",
        /// IEEE's 16 bits.
        Float16 = "float16",
        /// The upper half of 32 bits.
        Bfloat16 = "bfloat16",
    }
}

named! {
    /// A kernel family.
    "path" Path {
        /// Nothing to compute.
        None = "none",
        /// A row by quads of lanes: K is 64 or 128.
        Quad = "qmv_quad",
        /// One row at a time.
        Qmv = "qmv",
        /// Tiles of rows, in an order of its own.
        Wide = "qmv_wide",
        /// Tiles of rows, in the order of the one-row kernel.
        Streamed = "qmv_streamed",
        /// One row at a time, weights not transposed.
        Qvm = "qvm",
        /// The same in parts of K.
        QvmSplitK = "qvm_split_k",
        /// A matrix kernel.
        Qmm = "qmm",
        /// A matrix kernel in parts of K.
        QmmSplitK = "qmm_split_k",
        /// One row of a gathered product at a time.
        GatherQmv = "gather_qmv",
        /// The same, weights not transposed.
        GatherQvm = "gather_qvm",
        /// A matrix kernel for gathered products.
        GatherQmm = "gather_qmm",
        /// A matrix kernel over gathered products of one row that share weights.
        GatherQmmRhs = "gather_qmm_rhs",
    }
}

/// A GPU as Metal names it: `applegpu_g15d` is generation 15, size `d`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Architecture {
    generation: i32,
    size: char,
}

impl Architecture {
    /// The sizes that MLX tells apart.
    pub const SIZES: [char; 4] = ['p', 'g', 's', 'd'];

    /// Size `d`, two dies in one.
    #[must_use]
    pub const fn is_ultra(self) -> bool {
        self.size == 'd'
    }

    /// The generation, 15 of `applegpu_g15d`.
    #[must_use]
    pub const fn generation(self) -> i32 {
        self.generation
    }
}

impl fmt::Display for Architecture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("applegpu_g{}{}", self.generation, self.size))
    }
}

impl FromStr for Architecture {
    type Err = Error;

    /// Accepts Metal's name with or without its prefix: `applegpu_g15d`, `g15d`.
    #[cfg(not(without_plan))]
    fn from_str(name: &str) -> Result<Self, Error> {
        let full = if name.starts_with("applegpu_") {
            name.to_owned()
        } else {
            format!("applegpu_{name}")
        };
        let full = std::ffi::CString::new(full)
            .map_err(|_| Error::Invalid(format!("{name:?} holds a NUL")))?;
        let mut problem = ffi::Problem::default();
        // SAFETY: the problem is valid for writes and the name ends with a NUL.
        if unsafe { ffi::mlx_qmv_problem_init(&mut problem, full.as_ptr()) } != 0 {
            return Err(crate::last_error());
        }
        let size = u8::try_from(problem.arch_size).map_or('?', char::from);
        Ok(Self {
            generation: problem.arch_generation,
            size,
        })
    }

    #[cfg(without_plan)]
    fn from_str(_: &str) -> Result<Self, Error> {
        Err(Error::Unavailable)
    }
}

/// One quantized product: `batch` times x of (m, k) by weights of n rows of k values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Problem {
    /// The device.
    pub architecture: Architecture,
    /// Whether MLX uses the device's matrix units (macOS 26.2 on generation 17; 18 for phones).
    pub nax: bool,
    /// The primitive.
    pub op: Op,
    /// The quantization mode.
    pub mode: Mode,
    /// The type of x and of the result.
    pub dtype: Dtype,
    /// Bits a weight.
    pub bits: u32,
    /// Weights that share a scale.
    pub group_size: u32,
    /// Whether the weights are (n, k), as in a linear layer.
    pub transpose: bool,
    /// Rows of x that meet the same weights.
    pub m: u32,
    /// Outputs a row.
    pub n: u32,
    /// Values a row.
    pub k: u32,
    /// Products of m rows each.
    pub batch: u32,
    /// Matrices among which a gather picks.
    pub experts: u32,
    /// Whether a gather's right-hand indices are sorted.
    pub right_sorted: bool,
    /// Whether nvfp4 weights have a scale for all of them.
    pub global_scale: bool,
}

impl Problem {
    /// An affine 4-bit product of one row in bfloat16, in groups of 64, on a device whose matrix units are not used.
    #[must_use]
    pub const fn new(architecture: Architecture, n: u32, k: u32) -> Self {
        Self {
            architecture,
            nax: false,
            op: Op::QuantizedMatmul,
            mode: Mode::Affine,
            dtype: Dtype::Bfloat16,
            bits: 4,
            group_size: 64,
            transpose: true,
            m: 1,
            n,
            k,
            batch: 1,
            experts: 1,
            right_sorted: false,
            global_scale: false,
        }
    }

    /// The same product in another mode, with the bits and the group that the mode fixes.
    #[must_use]
    pub const fn with_mode(self, mode: Mode) -> Self {
        let (bits, group_size) = match mode.fixed() {
            Some(fixed) => fixed,
            None => (self.bits, self.group_size),
        };
        Self {
            mode,
            bits,
            group_size,
            ..self
        }
    }

    /// Whether MLX has a matrix kernel for this product above the batch limit. For the primitives that quantize x it
    /// does with a global scale and bfloat16 only (`QQMatmul::eval_gpu`, `GatherQQMM::eval_gpu`).
    #[cfg(not(without_plan))]
    fn has_matrix_kernel(&self) -> bool {
        let k_alignment = match self.op {
            Op::QuantizedMatmul | Op::GatherQmm => return true,
            Op::GatherQqmm if self.nax => 64,
            Op::QqMatmul | Op::GatherQqmm => 32,
        };
        self.global_scale && self.dtype == Dtype::Bfloat16 && self.k.is_multiple_of(k_alignment)
    }

    #[cfg(not(without_plan))]
    pub(crate) fn to_ffi(self) -> Result<ffi::Problem, Error> {
        let int = |field: &str, value: u32| {
            i32::try_from(value)
                .map_err(|_| Error::Invalid(format!("{field} must be below 2^31, found {value}")))
        };
        Ok(ffi::Problem {
            op: self.op as i32,
            mode: self.mode as i32,
            dtype: self.dtype as i32,
            bits: int("bits", self.bits)?,
            group_size: int("group_size", self.group_size)?,
            transpose: i32::from(self.transpose),
            m: int("m", self.m)?,
            n: int("n", self.n)?,
            k: int("k", self.k)?,
            batch: int("batch", self.batch)?,
            experts: int("experts", self.experts)?,
            right_sorted: i32::from(self.right_sorted),
            global_scale: i32::from(self.global_scale),
            matrix_kernels: i32::from(self.has_matrix_kernel()),
            arch_generation: self.architecture.generation,
            arch_size: self.architecture.size as i32,
            nax: i32::from(self.nax),
            tf32: 1,
            batch_limit: 0,
            stream: -1,
        })
    }
}

/// A measured preference: products of a format and within the ranges (both ends included) take a path, where the policy
/// permits it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Route {
    /// The quantization mode, or any.
    pub mode: Option<Mode>,
    /// Bits a weight, or any.
    pub bits: Option<u8>,
    /// Weights that share a scale, or any number.
    pub group_size: Option<u8>,
    /// Outputs a row.
    pub n: [i32; 2],
    /// Values a row.
    pub k: [i32; 2],
    /// Rows.
    pub m: [i32; 2],
    /// [`Path::Qmv`], [`Path::Wide`] or [`Path::Streamed`].
    pub path: Path,
}

impl Route {
    #[cfg(not(without_plan))]
    pub(crate) fn to_ffi(self) -> ffi::Route {
        ffi::Route {
            mode: self.mode.map_or(-1, |mode| mode as i32),
            bits: self.bits.map_or(0, i32::from),
            group_size: self.group_size.map_or(0, i32::from),
            n: self.n,
            k: self.k,
            m: self.m,
            path: self.path as i32,
        }
    }
}

/// What a product does on the device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// The kernel family.
    pub path: Path,
    /// The kernel's name in the library.
    pub kernel: String,
    /// Rows of x that one threadgroup serves.
    pub tile: u32,
    /// Tiles of rows.
    pub tiles: u32,
    /// Threadgroups along x, y and z.
    pub grid: [u32; 3],
    /// Threads a threadgroup along x, y and z.
    pub group: [u32; 3],
    /// How often each product reads its weights; 0 where the indices of a gather decide.
    pub weight_passes: u32,
    /// Bytes of weights, scales and biases read in these passes.
    pub weight_bytes: u64,
    /// Whether every row has the bits that the M = 1 product gives it.
    pub identical: bool,
}

impl Plan {
    #[cfg(not(without_plan))]
    pub(crate) fn from_ffi(raw: &ffi::Plan) -> Self {
        let count = |value: i32| u32::try_from(value).unwrap_or(0);
        let path = usize::try_from(raw.path)
            .ok()
            .and_then(|i| Path::ALL.get(i));
        let kernel = raw
            .kernel
            .split(|&byte| byte == 0)
            .next()
            .unwrap_or_default();
        Self {
            path: *path.unwrap_or(&Path::None),
            kernel: String::from_utf8_lossy(kernel).into_owned(),
            tile: count(raw.tile),
            tiles: count(raw.tiles),
            grid: raw.grid.map(count),
            group: raw.group.map(count),
            weight_passes: count(raw.weight_passes),
            weight_bytes: u64::try_from(raw.weight_bytes).unwrap_or(0),
            identical: raw.identical != 0,
        }
    }
}

#[cfg(all(test, not(without_plan)))]
mod tests {
    use super::*;

    /// The names on both sides of the interface are the same, and so are the numbers.
    #[test]
    fn path_names_are_those_of_the_c_side() {
        for &path in Path::ALL {
            // SAFETY: the function returns a static string for every path of the enum.
            let name = unsafe { std::ffi::CStr::from_ptr(ffi::mlx_qmv_path_name(path as i32)) };
            assert_eq!(name.to_str(), Ok(path.name()));
        }
    }

    /// The numbers that no [`Mode`] has.
    #[test]
    fn routes_of_unknown_modes_are_refused() {
        let route = Route {
            mode: None,
            bits: None,
            group_size: None,
            n: [0, 9],
            k: [0, 9],
            m: [0, 9],
            path: Path::Qmv,
        };
        for (mode, refused) in [(-2, true), (-1, false), (0, false), (3, false), (4, true)] {
            let raw = ffi::Route {
                mode,
                ..route.to_ffi()
            };
            // SAFETY: the pointer is valid for the call and the count is 1.
            let status = unsafe { ffi::mlx_qmv_check_routes(&raw, 1) };
            assert_eq!(status != 0, refused, "{mode}");
            if refused {
                let expected = format!("route 0: mode must be 0 to 3 or -1 for any, found {mode}");
                assert_eq!(crate::last_error().to_string(), expected);
            }
        }
    }
}
