//! Start values for the fuzz targets, which without them never find their way past the first line.

use camino::Utf8Path;
use fs_err as fs;

use super::archives::{gz, tar_of_tree, xz, zip_of_tree};
use super::fixture::{Fixture, upstream};

/// The fuzz target `archive` takes its first byte for how to read the others.
const AS_IS: u8 = 2;
const AS_TAR: u8 = 3;

#[test]
#[ignore = "writes fuzz/corpus for cargo-fuzz"]
fn write_fuzz_seeds() {
    let fixture = Fixture::new();
    let (tree, top) = (upstream(), "t/");
    let tar = tar_of_tree(&tree, top);
    let archive = |kind: u8, bytes: Vec<u8>| [vec![kind], bytes].concat();
    let read = |path: &Utf8Path| fs::read(path).unwrap();
    let seeds = [
        ("archive/tar", archive(AS_TAR, tar.clone())),
        ("archive/gz", archive(AS_IS, gz(&tar))),
        ("archive/xz", archive(AS_IS, xz(&tar))),
        ("archive/zip", archive(AS_IS, zip_of_tree(&tree, top))),
        ("manifest/small", read(&fixture.workspace.manifest_path())),
        (
            "manifest/whole",
            read(&super::real::repository().manifest_path()),
        ),
        ("patch/one", read(&fixture.patch_file("one"))),
        ("patch/two", read(&fixture.patch_file("two"))),
        (
            "series/two",
            b"# in order\none # the first\n\ntwo\n".to_vec(),
        ),
    ];
    let corpus = Utf8Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus");
    for (name, bytes) in seeds {
        let file = corpus.join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, bytes).unwrap();
    }
}
