//! Moves the pin over MLX's real history: the five trees in packages on crates.io.
//!
//! The patch is affine-tile-cap as it was written for v0.32.0 and for v0.32.4, stored in `fixtures/`, so that these
//! tests do not depend on today's series.
#![allow(clippy::unwrap_used, reason = "a test may panic")]
#![allow(
    clippy::disallowed_methods,
    reason = "a server that outlives the call has no wrapper"
)]

mod support;

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use camino::{Utf8Path, Utf8PathBuf};
use fs_err as fs;
use git2::{Oid, Repository, Signature, Time};
use patchset::bump::{self, Fate, Options, Outcome, Report};
use patchset::lock::Lock;
use patchset::progress::QUIET;
use patchset::series::Series;
use patchset::sources::{self, Request};
use patchset::store::Store;
use patchset::watch::Change;
use patchset::{Manifest, Workspace};

const MANIFEST: &str = include_str!("../../../mlx.toml");
const OLD_PATCH: &str = include_str!("fixtures/affine-tile-cap-0.32.0.patch");
const NEW_PATCH: &str = include_str!("fixtures/affine-tile-cap-0.32.4.patch");

/// Oldest first: upstream's name and the version.
const PINS: [(&str, &str); 5] = [
    ("v0.31.2", "0.31.2"),
    ("5abdd04bccdf2b2d78f8923397f57e6c3ab69d15", "0.32.0"),
    ("v0.32.0", "0.32.0"),
    ("v0.32.2", "0.32.2"),
    ("v0.32.4", "0.32.4"),
];

/// All five trees in one cache that is kept between runs, and a repository with a commit for each.
struct History {
    root: Utf8PathBuf,
    cache: Utf8PathBuf,
    upstream: Utf8PathBuf,
}

fn history() -> &'static History {
    static HISTORY: OnceLock<History> = OnceLock::new();
    HISTORY.get_or_init(|| {
        let root = Utf8PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("real-history");
        fs::create_dir_all(&root).unwrap();
        let workspace = Workspace::at(root.join("fetch"));
        fs::create_dir_all(workspace.root()).unwrap();
        let manifest = manifest();
        let store = Store::open(&workspace).unwrap();
        let upstream = root.join("upstream.git");
        Repository::init_bare(&upstream).unwrap();
        let objects = store.folder().join("objects");
        fs::create_dir_all(upstream.join("objects/info")).unwrap();
        fs::write(
            upstream.join("objects/info/alternates"),
            format!("{objects}\n"),
        )
        .unwrap();
        let repo = Repository::open_bare(&upstream).unwrap();
        let mut parent: Option<Oid> = None;
        for (name, version) in PINS {
            let pin = manifest.pin(name).unwrap();
            let request = |offline| Request {
                pin,
                lock: None,
                offline,
                refresh: false,
                source: None,
                accept: None,
            };
            // From cargo's own cache if it has the package.
            let fetched = sources::fetch(&workspace, &store, request(true), QUIET)
                .or_else(|_| sources::fetch(&workspace, &store, request(false), QUIET))
                .unwrap();
            let message = format!("MLX {version} ({name})");
            let commit = commit(&repo, &message, fetched.tree, parent);
            let object = repo.find_object(commit, None).unwrap();
            let tag = if name.starts_with('v') {
                name
            } else {
                "before-qmv-wide"
            };
            repo.tag_lightweight(tag, &object, true).unwrap();
            parent = Some(commit);
        }
        History {
            cache: workspace.cache(),
            upstream,
            root,
        }
    })
}

fn commit(repo: &Repository, message: &str, tree: Oid, parent: Option<Oid>) -> Oid {
    let who = Signature::new("upstream", "upstream@localhost", &Time::new(0, 0)).unwrap();
    let tree = repo.find_tree(tree).unwrap();
    let parent = parent.map(|parent| repo.find_commit(parent).unwrap());
    let parents: Vec<_> = parent.iter().collect();
    repo.commit(None, &who, &who, message, &tree, &parents)
        .unwrap()
}

/// The project's own `mlx.toml`, without anything that needs a network.
fn manifest_text() -> String {
    MANIFEST.replace(
        "https://github.com/ml-explore/mlx.git",
        "file:///no/such/repository",
    )
}

fn manifest() -> Manifest {
    toml::from_str(&manifest_text()).unwrap()
}

struct Project {
    _folder: tempfile::TempDir,
    workspace: Workspace,
}

