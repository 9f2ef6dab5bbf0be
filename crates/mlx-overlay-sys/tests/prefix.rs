//! The errors of the build script if it finds no MLX to link.

#![allow(clippy::unwrap_used)] // in helpers too

#[path = "../build/find.rs"]
mod find;

use std::fs;
use std::path::PathBuf;

use mlx_prefix::Search;
use tempfile::TempDir;

const BASE: &str = "0b3dbfacac35a0b64a7c3d9a778ef20db788f565";
const FINAL: &str = "1111111111111111111111111111111111111111";

/// A checkout with a lock and a place for a prefix.
struct Workspace {
    folder: TempDir,
}

impl Workspace {
    fn new() -> Self {
        let folder = TempDir::new().unwrap();
        fs::write(
            folder.path().join("mlx.lock"),
            format!("format = 1\nbase_tree = \"{BASE}\"\nfinal_tree = \"{FINAL}\"\n"),
        )
        .unwrap();
        let workspace = Self { folder };
        workspace.file("mlx.toml");
        workspace.file("xtask/Cargo.toml");
        workspace
    }

    /// The same as cargo's copy of the repository.
    fn of_cargo() -> Self {
        let workspace = Self::new();
        workspace.file(".cargo-ok");
        workspace
    }

    fn path(&self, place: &str) -> PathBuf {
        self.folder.path().join(place)
    }

    /// The path with links resolved, which errors and cargo's settings use.
    fn real(&self, place: &str) -> PathBuf {
        self.path(place).canonicalize().unwrap()
    }

    fn file(&self, place: &str) {
        let path = self.path(place);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "content").unwrap();
    }

    fn search(&self) -> Search {
        Search {
            named: None,
            pristine: false,
            workspace: self.folder.path().to_owned(),
            base: self.path("crates/mlx-overlay-sys"),
        }
    }

    /// A search for a prefix that is named.
    fn named(&self, prefix: impl Into<PathBuf>) -> Search {
        Search {
            named: Some(prefix.into()),
            ..self.search()
        }
    }

    /// The error, which must be one line.
    fn refusal(&self, search: &Search) -> String {
        let found = find::find(search, &self.path("mlx.lock"));
        let message = found.map(|prefix| prefix.root).unwrap_err();
        assert!(!message.contains('\n'), "{message}");
        message
    }

    fn install(&self, place: &str, tree: &str) {
        for file in [
            "lib64/libmlx.a",
            "lib/mlx.metallib",
            "include/a.h",
            "more/b.h",
        ] {
            self.file(&format!("{place}/{file}"));
        }
        fs::write(self.path(place).join("mlx-overlay.toml"), stamp(tree)).unwrap();
    }
}

fn stamp(tree: &str) -> String {
    format!(
        r#"format = 1
version = "0.32.4"
base_tree = "{BASE}"
final_tree = "{tree}"
pristine = {}
backend = "cpu"
jit = false
cpu = true
include = ["include", "more"]
lib = "lib64"
static_libs = ["mlx"]
system_libs = ["openblas"]
link_search = ["/opt/openblas/lib"]
frameworks = []
defines = ["MLX_STATIC"]
cxx_std = "c++20"
metallib = "lib/mlx.metallib"
deployment_target = "14.0"
clang_rt = "/xcode/libclang_rt.osx.a"
"#,
        tree == BASE
    )
}

#[track_caller]
fn has(message: &str, parts: &[&str]) {
    for part in parts {
        assert!(message.contains(part), "`{part}` is not in: {message}");
    }
}

#[test]
fn nothing_built_names_the_command() {
    let workspace = Workspace::new();
    has(
        &workspace.refusal(&workspace.search()),
        &[
            "no built MLX in",
            "target/mlx/current",
            "which does not exist",
            "run `cargo xtask build`",
            "MLX_OVERLAY_PREFIX",
        ],
    );
}

#[test]
fn a_dependency_is_sent_to_a_bundle_not_to_a_command_that_it_lacks() {
    // Cargo's copy of the repository, and a package from a registry next to an unrelated xtask.
    let of_cargo = Workspace::of_cargo();
    let package = Workspace::new();
    fs::remove_file(package.path("mlx.toml")).unwrap();
    for workspace in [of_cargo, package] {
        let message = workspace.refusal(&workspace.search());
        has(
            &message,
            &[
                "MLX_OVERLAY_PREFIX is not set",
                "`.cargo/config.toml`",
                "`cargo xtask bundle`",
                "same revision",
                "docs/guide/rust.md",
            ],
        );
        assert!(!message.contains("target/mlx"), "{message}");
        assert!(!message.contains("cargo xtask build"), "{message}");

        workspace.install("bundle", "2222222222222222222222222222222222222222");
        let message = workspace.refusal(&workspace.named(workspace.path("bundle")));
        has(
            &message,
            &["built from tree 2222", FINAL, "`rev`", "bundle again"],
        );
        assert!(!message.contains("cargo xtask build"), "{message}");
    }
}

#[test]
fn a_prefix_that_is_none_says_why() {
    for workspace in [Workspace::new(), Workspace::of_cargo()] {
        workspace.file("archive.tar.zst");
        workspace.file("other/README.md");
        let cases = [
            (
                "archive.tar.zst",
                "which is a file (unpack an archive first)",
            ),
            ("none", "which does not exist"),
            ("other", "which has no mlx-overlay.toml"),
        ];
        for (place, why) in cases {
            let path = workspace.path(place);
            let message = workspace.refusal(&workspace.named(&path));
            has(
                &message,
                &["no built MLX in `", &path.display().to_string(), why],
            );
            assert!(!message.contains("relative"), "{message}");
        }
        has(
            &workspace.refusal(&workspace.named("")),
            &["MLX_OVERLAY_PREFIX is empty: name the folder"],
        );
    }
}

