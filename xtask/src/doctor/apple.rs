//! Problems with Xcode, the SDK and the macOS versions that a build targets.

use camino::Utf8Path;
use metallib::Version;

use super::finding::Finding;
use crate::build::backend::metal;
use crate::host::Host;
use crate::requirements::{self, Remedy};

/// The first Xcode whose Metal compiler is downloaded separately.
const SEPARATE_TOOLCHAIN: u16 = 26;

pub(super) fn examine(host: &Host) -> Vec<Finding> {
    vec![
        processor(host),
        xcode(host),
        metal_toolchain(host),
        sdk(host),
        sdkroot(host),
        deployment_target(host),
        nax(host),
        compiler_rt(host),
    ]
}

fn processor(host: &Host) -> Finding {
    if host.target.starts_with("aarch64") {
        return Finding::ok("processor", &*host.target);
    }
    Finding::error(
        "processor",
        format!(
            "this Rust toolchain is for {}, but MLX's Metal back-end needs arm64",
            host.target
        ),
        "`rustup default stable-aarch64-apple-darwin`; a terminal under Rosetta selects the x86-64 one",
    )
}

fn xcode(host: &Host) -> Finding {
    match host.cmd("xcodebuild").arg("-version").read() {
        Ok(text) => Finding::ok("xcode", text.lines().collect::<Vec<_>>().join(", ")),
        Err(error) => Finding::error(
            "xcode",
            format!("no Xcode is selected: {error}"),
            "install Xcode from the App Store, then `sudo xcode-select -s /Applications/Xcode.app`; the command line \
             tools alone have no Metal compiler",
        ),
    }
}

fn metal_toolchain(host: &Host) -> Finding {
    let id = "metal-toolchain";
    let missing = match requirements::metal_toolchain(host) {
        Ok(tool) => return Finding::ok(id, tool.to_string()),
        Err(missing) => missing,
    };
    let found = missing.to_string();
    let separate = xcode_major(host).is_some_and(|major| major >= SEPARATE_TOOLCHAIN);
    let old_system = system(host).is_some_and(|running| running.major < SEPARATE_TOOLCHAIN);
    if separate && old_system && matches!(missing.remedy, Remedy::Command(_)) {
        return Finding::error(
            id,
            found,
            "this Xcode's Metal toolchain cannot be installed on a system older than macOS 26: update macOS, or select an \
             Xcode 16 (`sudo xcode-select -s /Applications/Xcode_16.app`), which includes it",
        );
    }
    Finding::error(id, found, super::tools::install(host, &missing))
}

fn sdk(host: &Host) -> Finding {
    let id = "sdk";
    let text = match sdk_version(host) {
        Ok(text) => text,
        Err(error) => return Finding::error(id, format!("{error:#}"), "check `xcode-select -p`"),
    };
    match metal::version(&text) {
        Ok(version) if version >= metal::MACOS_MINIMUM => {
            Finding::ok(id, format!("macOS SDK {text}"))
        }
        Ok(_) => Finding::error(
            id,
            format!("the macOS SDK is {text}, but MLX needs 14.0 or newer"),
            "update Xcode",
        ),
        Err(error) => Finding::error(id, format!("{error:#}"), "check `xcode-select -p`"),
    }
}

/// `SDKROOT`, which conda, Nix and shells for other platforms may leave set.
fn sdkroot(host: &Host) -> Finding {
    let id = "sdkroot";
    let Some(path) = host.var("SDKROOT") else {
        return Finding::ok(id, "SDKROOT is not set; Xcode's own SDK is used");
    };
    let remedy = "unset SDKROOT";
    let folder = Utf8Path::new(path);
    let name = folder.file_name().unwrap_or_default();
    if path != "macosx" && !folder.join("System/Library/Frameworks").is_dir() {
        return Finding::error(
            id,
            format!("SDKROOT names {path}, which is not an SDK"),
            remedy,
        );
    }
    if path != "macosx" && !name.starts_with("MacOSX") {
        return Finding::error(
            id,
            format!("SDKROOT names {path}, which is not a macOS SDK"),
            remedy,
        );
    }
    let own = host
        .cmd("xcrun")
        .args(["-sdk", "macosx", "--show-sdk-path"])
        .read();
    match own {
        Ok(own) if path != "macosx" && own != path => Finding::warning(
            id,
            format!("SDKROOT names {path}, but the selected Xcode has {own}"),
            format!("`{remedy}`, unless this is what you want"),
        ),
        _ => Finding::ok(id, path),
    }
}

fn deployment_target(host: &Host) -> Finding {
    let id = "deployment-target";
    let target = match metal::deployment_target(host) {
        Ok(target) => target,
        Err(error) => {
            return Finding::error(
                id,
                format!("{error:#}"),
                "`unset MACOSX_DEPLOYMENT_TARGET`, or set it to 14.0 or newer",
            );
        }
    };
    match (metal::version(&target).ok(), system(host)) {
        (Some(wanted), Some(running)) if wanted > running => Finding::error(
            id,
            format!("programs are built for macOS {target}, but this system is macOS {running}"),
            format!("`export MACOSX_DEPLOYMENT_TARGET={running}`, or unset it"),
        ),
        _ => Finding::ok(id, format!("macOS {target}")),
    }
}

fn nax(host: &Host) -> Finding {
    let id = "nax";
    let below = |text: Option<String>| {
        text.filter(|text| metal::version(text).is_ok_and(|version| version < metal::NAX_MINIMUM))
    };
    let causes = [
        ("the SDK", below(sdk_version(host).ok())),
        (
            "the deployment target",
            below(metal::deployment_target(host).ok()),
        ),
    ];
    let lost: Vec<_> = causes
        .iter()
        .filter_map(|(what, version)| Some(format!("{what} is {}", version.as_ref()?)))
        .collect();
    if lost.is_empty() {
        return Finding::ok(
            id,
            "the SDK and the deployment target allow the NAX kernels",
        );
    }
    Finding::warning(
        id,
        format!(
            "MLX leaves out its NAX kernels (the matrix units from generation 17 on): {}",
            lost.join(", ")
        ),
        "build with Xcode 26.2 or newer and MACOSX_DEPLOYMENT_TARGET=26.2 or newer, unless programs must run on an older system",
    )
}

fn compiler_rt(host: &Host) -> Finding {
    match metal::clang_rt(host) {
        Ok(path) => Finding::ok("compiler-rt", path),
        Err(error) => Finding::error(
            "compiler-rt",
            format!("{error:#}"),
            "select a complete Xcode: `sudo xcode-select -s /Applications/Xcode.app`",
        ),
    }
}

fn sdk_version(host: &Host) -> anyhow::Result<String> {
    metal::sdk(host, "--show-sdk-version")
}

/// The version of this system; `None` if it is not known.
pub(super) fn system(host: &Host) -> Option<Version> {
    let text = host.cmd("sw_vers").arg("-productVersion").read().ok()?;
    metal::version(&text).ok()
}

fn xcode_major(host: &Host) -> Option<u16> {
    let text = host.cmd("xcodebuild").arg("-version").read().ok()?;
    let version = text.lines().next()?.strip_prefix("Xcode ")?;
    Some(metal::version(version).ok()?.major)
}
