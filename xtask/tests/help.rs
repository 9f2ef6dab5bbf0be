//! Tests the output of `--help`.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use xtask::proc::Cmd;

fn help(args: &[&str]) -> String {
    let command = Cmd::new(env!("CARGO_BIN_EXE_xtask"));
    command.args(args).arg("--help").read().unwrap()
}

#[test]
fn every_command_shows_how_it_is_called() {
    let text = help(&[]);
    let (_, commands) = text.split_once("Commands:").unwrap();
    let (commands, _) = commands.split_once("Options:").unwrap();
    let mut count = 0;
    for line in commands
        .lines()
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
    {
        let name = line.split_whitespace().next().unwrap();
        if name == "help" {
            continue;
        }
        let text = help(&[name]);
        let example = format!("\n  cargo xtask {name}");
        let evaluated = format!("cargo xtask {name} ");
        let (_, examples) = text
            .split_once("Examples:")
            .unwrap_or_else(|| panic!("`cargo xtask {name} --help` has no examples"));
        assert!(
            examples.contains(&example) || examples.contains(&evaluated),
            "{text}"
        );
        count += 1;
    }
    assert!(count > 10, "{commands}");
}