impl Project {
    /// A project that pins `pin`, with one patch.
    fn at(pin: &str, patch: &str) -> Self {
        let history = history();
        let folder = tempfile::tempdir_in(&history.root).unwrap();
        let workspace = Workspace::at(Utf8Path::from_path(folder.path()).unwrap());
        let project = Self {
            _folder: folder,
            workspace,
        };
        fs::create_dir_all(project.path("target")).unwrap();
        std::os::unix::fs::symlink(&history.cache, project.path("target/overlay")).unwrap();
        fs::create_dir_all(project.path("patches")).unwrap();
        fs::write(project.path("mlx.toml"), manifest_text()).unwrap();
        fs::write(project.path("patches/series"), "").unwrap();
        project.update_lock();
        if manifest().pin(pin).unwrap().tree != manifest().mlx.tree {
            assert!(matches!(project.bump(pin).1, Outcome::Done));
        }
        fs::write(project.path("patches/series"), "affine-tile-cap\n").unwrap();
        fs::write(project.path("patches/affine-tile-cap.patch"), patch).unwrap();
        project.update_lock();
        project
    }

    fn path(&self, path: &str) -> Utf8PathBuf {
        self.workspace.root().join(path)
    }

    /// Writes the lock for the current files; returns the tree.
    fn update_lock(&self) -> Oid {
        let manifest = Manifest::load(&self.workspace.manifest_path()).unwrap();
        let series = Series::load(&self.workspace.patches()).unwrap();
        let store = Store::open(&self.workspace).unwrap();
        let resolved = series
            .resolve(&store.overlay().unwrap(), manifest.mlx.tree)
            .unwrap();
        let lock = Lock::new(&manifest.mlx, None, &series, &resolved);
        lock.save(&self.workspace).unwrap();
        lock.final_tree
    }

    fn bump(&self, wanted: &str) -> (Report, Outcome) {
        self.bump_from(wanted, None)
    }

    fn bump_from(&self, wanted: &str, source: Option<String>) -> (Report, Outcome) {
        let options = Options {
            wanted: wanted.to_owned(),
            source,
            ..Options::default()
        };
        bump::start(&self.workspace, &options, QUIET).unwrap()
    }

    fn patch(&self) -> String {
        fs::read_to_string(self.path("patches/affine-tile-cap.patch")).unwrap()
    }
}

fn changed(report: &Report) -> Vec<&str> {
    report
        .changed()
        .map(|watched| watched.name.as_str())
        .collect()
}

#[test]
fn from_0_32_0_by_way_of_0_32_2_to_0_32_4() {
    let project = Project::at("v0.32.0", OLD_PATCH);
    let (report, outcome) = project.bump("0.32.2");
    assert!(matches!(outcome, Outcome::Done), "{outcome:?}");
    let Fate::Moved(files) = &report.patches[0].fate else {
        panic!("{:?}", report.patches[0].fate)
    };
    // quantized.metal is the same in both, so only the cap has moved.
    let moved: Vec<_> = files
        .iter()
        .map(|file| (file.path.as_str(), file.hunks.len()))
        .collect();
    assert_eq!(moved, [("mlx/backend/metal/quantized.cpp", 1)]);
    assert_eq!((files[0].hunks[0].from, files[0].hunks[0].to), (319, 558));

    let (report, outcome) = project.bump("0.32.4");
    assert!(matches!(outcome, Outcome::Done), "{outcome:?}");
    let Fate::Moved(files) = &report.patches[0].fate else {
        panic!("{:?}", report.patches[0].fate)
    };
    let lines = |file: usize| {
        files[file]
            .hunks
            .iter()
            .map(|hunk| (hunk.from, hunk.to))
            .collect::<Vec<_>>()
    };
    assert_eq!(lines(0), [(118, 133), (128, 143)]);
    assert_eq!(lines(1), [(558, 566)]);
    assert_eq!(
        project.patch(),
        NEW_PATCH,
        "the patch is not the one that was written for 0.32.4"
    );
    let tree = project.update_lock();
    assert_eq!(tree, Project::at("v0.32.4", NEW_PATCH).update_lock());
}

