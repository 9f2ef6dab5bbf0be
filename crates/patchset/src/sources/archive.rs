//! Archives: `.tar.gz`, `.tar.xz`, `.zip`, `.crate`. They are unpacked into memory, so a hostile name never reaches the
//! disk.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry as Slot;
use std::io::{Cursor, Read};

use camino::Utf8Path;
use flate2::bufread::GzDecoder;
use liblzma::stream::{self, Stream};
use sha2::{Digest, Sha256};
use tar::EntryType;

use crate::error::{Error, Result};
use crate::read;
use crate::tree::bounds::{Bounds, Tally};
use crate::tree::path;
use crate::tree::{File, Mode, Snapshot};

/// The memory that an .xz file may request before its first byte; `xz -9` requests 65 MiB.
const LARGEST_DICTIONARY: u64 = 256 << 20;

/// The SHA-256 of some bytes, hexadecimal.
fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// Downloads a file and verifies its checksum.
pub(crate) fn download(url: &str, expected: &str) -> Result<Vec<u8>> {
    let bytes = download_any(url)?;
    check_sum(url, &bytes, expected)?;
    Ok(bytes)
}

/// Downloads a file whose content is checked when it is unpacked.
pub(crate) fn download_any(url: &str) -> Result<Vec<u8>> {
    ureq::get(url)
        .call()
        .and_then(|mut response| {
            response
                .body_mut()
                .with_config()
                .limit(Bounds::default().bytes)
                .read_to_vec()
        })
        .map_err(|error| Error::source(url, error))
}

/// Reads a local archive.
///
/// # Errors
/// It is larger than the limit for archives.
pub(crate) fn read_file(path: &Utf8Path) -> Result<Vec<u8>> {
    read::at_most(path, Bounds::default().bytes)
}

/// Verifies the checksum of a file.
pub(crate) fn check_sum(file: &str, bytes: &[u8], expected: &str) -> Result<()> {
    let found = sha256(bytes);
    if found == expected {
        return Ok(());
    }
    Err(Error::Sum {
        file: file.to_owned(),
        expected: expected.to_owned(),
        found,
    })
}

/// Unpacks an archive; its kind is determined from its first bytes. Returns the files below `folder`, or, without one,
/// those below the single top folder.
///
/// # Errors
/// Damaged or truncated archives, hostile or clashing names, anything that is not a file, link or folder, more files or
/// bytes than the limits.
pub fn unpack(origin: &str, bytes: &[u8], folder: Option<&str>) -> Result<Snapshot> {
    unpack_within(Bounds::default(), origin, bytes, folder)
}

/// Unpacks the named parts of `folder` in a zip; the rest of it is not even decompressed.
pub(crate) fn unpack_parts(
    origin: &str,
    bytes: &[u8],
    folder: &str,
    parts: &[String],
) -> Result<Snapshot> {
    let wanted = |name: &str| {
        let inside = name.strip_prefix(folder)?.strip_prefix('/')?;
        let part = inside.split_once('/').map_or(inside, |(part, _)| part);
        (parts.is_empty() || parts.iter().any(|one| one == part)).then_some(())
    };
    let mut tally = Bounds::default().tally(origin);
    let snapshot = Snapshot(unzip(bytes, &mut tally, &|name| wanted(name).is_some())?);
    snapshot.check_paths(origin)?;
    below(origin, snapshot, Some(folder))
}

pub(crate) fn unpack_within(
    bounds: Bounds,
    origin: &str,
    bytes: &[u8],
    folder: Option<&str>,
) -> Result<Snapshot> {
    let mut tally = bounds.tally(origin);
    let files = if bytes.starts_with(&[0x1f, 0x8b]) {
        let tar = gunzip(bytes, &mut bounds.tally(origin))?;
        untar(&tar, &mut tally)?
    } else if bytes.starts_with(b"\xfd7zXZ\0") {
        let decoder = Stream::new_stream_decoder(LARGEST_DICTIONARY, stream::CONCATENATED)
            .map_err(|error| Error::source(origin, error))?;
        let reader = liblzma::read::XzDecoder::new_stream(bytes, decoder);
        let mut tar = Vec::new();
        decompress(reader, &mut bounds.tally(origin), &mut tar)?;
        untar(&tar, &mut tally)?
    } else if bytes.starts_with(b"PK\x03\x04") {
        unzip(bytes, &mut tally, &|_| true)?
    } else {
        return Err(Error::source(
            origin,
            "expected a .tar.gz, .tar.xz, .zip or .crate archive; it has the first bytes of none of them",
        ));
    };
    let snapshot = Snapshot(files);
    snapshot.check_paths(origin)?;
    below(origin, snapshot, folder)
}

fn damaged(origin: &str, error: impl std::fmt::Display) -> Error {
    Error::source(
        origin,
        format!("the archive is damaged or truncated: {error}"),
    )
}

/// All members of a gzip file: it may consist of several compressed pieces.
fn gunzip(bytes: &[u8], tally: &mut Tally<'_>) -> Result<Vec<u8>> {
    let mut all = Vec::new();
    let mut rest = bytes;
    // Tapes and block devices pad with zeros.
    while rest.iter().any(|byte| *byte != 0) {
        tally.entry()?;
        let mut member = GzDecoder::new(rest);
        decompress(&mut member, tally, &mut all)?;
        rest = member.into_inner();
    }
    Ok(all)
}

