//! Finding a prefix, and the conditions under which it may be linked.

use std::fs;
use std::path::{Path, PathBuf};

use mlx_prefix::{Backend, Error, Found, Ids, Prefix, Search, Stamp, built};
use tempfile::TempDir;

const BASE: &str = "0b3dbfacac35a0b64a7c3d9a778ef20db788f565";
const FINAL: &str = "1111111111111111111111111111111111111111";
const OTHER: &str = "2222222222222222222222222222222222222222";

/// A checkout with a place for prefixes.
struct Workspace {
    folder: TempDir,
}

impl Workspace {
    fn new() -> Self {
        Self {
            folder: TempDir::new().expect("a temporary folder"),
        }
    }

    fn path(&self, place: &str) -> PathBuf {
        self.folder.path().join(place)
    }

    fn file(&self, place: &str, text: &str) {
        let path = self.path(place);
        fs::create_dir_all(path.parent().expect("a parent")).expect("folders");
        fs::write(path, text).expect("a file");
    }

    /// A prefix with everything that its stamp lists.
    fn install(&self, place: &str, tree: &str) -> PathBuf {
        for part in [
            "lib64/libmlx.a",
            "lib/mlx.metallib",
            "include/a.h",
            "more/b.h",
        ] {
            self.file(&format!("{place}/{part}"), "content");
        }
        let stamp = Stamp {
            version: "0.32.4".to_owned(),
            base_tree: BASE.to_owned(),
            final_tree: tree.to_owned(),
            pristine: tree == BASE,
            backend: Backend::Sim,
            jit: false,
            cpu: false,
            include: vec!["include".to_owned(), "more".to_owned()],
            lib: "lib64".to_owned(),
            static_libs: vec!["mlx".to_owned()],
            system_libs: Vec::new(),
            link_search: Vec::new(),
            frameworks: Vec::new(),
            defines: Vec::new(),
            cxx_std: "c++20".to_owned(),
            metallib: Some("lib/mlx.metallib".to_owned()),
            deployment_target: None,
            clang_rt: None,
            tools: [].into(),
        };
        stamp.write(self.path(place)).expect("a stamp");
        let root = self.path(place).canonicalize();
        root.expect("the prefix that was just made")
    }

    fn search(&self, named: Option<&str>, pristine: bool) -> Search {
        Search {
            named: named.map(PathBuf::from),
            pristine,
            workspace: self.folder.path().to_owned(),
            base: self.path("base"),
        }
    }

    /// The result if no variable is set.
    fn own(&self) -> Result<Prefix, Error> {
        self.search(None, false).resolve(&ids())
    }
}

fn ids() -> Ids {
    Ids {
        base_tree: BASE.to_owned(),
        final_tree: FINAL.to_owned(),
    }
}

#[test]
fn the_workspaces_own_build_is_found_with_its_parts() {
    let workspace = Workspace::new();
    let root = workspace.install("target/mlx/one/prefix", FINAL);
    let link = workspace.path("target/mlx/current");
    std::os::unix::fs::symlink("one/prefix", link).unwrap();
    let prefix = workspace.own().unwrap();
    assert_eq!(prefix.root, root);
    assert_eq!(prefix.include(), [root.join("include"), root.join("more")]);
    assert_eq!(prefix.lib(), root.join("lib64"));
    assert_eq!(prefix.libraries(), [root.join("lib64/libmlx.a")]);
    assert_eq!(prefix.metallib(), Some(root.join("lib/mlx.metallib")));
}

#[test]
fn a_named_prefix_wins() {
    let workspace = Workspace::new();
    workspace.install("target/mlx/current", FINAL);
    let elsewhere = workspace.install("elsewhere", FINAL);
    let relative = workspace.install("base/here", FINAL);
    for (name, root) in [
        (elsewhere.to_str().unwrap(), &elsewhere),
        ("here", &relative),
    ] {
        let found = workspace.search(Some(name), false).resolve(&ids()).unwrap();
        assert_eq!(found.root, *root);
    }
    let empty = workspace.search(Some(""), false).resolve(&ids());
    assert!(matches!(empty, Err(Error::EmptyName)), "{empty:?}");
}

