//! A Mac, simulated by what its programs print, and what can be wrong with it. The outputs of Apple's programs are
//! those that users reported.

use xtask::doctor::Status::{Error, Ok, Warning};
use xtask::host::{Host, Os};

use crate::scratch::Scratch;
use crate::{finds, healthy, mends, pin};

/// A Mac with macOS 26.3.1, Xcode 26.4 and its Metal toolchain.
fn mac(scratch: &Scratch) -> Host {
    for name in ["MacOSX.sdk", "iPhoneOS.sdk"] {
        fs_err::create_dir_all(scratch.path(name).join("System/Library/Frameworks")).unwrap();
    }
    scratch.file("clang/libclang_rt.osx.a", "");
    scratch.fake("cmake", "echo 'cmake version 4.0.3'");
    scratch.fake("ninja", "echo 1.12.1");
    scratch.fake("cc", "echo 'Apple clang version 17.0.0'");
    scratch.fake("c++", "echo 'Apple clang version 17.0.0'");
    scratch.fake("git", "echo 'git version 2.50.1 (Apple Git-155)'");
    scratch.fake("cargo", "");
    scratch.fake(
        "df",
        "echo Filesystem; echo '/dev/disk3s5 482797652 1 400000000 1% /'",
    );
    scratch.fake(
        "xcodebuild",
        "echo 'Xcode 26.4'; echo 'Build version 17E192'",
    );
    system(scratch, "26.3.1");
    xcrun(scratch, "26.4", "echo 'Apple metal version 32023.830'");
    pin(scratch);
    scratch.host(Os::MacOs, "aarch64")
}

fn system(scratch: &Scratch, version: &str) {
    scratch.fake("sw_vers", &format!("echo {version}"));
}

fn xcrun(scratch: &Scratch, sdk: &str, metal: &str) {
    scratch.fake(
        "xcrun",
        &format!(
            "case \"$*\" in\n\
             *--show-sdk-version) echo {sdk} ;;\n\
             *--show-sdk-path) echo {path} ;;\n\
             *'metal --version') {metal} ;;\n\
             *--print-file-name=*) echo {runtime} ;;\n\
             esac",
            path = scratch.path("MacOSX.sdk"),
            runtime = scratch.path("clang/libclang_rt.osx.a"),
        ),
    );
}

const NO_TOOLCHAIN: &str = "echo \"error: cannot execute tool 'metal' due to missing Metal Toolchain; \
                            use: xcodebuild -downloadComponent MetalToolchain\" >&2; exit 1";

#[test]
fn a_complete_mac_lacks_only_what_the_quickstart_makes() {
    let scratch = Scratch::new();
    let host = mac(&scratch);
    healthy(&scratch, &host, &["sources", "tree", "prefix"]);
    finds(
        &scratch,
        &host,
        "xcode",
        Ok,
        &["Xcode 26.4, Build version 17E192"],
    );
    finds(&scratch, &host, "deployment-target", Ok, &["macOS 26.3"]);
}

#[test]
fn the_command_line_tools_alone_have_no_metal_compiler() {
    let scratch = Scratch::new();
    let host = mac(&scratch);
    scratch.fake(
        "xcodebuild",
        "echo \"xcode-select: error: tool 'xcodebuild' requires Xcode, but active developer directory \
         '/Library/Developer/CommandLineTools' is a command line tools instance\" >&2; exit 1",
    );
    let metal = "echo 'xcrun: error: unable to find utility \"metal\", not a developer tool or in PATH' >&2; exit 72";
    xcrun(&scratch, "26.4", metal);
    finds(
        &scratch,
        &host,
        "xcode",
        Error,
        &["requires Xcode", "App Store"],
    );
    finds(
        &scratch,
        &host,
        "metal-toolchain",
        Error,
        &["unable to find utility", "xcode-select -s"],
    );
}

