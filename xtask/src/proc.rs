//! Child processes: one wrapper, so that an error always names the command that failed.
//!
//! `xtask/clippy.toml` bans [`std::process::Command::new`] everywhere else.

use std::ffi::OsStr;
use std::fmt;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, ExitStatus, Output, Stdio};

use anyhow::{Context, Result, bail};

/// A command to run. It is displayed in shell syntax.
#[derive(Debug)]
pub struct Cmd {
    inner: Command,
    holds: bool,
}

impl Cmd {
    /// A command for `program`, found on `PATH` unless it is a path.
    pub fn new(program: impl AsRef<OsStr>) -> Self {
        #[expect(clippy::disallowed_methods, reason = "this is the wrapper")]
        let inner = Command::new(program);
        Self {
            inner,
            holds: false,
        }
    }

    #[must_use]
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.inner.arg(arg);
        self
    }

    #[must_use]
    pub fn args(mut self, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Self {
        self.inner.args(args);
        self
    }

    /// Sets an environment variable for the child.
    #[must_use]
    pub fn env(mut self, key: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.inner.env(key, value);
        self
    }

    /// Replaces the child's whole environment.
    #[must_use]
    pub fn envs_only(
        mut self,
        vars: impl IntoIterator<Item = (impl AsRef<OsStr>, impl AsRef<OsStr>)>,
    ) -> Self {
        self.inner.env_clear().envs(vars);
        self
    }

    /// Runs the child in `dir`.
    #[must_use]
    pub fn dir(mut self, dir: impl AsRef<std::path::Path>) -> Self {
        self.inner.current_dir(dir);
        self
    }

    /// Passes `lock` to the child as its standard input, and so to the processes that it starts. The lock is released
    /// when the last of them ends. The file is empty, so it reads like `/dev/null`.
    pub fn holding(mut self, lock: &File) -> Result<Self> {
        self.inner.stdin(lock.try_clone()?);
        self.holds = true;
        Ok(self)
    }

    /// Runs with this process's own standard streams; an exit status other than 0 is an error.
    pub fn run(mut self) -> Result<()> {
        let status = self
            .inner
            .status()
            .with_context(|| format!("cannot run `{self}`"))?;
        self.check(status)
    }

    /// Runs quietly and returns the trimmed standard output; an error includes standard error.
    pub fn read(mut self) -> Result<String> {
        let output = self.capture()?;
        if !output.status.success() {
            let stderr = String::from_utf8_lossy(&output.stderr);
            bail!("`{self}` failed ({}): {}", output.status, stderr.trim());
        }
        let stdout = String::from_utf8(output.stdout)
            .with_context(|| format!("`{self}` printed something that is not UTF-8"))?;
        Ok(stdout.trim().to_owned())
    }

    /// Runs quietly and returns everything, also if the command fails.
    pub fn output(mut self) -> Result<Output> {
        self.capture()
    }

    /// Like [`Cmd::output`], with `text` on the child's standard input.
    pub fn output_with_input(mut self, text: &str) -> Result<Output> {
        self.inner
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = self
            .inner
            .spawn()
            .with_context(|| format!("cannot run `{self}`"))?;
        if let Some(mut stdin) = child.stdin.take() {
            // A child that does not read its input (a fake, a `--version`) closes the pipe early.
            match stdin.write_all(text.as_bytes()) {
                Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
                    return Err(error).with_context(|| format!("cannot write to `{self}`"));
                }
                _ => {}
            }
        }
        child
            .wait_with_output()
            .with_context(|| format!("cannot run `{self}`"))
    }

    /// Runs with standard output and standard error merged, and passes each line to `on_line`.
    pub fn stream(mut self, mut on_line: impl FnMut(&str) -> Result<()>) -> Result<ExitStatus> {
        let (reader, writer) = std::io::pipe().context("cannot create a pipe")?;
        self.give_no_input();
        self.inner.stdout(writer.try_clone()?).stderr(writer);
        let mut child = self
            .inner
            .spawn()
            .with_context(|| format!("cannot run `{self}`"))?;
        // The command keeps the writing end open: without dropping it, the pipe would never end.
        self.inner.stdout(Stdio::null()).stderr(Stdio::null());
        let read = read_lines(reader, &mut on_line);
        if read.is_err() {
            // Processes that the child started end at their next line: the pipe has no reader any more.
            let _ = child.kill();
        }
        let status = child
            .wait()
            .with_context(|| format!("cannot wait for `{self}`"))?;
        read.map(|()| status)
    }

    /// Gives the child no input, unless its input is a lock.
    fn give_no_input(&mut self) {
        if !self.holds {
            self.inner.stdin(Stdio::null());
        }
    }

    fn capture(&mut self) -> Result<Output> {
        self.give_no_input();
        self.inner
            .output()
            .with_context(|| format!("cannot run `{self}`"))
    }

    fn check(&self, status: ExitStatus) -> Result<()> {
        if !status.success() {
            bail!("`{self}` failed ({status})");
        }
        Ok(())
    }
}

/// Passes each line to `on_line`, until the end or the first error.
fn read_lines(
    reader: impl std::io::Read,
    on_line: &mut impl FnMut(&str) -> Result<()>,
) -> Result<()> {
    let mut reader = BufReader::new(reader);
    let mut line = Vec::new();
    while reader.read_until(b'\n', &mut line)? > 0 {
        on_line(String::from_utf8_lossy(&line).trim_end_matches(['\n', '\r']))?;
        line.clear();
    }
    Ok(())
}

impl fmt::Display for Cmd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&quote(self.inner.get_program()))?;
        for arg in self.inner.get_args() {
            write!(f, " {}", quote(arg))?;
        }
        Ok(())
    }
}

/// Quotes `word` for a shell if it needs quoting.
pub(crate) fn quote(word: impl AsRef<OsStr>) -> String {
    let text = word.as_ref().to_string_lossy();
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=+:,@%".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        text.into_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_name_the_command_and_keep_its_words() {
        let error = Cmd::new("sh")
            .args(["-c", "echo no luck >&2; exit 3"])
            .read()
            .unwrap_err();
        let text = format!("{error:#}");
        assert!(text.contains("sh -c 'echo no luck >&2; exit 3'"), "{text}");
        assert!(text.contains("no luck"), "{text}");
        let error = Cmd::new("no-such-program-here").run().unwrap_err();
        assert!(format!("{error:#}").contains("cannot run `no-such-program-here`"));
    }

    #[test]
    fn streams_both_outputs_to_the_end() {
        let mut lines = Vec::new();
        let status = Cmd::new("sh")
            .args(["-c", "echo one; echo two >&2; printf three"])
            .stream(|line| {
                lines.push(line.to_owned());
                Ok(())
            })
            .unwrap();
        assert!(status.success());
        assert_eq!(lines, ["one", "two", "three"]);
    }

    #[test]
    fn a_child_whose_lines_cannot_be_taken_is_ended() {
        let mut number = String::new();
        let error = Cmd::new("sh")
            .args(["-c", "echo $$; exec sleep 60"])
            .stream(|line| {
                number = line.to_owned();
                bail!("the disk is full")
            })
            .unwrap_err();
        assert_eq!(error.to_string(), "the disk is full");
        let alive = Cmd::new("kill").args(["-0", &number]).output().unwrap();
        assert!(!alive.status.success(), "process {number} lives on");
    }

    #[test]
    fn a_child_that_ignores_its_input_is_no_error() {
        let text = "x".repeat(1 << 20);
        let output = Cmd::new("true").output_with_input(&text).unwrap();
        assert!(output.status.success());
    }
}
