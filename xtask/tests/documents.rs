//! Checks the documents: links lead somewhere, commands are run by something, figures come from reports, and the text
//! stays short.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeSet;

use camino::{Utf8Path, Utf8PathBuf};
use xtask::proc::Cmd;

/// Words of all documents together.
const MOST_WORDS: usize = 13_000;

/// What runs a command of a document, or why nothing does.
enum Ran {
    /// This file runs it with this text.
    By(&'static str, &'static str),
    /// This test runs it, as it is written.
    Here,
    /// Nothing does.
    Not(&'static str),
}
use Ran::{By, Here, Not};

const STEPS: &str = "xtask/src/test/mod.rs";
const BUMPS: &str = "xtask/tests/cli/bump_pin.rs";
const LAB: &str = "crates/mlx-lab/tests/cli.rs";
const PERSON: &str = "times are for a person with a Mac";

/// Every command that a block of README, CONTRIBUTING or the guide shows.
const COMMANDS: &[(&str, Ran)] = &[
    (
        "cargo xtask quickstart --install-deps",
        By("ci/hosted.sh", "cargo xtask quickstart --install-deps"),
    ),
    (
        "cargo xtask test --install-deps",
        By(".ci/run", "cargo xtask test --install-deps"),
    ),
    (
        "cargo xtask test",
        By(".ci/run", "cargo xtask test --install-deps"),
    ),
    (
        "cargo xtask doctor",
        By("ci/hosted.sh", "cargo xtask doctor"),
    ),
    (
        "env -u CC -u CXX -u CFLAGS -u CXXFLAGS cargo xtask doctor",
        Not("cargo compiles its C dependencies again, which takes minutes"),
    ),
    (
        "cargo xtask build --backend cuda",
        Not("needs nvcc and cuDNN; `ci/cuda.sh` compiles what the overlay adds"),
    ),
    (
        "cargo xtask build --backend cuda --cuda-architectures 80,90a",
        Not("needs nvcc and cuDNN; `ci/cuda.sh` compiles what the overlay adds"),
    ),
    // rust.md
    (
        "git clone https://github.com/mlx-overlay/mlx-overlay && cd mlx-overlay",
        Not("needs a network"),
    ),
    (
        "cargo xtask bundle --output ~/mlx-overlay",
        By("ci/downstream.sh", "cargo xtask bundle --output"),
    ),
    (
        "cargo xtask bundle --output examples/downstream/prefix",
        By("ci/downstream.sh", "cargo xtask bundle --output"),
    ),
    (
        "cd examples/downstream && cargo run -p rows",
        By(
            "ci/downstream.sh",
            "expect \"exact: 6 of 6 rows have the bits\"",
        ),
    ),
    (
        "cargo run -p mlx-overlay --example server",
        By(STEPS, "\"server\""),
    ),
    (
        "cargo xtask kernels --metallib target/mlx/current/lib/mlx.metallib",
        By(
            "ci/hosted.sh",
            "cargo xtask kernels --metallib target/mlx/current/lib/mlx.metallib",
        ),
    ),
    // bindings.md
    (
        "eval \"$(cargo xtask env --consumer cmake)\"",
        By("ci/downstream.sh", "cargo xtask env --consumer cmake"),
    ),
    (
        "cargo xtask build --cpu",
        By(STEPS, "xtask(&[\"build\", \"--cpu\"])"),
    ),
    (
        "python3 -m pip install \"$(ci/python-wheel.sh target/mlx/current target/mlx/env/python)\"",
        By("ci/python-env.sh", "ci/python-wheel.sh"),
    ),
    (
        "python3 -c 'import importlib.metadata as m; print(m.version(\"mlx\"))'",
        By(
            "ci/downstream.sh",
            "import importlib.metadata as m; print(m.version(\"mlx\"))",
        ),
    ),
    (
        "MLX_ROW_POLICY=exact python3 -m mlx_lm generate --model <model> --draft-model <smaller model> --prompt \"…\"",
        Not(
            "needs two models; `ci/mlx-lm.sh test a_draft_model` calls the same functions of mlx-lm on small ones",
        ),
    ),
    (
        "ACCEPT=0.32.2 ci/mlx-rs.sh examples/mlx-rs run",
        By(
            "ci/hosted.sh",
            "ACCEPT=0.32.2 ci/mlx-rs.sh examples/mlx-rs run",
        ),
    ),
    // policies.md
    (
        "cargo xtask plan --arch g15d --n 17408 --k 5120 --policy exact",
        Here,
    ),
    // move-the-pin.md
    (
        "cargo xtask bump-pin 0.33.0",
        By(BUMPS, "&[\"bump-pin\", \"1.1.0\"]"),
    ),
    (
        "cargo xtask bump-pin 0.32.2 --dry-run",
        By(BUMPS, "&[\"bump-pin\", \"1.1.0\", \"--dry-run\"]"),
    ),
    (
        "cargo xtask bump-pin --continue",
        By(BUMPS, "&[\"bump-pin\", \"--continue\"]"),
    ),
    (
        "cargo xtask bump-pin --back",
        By(BUMPS, "&[\"bump-pin\", \"--back\"]"),
    ),
    (
        "cargo xtask bump-pin --abort",
        By(BUMPS, "&[\"bump-pin\", \"--abort\"]"),
    ),
    (
        "cargo xtask apply-overlay",
        By(STEPS, "xtask(&[\"apply-overlay\"])"),
    ),
    (
        "cargo xtask check series lock budget lint watch",
        By(STEPS, "check::names(false)"),
    ),
    (
        "cargo xtask check watch --accept",
        By("xtask/tests/cli/check.rs", "\"--accept\""),
    ),
    (
        "QMV_PROOF_BLESS=1 cargo test -p proofs",
        Not("it accepts what a person has read; without the variable `cargo xtask test` runs it"),
    ),
    // write-a-patch.md
    (
        "cargo xtask patch edit",
        By("xtask/tests/cli/patch.rs", "\"patch\", \"edit\""),
    ),
    (
        "cargo xtask patch edit qmv-streamed",
        By("xtask/tests/cli/patch.rs", "\"patch\", \"edit\", "),
    ),
    (
        "cargo xtask patch export",
        By("xtask/tests/cli/patch.rs", "\"patch\", \"export\""),
    ),
    (
        "cargo xtask apply-overlay --update-lock",
        By(
            "xtask/tests/cli/doctor.rs",
            "\"apply-overlay\", \"--update-lock\"",
        ),
    ),
    (
        "cargo xtask patch lint",
        By("xtask/tests/cli/patch.rs", "\"patch\", \"lint\""),
    ),
    ("cargo xtask build", By(STEPS, "xtask(&[\"build\"])")),
    // measure.md
    (
        "cargo run --release -p mlx-lab -- probe",
        By(LAB, "\"probe\""),
    ),
    (
        "cargo run --release -p mlx-lab -- probe --model FOLDER",
        By(LAB, "probe_reads_a_model_folder"),
    ),
    (
        "cargo run --release -p mlx-lab -- bench --out bench",
        By(LAB, "\"bench\""),
    ),
    (
        "cargo xtask build --pristine",
        Not("a second build of MLX; people and the long proofs use it"),
    ),
    (
        "MLX_OVERLAY_PRISTINE=1 MLX_OVERLAY_PREFIX=<that prefix> cargo build --release -p mlx-lab --target-dir \
         target/pristine",
        Not(PERSON),
    ),
    (
        "cargo run --release -p mlx-lab -- bench --against target/pristine/release/mlx-lab --out bench-pristine",
        Not(PERSON),
    ),
    (
        "cargo run --release -p mlx-lab -- calibrate --out qmv.toml",
        By(LAB, "\"calibrate\""),
    ),
    // offline.md
    (
        "cargo fetch",
        By("ci/offline.sh", "cargo fetch --quiet --locked"),
    ),
    ("cargo xtask fetch", By(STEPS, "xtask(&[\"fetch\"])")),
    (
        "CARGO_NET_OFFLINE=true cargo xtask fetch --offline",
        By("ci/offline.sh", "cargo xtask quickstart --offline"),
    ),
    (
        "CARGO_NET_OFFLINE=true cargo xtask quickstart --offline",
        By("ci/offline.sh", "cargo xtask quickstart --offline"),
    ),
    (
        "cargo xtask fetch --offline --source PATH",
        By("ci/offline.sh", "options=(--source"),
    ),
    // CONTRIBUTING.md
    (
        "cargo fmt --all",
        By(STEPS, "\"fmt\", \"--all\", \"--check\""),
    ),
    (
        "cargo clippy -p <crate> --all-targets",
        By(STEPS, "\"clippy\""),
    ),
    (
        "cargo test -p <crate>",
        By(STEPS, "\"test\", \"--workspace\""),
    ),
    (
        "cargo install cargo-fuzz && rustup toolchain install nightly",
        Not("needs a network"),
    ),
    (
        "cargo run -p patchset --example fuzz_seeds",
        Not("writes into the folder of a fuzz run, which is by hand"),
    ),
    (
        "cd crates/patchset && cargo +nightly fuzz run archive -- -max_total_time=600",
        Not("needs a nightly toolchain; minutes"),
    ),
];

/// Figures that are not results: settings and limits in the code, or MLX's own.
const SETTINGS: &[(&str, &str, &str)] = &[
    (
        "docs/guide/measure.md",
        "256 MiB",
        "how bench rotates weights, crates/mlx-lab",
    ),
    ("docs/guide/measure.md", "5%", "the default of --margin"),
    (
        "docs/guide/measure.md",
        "1,024",
        "where MLX changes its attention kernels",
    ),
    (
        "docs/guide/measure.md",
        "4,096",
        "where MLX changes its attention kernels",
    ),
    (
        "docs/guide/measure.md",
        "8,192",
        "where MLX changes its attention kernels",
    ),
];

fn root() -> Utf8PathBuf {
    Utf8Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(file: &str) -> String {
    fs_err::read_to_string(root().join(file)).unwrap()
}

/// Files of the repository that match, as paths below its root.
fn files(patterns: &[&str]) -> Vec<String> {
    let files = xtask::test::tracked(&root(), patterns).unwrap();
    assert!(!files.is_empty(), "no file matches {patterns:?}");
    files
}

/// The documents that people read to use the project.
fn guide() -> Vec<String> {
    files(&["README.md", "CONTRIBUTING.md", "docs/guide/*.md"])
}

/// The lines of a document outside of its blocks of code.
fn prose(text: &str) -> Vec<&str> {
    let mut inside = false;
    text.lines()
        .filter(|line| {
            let fence = line.trim_start().starts_with("```");
            inside ^= fence;
            !inside && !fence
        })
        .collect()
}

/// The targets of links: `](target)` and `](<target>)`.
fn links(line: &str) -> impl Iterator<Item = &str> {
    line.split("](")
        .skip(1)
        .filter_map(|rest| rest.split_once(')'))
        .map(|(target, _)| target.trim_matches(['<', '>']))
}

/// A heading's anchor, as GitHub makes it.
fn anchor(heading: &str) -> String {
    heading
        .trim_start_matches('#')
        .trim()
        .to_lowercase()
        .chars()
        .filter(|c| c.is_alphanumeric() || " -_".contains(*c))
        .map(|c| if c == ' ' { '-' } else { c })
        .collect()
}

#[test]
fn links_lead_somewhere() {
    let mut broken = Vec::new();
    for file in files(&["*.md"]) {
        let text = read(&file);
        for target in prose(&text).into_iter().flat_map(links) {
            if target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            let (path, fragment) = target.split_once('#').unwrap_or((target, ""));
            let to = match path {
                "" => root().join(&file),
                path => root().join(&file).parent().unwrap().join(path),
            };
            let found = match fragment {
                "" => to.exists(),
                fragment => fs_err::read_to_string(&to).is_ok_and(|text| {
                    let headings = prose(&text)
                        .into_iter()
                        .filter(|line| line.starts_with('#'));
                    headings.map(anchor).any(|anchor| anchor == fragment)
                }),
            };
            if !found {
                broken.push(format!("{file}: {target}"));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn documents_that_sources_name_exist() {
    let mut missing = BTreeSet::new();
    for file in files(&[
        "*.rs", "*.sh", "*.py", "*.toml", "*.h", "*.cpp", "*.metal", "*.md",
    ]) {
        let text = read(&file);
        for (at, _) in text.match_indices("docs/") {
            let rest = &text[at..];
            let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || "/-_.".contains(c)));
            let path = rest[..end.unwrap_or(rest.len())].trim_end_matches('.');
            // Another folder's docs/; a report or a summary that a command writes.
            let other = text[..at].ends_with(['/', '-'])
                || ["docs/reports/", "docs/pin-moves/"]
                    .iter()
                    .any(|made| path.starts_with(made));
            let here = root().join(&file).parent().unwrap().join(path);
            if path.ends_with(".md") && !other && !root().join(path).exists() && !here.exists() {
                missing.insert(format!("{file}: {path}"));
            }
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
}

/// The commands in a document's blocks: the text after `$ `, without a comment.
fn commands(text: &str) -> Vec<String> {
    let mut commands = Vec::new();
    let mut inside = false;
    for line in text.lines().map(str::trim) {
        if line.starts_with("```") {
            inside = !inside && line == "```console";
        } else if inside && let Some(command) = line.strip_prefix("$ ") {
            let command = command.split(" # ").next().unwrap_or(command);
            commands.push(command.trim().to_owned());
        }
    }
    commands
}

#[test]
fn every_command_is_run_or_has_a_reason() {
    let shown: BTreeSet<String> = guide()
        .iter()
        .flat_map(|file| commands(&read(file)))
        .collect();
    let listed: BTreeSet<String> = COMMANDS
        .iter()
        .map(|(command, _)| (*command).to_owned())
        .collect();
    let unknown: Vec<_> = shown.difference(&listed).collect();
    assert!(unknown.is_empty(), "not in COMMANDS: {unknown:#?}");
    let unused: Vec<_> = listed.difference(&shown).collect();
    assert!(unused.is_empty(), "in no document: {unused:#?}");

    let mut wrong = Vec::new();
    for (command, ran) in COMMANDS {
        match ran {
            By(file, text) if !read(file).contains(text) => {
                wrong.push(format!(
                    "{file} does not contain {text:?}, which runs `{command}`"
                ));
            }
            Not(reason) => assert!(!reason.is_empty()),
            By(..) | Here => {}
        }
        if matches!(ran, Here) {
            let (_, words) = command.split_once("cargo xtask ").unwrap();
            let xtask = Cmd::new(env!("CARGO_BIN_EXE_xtask")).args(words.split_whitespace());
            xtask.dir(root()).read().unwrap();
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Commands in the text of a line, between single backticks.
fn spans(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

#[test]
fn the_command_line_takes_what_documents_show() {
    let mut wrong = Vec::new();
    let mut asked = BTreeSet::new();
    for file in files(&["*.md"])
        .iter()
        .filter(|file| *file != "CHANGELOG.md")
    {
        let text = read(file);
        let shown = commands(&text);
        let prose = prose(&text);
        let inline = prose.iter().flat_map(|line| spans(line));
        for command in shown.iter().map(String::as_str).chain(inline) {
            let script = command.split(' ').next().unwrap_or_default();
            if ["ci/", "bench/"]
                .iter()
                .any(|folder| script.starts_with(folder))
                && [".sh", ".py"].iter().any(|end| script.ends_with(end))
                && !root().join(script).exists()
            {
                wrong.push(format!("{file}: no {script}"));
            }
            let Some((before, words)) = command.split_once("cargo xtask ") else {
                continue;
            };
            // After these characters a shell starts another command; a placeholder is a name.
            let end = words.find(['|', ')', '&', '#', '>', ';', '"', '\u{2026}']);
            let words = words[..end.unwrap_or(words.len())].trim();
            let placeholder = words.starts_with('<') || words.ends_with(" NAME");
            if before.contains('<') || placeholder || !asked.insert(words.to_owned()) {
                continue;
            }
            // `--help` ends the program before it does anything.
            let xtask = Cmd::new(env!("CARGO_BIN_EXE_xtask"))
                .args(words.split_whitespace())
                .arg("--help");
            let output = xtask.output().unwrap();
            if !output.status.success() {
                let error = String::from_utf8_lossy(&output.stderr);
                wrong.push(format!("{file}: `{command}`: {error}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(asked.len() > 20, "only {asked:?}");
}

/// Words that make a figure of the number before them.
const UNITS: [&str; 14] = [
    "%", "×", "times", "µs", "us", "ms", "ns", "GB/s", "TB/s", "kB", "MB", "GB", "MiB", "million",
];

/// The figures of a line: numbers with a unit, or with a comma between thousands.
fn figures(line: &str) -> Vec<String> {
    let words: Vec<&str> = line
        .split(|c: char| c.is_whitespace() || "|()[]`*:;".contains(c))
        .map(|word| word.trim_matches(['.', ',']))
        .filter(|word| !word.is_empty())
        .collect();
    let number = |word: &str| {
        word.starts_with(|c: char| c.is_ascii_digit())
            && word.chars().all(|c| c.is_ascii_digit() || ".,".contains(c))
    };
    let mut figures = Vec::new();
    for (at, word) in words.iter().enumerate() {
        let bare = word.trim_end_matches(['%', '×']);
        if !number(bare) {
            continue;
        }
        let next = words.get(at + 1).copied().unwrap_or_default();
        // "1.8 to 2.5 times" is two figures.
        let range = next == "to" && words.get(at + 3).is_some_and(|unit| UNITS.contains(unit));
        let unit = UNITS.contains(&next);
        let thousands = bare.contains(',');
        if thousands || range || bare != *word {
            figures.push((*word).to_owned());
        } else if unit {
            figures.push(format!("{word} {next}"));
        }
    }
    figures
}

#[test]
fn figures_come_from_a_report_that_the_document_links() {
    let mut homeless = Vec::new();
    let mut settings = BTreeSet::new();
    for file in guide() {
        let text = read(&file);
        let folder = root().join(&file).parent().unwrap().to_owned();
        let reports: String = text
            .lines()
            .flat_map(links)
            .filter(|target| target.contains("reports/"))
            .map(|target| folder.join(target.split('#').next().unwrap_or(target)))
            .map(|path| {
                if path.is_dir() {
                    path.join("README.md")
                } else {
                    path
                }
            })
            .filter(|path| path.extension() == Some("md"))
            .map(|path| fs_err::read_to_string(path).unwrap())
            .collect();
        for figure in prose(&text).into_iter().flat_map(figures) {
            let number = figure.split([' ', '%', '×']).next().unwrap_or(&figure);
            let known = reports
                .split(|c: char| !(c.is_ascii_digit() || ".,".contains(c)))
                .any(|found| found.trim_matches(['.', ',']) == number);
            let setting = SETTINGS
                .iter()
                .position(|(of, value, _)| *of == file && *value == figure);
            settings.extend(setting);
            if !known && setting.is_none() {
                homeless.push(format!("{file}: {figure}"));
            }
        }
    }
    assert!(homeless.is_empty(), "no linked report has {homeless:#?}");
    assert_eq!(
        settings.len(),
        SETTINGS.len(),
        "an entry of SETTINGS is not needed"
    );
}

#[test]
fn what_a_figure_is() {
    assert_eq!(
        figures("8 rows cost 1.8 to 2.5 times one row"),
        ["1.8", "2.5 times"]
    );
    assert_eq!(
        figures("49,151 of 49,152 logits, 44%, (60 ns)"),
        ["49,151", "49,152", "44%", "60 ns"]
    );
    assert_eq!(
        figures("MLX 0.32.4, R is 16, `exact:64`, 4-bit, Python 3.11"),
        [""; 0]
    );
}

/// Counted as `cat README.md ARCHITECTURE.md CONTRIBUTING.md docs/guide/* docs/decisions/* | wc -w` does. Reports, the
/// changelog, and READMEs of crates and examples are not counted.
#[test]
fn all_documents_together_are_short() {
    let documents = files(&[
        "README.md",
        "ARCHITECTURE.md",
        "CONTRIBUTING.md",
        "docs/guide/*.md",
        "docs/decisions/*.md",
        "docs/*.md",
    ]);
    let counted = documents
        .iter()
        .filter(|file| !file.starts_with("docs/reports/"));
    let words = |file: &String| read(file).split_whitespace().count();
    let total: usize = counted.map(words).sum();
    assert!(total <= MOST_WORDS, "{total} words");
    assert!(total > MOST_WORDS / 4, "only {total} words were found");
}
