//! Writes seed inputs for the fuzz target into `fuzz/corpus/parse`; without them it never gets past the header. `cargo
//! run -p metallib --example fuzz_seeds`

#[path = "../tests/writer/mod.rs"]
mod writer;

use std::{fs, io, path};

use writer::{FunctionSpec, Shape, write};

fn main() -> io::Result<()> {
    let folder = path::Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus/parse");
    fs::create_dir_all(&folder)?;
    let mut rich = FunctionSpec::kernel("rich", b"module");
    rich.constants = vec![("align_N".into(), 0x35, 201)];
    rich.unknown = vec![(*b"ZZZZ", b"zz".to_vec())];
    let functions = [rich, FunctionSpec::kernel("plain", b"x")];
    for extension in [false, true] {
        let shape = Shape {
            extension,
            ..Shape::default()
        };
        let seed = write(&functions, shape);
        fs::write(folder.join(format!("extension-{extension}")), seed)?;
    }
    Ok(())
}
