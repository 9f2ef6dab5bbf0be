//! Steps that run one after another. All failures are collected and reported once, at the end.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use cli::{print, println};

use crate::Reported;
use crate::proc::Cmd;

/// One step: commands that must all succeed.
pub(super) struct Step {
    name: &'static str,
    commands: Vec<Cmd>,
    needs: Option<&'static str>,
}

impl Step {
    /// A step of one command.
    pub(super) fn new(name: &'static str, command: Cmd) -> Self {
        Self {
            name,
            commands: vec![command],
            needs: None,
        }
    }

    #[must_use]
    pub(super) fn then(mut self, command: Cmd) -> Self {
        self.commands.push(command);
        self
    }

    /// Makes the step fail without running if the step called `name` did not pass.
    #[must_use]
    pub(super) fn needs(mut self, name: &'static str) -> Self {
        self.needs = Some(name);
        self
    }
}

/// The result of a step.
struct Outcome {
    name: &'static str,
    time: Duration,
    failure: Option<String>,
}

/// The part of a failed command's output that is repeated at the end, where readers of a long log look first.
#[derive(Default)]
struct Excerpt {
    /// The `failures:` sections of tests.
    failures: Vec<String>,
    in_failures: bool,
    /// The last lines, for commands that are not tests.
    last: VecDeque<String>,
}

impl Excerpt {
    /// How many lines of a section are kept; a backtrace is longer.
    const FAILURES: usize = 150;
    const LAST: usize = 15;

    fn add(&mut self, line: &str) {
        self.in_failures |= line == "failures:";
        if self.in_failures && self.failures.len() < Self::FAILURES {
            self.failures.push(line.to_owned());
        }
        self.in_failures &= !line.starts_with("test result:");
        if self.last.len() == Self::LAST {
            self.last.pop_front();
        }
        self.last.push_back(line.to_owned());
    }

    fn text(self) -> String {
        if self.failures.is_empty() {
            Vec::from(self.last).join("\n")
        } else {
            self.failures.join("\n")
        }
    }
}

/// Runs a command and shows its output as it comes.
fn run_shown(command: Cmd) -> Result<()> {
    let shown = command.to_string();
    let mut excerpt = Excerpt::default();
    let status = command.stream(|line| {
        println!("{line}");
        excerpt.add(line);
        Ok(())
    })?;
    if !status.success() {
        bail!("`{shown}` failed ({status})\n{}", excerpt.text());
    }
    Ok(())
}

/// Runs all steps, prints a table and, as the last line, `N passed, N failed`.
pub(super) fn run(steps: Vec<Step>) -> Result<()> {
    let outcomes = outcomes(steps);
    let failed = outcomes
        .iter()
        .filter(|outcome| outcome.failure.is_some())
        .count();
    print!("\n{}", table(&outcomes));
    println!("{} passed, {failed} failed", outcomes.len() - failed);
    if failed > 0 {
        Err(Reported.into())
    } else {
        Ok(())
    }
}

fn outcomes(steps: Vec<Step>) -> Vec<Outcome> {
    let mut outcomes: Vec<Outcome> = Vec::new();
    for step in steps {
        println!("\n==> {}", step.name);
        let start = Instant::now();
        let ready =
            |outcome: &Outcome| Some(outcome.name) == step.needs && outcome.failure.is_none();
        let failure = match step.needs {
            Some(needed) if !outcomes.iter().any(ready) => {
                Some(format!("not run: needs `{needed}`, which did not pass"))
            }
            _ => step
                .commands
                .into_iter()
                .find_map(|command| run_shown(command).err())
                .map(|error| format!("{error:#}")),
        };
        if let Some(text) = &failure {
            println!("{}", text.lines().next().unwrap_or_default());
        }
        outcomes.push(Outcome {
            name: step.name,
            time: start.elapsed(),
            failure,
        });
    }
    outcomes
}

fn table(outcomes: &[Outcome]) -> String {
    let line = |outcome: &Outcome| {
        let mark = if outcome.failure.is_none() {
            "ok"
        } else {
            "FAILED"
        };
        let seconds = outcome.time.as_secs_f64();
        let mut line = format!("{mark:<7} {seconds:>7.1} s  {}\n", outcome.name);
        if let Some(text) = &outcome.failure {
            line += &format!(
                "                   {}\n",
                text.replace('\n', "\n                   ")
            );
        }
        line
    };
    outcomes.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str) -> Cmd {
        Cmd::new("sh").args(["-c", script])
    }

    #[test]
    fn all_steps_run_and_one_failure_fails_the_whole() {
        let dir = tempfile::tempdir().unwrap();
        let mark = dir.path().join("ran");
        let steps = vec![
            Step::new("first", sh("exit 3")),
            Step::new("needs the first", sh("exit 0")).needs("first"),
            Step::new("last", sh("exit 0")).then(sh(&format!("touch {}", mark.display()))),
        ];
        let outcomes = outcomes(steps);
        let failed: Vec<_> = outcomes.iter().map(|o| o.failure.is_some()).collect();
        assert_eq!(failed, [true, true, false]);
        assert!(mark.exists());
        let table = table(&outcomes);
        assert!(
            table.contains("FAILED") && table.contains("exit 3"),
            "{table}"
        );
        assert!(table.contains("not run: needs `first`"), "{table}");
    }

    #[test]
    fn the_reasons_are_told_again_at_the_end() {
        let script = "echo 'test good ... ok'; echo failures:; echo '---- bad ----'; echo 'left: 1'; \
                      echo 'test result: FAILED'; for i in $(seq 40); do echo line $i; done; exit 1";
        let outcomes = outcomes(vec![
            Step::new("tests", sh(script)),
            Step::new(
                "other",
                sh("for i in $(seq 40); do echo line $i; done; exit 1"),
            ),
        ]);
        // The first line is the command.
        let told = |outcome: &Outcome| {
            let text = outcome.failure.as_deref().unwrap();
            text.split_once('\n').unwrap().1.to_owned()
        };
        assert_eq!(
            told(&outcomes[0]),
            "failures:\n---- bad ----\nleft: 1\ntest result: FAILED"
        );
        let last = told(&outcomes[1]);
        assert!(
            last.starts_with("line 26\n") && last.ends_with("\nline 40"),
            "{last}"
        );
    }

    #[test]
    fn a_failure_is_told_once() {
        let error = run(vec![Step::new("only", sh("exit 1"))]).unwrap_err();
        assert!(error.is::<Reported>());
        run(vec![Step::new("only", sh("exit 0"))]).unwrap();
    }
}
