//! `cargo xtask doctor` on machines and checkouts that each have one fault.

#![allow(clippy::unwrap_used, reason = "a test helper may panic")]

#[path = "../../../crates/metallib/tests/writer/mod.rs"]
mod container;
mod linux;
mod macos;
mod outputs;
#[path = "../support/scratch.rs"]
mod scratch;
#[path = "../support/stamp.rs"]
mod stamp;

use xtask::doctor::{Finding, Status, examine};
use xtask::host::Host;

use scratch::Scratch;

/// The finding of one check.
#[track_caller]
fn finding(scratch: &Scratch, host: &Host, id: &str) -> Finding {
    let findings = examine(host, &scratch.path("root"));
    let mut of_id = findings.iter().filter(|finding| finding.id == id);
    let first = of_id
        .next()
        .unwrap_or_else(|| panic!("no check is called {id}"));
    assert_eq!(of_id.next(), None, "{id} is there twice");
    assert_eq!(
        first.remedy.is_none(),
        first.status == Status::Ok,
        "{first}"
    );
    first.clone()
}

/// Checks that one check finds this, with these words in its finding or remedy.
#[track_caller]
fn finds(scratch: &Scratch, host: &Host, id: &str, status: Status, words: &[&str]) {
    let finding = finding(scratch, host, id);
    assert_eq!(finding.status, status, "{finding}");
    let text = finding.to_string();
    for word in words {
        assert!(text.contains(word), "`{word}` is not in: {text}");
    }
}

/// Runs the first command of a remedy in the host's own shell, as it is printed. Variables that it sets or unsets stay
/// so from then on.
#[track_caller]
fn follow(scratch: &Scratch, host: &Host, finding: &Finding) -> Host {
    let remedy = finding
        .remedy
        .as_deref()
        .unwrap_or_else(|| panic!("{finding}"));
    let line = remedy.split('`').nth(1).unwrap_or(remedy);
    let environment = scratch.path("environment");
    let path = host.var("PATH").unwrap_or_default();
    let script = format!(
        "PATH={path}:/usr/bin:/bin; {line} || exit 1; PATH={path} /usr/bin/env -0 >{environment}"
    );
    let shell = host.cmd("/bin/sh").args(["-e", "-c", &script]);
    shell
        .dir(scratch.path("root"))
        .read()
        .unwrap_or_else(|error| panic!("{finding}\n{error:#}"));
    let text = fs_err::read_to_string(environment).unwrap();
    let set = text.split('\0').filter_map(|entry| entry.split_once('='));
    let arch = host.target.split('-').next().unwrap();
    Host::new(
        host.os,
        arch,
        set.map(|(name, value)| (name.into(), value.into())),
    )
    .with_packages_in(scratch.path("bin"))
}

/// Checks that a check finds something with these words, and nothing after its remedy was followed.
#[track_caller]
fn mends(scratch: &Scratch, host: &Host, id: &str, words: &[&str]) -> Host {
    let before = finding(scratch, host, id);
    assert_ne!(before.status, Status::Ok, "{before}");
    let text = before.to_string();
    for word in words {
        assert!(text.contains(word), "`{word}` is not in: {text}");
    }
    let host = follow(scratch, host, &before);
    let findings = examine(&host, &scratch.path("root"));
    let after = findings.iter().find(|finding| finding.id == id);
    assert!(
        after.is_none_or(|after| after.status == Status::Ok),
        "{after:?} after {before}"
    );
    host
}

/// Whether the check reports anything at all.
fn lists(scratch: &Scratch, host: &Host, id: &str) -> bool {
    let findings = examine(host, &scratch.path("root"));
    findings.iter().any(|finding| finding.id == id)
}

/// The pin and the lock of this checkout.
fn pin(scratch: &Scratch) {
    for name in ["mlx.toml", "mlx.lock"] {
        let own = format!("{}/../{name}", env!("CARGO_MANIFEST_DIR"));
        scratch.file(
            &format!("root/{name}"),
            &fs_err::read_to_string(own).unwrap(),
        );
    }
}

/// Checks that only the checks in `but` find anything.
#[track_caller]
fn healthy(scratch: &Scratch, host: &Host, but: &[&str]) {
    for finding in examine(host, &scratch.path("root")) {
        let expected = finding.status == Status::Ok || but.contains(&finding.id);
        assert!(expected, "{finding}");
    }
}

#[test]
fn json_has_the_fields_that_the_document_names() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    let output = xtask::proc::Cmd::new(env!("CARGO_BIN_EXE_xtask"))
        .args(["doctor", "--json"])
        .dir(root)
        .output()
        .unwrap();
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["format"], 1);
    for field in ["host", "backend"] {
        assert!(report[field].is_string(), "{report}");
    }
    let findings = report["findings"].as_array().unwrap();
    assert!(findings.len() > 10);
    let mut error = false;
    for finding in findings {
        let finding = finding.as_object().unwrap();
        let mut fields: Vec<_> = finding.keys().map(String::as_str).collect();
        fields.sort_unstable();
        assert_eq!(fields, ["found", "id", "remedy", "status"]);
        error |= finding["status"] == "error";
    }
    assert_eq!(output.status.success(), !error);
}
