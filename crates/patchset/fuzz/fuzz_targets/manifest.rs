//! For any text of `mlx.toml`: no panic, an existing line in the error, and no path or name that leads elsewhere.
#![no_main]

use camino::Utf8Path;
use libfuzzer_sys::fuzz_target;
use patchset::manifest::{Carried, Source};
use patchset::{Error, Manifest, path};

fuzz_target!(|text: &str| {
    let manifest = match Manifest::parse(Utf8Path::new("mlx.toml"), text) {
        Ok(manifest) => manifest,
        Err(Error::Format { line, .. }) => {
            assert!(
                (1..=1 + text.matches('\n').count()).contains(&line),
                "line {line}"
            );
            return;
        }
        Err(error) => panic!("{error}"),
    };
    for pin in std::iter::once(&manifest.mlx).chain(&manifest.known) {
        let found = manifest.pin(&pin.name()).map(|found| found.name());
        // A version without a tag cannot be used to find a pin.
        assert!(
            found.is_ok() || (pin.tag.is_none() && pin.commit.is_none()),
            "{}",
            pin.name()
        );
        for source in &pin.sources {
            if let Source::Carrier(carrier) = source {
                let files = carrier.archive.iter().chain(&carrier.reverse);
                let files = files.map(|file| &file.path).chain([&carrier.path]);
                files.for_each(|file| path::check(file, "fuzz").expect("a path in the package"));
            }
        }
    }
    for input in &manifest.inputs {
        let package = match &input.carried {
            Carried::Archive { carrier, .. } => &carrier.name,
            Carried::Files { wheel, into, .. } => {
                path::check(into, "fuzz").expect("a folder below the input's");
                &wheel.file
            }
        };
        for part in [&input.name, &input.version, package] {
            path::check(part, "fuzz").expect("a name that becomes a folder's");
        }
    }
});
