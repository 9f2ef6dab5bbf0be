//! The missing tools that quickstart reports, the commands it prints, and those it runs with --install-deps.

use mlx_prefix::Backend;
use xtask::host::{Host, Os};
use xtask::requirements::{Missing, blas, cmake, ensure, install_commands, missing, ninja, report};
use xtask::test::CARGO_DENY;

use crate::support::{Scratch, chain};

/// A complete Debian machine; each test removes something.
fn debian(scratch: &Scratch, uid: u32) -> Host {
    scratch.fake("cmake", "echo 'cmake version 3.25.1'");
    scratch.fake("ninja", "echo 1.11.1");
    scratch.fake("c++", "echo 'g++ 12.2.0'");
    scratch.fake("apt-get", "");
    scratch.fake("id", &format!("echo {uid}"));
    scratch.host(Os::Linux, "x86_64")
}

#[test]
fn a_complete_machine_lacks_nothing_and_installs_nothing() {
    let scratch = Scratch::new();
    let host = debian(&scratch, 0);
    ensure(&host, &scratch.path("root"), true, || {
        missing(&host, Backend::Cpu, false)
    })
    .unwrap();
    assert!(
        !scratch
            .record()
            .iter()
            .any(|line| line.starts_with("apt-get"))
    );
}

#[test]
fn blas_is_missed_by_header_and_by_library() {
    let scratch = Scratch::new();
    let host = debian(&scratch, 0);
    // The probe's source arrives on standard input.
    let no_header = "text=$(/bin/cat)\n\
                     case \"$text\" in *lapacke.h*) echo 'x:1:10: fatal error: lapacke.h' >&2; exit 1 ;; esac";
    scratch.fake(
        "c++",
        &format!("[ \"$1\" = --version ] && exit 0\n{no_header}"),
    );
    let text = report(&host, &[blas(&host).unwrap_err()]);
    assert!(
        text.contains("lapacke.h: x:1:10: fatal error: lapacke.h"),
        "{text}"
    );
    assert!(
        text.contains("apt-get install -y --no-install-recommends libopenblas-dev liblapacke-dev"),
        "{text}"
    );

    let no_openblas =
        "case \"$*\" in *-lopenblas*) echo 'cannot find -lopenblas' >&2; exit 1 ;; esac";
    scratch.fake("c++", no_openblas);
    blas(&host).expect("the reference implementation is accepted");
    scratch.fake(
        "c++",
        "case \"$*\" in *-l*) echo 'cannot find -lopenblas' >&2; exit 1 ;; esac",
    );
    let text = blas(&host).unwrap_err().to_string();
    assert!(text.contains("cannot find -lopenblas"), "{text}");
}

/// Removes BLAS and LAPACK from a machine that has a compiler.
fn without_blas(scratch: &Scratch) {
    scratch.fake(
        "c++",
        "[ \"$1\" = --version ] && exit 0\n\
         case \"$(/bin/cat)\" in *cblas.h*) echo 'fatal error: cblas.h' >&2; exit 1 ;; esac",
    );
}

/// Whether BLAS is among what is missing.
fn lacks_blas(missing: &[Missing]) -> bool {
    missing.iter().any(|item| item.expected.contains("BLAS"))
}

#[test]
fn blas_is_needed_wherever_the_cpu_backend_is_built_in() {
    let scratch = Scratch::new();
    let host = debian(&scratch, 0);
    without_blas(&scratch);
    assert!(!lacks_blas(&missing(&host, Backend::Sim, false)));
    assert!(lacks_blas(&missing(&host, Backend::Sim, true)));
    assert!(lacks_blas(&missing(&host, Backend::Cpu, false)));
    // `cargo xtask test` includes it in its builds, and installs everything that its steps need.
    let lacking = xtask::test::missing(&host, &scratch.path("root"), false);
    let commands = install_commands(&host, &lacking).unwrap();
    let packages = commands[1].join(" ");
    assert!(
        packages.contains("libopenblas-dev liblapacke-dev"),
        "{packages}"
    );
    // If variables of CMake name other folders, only CMake knows what it finds.
    let host = host.with("LAPACK_ROOT", "/opt/lapack");
    assert!(!lacks_blas(&missing(&host, Backend::Sim, true)));
}

#[test]
fn a_machine_without_a_compiler_gets_blas_in_the_same_go() {
    let scratch = Scratch::new();
    let host = debian(&scratch, 0);
    fs_err::remove_file(scratch.path("bin/c++")).unwrap();
    let commands = install_commands(&host, &missing(&host, Backend::Cpu, false)).unwrap();
    assert_eq!(
        commands[1].join(" "),
        "apt-get install -y --no-install-recommends g++ libopenblas-dev liblapacke-dev"
    );
}

#[test]
fn a_variable_that_names_no_compiler_is_not_installed_away() {
    let scratch = Scratch::new();
    let host = debian(&scratch, 0).with("CXX", "/no/such/c++");
    fs_err::remove_file(scratch.path("bin/ninja")).unwrap();
    let lacking = missing(&host, Backend::Cpu, false);
    // Only a compiler knows which libraries there are.
    assert!(!lacks_blas(&lacking));
    let text = report(&host, &lacking);
    for part in [
        "a C++20 compiler: CXX names /no/such/c++, which does not exist",
        "unset CXX",
        "apt-get install -y --no-install-recommends ninja-build\n",
    ] {
        assert!(text.contains(part), "`{part}` is not in: {text}");
    }
    assert!(!text.contains("g++"), "{text}");
    let error = ensure(&host, &scratch.path("root"), true, || {
        missing(&host, Backend::Cpu, false)
    });
    let text = chain(error);
    assert!(text.contains("unset CXX"), "{text}");
    let installed = |line: &&String| line.starts_with("apt-get");
    assert_eq!(scratch.record().iter().find(installed), None);
}

