//! For any bytes: no panic, and no more items than the bytes can contain.
#![no_main]

use libfuzzer_sys::fuzz_target;
use metallib::Library;

fuzz_target!(|data: &[u8]| {
    // The size check in the header would reject nearly every mutation that inserts or removes bytes.
    let mut file = data.to_vec();
    if let Some(size) = file.get_mut(16..24) {
        size.copy_from_slice(&(data.len() as u64).to_le_bytes());
    }
    let Ok(library) = Library::parse(&file) else { return };
    let mut items = library.extension_tags().count();
    let _ = (library.uuid(), library.install_name(), library.language_version(), library.verify());
    for function in library.functions() {
        items += 1;
        let Ok(function) = function else { break };
        items += function.tags().count() + function.public_tags().count() + function.private_tags().count();
        items += function.constants().map_or(0, Iterator::count);
        let _ = function.reflection();
    }
    assert!(items <= 2 * file.len(), "{items} items in {} bytes", file.len());
});
