//! Build outputs that are stale, moved, or from another MLX.

use mlx_prefix::{Backend, Stamp, sums};
use xtask::doctor::Status::{Error, Ok, Warning};
use xtask::host::{Host, Os};

use crate::container::{FunctionSpec, Shape, write};
use crate::scratch::Scratch;
use crate::stamp::stamp;
use crate::{finds, lists, mends};

const TREE: &str = "3e2a9fb8c55912292078068e96d3d54232167996";
const OTHER: &str = "0b3dbfacac35a0b64a7c3d9a778ef20db788f565";

/// A checkout whose lock has [`TREE`], with a prefix that was built from `tree`.
fn built(scratch: &Scratch, backend: Backend, tree: &str) {
    let lock = format!(
        "format = 1\nversion = \"0.32.4\"\nbase_tree = \"{OTHER}\"\nfinal_tree = \"{TREE}\"\n"
    );
    scratch.file("root/mlx.lock", &lock);
    let stamp = Stamp {
        base_tree: OTHER.to_owned(),
        metallib: Some("lib/mlx.metallib".to_owned()),
        tools: [(
            "c++".to_owned(),
            format!("g++ 12.2.0 ({})", scratch.path("bin/c++")),
        )]
        .into(),
        ..stamp("0.32.4", tree, backend)
    };
    let prefix = scratch.path("root/target/mlx/one/prefix");
    fs_err::create_dir_all(&prefix).unwrap();
    stamp.write(&prefix).unwrap();
    sums::write(&prefix).unwrap();
    let _ = fs_err::os::unix::fs::symlink("one/prefix", scratch.path("root/target/mlx/current"));
    scratch.fake("c++", "echo 'g++ 12.2.0'");
}

const METALLIB: &str = "root/target/mlx/one/prefix/lib/mlx.metallib";

/// The kernel with which a library names its tree.
fn fingerprint(tree: &str) -> String {
    format!("mlx_overlay_tree_{tree}")
}

fn sim_kernels(scratch: &Scratch, file: &str, names: &[&str]) {
    let text: String = names
        .iter()
        .map(|name| format!("[[kernel]] void {name}(device float* x) {{}}\n"))
        .collect();
    let library = metal_sim::Library::from_source("k.metal", &text).unwrap();
    scratch.file(file, "");
    fs_err::write(scratch.path(file), library.to_bytes()).unwrap();
}

fn apple_kernels(scratch: &Scratch, names: &[&str], os: (u16, u16)) {
    let functions: Vec<_> = names
        .iter()
        .map(|name| FunctionSpec::kernel(name, b"bitcode"))
        .collect();
    let shape = Shape {
        os: (0x81, os.0, os.1),
        ..Shape::default()
    };
    scratch.file(METALLIB, "");
    fs_err::write(scratch.path(METALLIB), write(&functions, shape)).unwrap();
}

/// A Mac of macOS 15.7 with a build.
fn mac(scratch: &Scratch) -> Host {
    scratch.fake("sw_vers", "echo 15.7");
    built(scratch, Backend::Metal, TREE);
    scratch.host(Os::MacOs, "aarch64")
}

fn linux(scratch: &Scratch) -> Host {
    scratch.host(Os::Linux, "x86_64")
}

#[test]
fn a_prefix_of_another_tree_is_stale() {
    let scratch = Scratch::new();
    let host = linux(&scratch);
    built(&scratch, Backend::Sim, TREE);
    finds(&scratch, &host, "prefix", Ok, &["MLX 0.32.4, sim back-end"]);
    built(&scratch, Backend::Sim, OTHER);
    finds(
        &scratch,
        &host,
        "prefix",
        Error,
        &[OTHER, TREE, "cargo xtask build"],
    );
    // Complete; only the layout that it names differs.
    let stamp = "root/target/mlx/one/prefix/mlx-overlay.toml";
    let text = fs_err::read_to_string(scratch.path(stamp)).unwrap();
    let other = text.replace("format = 1\n", "format = 2\n");
    assert_ne!(text, other);
    scratch.file(stamp, &other);
    finds(
        &scratch,
        &host,
        "prefix",
        Error,
        &["has format 2, expected 1", "cargo xtask build"],
    );
    fs_err::remove_file(scratch.path(stamp)).unwrap();
    let words = ["has no mlx-overlay.toml", "cargo xtask build"];
    finds(&scratch, &host, "prefix", Warning, &words);
    fs_err::remove_dir_all(scratch.path("root/target/mlx/one")).unwrap();
    finds(
        &scratch,
        &host,
        "prefix",
        Warning,
        &["link to a folder that does not exist"],
    );
    let named = host.with("MLX_OVERLAY_PREFIX", "/opt/no-such-mlx");
    finds(
        &scratch,
        &named,
        "prefix",
        Error,
        &["MLX_OVERLAY_PREFIX", "/opt/no-such-mlx", "unset"],
    );
}

