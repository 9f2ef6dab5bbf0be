//! Random damage: no panic, bounded work, no allocation beyond the file's size.

mod writer;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use metallib::Library;
use proptest::prelude::*;
use writer::{FunctionSpec, Shape, write};

/// Counts live bytes and their peak.
struct Counting;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call goes to the system's allocator unchanged; only counters are kept next to it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        PEAK.fetch_max(
            LIVE.fetch_add(layout.size(), Ordering::Relaxed) + layout.size(),
            Ordering::Relaxed,
        );
        // SAFETY: the caller's guarantee, passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's guarantee, passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Reads everything; returns the number of items.
fn read_all(file: &[u8]) -> usize {
    let Ok(library) = Library::parse(file) else {
        return 0;
    };
    let mut items = library.extension_tags().count();
    let _ = (
        library.uuid(),
        library.install_name(),
        library.language_version(),
    );
    for function in library.functions() {
        items += 1;
        let Ok(function) = function else { continue };
        items += function.tags().count()
            + function.public_tags().count()
            + function.private_tags().count();
        items += function.constants().map_or(0, Iterator::count);
        items += function.reflection().ok().flatten().map_or(0, |_| 1);
    }
    let _ = library.verify();
    items
}

/// A tag has at least four bytes, and a byte is part of at most two walks (`tags` and `constants`).
fn assert_bounded(file: &[u8]) {
    let items = read_all(file);
    assert!(
        items <= 2 * file.len(),
        "{items} items in {} bytes",
        file.len()
    );
}

/// Names that the reader decodes, and the end mark: they cannot be used as unknown tags.
const KNOWN: [&[u8; 4]; 8] = [
    b"NAME", b"TYPE", b"HASH", b"OFFT", b"VERS", b"MDSZ", b"RFLT", b"ENDT",
];

fn function() -> impl Strategy<Value = FunctionSpec> {
    let constants = prop::collection::vec(("[a-zA-Z_]{1,8}", any::<u8>(), any::<u16>()), 0..4);
    let unknown = prop::collection::vec(
        (
            any::<[u8; 4]>().prop_filter("decoded tags", |name| !KNOWN.contains(&name)),
            prop::collection::vec(any::<u8>(), 0..20),
        ),
        0..3,
    );
    let bitcode = prop::collection::vec(any::<u8>(), 0..200);
    (
        "[a-zA-Z0-9_]{1,40}",
        any::<u8>(),
        (any::<u16>(), any::<u16>()),
        bitcode,
        constants,
        unknown,
    )
        .prop_map(
            |(name, kind, language, bitcode, constants, unknown)| FunctionSpec {
                name,
                kind,
                language,
                bitcode,
                constants,
                unknown,
                reflection: b"AIRR".to_vec(),
            },
        )
}

fn container() -> impl Strategy<Value = (Vec<FunctionSpec>, Vec<u8>)> {
    (prop::collection::vec(function(), 0..8), any::<bool>()).prop_map(|(functions, extension)| {
        let file = write(
            &functions,
            Shape {
                extension,
                ..Shape::default()
            },
        );
        (functions, file)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn what_was_written_is_read((functions, file) in container()) {
        let library = Library::parse(&file).unwrap();
        prop_assert_eq!(library.len() as usize, functions.len());
        for (found, wanted) in library.functions().zip(&functions) {
            let found = found.unwrap();
            prop_assert_eq!(found.name, &wanted.name);
            prop_assert_eq!(found.bitcode.unwrap().bytes, &wanted.bitcode);
            let constants: Vec<_> = found.constants().unwrap().map(|constant| {
                let constant = constant.unwrap();
                (constant.name.to_owned(), constant.index)
            }).collect();
            let expected: Vec<_> = wanted.constants.iter().map(|(name, _, index)| (name.clone(), *index)).collect();
            prop_assert_eq!(constants, expected);
            prop_assert_eq!(found.unknown_tags().count(), wanted.unknown.len());
        }
        let report = library.verify().unwrap();
        prop_assert_eq!((report.verified as usize, report.mismatches.len()), (functions.len(), 0));
    }

    #[test]
    fn flipped_bits_neither_panic_nor_multiply(
        (_, mut file) in container(),
        flips in prop::collection::vec((any::<prop::sample::Index>(), 0..8u8), 1..6),
    ) {
        for (at, bit) in flips {
            let at = at.index(file.len());
            file[at] ^= 1 << bit;
        }
        assert_bounded(&file);
    }

    /// Overwrites whole fields that single bit flips rarely reach: sizes, counts and offsets.
    #[test]
    fn overwritten_fields_neither_panic_nor_multiply(
        (_, mut file) in container(),
        writes in prop::collection::vec(
            (any::<prop::sample::Index>(), prop_oneof![Just(u64::MAX), Just(1 << 63), Just(0), 0..4096u64]), 1..4),
    ) {
        for (at, value) in writes {
            let at = at.index(file.len() - 8);
            file[at..at + 8].copy_from_slice(&value.to_le_bytes());
        }
        assert_bounded(&file);
    }

    #[test]
    fn cut_and_admitted((_, file) in container(), at in any::<prop::sample::Index>()) {
        let mut file = file[..at.index(file.len())].to_vec();
        if file.len() >= 24 {
            let size = file.len() as u64;
            file[16..24].copy_from_slice(&size.to_le_bytes());
        }
        assert_bounded(&file);
    }
}

/// The counts of allocated bytes are for the whole process, so this runs in its own process: the test below is the only
/// caller, and it starts itself again.
#[test]
fn memory_stays_below_the_files_size() {
    const CHILD: &str = "METALLIB_TEST_COUNTS_ALLOCATIONS";
    if std::env::var_os(CHILD).is_none() {
        let output = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "memory_stays_below_the_files_size"])
            .env(CHILD, "1")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success() && said.contains("1 passed"),
            "{said}"
        );
        return;
    }
    // The smallest possible entries, with every checksum wrong: the most that can be collected per byte of input.
    let functions: Vec<_> = (0..20_000u32)
        .map(|index| FunctionSpec::kernel("k", &index.to_le_bytes()))
        .collect();
    let mut file = write(
        &functions,
        Shape {
            extension: false,
            ..Shape::default()
        },
    );
    let bitcode = Library::parse(&file).unwrap().header().bitcode;
    file[bitcode.offset as usize..].fill(0xff);
    // Start rayon's threads before counting.
    rayon::join(|| (), || ());
    let before = LIVE.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    let report = Library::parse(&file).unwrap().verify().unwrap();
    let used = PEAK.load(Ordering::Relaxed) - before;
    assert_eq!(report.mismatches.len(), 20_000);
    assert!(used > 20_000 * 4, "the counter does not count: {used}");
    assert!(
        used <= file.len(),
        "{used} bytes allocated for a file of {}",
        file.len()
    );

    PEAK.store(LIVE.load(Ordering::Relaxed), Ordering::Relaxed);
    let before = PEAK.load(Ordering::Relaxed);
    read_all_lazily(&file);
    assert_eq!(
        PEAK.load(Ordering::Relaxed),
        before,
        "listing must not allocate"
    );
}

fn read_all_lazily(file: &[u8]) {
    for function in Library::parse(file).expect("a container").functions() {
        let function = function.expect("a function");
        assert_eq!(function.constants().expect("constants").count(), 0);
    }
}
