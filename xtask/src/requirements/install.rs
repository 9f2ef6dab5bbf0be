//! Reports what is missing, and installs it.

use anyhow::{Result, bail};
use camino::Utf8Path;
use cli::println;

use super::{Missing, Remedy};
use crate::host::{Host, Os};

/// Lists everything that is missing and how to install it.
pub fn report(host: &Host, missing: &[Missing]) -> String {
    let mut text = String::from("this machine lacks programs or libraries that the build needs:");
    for item in missing {
        text += &format!("\n  {item}");
    }
    let (by_hand, installable) = sort(missing);
    match install_commands(host, &installable) {
        Ok(commands) if commands.is_empty() => {}
        Ok(commands) => {
            text += "\ninstall it with:";
            for command in commands {
                text += &format!("\n  {}", command.join(" "));
            }
        }
        Err(error) => text += &format!("\n{error:#}"),
    }
    if !by_hand.is_empty() {
        text += "\nfix this by hand:";
    }
    for remedy in by_hand {
        text += &format!("\n  {remedy}");
    }
    text
}

/// The remedies that only a person can carry out, as texts; and what commands can install.
fn sort(missing: &[Missing]) -> (Vec<&str>, Vec<Missing>) {
    let by_hand = missing.iter().filter_map(|item| match &item.remedy {
        Remedy::Manual(text) => Some(text.as_str()),
        _ => None,
    });
    let installable = missing
        .iter()
        .filter(|item| !matches!(item.remedy, Remedy::Manual(_)));
    (by_hand.collect(), installable.cloned().collect())
}

/// The commands that install everything in `missing`, in order; an error if a person must act.
pub fn install_commands(host: &Host, missing: &[Missing]) -> Result<Vec<Vec<String>>> {
    let words = |list: &[&str]| {
        list.iter()
            .map(|word| (*word).to_owned())
            .collect::<Vec<_>>()
    };
    let mut packages = Vec::new();
    let mut others = Vec::new();
    let mut by_hand = Vec::new();
    for item in missing {
        match &item.remedy {
            Remedy::Packages { apt, brew } => match host.os {
                Os::Linux => packages.extend(words(apt)),
                Os::MacOs => packages.extend(words(brew)),
            },
            // One command may install several things.
            Remedy::Command(command) if others.contains(&words(command)) => {}
            Remedy::Command(command) => others.push(words(command)),
            Remedy::Manual(text) => by_hand.push(format!("{item}; {text}")),
        }
    }
    if !by_hand.is_empty() {
        bail!("{}", by_hand.join("\n"));
    }
    let mut commands = Vec::new();
    if !packages.is_empty() {
        match host.os {
            Os::MacOs if host.find("brew").is_some() => {
                commands.push([words(&["brew", "install"]), packages].concat());
            }
            Os::Linux if host.find("apt-get").is_some() => {
                let apt = [sudo(host)?, words(&["apt-get"])].concat();
                let install = words(&["install", "-y", "--no-install-recommends"]);
                // A fresh container has no package lists at all.
                commands.push([apt.clone(), words(&["update"])].concat());
                commands.push([apt, install, packages].concat());
            }
            _ => bail!(
                "this machine has no supported package manager (apt-get, brew); install \
                 these with yours: {}",
                packages.join(" ")
            ),
        }
    }
    commands.extend(others);
    Ok(commands)
}

/// Makes sure that `check` finds nothing missing: installs it, from `root`, if `install` allows that.
pub fn ensure(
    host: &Host,
    root: &Utf8Path,
    install: bool,
    check: impl Fn() -> Vec<Missing>,
) -> Result<()> {
    let missing = check();
    if missing.is_empty() {
        return Ok(());
    }
    if !install {
        let mut text = report(host, &missing);
        if !sort(&missing).1.is_empty() {
            text += "\nor use `--install-deps`, and this command installs it";
        }
        bail!("{text}");
    }
    for words in install_commands(host, &missing)? {
        println!("==> {}", words.join(" "));
        if let [program, args @ ..] = words.as_slice() {
            host.cmd(program).args(args).dir(root).run()?;
        }
    }
    // The newest package of an old distribution may still be too old.
    match check().as_slice() {
        [] => Ok(()),
        [first, ..] => bail!("everything was installed, but still: {first}"),
    }
}

/// `sudo` if this is not root.
fn sudo(host: &Host) -> Result<Vec<String>> {
    if host.cmd("id").arg("-u").read()? == "0" {
        return Ok(Vec::new());
    }
    if host.find("sudo").is_none() {
        bail!("installing packages needs root, but there is no sudo: run this as root");
    }
    Ok(vec!["sudo".to_owned()])
}
