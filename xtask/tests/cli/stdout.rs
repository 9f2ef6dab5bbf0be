//! Standard output that cannot be written to: `… | head`, a full disk.

use std::path::Path;
use std::process::{Command, Stdio};

/// Runs `xtask` in this checkout; returns its exit code and its standard error.
fn run(args: &[&str], stdout: impl Into<Stdio>) -> (Option<i32>, String) {
    #[expect(
        clippy::disallowed_methods,
        reason = "the wrapper does not choose the file for the output"
    )]
    let output = Command::new(env!("CARGO_BIN_EXE_xtask"))
        .args(args)
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(".."))
        .stdout(stdout)
        .output()
        .unwrap();
    (
        output.status.code(),
        String::from_utf8(output.stderr).unwrap(),
    )
}

const PLAN: [&str; 7] = ["plan", "--arch", "g15d", "--n", "512", "--k", "512"];

#[test]
fn a_reader_that_is_gone_ends_the_program_quietly() {
    let json = [&PLAN[..], &["--json"]].concat();
    for args in [&PLAN[..], &json, &["kernels", "--list", "dispatch"]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        // Like a program that SIGPIPE ended: it did not finish, and prints nothing about it.
        assert_eq!(run(args, writer), (Some(141), String::new()), "{args:?}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_an_error_like_others() {
    let full = fs_err::OpenOptions::new()
        .write(true)
        .open("/dev/full")
        .unwrap();
    let (code, text) = run(&PLAN, full.into_parts().0);
    assert_eq!(code, Some(1), "{text}");
    let expected = "error: cannot write to standard output: No space left on device";
    assert!(text.starts_with(expected), "{text}");
}
