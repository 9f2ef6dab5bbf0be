//! What the build script links, and what it says when it does not.

#![allow(clippy::unwrap_used)] // in helpers too

#[path = "../build/prefix.rs"]
mod prefix;

use std::fs;
use std::path::Path;

use prefix::{Prefix, Request};
use tempfile::TempDir;

const BASE: &str = "0b3dbfacac35a0b64a7c3d9a778ef20db788f565";
const FINAL: &str = "1111111111111111111111111111111111111111";

/// A workspace with a lock, and room for a prefix.
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
        Self { folder }
    }

    fn request(&self) -> Request {
        Request {
            prefix: None,
            pristine: false,
            workspace: self.folder.path().to_owned(),
            lock: self.folder.path().join("mlx.lock"),
        }
    }

    fn install(&self, place: &str, tree: &str) {
        let folder = self.folder.path().join(place);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("mlx-overlay.toml"), stamp(tree)).unwrap();
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

/// The error, which must be one line.
fn refusal(request: &Request) -> String {
    let message = request.resolve().map(|prefix| prefix.root).unwrap_err();
    assert!(!message.contains('\n'), "{message}");
    message
}

#[test]
fn takes_the_workspaces_own_build() {
    let workspace = Workspace::new();
    workspace.install("target/mlx/current", FINAL);
    let prefix: Prefix = workspace.request().resolve().unwrap();
    let root = workspace
        .folder
        .path()
        .canonicalize()
        .unwrap()
        .join("target/mlx/current");
    assert_eq!(prefix.root, root);
    assert_eq!(prefix.include(), [root.join("include"), root.join("more")]);
    assert_eq!(prefix.lib(), root.join("lib64"));
    assert_eq!(prefix.metallib(), Some(root.join("lib/mlx.metallib")));
    let stamp = &prefix.stamp;
    assert_eq!(
        (
            stamp.version.as_str(),
            stamp.backend.as_str(),
            stamp.cxx_std.as_str()
        ),
        ("0.32.4", "cpu", "c++20")
    );
    assert_eq!((&stamp.base_tree[..], &stamp.final_tree[..]), (BASE, FINAL));
    assert_eq!((stamp.pristine, stamp.jit, stamp.cpu), (false, false, true));
    assert_eq!(
        (&stamp.static_libs[..], &stamp.system_libs[..]),
        (&["mlx".to_owned()][..], &["openblas".to_owned()][..])
    );
    assert_eq!(
        (stamp.frameworks.len(), &stamp.defines[..]),
        (0, &["MLX_STATIC".to_owned()][..])
    );
    assert_eq!(stamp.link_search, ["/opt/openblas/lib"]);
    assert_eq!(
        (&stamp.deployment_target, &stamp.clang_rt),
        (
            &Some("14.0".to_owned()),
            &Some("/xcode/libclang_rt.osx.a".into())
        )
    );
}

#[test]
fn a_named_prefix_wins() {
    let workspace = Workspace::new();
    workspace.install("target/mlx/current", FINAL);
    workspace.install("elsewhere", FINAL);
    let mut request = workspace.request();
    request.prefix = Some(workspace.folder.path().join("elsewhere"));
    assert!(request.resolve().unwrap().root.ends_with("elsewhere"));
}

#[test]
fn nothing_built_names_the_command() {
    let message = refusal(&Workspace::new().request());
    assert!(
        message.contains("no built MLX in") && message.contains("run `cargo xtask build`"),
        "{message}"
    );
}

#[test]
fn another_tree_is_refused() {
    let workspace = Workspace::new();
    workspace.install(
        "target/mlx/current",
        "2222222222222222222222222222222222222222",
    );
    let message = refusal(&workspace.request());
    assert!(
        message.contains("built from tree 2222") && message.contains(FINAL),
        "{message}"
    );
    assert!(message.contains("run `cargo xtask build`"), "{message}");
}

#[test]
fn the_pristine_tree_is_linked_by_name_only() {
    let workspace = Workspace::new();
    workspace.install("target/mlx/current", BASE);
    assert!(refusal(&workspace.request()).contains("final_tree"));

    let mut request = workspace.request();
    request.pristine = true;
    assert!(refusal(&request).contains("needs MLX_OVERLAY_PREFIX"));

    request.prefix = Some(workspace.folder.path().join("target/mlx/current"));
    assert!(request.resolve().unwrap().stamp.pristine);

    workspace.install("target/mlx/current", FINAL);
    let message = refusal(&request);
    assert!(
        message.contains("base_tree") && message.contains("cargo xtask build --pristine"),
        "{message}"
    );
}

#[test]
fn a_bad_stamp_is_named() {
    let workspace = Workspace::new();
    let file = workspace
        .folder
        .path()
        .join("target/mlx/current/mlx-overlay.toml");
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
        let message = refusal(&workspace.request());
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
    let mut request = workspace.request();
    request.lock = Path::new("/nonexistent/mlx.lock").to_owned();
    let message = refusal(&request);
    assert!(
        message.contains("/nonexistent/mlx.lock") && message.contains("cargo xtask apply-overlay"),
        "{message}"
    );
}
