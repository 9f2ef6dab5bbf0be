//! `print!` and `println!` for programs whose output goes to a pipe.
//!
//! The standard library's macros panic if the reader has gone, as in `cargo xtask plan | head`. These end the program
//! quietly, with the status that a shell reports for a program ended by SIGPIPE. The signal itself stays ignored: it
//! would also end a program that writes to a child which has stopped reading.

use std::fmt;
use std::io::{self, ErrorKind, Write};
use std::process;

/// 128 plus the number of SIGPIPE: not 0, because the program did not finish.
const READER_GONE: i32 = 141;

/// Called by the macros.
#[doc(hidden)]
pub fn write(text: fmt::Arguments<'_>) {
    let mut out = io::stdout().lock();
    // Text left in the buffer would be written when the process ends, and a full disk would not be reported.
    if let Err(error) = out.write_fmt(text).and_then(|()| out.flush()) {
        end(&error);
    }
}

fn end(error: &io::Error) -> ! {
    if error.kind() == ErrorKind::BrokenPipe {
        process::exit(READER_GONE);
    }
    eprintln!("error: cannot write to standard output: {error}");
    process::exit(1);
}
