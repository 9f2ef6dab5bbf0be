//! The Metal back-end on a simulated Mac: MLX's own CMake files run with the real cmake and ninja, and every program
//! that they call on a Mac is a fake that records its command line. So these tests expect what upstream's
//! `CMakeLists.txt` files do with the given options.

use camino::{Utf8Path, Utf8PathBuf};
use mlx_prefix::Backend;
use xtask::build::backend::with_deployment_target;
use xtask::host::{Host, Os};

use crate::support::{Scratch, chain};

/// The tree in this workspace.
fn mlx() -> Utf8PathBuf {
    let path = Utf8Path::new(env!("CARGO_MANIFEST_DIR")).join("../vendor/mlx");
    path.canonicalize_utf8()
        .expect("vendor/mlx is missing: run `cargo xtask apply-overlay` first")
}

/// A Mac with macOS 26.3.1, Xcode 26.4 and its Metal toolchain.
fn mac(scratch: &Scratch) -> Host {
    let sdk = scratch.path("sdk");
    for name in ["Metal", "Foundation", "QuartzCore", "Accelerate"] {
        let framework = sdk.join(format!("System/Library/Frameworks/{name}.framework"));
        fs_err::create_dir_all(framework.join("Headers")).unwrap();
        fs_err::write(framework.join(format!("{name}.tbd")), "").unwrap();
    }
    let runtime = scratch.file("clang/libclang_rt.osx.a", "");
    scratch.fake("sw_vers", "echo 26.3.1");
    scratch.fake("xcodebuild", "echo Xcode 26.4");
    // Upstream pipes the Metal preprocessor through zsh.
    scratch.fake("zsh", "exec /bin/sh \"$@\"");
    scratch.fake(
        "xcrun",
        &format!(
            "case \"$*\" in\n\
             *--show-sdk-version) echo 26.4 ;;\n\
             *--show-sdk-path) echo {sdk} ;;\n\
             *'metal --version') echo 'Apple metal version 32023.830' ;;\n\
             *--print-file-name=*) echo {runtime} ;;\n\
             *'-E -x metal -P -') echo 400 ;;\n\
             *' -H '*) ;;\n\
             *) echo \"environment $MACOSX_DEPLOYMENT_TARGET $SDKROOT\" >> {record}\n\
                while [ $# -gt 0 ]; do [ \"$1\" = -o ] && echo air > \"$2\"; shift; done ;;\n\
             esac",
            record = scratch.path("record"),
        ),
    );
    let compile = "out= dep=\n\
                   while [ $# -gt 0 ]; do\n\
                   case \"$1\" in -o) out=$2 ;; -MF) dep=$2 ;; esac; shift\n\
                   done\n\
                   [ -z \"$out\" ] || : > \"$out\"; [ -z \"$dep\" ] || : > \"$dep\"";
    for name in ["cc", "c++"] {
        scratch.fake(name, compile);
    }
    scratch.fake("ar", "echo archive > \"$2\"");
    scratch.fake("ranlib", "");
    for name in [
        "cmake", "ninja", "bash", "sh", "mkdir", "cat", "tail", "grep", "basename",
    ] {
        scratch.real(name);
    }
    // What CMake knows by itself on a Mac.
    let bin = scratch.path("bin");
    let toolchain = scratch.file(
        "toolchain.cmake",
        &format!(
            "set(CMAKE_SYSTEM_NAME Darwin)\n\
             set(CMAKE_SYSTEM_PROCESSOR arm64)\n\
             set(CMAKE_AR {bin}/ar)\n\
             set(CMAKE_RANLIB {bin}/ranlib)\n\
             set(CMAKE_C_COMPILER {bin}/cc)\n\
             set(CMAKE_CXX_COMPILER {bin}/c++)\n\
             foreach(language C CXX)\n\
             set(CMAKE_${{language}}_COMPILER_ID AppleClang)\n\
             set(CMAKE_${{language}}_COMPILER_ID_RUN 1)\n\
             set(CMAKE_${{language}}_COMPILER_VERSION 17.0)\n\
             set(CMAKE_${{language}}_COMPILER_FORCED ON)\n\
             endforeach()\n\
             set(CMAKE_CXX_COMPILE_FEATURES cxx_std_11 cxx_std_14 cxx_std_17 cxx_std_20)\n\
             set(CMAKE_CXX_STANDARD_COMPUTED_DEFAULT 17)\n"
        ),
    );
    scratch
        .host(Os::MacOs, "aarch64")
        .with("CMAKE_TOOLCHAIN_FILE", toolchain.into_os_string())
}

/// The recorded lines that start with `start` and contain all of `parts`.
fn lines(scratch: &Scratch, start: &str, parts: &[&str]) -> Vec<String> {
    let matches = |line: &String| line.starts_with(start) && parts.iter().all(|p| line.contains(p));
    scratch.record().into_iter().filter(matches).collect()
}