#[test]
fn a_prefix_that_is_not_as_it_was_built_is_named() {
    let scratch = Scratch::new();
    let host = linux(&scratch);
    let prefix = scratch.path("root/target/mlx/one/prefix");
    let library = scratch.file("root/target/mlx/one/prefix/lib/libmlx.a", "a library");
    let simulator = scratch.file("root/target/mlx/one/prefix/bin/metal-simc", "");
    built(&scratch, Backend::Sim, TREE);
    finds(&scratch, &host, "prefix", Ok, &[]);

    let has = |status, words: &[&str]| finds(&scratch, &host, "prefix", status, words);
    fs_err::write(&library, "a lib").unwrap();
    has(
        Error,
        &["lib/libmlx.a is not as it was built", "cargo xtask build"],
    );
    fs_err::remove_file(&library).unwrap();
    has(Error, &["lib/libmlx.a is missing"]);
    fs_err::write(&library, "a library").unwrap();
    fs_err::remove_file(&simulator).unwrap();
    has(Error, &["bin/metal-simc is missing"]);
    fs_err::write(&simulator, "").unwrap();
    has(Ok, &[]);
    // A file that is neither linked nor run.
    let note = scratch.file("root/target/mlx/one/prefix/note", "");
    has(Warning, &["note was added", "move it away"]);
    fs_err::remove_file(note).unwrap();

    // A bundle has the same list.
    let bundle = scratch.path("bundle");
    fs_err::rename(&prefix, &bundle).unwrap();
    let host = host.clone().with("MLX_OVERLAY_PREFIX", bundle.as_str());
    finds(&scratch, &host, "prefix", Ok, &[bundle.as_str()]);
    fs_err::remove_file(bundle.join("lib/libmlx.a")).unwrap();
    let words = ["lib/libmlx.a is missing", "MLX_OVERLAY_PREFIX"];
    finds(&scratch, &host, "prefix", Error, &words);
    // Built by an earlier version of this program.
    fs_err::remove_file(bundle.join(sums::FILE_NAME)).unwrap();
    finds(
        &scratch,
        &host,
        "prefix",
        Error,
        &["has no MANIFEST.sha256"],
    );
}

/// A fake `cargo xtask build` that leaves the same result: the prefix of the lock's tree, and a link to it.
fn builder(scratch: &Scratch) {
    let root = scratch.path("root/target/mlx");
    let good = scratch.path("good");
    scratch.fake(
        "cargo",
        &format!(
            "[ \"$1 $2\" = 'xtask apply-overlay' ] && exit\n\
             [ \"$1 $2\" = 'xtask build' ] || exit 1\n\
             if [ -d {root}/current ] && [ ! -L {root}/current ]; then exit 1; fi\n\
             rm -rf {root}/one/prefix && cp -R {good} {root}/one/prefix && ln -sfn one/prefix {root}/current"
        ),
    );
}

#[test]
fn the_checkouts_own_prefix_is_built_again() {
    let scratch = Scratch::new();
    let host = linux(&scratch);
    built(&scratch, Backend::Sim, TREE);
    sim_kernels(&scratch, METALLIB, &["k", &fingerprint(TREE)]);
    let prefix = scratch.path("root/target/mlx/one/prefix");
    let current = scratch.path("root/target/mlx/current");
    sums::write(&prefix).unwrap();
    finds(&scratch, &host, "prefix", Ok, &[]);
    fs_err::rename(&prefix, scratch.path("good")).unwrap();
    builder(&scratch);
    let host = mends(
        &scratch,
        &host,
        "prefix",
        &["link to a folder that does not exist"],
    );
    built(&scratch, Backend::Sim, OTHER);
    let words = [
        OTHER,
        TREE,
        "cargo xtask apply-overlay && cargo xtask build",
    ];
    mends(&scratch, &host, "prefix", &words);
    fs_err::write(scratch.path(METALLIB), "<html>").unwrap();
    finds(
        &scratch,
        &host,
        "prefix",
        Error,
        &["lib/mlx.metallib is not as it was built"],
    );
    mends(&scratch, &host, "metallib", &["is not a metallib"]);
    finds(&scratch, &host, "prefix", Ok, &[]);
    // As `cp -L` copies a checkout.
    fs_err::remove_file(&current).unwrap();
    fs_err::create_dir(&current).unwrap();
    mends(
        &scratch,
        &host,
        "prefix",
        &["has no mlx-overlay.toml", "rm -r"],
    );
    fs_err::remove_file(&current).unwrap();
    fs_err::rename(&prefix, &current).unwrap();
    mends(&scratch, &host, "prefix", &["is a folder", "rm -r"]);
    fs_err::write(prefix.join("note"), "").unwrap();
    finds(
        &scratch,
        &host,
        "prefix",
        Warning,
        &["note was added", "cargo xtask build"],
    );
}

