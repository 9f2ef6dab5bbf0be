//! Inspects Apple's metallib files: their contents, their checksums, a function's bitcode.

use std::fs;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::{Parser, Subcommand};
use metallib::{Function, Library, Tag, Version};
use serde_json::json;

#[derive(Parser)]
#[command(version, about)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Show the header, the extension and counts
    Info { file: PathBuf },
    /// List the functions: name, type, versions, bitcode offset and size, function constants
    List {
        file: PathBuf,
        /// Print one JSON object per line instead of tab-separated fields
        #[arg(long)]
        json: bool,
        /// Print names only
        #[arg(long, conflicts_with = "json")]
        names: bool,
    },
    /// Hash every function's bitcode and compare it with the stored SHA-256
    Verify { file: PathBuf },
    /// Write a function's bitcode, as stored
    Extract {
        file: PathBuf,
        name: String,
        output: PathBuf,
    },
}

fn main() -> ExitCode {
    match run(Args::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        // `metallib list … | head` closes the pipe. Print nothing, and exit with the status of a program ended by
        // SIGPIPE.
        Err(error) if is_broken_pipe(&error) => ExitCode::from(141),
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .downcast_ref::<io::Error>()
        .is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

fn run(command: Command) -> Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    match command {
        Command::Info { file } => with_library(&file, |library| info(library, &mut out)),
        Command::List { file, json, names } => with_library(&file, |library| {
            for function in library.functions() {
                let function = function?;
                match (names, json) {
                    (true, _) => writeln!(out, "{}", function.name)?,
                    (_, true) => writeln!(out, "{}", as_json(&function)?)?,
                    _ => list_line(&function, &mut out)?,
                }
            }
            Ok(())
        }),
        Command::Verify { file } => with_library(&file, |library| verify(library, &mut out)),
        Command::Extract { file, name, output } => with_library(&file, |library| {
            let function = find(library, &name)?;
            let bitcode = function
                .bitcode
                .with_context(|| format!("{name} has no bitcode"))?;
            fs::write(&output, bitcode.bytes)
                .with_context(|| format!("writing {}", output.display()))
        }),
    }?;
    Ok(out.flush()?)
}

/// Maps `file`, reads its header and passes both to `action`; every error names the file.
fn with_library(file: &Path, action: impl FnOnce(&Library<'_>) -> Result<()>) -> Result<()> {
    let map = metallib::map_file(file).with_context(|| format!("opening {}", file.display()))?;
    let library = Library::parse(&map).with_context(|| format!("reading {}", file.display()))?;
    action(&library).map_err(|error| match error.is::<io::Error>() {
        true => error,
        false => error.context(format!("reading {}", file.display())),
    })
}

fn find<'a>(library: &Library<'a>, name: &str) -> Result<Function<'a>> {
    for function in library.functions() {
        let function = function?;
        if function.name == name {
            return Ok(function);
        }
    }
    bail!(
        "no function named {name} among {}; `metallib list --names` lists them",
        library.len()
    )
}

fn info(library: &Library<'_>, out: &mut impl Write) -> Result<()> {
    let header = library.header();
    writeln!(
        out,
        "container        {} ({}, {})",
        header.container_version, header.platform, header.kind
    )?;
    writeln!(out, "minimum system   {} {}", header.os, header.os_version)?;
    writeln!(
        out,
        "language         Metal {}",
        or_dash(library.language_version()?)
    )?;
    if let Some(name) = library.install_name()? {
        writeln!(out, "install name     {name}")?;
    }
    if let Some(uuid) = library.uuid()? {
        writeln!(out, "uuid             {}", hex(&uuid))?;
    }
    writeln!(out, "functions        {}", library.len())?;
    for (what, section) in [
        ("function list", header.function_list),
        ("public metadata", header.public_metadata),
        ("private metadata", header.private_metadata),
        ("bitcode", header.bitcode),
    ] {
        writeln!(
            out,
            "{what:<16} {} bytes at {}",
            section.size, section.offset
        )?;
    }
    for tag in library.extension_tags() {
        writeln!(out, "extension        {}", show(&tag?))?;
    }
    Ok(())
}

fn list_line(function: &Function<'_>, out: &mut impl Write) -> Result<()> {
    let (offset, size) = function
        .bitcode
        .map_or((0, 0), |bitcode| (bitcode.offset, bitcode.bytes.len()));
    let kind = function
        .kind
        .map_or_else(|| "-".to_owned(), |kind| kind.to_string());
    let (air, language) = (
        or_dash(function.air_version),
        or_dash(function.language_version),
    );
    write!(
        out,
        "{}\t{kind}\tair {air}\tmetal {language}\t{offset}\t{size}",
        function.name
    )?;
    for constant in function.constants()? {
        write!(out, "\t{}", constant?)?;
    }
    for tag in function.unknown_tags() {
        write!(out, "\t{}", show(&tag?))?;
    }
    Ok(writeln!(out)?)
}

fn as_json(function: &Function<'_>) -> Result<serde_json::Value> {
    let constants: Vec<_> = function
        .constants()?
        .map(|constant| {
            let constant = constant?;
            Ok(json!({ "name": constant.name, "type": constant.kind.to_string(), "index": constant.index }))
        })
        .collect::<metallib::Result<_>>()?;
    let unknown: Vec<_> = function
        .unknown_tags()
        .map(|tag| {
            tag.map(|tag| json!({ "tag": tag.name.to_string(), "payload": hex(tag.payload) }))
        })
        .collect::<metallib::Result<_>>()?;
    Ok(json!({
        "name": function.name,
        "type": function.kind.map(|kind| kind.to_string()),
        "sha256": function.sha256.map(|sum| hex(sum)),
        "air": function.air_version.map(|version| version.to_string()),
        "language": function.language_version.map(|version| version.to_string()),
        "bitcode_offset": function.bitcode.map(|bitcode| bitcode.offset),
        "bitcode_size": function.bitcode.map(|bitcode| bitcode.bytes.len()),
        "reflection_size": function.reflection()?.map(<[u8]>::len),
        "constants": constants,
        "unknown_tags": unknown,
    }))
}

fn verify(library: &Library<'_>, out: &mut impl Write) -> Result<()> {
    let report = library.verify()?;
    writeln!(
        out,
        "{} checksums right, {} functions without one, {} bytes hashed",
        report.verified, report.unhashed, report.bytes
    )?;
    if report.mismatches.is_empty() {
        return Ok(());
    }
    let mut wrong = report.mismatches.iter().peekable();
    for function in library.functions() {
        let function = function?;
        if let (Some(bitcode), Some(_)) = (function.bitcode, wrong.next_if_eq(&&function.index)) {
            let stored = function.sha256.map(|sum| hex(sum)).unwrap_or_default();
            writeln!(
                out,
                "{}: stored {stored}, found {}",
                function.name,
                hex(&bitcode.sha256())
            )?;
        }
    }
    out.flush()?;
    bail!(
        "{} of {} checksums are wrong",
        report.mismatches.len(),
        library.len()
    )
}

fn show(tag: &Tag<'_>) -> String {
    const SHOWN: usize = 32;
    let more = if tag.payload.len() > SHOWN { "…" } else { "" };
    format!(
        "{} ({} bytes) {}{more}",
        tag.name,
        tag.payload.len(),
        hex(&tag.payload[..tag.payload.len().min(SHOWN)])
    )
}

fn or_dash(version: Option<Version>) -> String {
    version.map_or_else(|| "-".to_owned(), |version| version.to_string())
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}
