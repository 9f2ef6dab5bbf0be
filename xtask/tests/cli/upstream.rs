//! `cargo xtask upstream`.

use crate::support::{Project, Run, text};

const RECIPE: &str = "\
branch = \"wider\"
lineage = \"the first\"
[[table]]
file = \"tables/m3.tsv\"
hardware = \"Apple M3\"
[test]
file = \"src/k.cpp\"
before = \"int line_1 = 1;\\n\"
body = \"test.py\"
name = \"a.test\"
fails-without-the-change = false
";

/// A project with a recipe, before a person has written anything.
fn project() -> Project {
    let project = Project::new();
    for (file, text) in [
        ("bundle.toml", RECIPE),
        ("test.py", "int test;\n"),
        ("bench.py", ""),
        ("description.md", "PLACEHOLDER\n"),
        ("message-change.txt", "PLACEHOLDER\n"),
        ("message-test.txt", "PLACEHOLDER\n"),
    ] {
        project.write(&format!("checkout/upstream/widen/{file}"), text);
    }
    project
}

/// A formatter that finds nothing to change.
const FORMATTER: &str = "[ \"$1\" = --version ] && echo formatter version 1 && exit\nfor file; do :; done\ncat \"$file\"";

fn upstream(project: &Project, args: &[&str]) -> Run {
    let formatter = project.program("formatter", FORMATTER).join("formatter");
    let all = [
        &["upstream", "widen", "--clang-format", formatter.as_str()],
        args,
    ]
    .concat();
    project.xtask(&all)
}

#[test]
fn a_wrong_command_line_is_usage() {
    let project = Project::new();
    project.xtask(&["upstream"]).shows_usage();
    project.xtask(&["upstream", "widen", "other"]).shows_usage();
    project
        .xtask(&["upstream", "widen", "--push"])
        .shows_usage();
}

#[test]
fn a_patch_without_a_recipe_says_where_one_belongs() {
    let project = Project::new();
    project
        .xtask(&["upstream", "wider"])
        .fails_with(&["there is no patch wider; the series has widen"]);
    project.xtask(&["upstream", "widen"]).fails_with(&[
        "upstream/widen/bundle.toml is missing",
        "upstream/README.md",
    ]);
}

#[test]
fn a_bundle_is_made_and_fails_until_all_is_there() {
    let project = project();
    let run = upstream(&project, &[]).fails_with(&[
        "the bundle is not ready",
        "description.md is still a placeholder",
        "git does not know your name",
        "tables/m3.tsv does not exist",
        "--main-of",
    ]);
    assert!(
        run.out
            .contains("MISSING  the description, in a person's words"),
        "{}",
        run.out
    );
    assert!(
        project
            .path("checkout/target/upstream/widen/CHECKLIST.md")
            .is_file()
    );

    // MLX's own settings for the formatter, in a release that the pin moves to.
    project.write("upstream/.clang-format", "---\n");
    project.release("1.1.0", &text());
    project.xtask(&["bump-pin", "1.1.0"]).exits(0);
    for (file, text) in [
        (
            "checkout/upstream/widen/description.md",
            "As in the first.\n",
        ),
        ("checkout/upstream/widen/message-change.txt", "Widen\n"),
        ("checkout/upstream/widen/message-test.txt", "Test it\n"),
        (
            "checkout/upstream/widen/tables/m3.tsv",
            "# hardware: Apple M3\n",
        ),
        (
            "home/.gitconfig",
            "[user]\nname = A Person\nemail = a@person.invalid\n",
        ),
    ] {
        project.write(file, text);
    }
    let run = upstream(&project, &[]).exits(0);
    assert!(
        run.out.contains("it is ready for a person to send"),
        "{}",
        run.out
    );
    let mlx = "checkout/target/upstream/widen/mlx";
    assert_eq!(
        project.git(mlx, &["log", "--format=%an %s", "-2"]),
        "A Person Test it\nA Person Widen"
    );
    assert_eq!(project.git(mlx, &["remote"]), "");
}

#[test]
fn it_can_begin_at_upstreams_main() {
    let project = project();
    project.release("1.1.0", &text().replace("int line_2 ", "int second "));
    let url = format!("file://{}", project.path("upstream"));
    upstream(&project, &["--main-of", &url]).fails_with(&["the bundle is not ready"]);
    let mlx = "checkout/target/upstream/widen/mlx";
    let main = project.git("upstream", &["rev-parse", "main^{tree}"]);
    assert_eq!(project.git(mlx, &["rev-parse", "HEAD~2^{tree}"]), main);
    project.release("1.2.0", &text().replace("int line_30", "short line_30"));
    upstream(&project, &["--main-of", &url])
        .fails_with(&["it does not fit on this base by itself"]);
}
