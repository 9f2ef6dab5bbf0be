//! The programs that the engine runs: `git` and `cargo`. All are started here, so that errors name the command.

use std::ffi::OsStr;
use std::io::{BufReader, ErrorKind, Read};
use std::process::{Command, Stdio};

use crate::error::{Error, Result};
use crate::progress::{Event, Progress};
use crate::sources::address::without_credentials;

/// How many lines of stderr an error repeats.
const KEPT_LINES: usize = 12;

/// A command for `program`, found on `PATH` unless it is a path.
pub(crate) fn command(program: impl AsRef<OsStr>) -> Command {
    #[expect(clippy::disallowed_methods, reason = "this is the wrapper")]
    Command::new(program)
}

/// Runs a command to its end; returns its stdout and passes on its stderr line by line.
///
/// # Errors
/// It cannot be started or it fails; the error has the command line and the end of stderr.
pub(crate) fn run(command: &mut Command, progress: Progress<'_>) -> Result<String> {
    let shown = shown(command);
    let failed = |outcome: String, stderr: String| Error::Command {
        command: shown.clone(),
        outcome,
        stderr,
    };
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| {
            if error.kind() == ErrorKind::NotFound {
                return Error::NoProgram(shown.clone());
            }
            failed(format!("could not be started: {error}"), String::new())
        })?;
    let stdout = child.stdout.take();
    let stderr = child.stderr.take();
    // Both pipes are read at the same time: a program that fills an unread pipe would block forever.
    let (out, err) = std::thread::scope(|scope| {
        let out = scope.spawn(move || {
            let mut text = String::new();
            stdout
                .map(|mut pipe| pipe.read_to_string(&mut text))
                .transpose()
                .map(|_| text)
        });
        let err = stderr.map(|pipe| relay(pipe, progress)).unwrap_or_default();
        (out.join(), err)
    });
    let status = child.wait()?;
    let out = match out {
        Ok(text) => text?,
        Err(_) => return Err(failed("left its output unread".to_owned(), err.join("\n"))),
    };
    if status.success() {
        return Ok(out);
    }
    Err(failed(format!("failed ({status})"), err.join("\n")))
}

/// Passes lines on as they come; progress lines end in a carriage return and are not kept.
fn relay(pipe: impl Read, progress: Progress<'_>) -> Vec<String> {
    let mut kept = Vec::new();
    let mut line = Vec::new();
    for byte in BufReader::new(pipe).bytes().map_while(Result::ok) {
        if byte != b'\n' && byte != b'\r' {
            line.push(byte);
            continue;
        }
        let text = String::from_utf8_lossy(&line).trim_end().to_owned();
        line.clear();
        if text.is_empty() {
            continue;
        }
        progress(Event::Output(&text));
        if byte == b'\n' {
            kept.push(text);
            if kept.len() > KEPT_LINES {
                kept.remove(0);
            }
        }
    }
    if !line.is_empty() {
        kept.push(String::from_utf8_lossy(&line).into_owned());
    }
    kept
}

fn shown(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words
        .map(|word| without_credentials(&word.to_string_lossy()))
        .collect::<Vec<_>>()
        .join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::progress::QUIET;

    #[test]
    fn a_program_that_is_not_there_is_named() {
        let error = run(command("no-such-program-here").arg("now"), QUIET).unwrap_err();
        assert!(
            matches!(&error, Error::NoProgram(shown) if shown == "no-such-program-here now"),
            "{error}"
        );
    }

    #[test]
    fn a_command_is_shown_without_a_token() {
        let error = run(command("false").arg("https://me:TOKEN@a.org/x"), QUIET).unwrap_err();
        assert!(
            matches!(&error, Error::Command { command, .. } if command == "false https://a.org/x"),
            "{error}"
        );
    }
}
