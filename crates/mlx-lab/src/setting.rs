//! Policies and the streams that have them, also for libraries without policies.

use std::sync::{Mutex, MutexGuard, PoisonError};

use mlx_overlay::{
    Device, Route, RoutePath, RowPolicy, Stream, dispatch_stats, has_policies, set_routes,
};

use crate::product::Product;
use crate::{Error, Result};

/// The policies that are available here: one of each kind, or only [`RowPolicy::DEFAULT`] if the library has none
/// (pristine MLX, the CPU back-end).
pub fn policies() -> Vec<RowPolicy> {
    if has_policies() {
        RowPolicy::KINDS.to_vec()
    } else {
        vec![RowPolicy::DEFAULT]
    }
}

/// A stream under a policy. Streams are never destroyed, so make few.
///
/// # Errors
/// [`mlx_overlay::Error::NoPolicies`] for another policy than the default one, if the library has none.
pub fn stream(policy: RowPolicy) -> Result<Stream> {
    if policy == RowPolicy::DEFAULT && !has_policies() {
        return Ok(Stream::default_of(Device::preferred()?)?);
    }
    Ok(Stream::with_policy(policy)?)
}

/// While this exists, products of a format with `k` values and at most `n` outputs use a path, if their policy
/// permits it. It replaces the process's routing table, which is empty afterwards, because MLX does not return its
/// current table.
pub(crate) struct Routed {
    _alone: MutexGuard<'static, ()>,
}

/// One at a time, because there is only one table.
static TABLE: Mutex<()> = Mutex::new(());

impl Routed {
    pub(crate) fn new(product: &Product, path: RoutePath) -> Result<Self> {
        let _alone = TABLE.lock().unwrap_or_else(PoisonError::into_inner);
        // The casts are safe: MLX's extents are 32-bit integers, and bits and group sizes are small.
        let [n, k] = [product.n, product.k].map(|e| i32::try_from(e).unwrap_or(i32::MAX));
        let quantization = product.quantization;
        set_routes(&[Route {
            mode: Some(quantization.mode()),
            bits: Some(quantization.bits() as u8),
            group_size: Some(quantization.group_size() as u8),
            n: 1..=n,
            k: k..=k,
            m: 1..=i32::MAX,
            path,
        }])?;
        Ok(Self { _alone })
    }
}

impl Drop for Routed {
    fn drop(&mut self) {
        // An empty table is never rejected.
        let _ = set_routes(&[]);
    }
}

/// Counts of quantized products by path, since some moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counters(Vec<(String, u64)>);

impl Counters {
    /// The current counts; empty if the library does not count.
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

    /// The counts since then, from all threads of the process.
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

/// The policy with that name.
///
/// # Errors
/// [`Error::Policy`].
pub(crate) fn policy(name: &str) -> Result<RowPolicy> {
    name.parse().map_err(Error::from)
}