#[test]
fn from_0_32_0_to_0_32_4_names_exactly_what_changed() {
    let project = Project::at("v0.32.0", OLD_PATCH);
    let (report, outcome) = project.bump("v0.32.4");
    assert!(matches!(outcome, Outcome::Done), "{outcome:?}");
    let expected = [
        "load_vector",
        "load_vector_safe",
        "qdot",
        "qdot_safe",
        "qmv_fast_impl",
        "affine_qmv",
        "affine_qmv_fast",
        "affine_qvm",
        "affine_qmm_n",
        "affine_qmm_t",
        "affine_gather_qmv",
        "affine_gather_qmv_fast",
        "affine_gather_qvm",
        "dequantize",
        "qmm_t_impl",
        "qouter",
        "QuantizedBlockLoader",
        "fp_qmv_fast_impl",
        "fp_qmv_impl",
        "adjust_matrix_offsets",
        "fp_qmv",
        "fp_qmv_fast",
        "Dequantize",
        "fp4_e2m1",
        "fp8_e4m3",
        "fp8_e8m0",
        "Limits",
        "get_qmv_batch_limit",
        "qmv_fast_k_alignment",
        "qmv",
        "dispatch_qmv",
        "qvm",
        "qvm_split_k",
        "qmm",
        "qmm_nax",
        "qmm_splitk",
        "gather_qmv",
        "gather_qvm",
        "gather_qmm",
        "gather_qmm_nax",
        "gather_qmm_rhs",
        "gather_qmm_rhs_nax",
        "QuantizedMatmul::eval_gpu",
        "GatherQMM::eval_gpu",
        "QQMatmul::eval_gpu",
        "GatherQQMM::eval_gpu",
        "dot_product",
        "gemv_wide",
        "gemv_wide_config",
        "Matmul::eval_gpu",
        "AddMM::eval_gpu",
        "GatherMM::eval_gpu",
        "gemv_wide",
        "GemvWide",
        "gated_delta_chunk_size",
        "gated_delta_ckpt",
        "GatedDeltaUpdate::eval_gpu",
        "sdpa_vector",
        "sdpa_vector_2pass_1",
        "sdpa_vector_2pass_1_gqa",
        "sdpa_vector",
        "sdpa_vector_2pass",
        "has_fused_kernel",
        "ScaledDotProductAttention::use_fallback",
        "ScaledDotProductAttention::eval_gpu",
        "scaled_dot_product_attention",
        "ScaledDotProductAttention::is_equivalent",
        "instantiate_sdpa_vector_heads",
        "instantiate_sdpa_vector_gqa",
        "gather_qmv_kernel",
        "gather_qmv",
        "QuantizedMatmul::eval_gpu",
        "GatherQMM::eval_gpu",
        "gemv_batched",
        "gemv_gather",
        "get_gemv_grid_dims",
        "gemv",
        "gather_mv",
        "GatherMM::eval_gpu",
    ];
    assert_eq!(changed(&report), expected);
    let same = |name: &str| {
        report
            .watched
            .iter()
            .any(|watched| watched.name == name && watched.change == Change::Same)
    };
    for name in [
        "qmv_impl",
        "qmv_quad_impl",
        "qmv_wide_impl",
        "qmv_wide",
        "qmv_quad",
        "use_qmv_wide",
    ] {
        assert!(same(name), "{name}");
    }
    let text = report.to_markdown();
    let diff = "-      sum += x[i] + x[i + 1] + x[i + 2] + x[i + 3];\n+      sum += U(x[i]) + U(x[i + 1]) + U(x[i + 2]) + U(x[i + 3]);\n";
    assert!(
        text.contains(diff),
        "the wider sum of load_vector is not shown"
    );
    assert!(
        text.contains("| `mlx/backend/metal/quantized.cpp` | affine-tile-cap | +723 -271 |"),
        "{text}"
    );
    assert_eq!(project.patch(), NEW_PATCH);
}

/// The results of `git cherry-pick`, `git apply` and diffy for the same patch.
#[test]
fn git_and_diffy_come_to_the_same_tree() {
    let history = history();
    let folder = tempfile::tempdir_in(&history.root).unwrap();
    let git = |args: &[&str]| {
        let folder = Utf8Path::from_path(folder.path()).unwrap();
        support::git(folder, args).trim().to_owned()
    };
    git(&[
        "clone",
        "--quiet",
        "--shared",
        history.upstream.as_str(),
        ".",
    ]);
    git(&["checkout", "--quiet", "v0.32.0"]);
    fs::write(folder.path().join(".git/old.patch"), OLD_PATCH).unwrap();
    fs::write(folder.path().join(".git/new.patch"), NEW_PATCH).unwrap();
    git(&["apply", "--index", ".git/old.patch"]);
    git(&["commit", "--quiet", "-m", "cap"]);
    let old = git(&["rev-parse", "HEAD"]);
    git(&["checkout", "--quiet", "v0.32.4"]);
    git(&["cherry-pick", &old]);
    let picked = git(&["rev-parse", "HEAD^{tree}"]);

    let project = Project::at("v0.32.0", OLD_PATCH);
    project.bump("v0.32.4");
    assert_eq!(project.update_lock().to_string(), picked);

    git(&["checkout", "--quiet", "v0.32.4"]);
    let parts = diffy::patch_set::PatchSet::parse_bytes(
        project.patch().as_bytes(),
        diffy::patch_set::ParseOptions::gitdiff(),
    )
    .map(Result::unwrap)
    .map(|part| {
        let file = "mlx/backend/metal/".to_owned()
            + if part.patch().as_text().unwrap().hunks().len() == 2 {
                "kernels/quantized.metal"
            } else {
                "quantized.cpp"
            };
        let before = fs::read(folder.path().join(&file)).unwrap();
        (
            file,
            diffy::apply_bytes(&before, part.patch().as_text().unwrap()).unwrap(),
        )
    })
    .collect::<Vec<_>>();
    for (file, bytes) in &parts {
        fs::write(folder.path().join(file), bytes).unwrap();
    }
    git(&["add", "--all"]);
    assert_eq!(git(&["write-tree"]), picked);
    git(&["reset", "--quiet", "--hard"]);
    git(&[
        "apply",
        "--index",
        project.path("patches/affine-tile-cap.patch").as_str(),
    ]);
    assert_eq!(git(&["write-tree"]), picked);
}

