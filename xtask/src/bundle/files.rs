//! The bundle's files: copied, listed with their checksums, packed, put in place.

use std::fs::TryLockError;
use std::io::{self, Read as _};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{Context, Result, bail};
use camino::{Utf8Path, Utf8PathBuf};
use fs_err::File;
use mlx_prefix::Stamp;
use mlx_prefix::sums::{self, FILE_NAME as MANIFEST};
use walkdir::WalkDir;

use super::package::GUIDE;
use crate::files::{copy_tree, walk};

const ARCHIVE: &str = ".tar.zst";

/// Endings of other archive formats that people may expect, in lower case.
const OTHER_ARCHIVES: [&str; 10] = [
    ".tar", ".gz", ".tgz", ".xz", ".txz", ".bz2", ".tbz2", ".zst", ".zip", ".7z",
];

/// zstd's default is 3; above 9 the libraries shrink by only half a percent.
const LEVEL: i32 = 9;

pub(super) fn is_archive(output: &Utf8Path) -> bool {
    output.as_str().to_lowercase().ends_with(ARCHIVE)
}

/// Parses the output path.
pub(super) fn parse_output(text: &str) -> Result<Utf8PathBuf, String> {
    let path = Utf8PathBuf::from(text);
    let small = text.to_lowercase();
    if text.is_empty() {
        return Err(format!(
            "expected a folder, or an archive whose name ends in {ARCHIVE}"
        ));
    }
    match OTHER_ARCHIVES
        .iter()
        .find(|ending| small.ends_with(*ending))
    {
        Some(ending) if !is_archive(&path) => Err(format!(
            "the name of an archive must end in {ARCHIVE}; the name of a folder must not end in {ending}"
        )),
        _ => Ok(path),
    }
}

/// Refuses a path below a folder that other commands fill and may empty.
pub(super) fn check_place(output: &Utf8Path, taken: &Utf8Path) -> Result<()> {
    let there = output.ancestors().find(|path| path.exists());
    let there = there.unwrap_or(output);
    // Also through a link. A path that does not exist yet cannot be a link.
    let place = match there.canonicalize_utf8() {
        Ok(place) => place.join(output.strip_prefix(there)?),
        Err(_) => output.to_owned(),
    };
    let taken = taken
        .canonicalize_utf8()
        .unwrap_or_else(|_| taken.to_owned());
    if place.starts_with(&taken) {
        bail!("{output} is in {taken}, where other commands write; choose another path");
    }
    Ok(())
}

/// Refuses to replace anything but an earlier bundle or an empty folder. Returns whether a bundle is there.
pub(super) fn check_output(output: &Utf8Path) -> Result<bool> {
    let kind = match fs_err::symlink_metadata(output) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        found => found?.file_type(),
    };
    if kind.is_symlink() {
        bail!("{output} is a link; choose another path, or the target of the link");
    }
    if kind.is_dir() {
        return check_folder(output);
    }
    if kind.is_file() {
        match look_into(output)? {
            Archive::Bundle => return Ok(true),
            Archive::Changed(difference) => return refuse(output, &difference),
            Archive::Other => {}
        }
    }
    bail!("{output} exists and is not a bundle (it has no {MANIFEST}); choose another path");
}

/// Accepts a bundle for replacement only if it has no files or changes of someone else.
fn check_folder(output: &Utf8Path) -> Result<bool> {
    if fs_err::read_dir(output)?.next().is_none() {
        return Ok(false);
    }
    for name in [MANIFEST, Stamp::FILE_NAME, GUIDE] {
        if !output.join(name).is_file() {
            bail!("{output} exists and is not a bundle (it has no {name}); choose another path");
        }
    }
    match difference(output)? {
        Some(difference) => refuse(output, &difference),
        None => Ok(true),
    }
}

fn refuse(output: &Utf8Path, difference: &str) -> Result<bool> {
    bail!("{output} exists and {difference}; move that away, or choose another path")
}

fn was_changed(name: &Path) -> String {
    format!("its {} was changed", name.display())
}

fn was_added(name: &Path) -> String {
    format!("has {}, which its {MANIFEST} does not list", name.display())
}