#[test]
fn a_relative_prefix_is_shown_as_it_is_resolved() {
    let workspace = Workspace::new();
    workspace.install("crates/mlx-overlay-sys/here", FINAL);
    let lock = workspace.path("mlx.lock");
    find::find(&workspace.named("here"), &lock).unwrap();

    let resolved = workspace.path("crates/mlx-overlay-sys/target/prefix");
    has(
        &workspace.refusal(&workspace.named("target/prefix")),
        &[
            &format!(
                "no built MLX in `{}`, which does not exist",
                resolved.display()
            ),
            "`target/prefix` is relative to this package's folder",
            r#"MLX_OVERLAY_PREFIX = { value = "…", relative = true }"#,
            "`.cargo/config.toml`",
        ],
    );
}

#[test]
fn a_file_that_is_gone_is_named_with_the_way_to_get_it_back() {
    let missing = ["lib64/libmlx.a", "lib/mlx.metallib", "include", "more"];
    for file in missing {
        let workspace = Workspace::new();
        workspace.install("target/mlx/current", FINAL);
        workspace.install("bundle", FINAL);
        for place in ["target/mlx/current", "bundle"] {
            let path = workspace.path(place).join(file);
            if path.is_dir() {
                fs::remove_dir_all(&path).unwrap();
            } else {
                fs::remove_file(&path).unwrap();
            }
        }
        let name = |place: &str| {
            format!(
                "`{}` is missing",
                workspace.real(place).join(file).display()
            )
        };
        has(
            &workspace.refusal(&workspace.search()),
            &[&name("target/mlx/current"), "run `cargo xtask build`"],
        );
        workspace.file(".cargo-ok");
        let message = workspace.refusal(&workspace.named(workspace.path("bundle")));
        has(&message, &[&name("bundle"), "bundle again"]);
        assert!(!message.contains("cargo xtask build"), "{message}");
    }
}

#[test]
fn another_tree_is_refused() {
    let workspace = Workspace::new();
    workspace.install(
        "target/mlx/current",
        "2222222222222222222222222222222222222222",
    );
    let message = workspace.refusal(&workspace.search());
    assert!(
        message.contains("built from tree 2222") && message.contains(FINAL),
        "{message}"
    );
    assert!(message.contains("run `cargo xtask build`"), "{message}");
    // A build would write to another folder.
    workspace.install("bundle", "2222222222222222222222222222222222222222");
    let message = workspace.refusal(&workspace.named(workspace.path("bundle")));
    has(&message, &["unset MLX_OVERLAY_PREFIX", "bundle again"]);
    assert!(!message.contains("cargo xtask build"), "{message}");
}

#[test]
fn a_pristine_mlx_is_named_with_its_own_command() {
    let workspace = Workspace::new();
    workspace.install("target/mlx/current", BASE);
    assert!(
        workspace
            .refusal(&workspace.search())
            .contains("final_tree")
    );

    let mut search = workspace.search();
    search.pristine = true;
    has(
        &workspace.refusal(&search),
        &["needs MLX_OVERLAY_PREFIX", "cargo xtask build --pristine"],
    );

    search.named = Some(workspace.path("target/mlx/current"));
    workspace.install("target/mlx/current", FINAL);
    has(
        &workspace.refusal(&search),
        &["base_tree", "cargo xtask build --pristine"],
    );
}

#[test]
fn a_bad_stamp_is_named() {
    let workspace = Workspace::new();
    let file = workspace.path("target/mlx/current/mlx-overlay.toml");
    let cases: [(&str, &str); 3] = [
        ("format = 1\nversion = ", "mlx-overlay.toml"),
        (
            &stamp(FINAL).replace("lib = \"lib64\"\n", ""),
            "missing field `lib`",
        ),
        (
            &stamp(FINAL).replace("format = 1", "format = 2"),
            "has format 2",
        ),
    ];
    for (text, expected) in cases {
        workspace.install("target/mlx/current", FINAL);
        fs::write(&file, text).unwrap();
        let message = workspace.refusal(&workspace.search());
        assert!(
            message.contains(expected) && message.contains("cargo xtask build"),
            "{message}"
        );
    }
}

#[test]
fn a_missing_lock_is_named() {
    let workspace = Workspace::new();
    workspace.install("target/mlx/current", FINAL);
    fs::remove_file(workspace.path("mlx.lock")).unwrap();
    has(
        &workspace.refusal(&workspace.search()),
        &["mlx.lock: ", "cargo xtask apply-overlay"],
    );
}

/// A bump does not edit Cargo's files, so the versions could drift apart.
#[test]
fn the_version_names_the_pinned_mlx() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/mlx.lock");
    let lock = fs::read_to_string(file).unwrap();
    let mlx = lock
        .lines()
        .find_map(|line| line.strip_prefix("version = "))
        .unwrap();
    let version = env!("CARGO_PKG_VERSION");
    let expected = format!("+mlx-{}", mlx.trim_matches('"'));
    assert!(
        version.ends_with(&expected),
        "Cargo.toml has {version}, mlx.lock has {mlx}"
    );
}
