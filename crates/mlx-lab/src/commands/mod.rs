//! The commands, one per module.

pub(crate) mod bench;
pub(crate) mod calibrate;
pub(crate) mod mixed;
pub(crate) mod probe;

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use cli::{print, println};
use serde::Serialize;

/// The exit code of a command that worked and found a difference.
pub(crate) const FOUND: u8 = 3;

/// The result of a command: its exit code.
pub(crate) type Outcome = Result<ExitCode>;

/// The largest allowed number in a list; real rows, positions and tokens are smaller.
const MOST: usize = 1 << 20;

/// Numbers and spans: `1,2,4-8`.
pub(crate) fn numbers(text: &str) -> Result<Vec<usize>> {
    let mut numbers = Vec::new();
    for part in text.split(',') {
        let number = |text: &str| {
            text.trim()
                .parse::<usize>()
                .with_context(|| format!("\"{text}\" in \"{}\" is not a number", part.trim()))
        };
        match part.split_once('-') {
            None => {
                let number = number(part)?;
                if number > MOST {
                    bail!("{number} is more than {MOST}");
                }
                numbers.push(number);
            }
            Some((from, to)) => {
                let (from, to) = (number(from)?, number(to)?);
                if from > to || to > 4096 {
                    bail!(
                        "\"{part}\" is not a span from a number to a larger one, of at most 4096 numbers"
                    );
                }
                numbers.extend(from..=to);
            }
        }
    }
    Ok(numbers)
}

/// The result of [`numbers`] as one clap value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Numbers(pub(crate) Vec<usize>);

impl std::str::FromStr for Numbers {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        numbers(text).map(Self)
    }
}

/// Prints an outcome as text, or as JSON if the JSON goes to standard output.
pub(crate) fn print<T: Serialize>(
    report: &T,
    json: Option<&Path>,
    render: fn(&T) -> String,
) -> Result<()> {
    let text = || serde_json::to_string_pretty(report).context("JSON");
    match json {
        Some(path) if path.as_os_str() == "-" => println!("{}", text()?),
        Some(path) => {
            let written = cli::file::write(path, format!("{}\n", text()?));
            // Print even if the file could not be written: the run may have taken an hour.
            print!("{}", render(report));
            written?;
        }
        None => print!("{}", render(report)),
    }
    Ok(())
}

/// Fails early if [`print`] could not write.
pub(crate) fn check_json(json: Option<&Path>) -> Result<()> {
    match json {
        Some(path) if path.as_os_str() != "-" => Ok(cli::file::check_writable(path)?),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_alone_and_in_spans() {
        assert_eq!(numbers("1,3-5, 8").unwrap(), [1, 3, 4, 5, 8]);
        for text in [
            "",
            "a",
            "5-3",
            "1-",
            "1-9999999",
            "1048577",
            "18446744073709551616",
        ] {
            assert!(numbers(text).is_err(), "{text}");
        }
    }
}