/// A build writes only the checkout's own prefix; a prefix named by a variable stays as it is.
#[test]
fn a_prefix_that_is_named_in_vain_is_no_longer_named() {
    let scratch = Scratch::new();
    let host = linux(&scratch);
    built(&scratch, Backend::Sim, OTHER);
    let bundle = scratch.path("bundle");
    fs_err::rename(scratch.path("root/target/mlx/one/prefix"), &bundle).unwrap();
    built(&scratch, Backend::Sim, TREE);
    let named = |value: &str| host.clone().with("MLX_OVERLAY_PREFIX", value);
    let empty = scratch.path("inputs");
    for (value, why) in [
        (bundle.as_str(), OTHER),
        ("/no/such/folder", "does not exist"),
        (empty.as_str(), "has no mlx-overlay.toml"),
        ("", "is empty"),
        ("no/such/folder", "is a relative path"),
    ] {
        mends(
            &scratch,
            &named(value),
            "prefix",
            &[why, "unset MLX_OVERLAY_PREFIX"],
        );
    }
    let own = scratch.path("root/target/mlx/one/prefix");
    fs_err::write(own.join("lib"), "").unwrap();
    finds(
        &scratch,
        &named(own.as_str()),
        "prefix",
        Warning,
        &["lib was added"],
    );
    fs_err::remove_file(own.join("lib")).unwrap();

    // From this test's folder the path points somewhere else.
    let up = "../".repeat(own.components().count() + 20);
    let relative = format!("{up}{}", own.as_str().trim_start_matches('/'));
    let words = ["is a relative path", "export MLX_OVERLAY_PREFIX=/"];
    mends(&scratch, &named(&relative), "prefix", &words);
}

/// Upstream's MLX is linked only if two variables are set.
#[test]
fn a_pristine_prefix_is_asked_for_in_full() {
    let scratch = Scratch::new();
    let host = linux(&scratch);
    built(&scratch, Backend::Sim, TREE);
    let pristine = scratch.path("pristine");
    let stamp = Stamp {
        base_tree: OTHER.to_owned(),
        pristine: true,
        ..stamp("0.32.4", OTHER, Backend::Sim)
    };
    fs_err::create_dir(&pristine).unwrap();
    stamp.write(&pristine).unwrap();
    sums::write(&pristine).unwrap();
    let named = host.clone().with("MLX_OVERLAY_PREFIX", pristine.as_str());
    let words = [OTHER, "export MLX_OVERLAY_PRISTINE=1"];
    let both = mends(&scratch, &named, "prefix", &words);
    assert_eq!(both.var("MLX_OVERLAY_PRISTINE"), Some("1"));
    let own = scratch.path("root/target/mlx/one/prefix");
    let patched = both.with("MLX_OVERLAY_PREFIX", own.as_str());
    mends(
        &scratch,
        &patched,
        "prefix",
        &["unset MLX_OVERLAY_PRISTINE"],
    );
    let alone = host.with("MLX_OVERLAY_PRISTINE", "1");
    mends(&scratch, &alone, "prefix", &["needs MLX_OVERLAY_PREFIX"]);
}

#[test]
fn a_compiler_that_was_updated_is_noticed() {
    let scratch = Scratch::new();
    let host = linux(&scratch);
    built(&scratch, Backend::Sim, TREE);
    scratch.fake("c++", "echo 'g++ 13.1.0'");
    finds(
        &scratch,
        &host,
        "toolchain",
        Warning,
        &["g++ 12.2.0", "now g++ 13.1.0"],
    );
    // One remedy at a time: without conda's compiler there may be nothing to build again.
    fs_err::create_dir_all(scratch.path("conda-meta")).unwrap();
    finds(&scratch, &host, "conda", Warning, &["conda deactivate"]);
    assert!(!lists(&scratch, &host, "toolchain"));
}

#[test]
fn kernels_of_another_mlx_or_another_back_end_do_not_belong() {
    let scratch = Scratch::new();
    let host = linux(&scratch);
    built(&scratch, Backend::Sim, TREE);
    finds(&scratch, &host, "metallib", Error, &["mlx.metallib"]);
    let own = fingerprint(TREE);
    sim_kernels(&scratch, METALLIB, &["affine_qmv_fast", &own]);
    finds(&scratch, &host, "metallib", Ok, &["2 kernels"]);
    let other = fingerprint(OTHER);
    sim_kernels(&scratch, METALLIB, &["affine_qmv_fast", &other]);
    finds(&scratch, &host, "metallib", Error, &[OTHER, TREE]);
    sim_kernels(&scratch, METALLIB, &["affine_qmv_fast"]);
    finds(
        &scratch,
        &host,
        "metallib",
        Error,
        &["does not have the overlay's kernels"],
    );
    apple_kernels(&scratch, &[&own], (14, 0));
    finds(
        &scratch,
        &host,
        "metallib",
        Error,
        &["not for the prefix's back-end, sim"],
    );
    scratch.file(METALLIB, "<html>");
    finds(&scratch, &host, "metallib", Error, &["is not a metallib"]);
}