#[test]
fn the_metal_toolchain_is_downloaded_where_the_system_takes_it() {
    let scratch = Scratch::new();
    let host = mac(&scratch);
    xcrun(&scratch, "26.4", NO_TOOLCHAIN);
    let words = [
        "missing Metal Toolchain",
        "-> xcodebuild -downloadComponent MetalToolchain",
    ];
    finds(&scratch, &host, "metal-toolchain", Error, &words);
    system(&scratch, "15.7");
    let words = [
        "cannot be installed on a system older than macOS 26",
        "Xcode_16",
    ];
    finds(&scratch, &host, "metal-toolchain", Error, &words);
    scratch.fake("xcodebuild", "echo 'Xcode 16.4'; echo 'Build version 16F6'");
    finds(
        &scratch,
        &host,
        "metal-toolchain",
        Error,
        &["-> xcodebuild -download"],
    );
}

#[test]
fn another_sdk_in_the_environment_is_named() {
    let scratch = Scratch::new();
    let host = mac(&scratch);
    let with = |path: &str| host.clone().with("SDKROOT", path);
    mends(
        &scratch,
        &with("/opt/gone.sdk"),
        "sdkroot",
        &["which is not an SDK", "unset SDKROOT"],
    );
    let phone = scratch.path("iPhoneOS.sdk");
    mends(
        &scratch,
        &with(phone.as_str()),
        "sdkroot",
        &["not a macOS SDK"],
    );
    let other = scratch.path("MacOSX15.4.sdk");
    fs_err::create_dir_all(other.join("System/Library/Frameworks")).unwrap();
    mends(
        &scratch,
        &with(other.as_str()),
        "sdkroot",
        &["the selected Xcode has"],
    );
    finds(&scratch, &with("macosx"), "sdkroot", Ok, &[]);
    xcrun(&scratch, "13.3", "");
    finds(
        &scratch,
        &host,
        "sdk",
        Error,
        &["13.3", "14.0 or newer", "update Xcode"],
    );
}

#[test]
fn a_conda_compiler_is_an_error_here() {
    let scratch = Scratch::new();
    let host = mac(&scratch);
    fs_err::create_dir_all(scratch.path("conda-meta")).unwrap();
    finds(&scratch, &host, "conda", Error, &["conda deactivate"]);
}

#[test]
fn targets_that_no_program_can_have_are_refused() {
    let scratch = Scratch::new();
    let host = mac(&scratch);
    let with = |target: &str| host.clone().with("MACOSX_DEPLOYMENT_TARGET", target);
    let words = [
        "macOS 27.0, but this system is macOS 26.3",
        "MACOSX_DEPLOYMENT_TARGET=26.3",
    ];
    mends(&scratch, &with("27.0"), "deployment-target", &words);
    mends(
        &scratch,
        &with("13.5"),
        "deployment-target",
        &["14.0 or newer"],
    );
    mends(
        &scratch,
        &with("sonoma"),
        "deployment-target",
        &["`sonoma` is not a macOS version"],
    );
}

#[test]
fn lost_nax_kernels_are_told_with_their_cause() {
    let scratch = Scratch::new();
    let host = mac(&scratch);
    finds(&scratch, &host, "nax", Ok, &[]);
    let old_target = host.clone().with("MACOSX_DEPLOYMENT_TARGET", "15.0");
    finds(
        &scratch,
        &old_target,
        "nax",
        Warning,
        &["the deployment target is 15.0"],
    );
    xcrun(&scratch, "26.1", "echo 'Apple metal version 32023.620'");
    finds(
        &scratch,
        &host,
        "nax",
        Warning,
        &["the SDK is 26.1", "Xcode 26.2"],
    );
}

#[test]
fn a_missing_compiler_runtime_and_rosetta_are_told() {
    let scratch = Scratch::new();
    let host = mac(&scratch);
    fs_err::remove_file(scratch.path("clang/libclang_rt.osx.a")).unwrap();
    finds(
        &scratch,
        &host,
        "compiler-rt",
        Error,
        &["libclang_rt.osx.a", "xcode-select"],
    );
    let rosetta = scratch.host(Os::MacOs, "x86_64");
    let words = [
        "x86_64-apple-darwin",
        "rustup default stable-aarch64-apple-darwin",
    ];
    finds(&scratch, &rosetta, "processor", Error, &words);
}