/// The first file in the bundle that does not belong to it or was changed. Missing files do not matter: nothing is lost
/// with them.
fn difference(bundle: &Utf8Path) -> Result<Option<String>> {
    let listed = sums::read(bundle)?.unwrap_or_default();
    for entry in WalkDir::new(bundle).sort_by_file_name() {
        let entry = entry.with_context(|| format!("cannot list {bundle}"))?;
        let name = entry.path().strip_prefix(bundle)?;
        let kind = entry.file_type();
        if kind.is_dir() || (kind.is_file() && name == Path::new(MANIFEST)) {
            continue;
        }
        match listed.get(name) {
            Some(sum) if kind.is_file() => {
                if sums::sum_of(File::open(entry.path())?)? != *sum {
                    return Ok(Some(was_changed(name)));
                }
            }
            _ => return Ok(Some(was_added(name))),
        }
    }
    Ok(None)
}

/// What the file at an archive's path is.
enum Archive {
    /// An archive that [`archive`] wrote.
    Bundle,
    /// A bundle that was packed again with other files.
    Changed(String),
    Other,
}

fn look_into(path: &Utf8Path) -> Result<Archive> {
    let mut archive = tar::Archive::new(zstd::Decoder::new(File::open(path)?)?);
    let mut entries = archive.entries()?;
    let Some(Ok(mut first)) = entries.next() else {
        return Ok(Archive::Other);
    };
    let manifest = first.path()?.into_owned();
    let top = manifest.parent().map(Path::to_owned).unwrap_or_default();
    if top.components().count() != 1 || manifest != top.join(MANIFEST) {
        return Ok(Archive::Other);
    }
    let mut text = String::new();
    first.read_to_string(&mut text)?;
    let Some(listed) = sums::parse(&text) else {
        return Ok(Archive::Other);
    };
    for entry in entries {
        let entry = entry.with_context(|| format!("cannot read {path}"))?;
        let inside = entry.path()?.into_owned();
        let name = inside.strip_prefix(&top).unwrap_or(&inside);
        match listed.get(name) {
            None => return Ok(Archive::Changed(was_added(name))),
            Some(sum) if *sum != sums::sum_of(entry)? => {
                return Ok(Archive::Changed(was_changed(name)));
            }
            Some(_) => {}
        }
    }
    Ok(Archive::Bundle)
}

/// Copies the installed files of the prefix.
pub(super) fn copy_prefix(prefix: &Utf8Path, bundle: &Utf8Path) -> Result<()> {
    for name in ["include", "lib", "bin", "share"] {
        let from = prefix.join(name);
        if from.exists() {
            copy_tree(&from, &bundle.join(name))?;
        }
    }
    fs_err::copy(prefix.join(Stamp::FILE_NAME), bundle.join(Stamp::FILE_NAME))?;
    Ok(())
}

/// The sum of all files' sizes in bytes.
pub(super) fn size(folder: &Utf8Path) -> Result<u64> {
    let mut sum = 0;
    for path in walk(folder)? {
        sum += fs_err::metadata(path)?.len();
    }
    Ok(sum)
}

/// Refuses a text file that names the folder the prefix was built in: a moved bundle would read from there, or fail.
/// The library itself may contain that path: it is the last folder that it searches for its kernels.
pub(super) fn refuse_traces(bundle: &Utf8Path, prefix: &Utf8Path) -> Result<()> {
    for path in walk(bundle)? {
        let text = matches!(path.extension(), Some("cmake" | "pc" | "toml" | "h" | "md"));
        if text && fs_err::read_to_string(&path)?.contains(prefix.as_str()) {
            bail!("{path} contains the path {prefix}, so the bundle could not be moved");
        }
    }
    Ok(())
}

/// Packs the bundle below a folder of its name. [`MANIFEST`] comes first, because it is in capitals. The bytes depend
/// only on the files, not on the time or the user.
pub(super) fn archive(bundle: &Utf8Path, name: &str, archive: &Utf8Path) -> Result<()> {
    let encoder = zstd::Encoder::new(File::create(archive)?, LEVEL)?;
    let mut tar = tar::Builder::new(encoder);
    for path in walk(bundle)? {
        let mut file = File::open(&path)?;
        let metadata = file.metadata()?;
        let mut header = tar::Header::new_gnu();
        header.set_size(metadata.len());
        let executable = metadata.permissions().mode() & 0o111 != 0;
        header.set_mode(if executable { 0o755 } else { 0o644 });
        // Not 0, which tar reads as "unknown": some programs warn about it.
        header.set_mtime(1);
        let inside = Utf8Path::new(name).join(path.strip_prefix(bundle)?);
        tar.append_data(&mut header, inside, &mut file)
            .with_context(|| format!("cannot pack {path}"))?;
    }
    tar.into_inner()?.finish()?;
    Ok(())
}