#[test]
fn a_damaged_kernel_is_named() {
    let scratch = Scratch::new();
    let host = mac(&scratch);
    let own = fingerprint(TREE);
    apple_kernels(&scratch, &[&own], (15, 7));
    let path = scratch.path(METALLIB);
    let mut bytes = fs_err::read(&path).unwrap();
    let code = bytes
        .windows(7)
        .rposition(|part| part == b"bitcode")
        .unwrap();
    bytes[code] ^= 1;
    fs_err::write(&path, bytes).unwrap();
    finds(&scratch, &host, "metallib", Error, &["is damaged", &own]);
}

#[test]
fn kernels_beside_a_program_are_found_first_and_so_must_be_its_own() {
    let scratch = Scratch::new();
    let host = linux(&scratch);
    built(&scratch, Backend::Sim, TREE);
    sim_kernels(&scratch, METALLIB, &["affine_qmv_streamed"]);
    let beside = "root/target/debug/examples/mlx.metallib";
    sim_kernels(&scratch, beside, &["affine_qmv_streamed"]);
    finds(&scratch, &host, "shadowing-kernels", Ok, &[]);
    sim_kernels(&scratch, beside, &["affine_qmv_another"]);
    let remedy = format!("rm {}", scratch.path(beside));
    mends(&scratch, &host, "shadowing-kernels", &[&remedy]);

    // Below a target triple, in a custom profile, and in the folder of CARGO_TARGET_DIR.
    let other = scratch.path("it's elsewhere");
    let host = host.with("CARGO_TARGET_DIR", other.as_str());
    let files = [
        "it's elsewhere/release/mlx.metallib",
        "it's elsewhere/aarch64-apple-darwin/fast/deps/mlx.metallib",
    ];
    for file in files {
        scratch.file(file, "<html>");
    }
    let words = files.map(|file| scratch.path(file).into_string());
    let words = words.each_ref().map(String::as_str);
    mends(&scratch, &host, "shadowing-kernels", &words);
}

#[test]
fn kernels_that_are_named_are_those_that_programs_load() {
    let scratch = Scratch::new();
    let host = linux(&scratch);
    built(&scratch, Backend::Sim, TREE);
    sim_kernels(&scratch, METALLIB, &[&fingerprint(TREE)]);
    sim_kernels(&scratch, "other", &[&fingerprint(OTHER)]);
    let other = scratch.path("other");
    let named = host.clone().with("MLX_OVERLAY_METALLIB", other.as_str());
    let words = [other.as_str(), OTHER, "unset MLX_OVERLAY_METALLIB"];
    mends(&scratch, &named, "metallib", &words);
    finds(&scratch, &named, "variables", Ok, &[]);
    scratch.file("other", "<html>");
    finds(&scratch, &named, "metallib", Ok, &[METALLIB]);
    mends(&scratch, &named, "variables", &["is not a metallib"]);
}

#[test]
fn kernels_for_a_newer_macos_do_not_load() {
    let scratch = Scratch::new();
    let host = mac(&scratch);
    let own = fingerprint(TREE);
    apple_kernels(&scratch, &[&own], (15, 7));
    finds(&scratch, &host, "metallib", Ok, &["1 kernels"]);
    let older = host.clone().with("MACOSX_DEPLOYMENT_TARGET", "14.0");
    finds(
        &scratch,
        &older,
        "metallib",
        Warning,
        &["for 15.7", "MACOSX_DEPLOYMENT_TARGET"],
    );
    apple_kernels(&scratch, &[&own], (26, 0));
    finds(
        &scratch,
        &host,
        "metallib",
        Error,
        &["macOS 26.0 or newer", "cannot load"],
    );
}

#[test]
fn a_checkout_that_was_moved_is_noticed() {
    let scratch = Scratch::new();
    let host = linux(&scratch);
    let folder = scratch.path("root/target/mlx/one/build");
    let cache = |place: &str| {
        let text = format!("CMAKE_CACHEFILE_DIR:INTERNAL={place}\n");
        scratch.file("root/target/mlx/one/build/CMakeCache.txt", &text);
    };
    cache(folder.as_str());
    let here = folder.canonicalize_utf8().unwrap();
    cache(here.as_str());
    finds(&scratch, &host, "builds", Ok, &["1 build folders"]);
    cache("/home/somebody/old/target/mlx/one/build");
    let words = [
        "1 build folders",
        "1 made at another place",
        "compiles everything again",
    ];
    finds(&scratch, &host, "builds", Ok, &words);
}