#[test]
fn down_to_where_there_is_no_qmv_wide_is_a_conflict_and_nothing_is_lost() {
    for pin in ["0.31.2", "5abdd04"] {
        let project = Project::at("v0.32.4", NEW_PATCH);
        let read = |path: &str| fs::read(project.path(path)).unwrap();
        let files = [
            "mlx.toml",
            "mlx.lock",
            "patches/series",
            "patches/affine-tile-cap.patch",
        ];
        let before = files.map(read);
        let (report, outcome) = project.bump(pin);
        let Outcome::Conflict {
            patch,
            worktree: Some(worktree),
        } = outcome
        else {
            panic!("{pin}: {outcome:?}")
        };
        assert_eq!(patch, "affine-tile-cap");
        assert_eq!(files.map(read), before);
        let Fate::Conflict(conflicts) = &report.patches[0].fate else {
            panic!("{:?}", report.patches[0].fate)
        };
        let paths: Vec<_> = conflicts
            .iter()
            .map(|conflict| conflict.path.as_str())
            .collect();
        assert_eq!(
            paths,
            [
                "mlx/backend/metal/kernels/quantized.metal",
                "mlx/backend/metal/quantized.cpp"
            ]
        );
        let text = report.to_markdown();
        for part in [
            "+  instantiate_quantized_wide_wrap(affine_qmv_wide, type, group_size, bits, 8, 8)",
            "+  int max_vecs = mode == \"affine\" ? 8 : 5;",
            "| function `qmv_wide_impl` | `mlx/backend/metal/kernels/quantized.h` | gone |",
            "| macro `instantiate_quantized_all_wide` | `mlx/backend/metal/kernels/quantized.metal` | gone |",
        ] {
            assert!(text.contains(part), "{pin}: no {part:?} in\n{text}");
        }
        // The way out: there is nothing to cap, so the patch has no changes left and is dropped.
        let base = Repository::open(&worktree).unwrap();
        let head = base.head().unwrap().peel_to_tree().unwrap();
        for path in paths {
            let blob = base
                .find_blob(head.get_path(path.as_ref()).unwrap().id())
                .unwrap();
            fs::write(worktree.join(path), blob.content()).unwrap();
        }
        let (report, outcome) = bump::resume(&project.workspace, false, QUIET).unwrap();
        assert!(
            matches!(&outcome, Outcome::Absorbed { names, .. } if names == &["affine-tile-cap"]),
            "{outcome:?}"
        );
        assert_eq!(report.patches[0].fate, Fate::Emptied);
        assert_eq!(files.map(read), before);
        bump::abort(&project.workspace, QUIET).unwrap();
    }
}

/// A commit on v0.32.4 with one text changed; returns its id.
fn upstream_with(tag: &str, change: impl FnOnce(&Repository, Oid) -> Oid) -> String {
    let repo = Repository::open_bare(&history().upstream).unwrap();
    let base = repo
        .revparse_single("v0.32.4")
        .unwrap()
        .peel_to_commit()
        .unwrap();
    let commit = commit(&repo, tag, change(&repo, base.tree_id()), Some(base.id()));
    repo.tag_lightweight(tag, &repo.find_object(commit, None).unwrap(), true)
        .unwrap();
    commit.to_string()
}