/// The path of an earlier bundle during the replacement, on a file system that cannot exchange two folders.
fn aside(output: &Utf8Path) -> Utf8PathBuf {
    let name = output.file_name().unwrap_or_default();
    output.with_file_name(format!(".mlx-overlay-earlier-{name}"))
}

/// Blocks other runs that write to the same folder; not on file systems without locks. The folder itself is locked: a
/// lock file would stay in a folder that is not ours.
fn hold(output: &Utf8Path) -> Option<File> {
    let parent = output.parent()?;
    let folder = File::open(parent).ok()?;
    if let Err(TryLockError::WouldBlock) = folder.file().try_lock() {
        eprintln!("waiting: another program, such as another `bundle`, has locked {parent}");
        folder.file().lock().ok()?;
    }
    Some(folder)
}

/// Puts back the earlier bundle, if a run was killed in that instant.
pub(super) fn recover(output: &Utf8Path) -> Result<()> {
    let _held = hold(output);
    Ok(patchset::place::recover(output, &aside(output))?)
}

/// Puts the new bundle in its place in one step, and returns whether one was replaced. An earlier bundle is at `made`
/// afterwards.
pub(super) fn put(made: &Utf8Path, output: &Utf8Path) -> Result<bool> {
    let _held = hold(output);
    // Checked again: making the bundle took a while.
    let replaces = check_output(output)?;
    patchset::place::put(made, output, &aside(output))?;
    Ok(replaces)
}

#[cfg(test)]
mod tests {
    use super::*;
    use mlx_prefix::sums::write as write_manifest;

    /// A folder with a text file and a program.
    fn folder() -> (tempfile::TempDir, Utf8PathBuf) {
        let scratch = tempfile::tempdir().unwrap();
        let path = Utf8Path::from_path(scratch.path()).unwrap().to_owned();
        let bundle = path.join("bundle");
        fs_err::create_dir_all(bundle.join("bin")).unwrap();
        fs_err::write(bundle.join("a.cmake"), "set(x /home/one/prefix)").unwrap();
        fs_err::write(bundle.join("bin/run"), "#!/bin/sh").unwrap();
        let mode = PermissionsExt::from_mode(0o700);
        fs_err::set_permissions(bundle.join("bin/run"), mode).unwrap();
        (scratch, path)
    }

    #[test]
    fn an_archive_depends_on_the_files_alone_and_unpacks_to_them() {
        let (_scratch, path) = folder();
        let bundle = path.join("bundle");
        assert_eq!(write_manifest(&bundle).unwrap(), 2);
        archive(&bundle, "name", &path.join("one")).unwrap();
        // Times do not count.
        fs_err::write(bundle.join("a.cmake"), "set(x /home/one/prefix)").unwrap();
        archive(&bundle, "name", &path.join("two")).unwrap();
        let one = fs_err::read(path.join("one")).unwrap();
        assert_eq!(one, fs_err::read(path.join("two")).unwrap());

        let plain = zstd::Decoder::new(one.as_slice()).unwrap();
        tar::Archive::new(plain).unpack(&path).unwrap();
        let unpacked = path.join("name");
        for file in ["a.cmake", "bin/run", MANIFEST] {
            let bytes = |folder: &Utf8Path| fs_err::read(folder.join(file)).unwrap();
            assert_eq!(bytes(&unpacked), bytes(&bundle), "{file}");
        }
        let run = fs_err::metadata(unpacked.join("bin/run")).unwrap();
        assert_eq!(run.permissions().mode() & 0o777, 0o755);
    }