/// Appends the output of a decoder.
fn decompress(reader: impl Read, tally: &mut Tally<'_>, all: &mut Vec<u8>) -> Result<()> {
    let before = all.len();
    let read = reader.take(tally.left() + 1).read_to_end(all);
    read.map_err(|error| {
        let cause = error.get_ref().and_then(|cause| cause.downcast_ref());
        match cause {
            Some(stream::Error::MemLimit) => Error::source(
                tally.origin(),
                format!("memory limit reached: it asks for more than {LARGEST_DICTIONARY} bytes"),
            ),
            _ => damaged(tally.origin(), error),
        }
    })?;
    tally.bytes((all.len() - before) as u64)
}

fn untar(bytes: &[u8], tally: &mut Tally<'_>) -> Result<BTreeMap<String, File>> {
    let mut files = BTreeMap::new();
    let mut archive = tar::Archive::new(bytes);
    for entry in archive
        .entries()
        .map_err(|error| damaged(tally.origin(), error))?
    {
        tally.entry()?;
        let origin = tally.origin();
        let damaged = |error: std::io::Error| damaged(origin, error);
        let mut entry = entry.map_err(damaged)?;
        let name = String::from_utf8(entry.path_bytes().into_owned())
            .map_err(|_| Error::source(origin, "a name is not UTF-8"))?;
        let file = match entry.header().entry_type() {
            EntryType::Directory | EntryType::XGlobalHeader => continue,
            EntryType::Regular | EntryType::Continuous => {
                let mode = Mode::from_permissions(entry.header().mode().map_err(damaged)?);
                let mut bytes = Vec::new();
                entry.read_to_end(&mut bytes).map_err(damaged)?;
                if bytes.len() as u64 != entry.size() {
                    return Err(Error::source(
                        origin,
                        format!("the archive is truncated in {name}"),
                    ));
                }
                File { mode, bytes }
            }
            EntryType::Symlink => {
                let target = entry.link_name_bytes().unwrap_or_default().into_owned();
                File {
                    mode: Mode::Link,
                    bytes: target,
                }
            }
            other => {
                return Err(Error::source(
                    origin,
                    format!("{name} is of kind {other:?}; only files and links are supported"),
                ));
            }
        };
        add(origin, &mut files, name, file)?;
    }
    // For example two tars in one file: a reader of the first would not see the second.
    if archive.into_inner().iter().any(|byte| *byte != 0) {
        return Err(Error::source(
            tally.origin(),
            "it has data after the end of the archive",
        ));
    }
    Ok(files)
}

fn unzip(
    bytes: &[u8],
    tally: &mut Tally<'_>,
    wanted: &dyn Fn(&str) -> bool,
) -> Result<BTreeMap<String, File>> {
    const KIND: u32 = 0o170_000;
    const REGULAR: u32 = 0o100_000;
    const LINK: u32 = 0o120_000;
    let mut files = BTreeMap::new();
    let mut archive =
        zip::ZipArchive::new(Cursor::new(bytes)).map_err(|error| damaged(tally.origin(), error))?;
    if archive.has_duplicate_names() {
        return Err(Error::source(tally.origin(), "it has a name twice"));
    }
    for index in 0..archive.len() {
        tally.entry()?;
        let mut entry = archive
            .by_index(index)
            .map_err(|error| damaged(tally.origin(), error))?;
        if entry.is_dir() {
            continue;
        }
        let name = std::str::from_utf8(entry.name_raw())
            .map_err(|_| Error::source(tally.origin(), "a name is not UTF-8"))?
            .to_owned();
        if !wanted(&name) {
            continue;
        }
        let bits = entry.unix_mode().unwrap_or(0o644);
        let mode = match bits & KIND {
            LINK => Mode::Link,
            // Packers on other systems do not set it.
            0 | REGULAR => Mode::from_permissions(bits),
            other => {
                return Err(Error::source(
                    tally.origin(),
                    format!("{name} is of kind {other:o}; only files and links are supported"),
                ));
            }
        };
        let mut bytes = Vec::new();
        decompress(&mut entry, tally, &mut bytes)?;
        add(tally.origin(), &mut files, name, File { mode, bytes })?;
    }
    Ok(files)
}

fn add(origin: &str, files: &mut BTreeMap<String, File>, name: String, file: File) -> Result<()> {
    let name = name.strip_prefix("./").unwrap_or(&name).to_owned();
    path::check(&name, origin)?;
    match files.entry(name) {
        Slot::Vacant(slot) => {
            slot.insert(file);
            Ok(())
        }
        Slot::Occupied(slot) => Err(Error::source(
            origin,
            format!("{} is in it twice", slot.key()),
        )),
    }
}

/// The files below a folder, with paths relative to it.
fn below(origin: &str, snapshot: Snapshot, folder: Option<&str>) -> Result<Snapshot> {
    let top = |path: &str| path.split_once('/').map(|(top, _)| top.to_owned());
    let folder = match folder {
        Some(folder) => folder.to_owned(),
        None => {
            let Some(first) = snapshot.0.keys().next().and_then(|path| top(path)) else {
                return Ok(snapshot);
            };
            if snapshot
                .0
                .keys()
                .any(|path| top(path).as_ref() != Some(&first))
            {
                return Ok(snapshot);
            }
            first
        }
    };
    let prefix = format!("{folder}/");
    let files: BTreeMap<_, _> = snapshot
        .0
        .into_iter()
        .filter_map(|(path, file)| Some((path.strip_prefix(&prefix)?.to_owned(), file)))
        .collect();
    if files.is_empty() {
        return Err(Error::source(origin, format!("it has no folder {folder}")));
    }
    let snapshot = Snapshot(files);
    // A link may stay inside the archive but lead out of the folder.
    snapshot.check_paths(origin)?;
    Ok(snapshot)
}