/// The cc crate prefers it to `CXX`.
#[test]
fn a_compiler_of_this_target_is_the_one_that_counts() {
    let scratch = Scratch::new();
    let host = debian(&scratch, 0);
    for form in host.forms("CXX").iter().take(3) {
        let host = host.clone().with(form, "/no/such/c++");
        let text = report(&host, &missing(&host, Backend::Sim, false));
        let part = format!("{form} names /no/such/c++, which does not exist");
        assert!(text.contains(&part), "`{part}` is not in: {text}");
    }
}

#[test]
fn tests_take_the_pinned_cargo_deny_alone() {
    let scratch = Scratch::new();
    let host = debian(&scratch, 0);
    let root = scratch.path("root");
    let lacks = || {
        let lacking = xtask::test::missing(&host, &root, false);
        lacking
            .iter()
            .any(|item| item.expected.starts_with("cargo-deny"))
    };
    assert!(lacks());
    scratch.fake("cargo-deny", "echo cargo-deny 0.1.0");
    assert!(lacks(), "another release may have other checks");
    let pinned = format!("echo cargo-deny {CARGO_DENY}");
    scratch.fake("cargo-deny", &pinned);
    assert!(!lacks());
    // The one in target/tools is used, whatever is on PATH.
    let tools = root.join("target/tools/bin");
    fs_err::create_dir_all(&tools).unwrap();
    fs_err::rename(scratch.path("bin/cargo-deny"), tools.join("cargo-deny")).unwrap();
    scratch.fake("cargo-deny", "echo cargo-deny 0.1.0");
    assert!(!lacks());
}

#[test]
fn the_long_tests_get_the_emulator_that_one_of_them_runs_on() {
    let scratch = Scratch::new();
    let host = debian(&scratch, 0);
    let installs = |full| {
        let lacking = xtask::test::missing(&host, &scratch.path("root"), full);
        install_commands(&host, &lacking).unwrap()[1].join(" ")
    };
    let packages = "qemu-user-static g++-aarch64-linux-gnu";
    assert!(!installs(false).contains("qemu"), "{}", installs(false));
    assert!(installs(true).contains(packages), "{}", installs(true));
    scratch.fake("qemu-aarch64-static", "");
    assert!(installs(true).contains(packages), "{}", installs(true));
    scratch.fake("aarch64-linux-gnu-g++", "");
    assert!(!installs(true).contains("qemu"), "{}", installs(true));
}

#[test]
fn installing_updates_the_lists_first_and_looks_again() {
    let scratch = Scratch::new();
    let host = debian(&scratch, 0);
    let ninja_path = scratch.path("bin/ninja");
    fs_err::remove_file(&ninja_path).unwrap();
    let root = scratch.path("root");
    let check = || ninja(&host).err().into_iter().collect();

    let text = chain(ensure(&host, &root, true, check));
    assert!(
        text.contains("everything was installed, but still: ninja"),
        "{text}"
    );

    scratch.fake(
        "apt-get",
        &format!(
            "[ \"$1\" = update ] || {{ printf '#!/bin/sh\\necho 1.11.1\\n' > {ninja_path}; \
             /bin/chmod +x {ninja_path}; }}"
        ),
    );
    ensure(&host, &root, true, check).unwrap();
    let record = scratch.record();
    let apt: Vec<_> = record
        .iter()
        .filter(|line| line.starts_with("apt-get"))
        .collect();
    let install = "apt-get install -y --no-install-recommends ninja-build";
    assert_eq!(apt, ["apt-get update", install, "apt-get update", install]);
}

#[test]
fn without_root_it_takes_sudo_or_says_so() {
    let scratch = Scratch::new();
    let host = debian(&scratch, 1000);
    scratch.fake("cmake", "echo 'cmake version 3.24.9'");
    let missing = [cmake(&host).unwrap_err()];
    let text = chain(install_commands(&host, &missing));
    assert!(text.contains("needs root, but there is no sudo"), "{text}");
    scratch.fake("sudo", "");
    let commands = install_commands(&host, &missing).unwrap();
    assert_eq!(commands[0].join(" "), "sudo apt-get update");
    assert_eq!(
        commands[1].join(" "),
        "sudo apt-get install -y --no-install-recommends cmake"
    );
}

#[test]
fn homebrew_on_macos_and_names_elsewhere() {
    let scratch = Scratch::new();
    let host = scratch.host(Os::MacOs, "aarch64");
    let lacking = [cmake(&host).unwrap_err(), ninja(&host).unwrap_err()];
    let text = chain(install_commands(&host, &lacking));
    assert!(
        text.contains("install these with yours: cmake ninja"),
        "{text}"
    );
    scratch.fake("brew", "");
    assert_eq!(
        install_commands(&host, &lacking).unwrap(),
        [["brew", "install", "cmake", "ninja"]]
    );
}

#[test]
fn the_metal_toolchain_is_downloaded_by_xcodebuild() {
    let scratch = Scratch::new();
    scratch.fake("cmake", "echo 'cmake version 4.0.0'");
    scratch.fake("ninja", "echo 1.12.0");
    scratch.fake("c++", "echo 'Apple clang version 17'");
    scratch.fake("xcrun", "echo 'missing Metal Toolchain' >&2; exit 1");
    scratch.fake("xcodebuild", "");
    let host = scratch.host(Os::MacOs, "aarch64");
    let commands = install_commands(&host, &missing(&host, Backend::Metal, false)).unwrap();
    assert_eq!(
        commands,
        [["xcodebuild", "-downloadComponent", "MetalToolchain"]]
    );
}