    #[test]
    fn a_path_of_the_builder_and_a_link_are_refused() {
        let (_scratch, path) = folder();
        let bundle = path.join("bundle");
        refuse_traces(&bundle, Utf8Path::new("/home/two/prefix")).unwrap();
        let error = refuse_traces(&bundle, Utf8Path::new("/home/one/prefix")).unwrap_err();
        assert!(
            error
                .to_string()
                .contains("a.cmake contains the path /home/one/prefix")
        );
        fs_err::os::unix::fs::symlink("/etc/hosts", bundle.join("link")).unwrap();
        let error = write_manifest(&bundle).unwrap_err();
        assert!(error.to_string().contains("neither a file nor a folder"));
    }

    /// Makes the folder a bundle.
    fn finish(folder: &Utf8Path) {
        for name in [Stamp::FILE_NAME, GUIDE] {
            fs_err::write(folder.join(name), "").unwrap();
        }
        write_manifest(folder).unwrap();
    }

    #[track_caller]
    fn refused(output: &Utf8Path, part: &str) {
        let error = check_output(output).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
        assert!(error.contains("choose another path"), "{error}");
    }

    #[test]
    fn only_a_bundle_is_replaced() {
        let (_scratch, path) = folder();
        let output = path.join("bundle");
        refused(&output, "is not a bundle");
        finish(&output);
        assert!(check_output(&output).unwrap());
        assert!(!check_output(&path.join("not-there")).unwrap());
        fs_err::create_dir(path.join("empty")).unwrap();
        assert!(!check_output(&path.join("empty")).unwrap());

        fs_err::create_dir(path.join("made")).unwrap();
        assert!(put(&path.join("made"), &output).unwrap());
        assert!(output.is_dir() && !output.join("bin").exists());
    }

    #[test]
    fn only_an_archive_of_a_bundle_is_replaced() {
        let (_scratch, path) = folder();
        let other = path.join("other.tar.zst");
        archive(&path.join("bundle"), "name", &other).unwrap();
        refused(&other, "is not a bundle");
        write_manifest(path.join("bundle")).unwrap();
        let own = path.join("own.tar.zst");
        archive(&path.join("bundle"), "name", &own).unwrap();
        check_output(&own).unwrap();
        // Packed again by someone.
        let changed = path.join("changed.tar.zst");
        fs_err::write(path.join("bundle/a.cmake"), "mine").unwrap();
        archive(&path.join("bundle"), "name", &changed).unwrap();
        refused(&changed, "its a.cmake was changed");
        let added = path.join("added.tar.zst");
        fs_err::write(path.join("bundle/b"), "mine").unwrap();
        fs_err::write(path.join("bundle/a.cmake"), "set(x /home/one/prefix)").unwrap();
        archive(&path.join("bundle"), "name", &added).unwrap();
        refused(&added, "has b, which its MANIFEST.sha256 does not list");

        for (name, bytes) in [("notes.txt", "my notes"), ("empty.tar.zst", "")] {
            fs_err::write(path.join(name), bytes).unwrap();
            refused(&path.join(name), "is not a bundle");
        }
        let plain = zstd::encode_all(&b"no archive"[..], 1).unwrap();
        fs_err::write(path.join("text.tar.zst"), plain).unwrap();
        refused(&path.join("text.tar.zst"), "is not a bundle");
        for target in ["own.tar.zst", "nowhere"] {
            let link = path.join(format!("link-to-{target}"));
            fs_err::os::unix::fs::symlink(target, &link).unwrap();
            refused(&link, "is a link");
        }
        refused(Utf8Path::new("/dev/null"), "is not a bundle");
    }

    #[test]
    fn a_bundle_that_cannot_be_put_in_place_leaves_the_earlier_one() {
        let (_scratch, path) = folder();
        let output = path.join("bundle");
        finish(&output);
        put(&path.join("not-made"), &output).unwrap_err();
        assert!(output.join("bin/run").exists());
    }

    #[test]
    fn what_came_to_the_output_meanwhile_is_not_replaced() {
        let (_scratch, path) = folder();
        let (made, output) = (path.join("made"), path.join("output"));
        fs_err::create_dir(&made).unwrap();
        check_output(&output).unwrap();
        fs_err::write(&output, "my notes").unwrap();
        put(&made, &output).unwrap_err();
        assert_eq!(fs_err::read_to_string(&output).unwrap(), "my notes");
    }
}