#[test]
fn kernels_are_compiled_ahead_of_time_for_one_system() {
    let scratch = Scratch::new();
    let host = mac(&scratch);
    let mlx = mlx();
    let built = scratch
        .build(&host, Backend::Metal, false, &mlx, "tree")
        .unwrap();

    // kernels/CMakeLists.txt, build_kernel_base and the rule for mlx.metallib.
    let kernel = format!(
        "xcrun -sdk macosx metal -x metal -Wall -Wextra -fno-fast-math -Wno-c++17-extensions \
         -Wno-c++20-extensions -Wmetal-addr-spaces -mmacosx-version-min=26.3 -c \
         {mlx}/mlx/backend/metal/kernels/quantized.metal -I{mlx} -o quantized.air"
    );
    assert_eq!(
        lines(&scratch, &kernel, &[]).len(),
        1,
        "{:#?}",
        scratch.record()
    );
    // Into the build folder: a prefix changes as a whole. The install copies them from there.
    let metallib = built.prefix.join("lib/mlx.metallib");
    assert!(metallib.is_file());
    let linked = built.prefix.with_file_name("build/metallib/mlx.metallib");
    let link = format!(" -o {linked}");
    let link = lines(
        &scratch,
        "xcrun -sdk macosx metal -mmacosx-version-min=26.3 ",
        &[&link],
    );
    assert_eq!(link.len(), 1);
    // Metal 4, SDK and target 26.2 or newer: the NAX kernels and jaccl are built.
    assert!(link[0].contains(" quantized.air") && link[0].contains(" quantized_nax.air"));

    // rows.cmake: kernels and library carry the tree's id.
    let fingerprint = [
        "-x metal -DMLX_OVERLAY_FINGERPRINT=mlx_overlay_tree_tree -mmacosx-version-min=26.3 -c",
        "kernels/kernel_fingerprint.metal -o ",
    ];
    assert_eq!(
        lines(&scratch, "xcrun -sdk macosx metal ", &fingerprint).len(),
        1
    );
    assert!(link[0].contains("/kernels/kernel_fingerprint.air"));
    let host_side = ["kernel_fingerprint.cpp", "-DMLX_OVERLAY_TREE=\"tree\""];
    assert_eq!(lines(&scratch, "c++ ", &host_side).len(), 1);

    // metal/CMakeLists.txt, and metallib.cmake: the last place where the library searches for its kernels.
    let device = lines(&scratch, "c++ ", &["backend/metal/device.cpp"]);
    assert_eq!(device.len(), 1);
    for part in [
        format!("-DMETAL_PATH=\"{metallib}\""),
        "-mmacosx-version-min=26.3".to_owned(),
        format!("-isysroot {}", scratch.path("sdk")),
        "-arch arm64".to_owned(),
        format!("-I{}", scratch.path("inputs/metal-cpp")),
    ] {
        assert!(device[0].contains(&part), "{part} is not in {}", device[0]);
    }
    // CMake's child processes see the same system and SDK.
    let environment = format!("environment 26.3 {}", scratch.path("sdk"));
    let environments = lines(&scratch, "environment ", &[]);
    assert!(environments.len() > 30 && environments.iter().all(|line| *line == environment));

    let stamp = built.stamp;
    assert_eq!(stamp.metallib.as_deref(), Some("lib/mlx.metallib"));
    assert_eq!(stamp.static_libs, ["mlx", "jaccl"]);
    assert_eq!(
        stamp.frameworks,
        ["Metal", "Foundation", "QuartzCore", "Accelerate"]
    );
    assert_eq!(stamp.include, ["include/metal_cpp", "include"]);
    assert_eq!(stamp.deployment_target.as_deref(), Some("26.3"));
    let runtime = scratch.path("clang/libclang_rt.osx.a");
    assert_eq!(stamp.clang_rt.as_deref(), Some(runtime.as_std_path()));
    assert!(stamp.cpu && !stamp.jit);
}

#[test]
fn an_older_target_is_one_target_everywhere() {
    let scratch = Scratch::new();
    let host = mac(&scratch).with("MACOSX_DEPLOYMENT_TARGET", "15.0");
    let built = scratch
        .build(&host, Backend::Metal, false, &mlx(), "tree")
        .unwrap();
    let others = |line: &&String| {
        line.contains("-mmacosx-version-min=") && !line.contains("-mmacosx-version-min=15.0")
    };
    let record = scratch.record();
    assert_eq!(record.iter().find(others), None);
    assert_eq!(built.stamp.deployment_target.as_deref(), Some("15.0"));
    // Below 26.2 upstream leaves out the NAX kernels.
    assert!(
        !record
            .iter()
            .any(|line| line.contains("quantized_nax.metal"))
    );
    assert!(
        !lines(
            &scratch,
            "c++ ",
            &["-DMLX_METAL_NO_NAX", "metal/device.cpp"]
        )
        .is_empty()
    );
}