fn replace(repo: &Repository, tree: Oid, path: &str, from: &str, to: &str) -> Oid {
    let tree = repo.find_tree(tree).unwrap();
    let blob = repo
        .find_blob(tree.get_path(path.as_ref()).unwrap().id())
        .unwrap();
    let text = std::str::from_utf8(blob.content()).unwrap();
    assert!(text.contains(from));
    let blob = repo.blob(text.replacen(from, to, 1).as_bytes()).unwrap();
    let mut update = git2::build::TreeUpdateBuilder::new();
    update.upsert(path, blob, git2::FileMode::Blob);
    update.create_updated(repo, &tree).unwrap()
}

#[test]
fn where_the_cap_is_8_already_the_patch_is_absorbed() {
    let series = Project::at("v0.32.4", NEW_PATCH);
    upstream_with("cap-8", |repo, base| {
        Series::load(&series.path("patches"))
            .unwrap()
            .resolve(repo, base)
            .unwrap()
            .final_tree()
    });
    let (report, outcome) = series.bump_from("cap-8", Some(history().upstream.to_string()));
    assert!(
        matches!(&outcome, Outcome::Absorbed { names, .. } if names == &["affine-tile-cap"]),
        "{outcome:?}"
    );
    let text = report.to_markdown();
    assert!(
        text.contains("affine-tile-cap | **absorbed**: drop it"),
        "{text}"
    );
    assert!(
        text.contains(
            "Its header says to drop it when: upstream instantiates affine_qmv_wide for nv 6 to 8"
        ),
        "{text}"
    );
    let commits = report.commits.unwrap();
    assert!(
        commits.len() == 1 && commits[0].ends_with("cap-8"),
        "{commits:?}"
    );
}

#[test]
fn a_watched_function_that_changed_is_reported_over_every_transport() {
    let path = "mlx/backend/metal/kernels/quantized.h";
    let commit = upstream_with("wide-changed", |repo, base| {
        let text = repo
            .find_blob(
                repo.find_tree(base)
                    .unwrap()
                    .get_path(path.as_ref())
                    .unwrap()
                    .id(),
            )
            .unwrap();
        let text = String::from_utf8(text.content().to_vec()).unwrap();
        let at = text.find("METAL_FUNC void qmv_wide_impl(").unwrap();
        let line = text[at..]
            .lines()
            .find(|line| line.contains("for ("))
            .unwrap();
        // One token of the function, in the middle of a line that occurs once.
        let (head, tail) = text.split_at(at);
        let changed =
            head.to_owned() + &tail.replacen(line, &line.replacen("for (", "for (;", 1), 1);
        replace(repo, base, path, &text, &changed)
    });
    let daemon = Daemon::start();
    for (wanted, source) in [
        ("wide-changed", format!("file://{}", history().upstream)),
        (commit.as_str(), format!("file://{}", history().upstream)),
        ("wide-changed", daemon.url()),
        ("wide-changed", history().upstream.to_string()),
    ] {
        let project = Project::at("v0.32.4", NEW_PATCH);
        let (report, outcome) = project.bump_from(wanted, Some(source.clone()));
        assert!(matches!(outcome, Outcome::Done), "{source}: {outcome:?}");
        assert_eq!(report.patches[0].fate, Fate::Clean, "{source}");
        assert_eq!(changed(&report), ["qmv_wide_impl"], "{source}");
        let pin = Manifest::load(&project.path("mlx.toml")).unwrap().mlx;
        assert_eq!(pin.commit.as_deref(), Some(commit.as_str()), "{source}");
    }
}

/// `git daemon` on the loopback device, stopped when this value is dropped.
struct Daemon {
    child: Child,
    port: u16,
}

impl Daemon {
    fn start() -> Self {
        let port = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        // The daemon itself: stopping `git` would leave it running.
        let folder = Command::new("git")
            .arg("--exec-path")
            .output()
            .unwrap()
            .stdout;
        let program =
            Utf8Path::new(std::str::from_utf8(&folder).unwrap().trim()).join("git-daemon");
        let mut child = Command::new(program)
            .args([
                "--export-all",
                "--listen=127.0.0.1",
                "--reuseaddr",
                "--verbose",
            ])
            .arg(format!("--port={port}"))
            .arg(format!("--base-path={}", history().root))
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // Its first line reports that it is listening.
        let mut line = String::new();
        let mut log = std::io::BufReader::new(child.stderr.take().unwrap());
        std::io::BufRead::read_line(&mut log, &mut line).unwrap();
        assert!(line.contains("Ready to rumble"), "{line}");
        std::thread::spawn(move || std::io::copy(&mut log, &mut std::io::sink()));
        Self { child, port }
    }

    fn url(&self) -> String {
        format!("git://127.0.0.1:{}/upstream.git", self.port)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
