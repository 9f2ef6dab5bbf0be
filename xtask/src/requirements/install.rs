//! What is missing, in words, and how it is installed.

use anyhow::{Result, bail};
use camino::Utf8Path;
use cli::println;

use super::{Missing, Remedy};
use crate::host::{Host, Os};

/// Names everything that is missing and how to install it.
pub fn report(host: &Host, missing: &[Missing]) -> String {
    let mut text = String::from("this machine lacks what the build needs:");
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
        text += "\nmend this by hand:";
    }
    for remedy in by_hand {
        text += &format!("\n  {remedy}");
    }
    text
}

/// What only a person can do, in words, and what commands can install.
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

/// The commands that install everything in `missing`, in order; an error where a person must act.
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
            // One command may bring several things.
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
                // A fresh container has no lists of packages at all.
                commands.push([apt.clone(), words(&["update"])].concat());
                commands.push([apt, install, packages].concat());
            }
            _ => bail!(
                "this machine has no package manager that is known here (apt-get, brew); install \
                 these with your own: {}",
                packages.join(" ")
            ),
        }
    }
    commands.extend(others);
    Ok(commands)
}

/// Makes `check` find nothing missing: by installing, from `root`, where `install` allows it.
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
            text += "\n`--install-deps` lets this command do it";
        }
        bail!("{text}");
    }
    for words in install_commands(host, &missing)? {
        println!("==> {}", words.join(" "));
        if let [program, args @ ..] = words.as_slice() {
            host.cmd(program).args(args).dir(root).run()?;
        }
    }
    // An old distribution's newest package may still be too old.
    match check().as_slice() {
        [] => Ok(()),
        [first, ..] => bail!("everything was installed, and still: {first}"),
    }
}

/// `sudo` where this is not root, nothing where it is.
fn sudo(host: &Host) -> Result<Vec<String>> {
    if host.cmd("id").arg("-u").read()? == "0" {
        return Ok(Vec::new());
    }
    if host.find("sudo").is_none() {
        bail!("installing packages needs root, and there is no sudo: run this as root");
    }
    Ok(vec!["sudo".to_owned()])
}
