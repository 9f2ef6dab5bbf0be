//! The Metal back-end on macOS.
//!
//! MLX's CMake files run `sw_vers` and `xcrun` themselves and end with a bare "failed" if a result is wrong. The same
//! commands are run here first, so that an error names the remedy. Their results are passed on, so that CMake, the Metal
//! compiler and rustc build for one system.

use anyhow::{Context, Result, anyhow, bail};
use camino::Utf8PathBuf;
use metallib::Version;

use super::configuration::{Configuration, Options};
use crate::host::{Host, Os};
use crate::requirements;

/// The oldest macOS that MLX's root CMake file accepts, for the SDK and for the deployment target.
pub(crate) const MACOS_MINIMUM: Version = Version {
    major: 14,
    minor: 0,
};

/// The oldest SDK and deployment target for which MLX compiles its NAX kernels (kernels/CMakeLists.txt).
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
            "this xtask was built for {}, but MLX's Metal back-end needs arm64: use the \
             aarch64-apple-darwin toolchain (`rustup default stable-aarch64-apple-darwin`)",
            host.target
        );
    }
    if let Some(compiler) = requirements::conda_compiler(host) {
        bail!(
            "{compiler} comes from a conda environment: MLX built with it cannot be linked into a \
             Rust program; run `conda deactivate` first, or take that folder off PATH and unset \
             CC and CXX"
        );
    }
    let metal = requirements::metal_toolchain(host)
        .map_err(|missing| anyhow!("{}", requirements::report(host, &[missing])))?;

    let sdk_version = sdk(host, "--show-sdk-version")?;
    if version(&sdk_version)? < MACOS_MINIMUM {
        bail!("the macOS SDK is {sdk_version}, but MLX needs 14.0 or newer: update Xcode");
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
    // CMake and its child processes (xcrun, the preamble script) take the deployment target and the sysroot from these.
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

/// `MACOSX_DEPLOYMENT_TARGET`, else the version of this system (MLX's default too).
pub(crate) fn deployment_target(host: &Host) -> Result<String> {
    let (source, target) = match host.var("MACOSX_DEPLOYMENT_TARGET") {
        Some(target) => ("MACOSX_DEPLOYMENT_TARGET", target.to_owned()),
        None => {
            let text = host.cmd("sw_vers").arg("-productVersion").read()?;
            // rustc and the linker use two numbers. With a third, each patch release of macOS would need a new build.
            ("`sw_vers -productVersion`", version(&text)?.to_string())
        }
    };
    if version(&target)? < MACOS_MINIMUM {
        bail!("{source} is {target}, but MLX needs macOS 14.0 or newer");
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
    // clang prints the bare name if it does not find the file.
    let path = Utf8PathBuf::from(path);
    if !path.is_absolute() || !path.exists() {
        bail!(
            "clang does not know {name} (it printed `{path}`), and a Rust program cannot link MLX \
             without it: check `xcode-select -p`"
        );
    }
    Ok(path)
}

/// A version of macOS or its SDK. Numbers after the second do not matter for a deployment target.
pub(crate) fn version(text: &str) -> Result<Version> {
    let mut numbers = text.split('.').map(str::parse);
    let major = numbers.next().and_then(Result::ok);
    let minor = numbers.next().unwrap_or(Ok(0)).ok();
    major
        .zip(minor)
        .map(|(major, minor)| Version { major, minor })
        .with_context(|| format!("`{text}` is not a macOS version such as 15.1"))
}
