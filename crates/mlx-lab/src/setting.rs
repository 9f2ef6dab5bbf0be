//! Policies and the streams that carry them, also where the library has none.

use mlx_overlay::{Device, RowPolicy, Stream, dispatch_stats, has_policies};

use crate::{Error, Result};

/// The policies that can be asked for here: one of each kind, or [`RowPolicy::DEFAULT`] alone where the library
/// has none (pristine MLX, the CPU back-end).
pub fn policies() -> Vec<RowPolicy> {
    if has_policies() {
        RowPolicy::KINDS.to_vec()
    } else {
        vec![RowPolicy::DEFAULT]
    }
}

/// A stream under a policy. Streams are never destroyed: make few.
///
/// # Errors
/// [`mlx_overlay::Error::NoPolicies`] for another policy than the default one where the library has
/// none.
pub fn stream(policy: RowPolicy) -> Result<Stream> {
    if policy == RowPolicy::DEFAULT && !has_policies() {
        return Ok(Stream::default_of(Device::preferred()?)?);
    }
    Ok(Stream::with_policy(policy)?)
}

/// Quantized products by the path that they took, since some moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counters(Vec<(String, u64)>);

impl Counters {
    /// What was counted so far; nothing where the library does not count.
    ///
    /// # Errors
    /// MLX's.
    pub fn now() -> Result<Self> {
        if has_policies() {
            let counts = dispatch_stats()?.into_iter();
            let named = counts.map(|count| (count.to_string(), count.products));
            Ok(Self(named.collect()))
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
        for (path, count) in &mut counts {
            let before = self.0.iter().find(|(name, _)| name == path);
            *count -= before.map_or(0, |&(_, before)| before);
        }
        counts.retain(|&(_, count)| count > 0);
        Ok(counts)
    }
}

/// The policy of that name.
///
/// # Errors
/// [`Error::Policy`].
pub(crate) fn policy(name: &str) -> Result<RowPolicy> {
    name.parse().map_err(Error::from)
}