#[test]
fn cargo_and_the_build_get_the_same_target() {
    let scratch = Scratch::new();
    let host = with_deployment_target(mac(&scratch)).unwrap();
    assert_eq!(host.var("MACOSX_DEPLOYMENT_TARGET"), Some("26.3"));
    let host = with_deployment_target(host.with("MACOSX_DEPLOYMENT_TARGET", "15.0")).unwrap();
    assert_eq!(host.var("MACOSX_DEPLOYMENT_TARGET"), Some("15.0"));
}

#[test]
fn jit_builds_embed_the_kernels_source() {
    let scratch = Scratch::new();
    let host = mac(&scratch);
    let mlx = mlx();
    let built = scratch
        .build(&host, Backend::Metal, true, &mlx, "tree")
        .unwrap();
    assert!(built.stamp.jit);
    assert!(lines(&scratch, "xcrun ", &["kernels/quantized.metal"]).is_empty());
    // The kernels that a JIT build compiles ahead of time carry the tree's id too.
    let linked = ["kernel_fingerprint.air", "/mlx.metallib"];
    assert_eq!(
        lines(&scratch, "xcrun -sdk macosx metal ", &linked).len(),
        1
    );
    // make_compiled_preamble.sh asks the Metal preprocessor for the headers.
    let header = format!("{mlx}/mlx/backend/metal/kernels/quantized.h");
    let parts = [
        "-x metal",
        "-DMLX_METAL_JIT -E -P -CC -C -H",
        header.as_str(),
    ];
    assert_eq!(lines(&scratch, "xcrun -sdk macosx metal", &parts).len(), 1);
    assert_eq!(lines(&scratch, "c++ ", &["/jit/quantized.cpp"]).len(), 1);
}

/// Builds nothing: fails before CMake starts, with an error that contains all of `parts`.
#[track_caller]
fn refused(scratch: &Scratch, host: &Host, parts: &[&str]) {
    let text = chain(scratch.build(host, Backend::Metal, false, &mlx(), "tree"));
    for part in parts {
        assert!(text.contains(part), "`{part}` is not in: {text}");
    }
    assert_eq!(
        lines(scratch, "c++ ", &["-c "]),
        [""; 0],
        "CMake was started"
    );
}

#[test]
fn a_missing_metal_toolchain_names_its_download() {
    let scratch = Scratch::new();
    let host = mac(&scratch);
    let text = "cannot execute tool 'metal' due to missing Metal Toolchain";
    scratch.fake("xcrun", &format!("echo \"error: {text}\" >&2; exit 1"));
    refused(
        &scratch,
        &host,
        &[text, "xcodebuild -downloadComponent MetalToolchain"],
    );
}

#[test]
fn command_line_tools_alone_are_not_enough() {
    let scratch = Scratch::new();
    let host = mac(&scratch);
    scratch.fake(
        "xcrun",
        "echo 'xcrun: error: unable to find utility \"metal\"' >&2; exit 72",
    );
    scratch.fake("xcodebuild", "echo 'tool requires Xcode' >&2; exit 1");
    refused(
        &scratch,
        &host,
        &["install Xcode from the App Store", "xcode-select -s"],
    );
}

#[test]
fn a_conda_compiler_is_named() {
    let scratch = Scratch::new();
    let host = mac(&scratch);
    fs_err::create_dir_all(scratch.path("conda-meta")).unwrap();
    let compiler = scratch.path("bin/cc");
    refused(&scratch, &host, &[compiler.as_str(), "conda deactivate"]);
}

#[test]
fn old_systems_and_wrong_toolchains_are_refused() {
    let scratch = Scratch::new();
    let host = mac(&scratch);
    let old = host.clone().with("MACOSX_DEPLOYMENT_TARGET", "13.5");
    refused(
        &scratch,
        &old,
        &["MACOSX_DEPLOYMENT_TARGET is 13.5", "14.0 or newer"],
    );
    let unreadable = host.with("MACOSX_DEPLOYMENT_TARGET", "sonoma");
    refused(&scratch, &unreadable, &["`sonoma` is not a macOS version"]);
    let rosetta = scratch.host(Os::MacOs, "x86_64");
    refused(
        &scratch,
        &rosetta,
        &["x86_64-apple-darwin", "aarch64-apple-darwin"],
    );
    let linux = scratch.host(Os::Linux, "x86_64");
    refused(
        &scratch,
        &linux,
        &["needs macOS", "`cargo xtask build`", "sim"],
    );
}
