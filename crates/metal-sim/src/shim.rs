//! The MSL shim, embedded in the library so that the compiler needs no other files.

use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::{Error, cache};

macro_rules! files {
    ($($path:literal),* $(,)?) => { &[$(($path, include_str!(concat!("../", $path)))),*] };
}

/// Headers included in every kernel.
const SHIM: &[(&str, &str)] = files![
    "abi/kernel_abi.h",
    "abi/lane_abi.h",
    "msl/mtlsim/atomic.h",
    "msl/mtlsim/atomic_types.h",
    "msl/mtlsim/check.h",
    "msl/mtlsim/kernel.h",
    "msl/mtlsim/lane.h",
    "msl/mtlsim/math.h",
    "msl/mtlsim/matrix.h",
    "msl/mtlsim/meter.h",
    "msl/mtlsim/prelude.h",
    "msl/mtlsim/races.h",
    "msl/mtlsim/simd.h",
    "msl/mtlsim/track.h",
    "msl/mtlsim/types.h",
    "msl/mtlsim/undefined.h",
];

/// Names of the system headers that Metal sources include. They are empty during preprocessing: the
/// shim declares their contents.
const EMPTY: [&str; 21] = [
    "metal_array",
    "metal_assert",
    "metal_atomic",
    "metal_common",
    "metal_compute",
    "metal_geometric",
    "metal_integer",
    "metal_limits",
    "metal_logging",
    "metal_math",
    "metal_matrix",
    "metal_numeric",
    "metal_pack",
    "metal_quadgroup",
    "metal_relational",
    "metal_simdgroup",
    "metal_simdgroup_matrix",
    "metal_stdlib",
    "metal_type_traits",
    "metal_types",
    "metal_uniform",
];

/// Headers for unsupported hardware. They mark the sources that include them.
const UNSUPPORTED: [&str; 2] = [
    "metal_tensor",
    "MetalPerformancePrimitives/MetalPerformancePrimitives.h",
];

/// A hash of the shim's content.
pub(crate) fn digest() -> String {
    let mut hash = Sha256::new();
    for (path, text) in SHIM {
        hash.update(path);
        hash.update([0]);
        hash.update(text);
        hash.update([0]);
    }
    hash.update(EMPTY.join(","));
    hash.update(UNSUPPORTED.join(","));
    cache::short_hex(hash)
}

/// The shim's folder in the cache: `abi`, `msl/mtlsim` and `stubs`. Missing or wrong files are
/// written.
pub(crate) fn folder(cache: &Path) -> Result<PathBuf, Error> {
    let folder = cache.join(format!("shim-{}", digest()));
    for (path, text) in SHIM {
        cache::keep(cache, &folder.join(path), text.as_bytes())?;
    }
    let stubs = folder.join("stubs");
    for name in EMPTY {
        cache::keep(cache, &stubs.join(name), b"")?;
    }
    for name in UNSUPPORTED {
        let marker = format!("{}{name}\n", crate::parse::UNSUPPORTED);
        cache::keep(cache, &stubs.join(name), marker.as_bytes())?;
    }
    Ok(folder)
}
