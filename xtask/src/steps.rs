//! The steps of a long command: numbered, timed, and never silent for long.

use std::io::IsTerminal;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use cli::println;

use crate::proc::Cmd;

/// Silence after which a line says that the step still runs, where no bar can: off a terminal.
const SILENCE: Duration = Duration::from_secs(15);

/// Steps of which `total` are announced.
pub(crate) struct Steps {
    total: usize,
    done: usize,
    begin: Instant,
}

impl Steps {
    pub(crate) fn new(total: usize) -> Self {
        Self {
            total,
            done: 0,
            begin: Instant::now(),
        }
    }

    /// Announces a step, does it, and prints how long it took.
    pub(crate) fn step<T>(
        &mut self,
        what: &str,
        work: impl FnOnce(&Pulse) -> Result<T>,
    ) -> Result<T> {
        self.done += 1;
        println!("[{}/{}] {what}", self.done, self.total);
        let begin = Instant::now();
        // A terminal has the bars of what runs.
        let silence = (!std::io::stderr().is_terminal()).then_some(SILENCE);
        let pulse = Pulse::new(silence, |time| {
            eprintln!("      still running after {}", seconds(time));
        });
        let result = work(&pulse)?;
        drop(pulse);
        println!("      done in {}", seconds(begin.elapsed()));
        Ok(result)
    }

    /// How long all of them took until now.
    pub(crate) fn elapsed(&self) -> String {
        seconds(self.begin.elapsed())
    }
}

fn seconds(time: Duration) -> String {
    match time.as_secs() {
        0..120 => format!("{} s", time.as_secs()),
        more => format!("{} min {} s", more / 60, more % 60),
    }
}

/// Says that something still runs, after each while in which nothing was heard. Ends when it is dropped.
pub(crate) struct Pulse {
    heard: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Pulse {
    /// Without `silence` it says nothing.
    fn new(silence: Option<Duration>, say: impl Fn(Duration) + Send + 'static) -> Self {
        let Some(silence) = silence else {
            return Self {
                heard: None,
                thread: None,
            };
        };
        let (heard, hears) = channel();
        let begin = Instant::now();
        let thread = std::thread::spawn(move || {
            loop {
                match hears.recv_timeout(silence) {
                    Ok(()) => {}
                    Err(RecvTimeoutError::Timeout) => say(begin.elapsed()),
                    Err(RecvTimeoutError::Disconnected) => return,
                }
            }
        });
        Self {
            heard: Some(heard),
            thread: Some(thread),
        }
    }

    /// Runs a command with its output shown. Off a terminal its lines count as heard.
    pub(crate) fn run(&self, command: Cmd) -> Result<()> {
        let Some(heard) = &self.heard else {
            return command.run();
        };
        let shown = command.to_string();
        let status = command.stream(|line| {
            println!("      {line}");
            // Its thread lives as long as this.
            let _ = heard.send(());
            Ok(())
        })?;
        if !status.success() {
            bail!("`{shown}` failed ({status})");
        }
        Ok(())
    }
}

impl Drop for Pulse {
    fn drop(&mut self) {
        self.heard = None;
        if let Some(thread) = self.thread.take() {
            // It only prints.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    /// How often a pulse spoke while a script ran.
    fn spoken(script: &str) -> (usize, Result<()>) {
        let said = Arc::new(Mutex::new(0));
        let count = said.clone();
        let pulse = Pulse::new(Some(Duration::from_millis(400)), move |_| {
            *count.lock().unwrap() += 1;
        });
        let result = pulse.run(Cmd::new("sh").args(["-c", script]));
        drop(pulse);
        let said = *said.lock().unwrap();
        (said, result)
    }

    #[test]
    fn silence_is_broken_and_only_silence() {
        let (said, result) = spoken("sleep 1");
        assert!((1..=2).contains(&said), "{said}");
        result.unwrap();
        let (said, _) = spoken("for i in 1 2 3 4 5 6 7 8 9 10; do echo $i; sleep 0.1; done");
        assert_eq!(said, 0);
    }

    #[test]
    fn a_step_that_fails_names_its_command() {
        let (_, result) = spoken("exit 3");
        let error = result.unwrap_err().to_string();
        assert!(
            error.contains("sh -c 'exit 3'") && error.contains("3"),
            "{error}"
        );
    }

    #[test]
    fn times_are_readable() {
        assert_eq!(seconds(Duration::from_millis(900)), "0 s");
        assert_eq!(seconds(Duration::from_secs(119)), "119 s");
        assert_eq!(seconds(Duration::from_secs(425)), "7 min 5 s");
    }
}
