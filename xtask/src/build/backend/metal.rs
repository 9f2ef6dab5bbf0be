//! The Metal back-end on macOS.
//!
//! MLX's CMake files ask `sw_vers` and `xcrun` for themselves and end with a bare "failed" where an
//! answer is wrong. The same questions are asked here first, so that an error says what to do, and
//! the answers are handed over, so that CMake, the Metal compiler and rustc work for one system.

use anyhow::{Context, Result, anyhow, bail};
use camino::Utf8PathBuf;
use metallib::Version;

use super::configuration::{Configuration, Options};
use crate::host::{Host, Os};
use crate::requirements;

/// What MLX's root CMake file accepts, of the SDK and of the deployment target.
pub(crate) const MACOS_MINIMUM: Version = Version {
    major: 14,
    minor: 0,
};

/// The SDK and the deployment target from which on MLX compiles its NAX kernels (kernels/CMakeLists.txt).
pub(crate) const NAX_MINIMUM: Version = Version {
    major: 26,
    minor: 2,
};

pub(super) fn configure(host: &Host, options: &Options) -> Result<Configuration> {
    if host.os != Os::MacOs {
        bail!(
            "the metal back-end needs macOS with Xcode; on Linux `cargo xtask build` builds it on a simulated device \
             (`--backend sim`)"
        );
    }
    if !host.target.starts_with("aarch64") {
        bail!(
            "this xtask was built for {}, and MLX's Metal back-end for arm64 only: use the \
             aarch64-apple-darwin toolchain (`rustup default stable-aarch64-apple-darwin`)",
            host.target
        );
    }
    if let Some(compiler) = requirements::conda_compiler(host) {
        bail!(
            "{compiler} comes from a conda environment: MLX built with it does not link into a \
             Rust program; run `conda deactivate` first, or take that folder off PATH and unset \
             CC and CXX"
        );
    }
    let metal = requirements::metal_toolchain(host)
        .map_err(|missing| anyhow!("{}", requirements::report(host, &[missing])))?;

    let sdk_version = sdk(host, "--show-sdk-version")?;
    if version(&sdk_version)? < MACOS_MINIMUM {
        bail!("the macOS SDK is {sdk_version}, and MLX needs 14.0 or newer: update Xcode");
    }
    let sysroot = match host.var("SDKROOT") {
        Some(path) => path.to_owned(),
        None => sdk(host, "--show-sdk-path")?,
    };
    let deployment_target = deployment_target(host)?;
    let clang_rt = clang_rt(host)?;

    let mut configuration = Configuration {
        cpu: true,
        metallib: true,
        deployment_target: Some(deployment_target.clone()),
        clang_rt: Some(clang_rt),
        ..Configuration::default()
    };
    configuration.switch("MLX_BUILD_METAL", true);
    configuration.switch("MLX_BUILD_CPU", true);
    configuration.switch("MLX_METAL_JIT", options.jit);
    // CMake takes its deployment target and its sysroot from these, and so does what it starts
    // (xcrun, the preamble script).
    configuration
        .env
        .insert("MACOSX_DEPLOYMENT_TARGET".to_owned(), deployment_target);
    configuration.env.insert("SDKROOT".to_owned(), sysroot);
    configuration
        .tools
        .insert("macOS SDK".to_owned(), sdk_version);
    configuration
        .tools
        .insert("metal".to_owned(), metal.version);
    Ok(configuration)
}

/// `MACOSX_DEPLOYMENT_TARGET`, else this system's own version, which is MLX's own choice too.
pub(crate) fn deployment_target(host: &Host) -> Result<String> {
    let (source, target) = match host.var("MACOSX_DEPLOYMENT_TARGET") {
        Some(target) => ("MACOSX_DEPLOYMENT_TARGET", target.to_owned()),
        None => {
            let text = host.cmd("sw_vers").arg("-productVersion").read()?;
            // rustc and the linker take two numbers; a third would make each patch release of the
            // system another build.
            ("`sw_vers -productVersion`", version(&text)?.to_string())
        }
    };
    if version(&target)? < MACOS_MINIMUM {
        bail!("{source} says {target}, and MLX needs macOS 14.0 or newer");
    }
    Ok(target)
}

pub(crate) fn sdk(host: &Host, question: &str) -> Result<String> {
    host.cmd("xcrun").args(["-sdk", "macosx", question]).read()
}

pub(crate) fn clang_rt(host: &Host) -> Result<Utf8PathBuf> {
    let name = "libclang_rt.osx.a";
    let path = host
        .cmd("xcrun")
        .args([
            "-sdk",
            "macosx",
            "clang",
            &format!("--print-file-name={name}"),
        ])
        .read()?;
    // clang echoes the bare name where it has no such file.
    let path = Utf8PathBuf::from(path);
    if !path.is_absolute() || !path.exists() {
        bail!(
            "clang does not know {name} (it says `{path}`), and a Rust program cannot link MLX \
             without it: check `xcode-select -p`"
        );
    }
    Ok(path)
}

/// A version of macOS or its SDK; what follows the second number does not matter to a deployment target.
pub(crate) fn version(text: &str) -> Result<Version> {
    let mut numbers = text.split('.').map(str::parse);
    let major = numbers.next().and_then(Result::ok);
    let minor = numbers.next().unwrap_or(Ok(0)).ok();
    major
        .zip(minor)
        .map(|(major, minor)| Version { major, minor })
        .with_context(|| format!("`{text}` is no macOS version such as 15.1"))
}
