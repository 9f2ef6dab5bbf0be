//! Policies and the streams that carry them, also where the library has none.

use mlx_overlay::{Device, QmvPolicy, Stream, dispatch_stats};

use crate::{Error, Result};

/// The policies that can be asked for here: all, or [`QmvPolicy::Default`] alone where the library
/// has none (pristine MLX, the CPU back-end).
pub fn policies() -> Vec<QmvPolicy> {
    if QmvPolicy::is_available() {
        QmvPolicy::ALL.to_vec()
    } else {
        vec![QmvPolicy::Default]
    }
}

/// A stream under a policy. Streams are never destroyed: make few.
///
/// # Errors
/// [`mlx_overlay::Error::NoPolicies`] for another policy than the default one where the library has
/// none.
pub fn stream(policy: QmvPolicy) -> Result<Stream> {
    if policy == QmvPolicy::Default && !QmvPolicy::is_available() {
        return Ok(Stream::default_of(Device::preferred()?)?);
    }
    Ok(Stream::with_policy(policy)?)
}

/// Dispatches of the kernels of quantized products by function, since some moment. Kernels that
/// only quantize or dequantize are left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counters(Vec<(String, u64)>);

impl Counters {
    /// What was counted so far; nothing where the library does not count.
    ///
    /// # Errors
    /// MLX's.
    pub fn now() -> Result<Self> {
        if QmvPolicy::is_available() {
            let mut counts = dispatch_stats()?;
            counts.retain(|(kernel, _)| !kernel.contains("quantize"));
            Ok(Self(counts))
        } else {
            Ok(Self(Vec::new()))
        }
    }

    /// What was counted since, by all threads of the process.
    ///
    /// # Errors
    /// MLX's.
    pub fn since(&self) -> Result<Vec<(String, u64)>> {
        let mut counts = Self::now()?.0;
        for (kernel, count) in &mut counts {
            let before = self.0.iter().find(|(name, _)| name == kernel);
            *count -= before.map_or(0, |&(_, before)| before);
        }
        counts.retain(|&(_, count)| count > 0);
        Ok(counts)
    }
}

/// The policy of that name.
///
/// # Errors
/// [`mlx_overlay::Error::PolicyName`].
pub(crate) fn policy(name: &str) -> Result<QmvPolicy> {
    name.parse().map_err(Error::from)
}
