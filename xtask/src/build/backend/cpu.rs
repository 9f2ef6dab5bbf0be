//! The CPU back-end on Linux.

use anyhow::{Result, bail};

use super::configuration::{Configuration, Options};
use crate::host::{Host, Os};

pub(super) fn configure(host: &Host, options: &Options) -> Result<Configuration> {
    if host.os != Os::Linux {
        bail!(
            "the cpu back-end can be built only on Linux; on macOS it is part of the metal back-end (`--backend metal`)"
        );
    }
    options.check()?;
    let mut configuration = Configuration {
        cpu: true,
        ..Configuration::default()
    };
    configuration.switch("MLX_BUILD_METAL", false);
    configuration.switch("MLX_BUILD_CPU", true);
    Ok(configuration)
}