#[test]
fn nothing_built_says_where_it_looked() {
    let workspace = Workspace::new();
    match workspace.own() {
        Err(Error::NoPrefix { root, found }) => {
            assert_eq!(root, workspace.path("target/mlx/current"));
            assert_eq!(found, Found::Nothing);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_prefix_that_lacks_a_part_is_refused() {
    let empty = |path: &Path| fs::write(path, "").unwrap();
    let gone = |path: &Path| match path.is_dir() {
        true => fs::remove_dir_all(path).unwrap(),
        false => fs::remove_file(path).unwrap(),
    };
    let a_folder = |path: &Path| {
        fs::remove_file(path).unwrap();
        fs::create_dir(path).unwrap();
    };
    type Damage<'a> = &'a dyn Fn(&Path);
    let damages: [(&str, Damage); 7] = [
        ("lib64/libmlx.a", &gone),
        ("lib64/libmlx.a", &empty),
        ("lib64/libmlx.a", &a_folder),
        ("lib/mlx.metallib", &gone),
        ("lib/mlx.metallib", &empty),
        ("include", &gone),
        ("more", &gone),
    ];
    for (part, damage) in damages {
        let workspace = Workspace::new();
        let path = workspace.install("target/mlx/current", FINAL).join(part);
        workspace.own().unwrap();
        damage(&path);
        match workspace.own() {
            Err(Error::Incomplete(missing)) => assert_eq!(missing, path),
            other => panic!("{part}: {other:?}"),
        }
    }
}

#[test]
fn another_tree_is_refused() {
    let workspace = Workspace::new();
    workspace.install("target/mlx/current", OTHER);
    let message = workspace.own().unwrap_err().to_string();
    for part in ["built from tree 2222", "final_tree", FINAL] {
        assert!(message.contains(part), "{message}");
    }
}

#[test]
fn the_pristine_tree_is_linked_by_name_only() {
    let workspace = Workspace::new();
    let pristine = workspace.install("target/mlx/current", BASE);
    let own = workspace.own();
    assert!(
        matches!(
            own,
            Err(Error::OtherTree {
                name: "final_tree",
                ..
            })
        ),
        "{own:?}"
    );
    let unnamed = workspace.search(None, true).resolve(&ids());
    assert!(
        matches!(unnamed, Err(Error::PristineUnnamed)),
        "{unnamed:?}"
    );
    let named = workspace.search(pristine.to_str(), true);
    assert!(named.resolve(&ids()).unwrap().stamp.pristine);
    workspace.install("target/mlx/current", FINAL);
    let patched = named.resolve(&ids());
    assert!(
        matches!(
            patched,
            Err(Error::OtherTree {
                name: "base_tree",
                ..
            })
        ),
        "{patched:?}"
    );
}

#[test]
fn all_builds_of_a_checkout_are_listed_once() {
    let workspace = Workspace::new();
    assert!(built(workspace.path("")).is_err());
    let [one, two] =
        ["one", "two"].map(|name| workspace.install(&format!("target/mlx/{name}/prefix"), FINAL));
    std::os::unix::fs::symlink("two/prefix", workspace.path("target/mlx/current")).unwrap();
    workspace.file("target/mlx/unfinished/build.log", "");
    let roots = |list: Vec<Prefix>| {
        list.into_iter()
            .map(|prefix| prefix.root)
            .collect::<Vec<_>>()
    };
    assert_eq!(
        roots(built(workspace.path("")).unwrap())
            .iter()
            .map(|root| root.canonicalize().unwrap())
            .collect::<Vec<_>>(),
        [one, two]
    );
}

#[test]
fn the_locks_ids_are_read_and_a_bad_lock_is_named() {
    let workspace = Workspace::new();
    let lock = workspace.path("mlx.lock");
    let missing = Ids::read(&lock).unwrap_err().to_string();
    assert!(missing.contains("mlx.lock: "), "{missing}");
    let whole = format!(
        "format = 1\nbase_tree = \"{BASE}\"\nfinal_tree = \"{FINAL}\"\n\n[[patch]]\nname = \"a\"\n"
    );
    workspace.file("mlx.lock", &whole);
    assert_eq!(Ids::read(&lock).unwrap(), ids());
    workspace.file("mlx.lock", "format = 1\n");
    let error = Ids::read(&lock).unwrap_err().to_string();
    assert!(error.contains("missing field `base_tree`"), "{error}");
}
