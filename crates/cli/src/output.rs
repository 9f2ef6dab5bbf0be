//! `print!` and `println!` for programs whose output goes into a pipe.
//!
//! The standard library's own panic where nobody reads any more, as in `cargo xtask plan | head`. These end the program,
//! quietly and with the status that a shell reports of one that SIGPIPE ended. The signal itself stays off: it would
//! also end a program that writes to a child which reads no further.

use std::fmt;
use std::io::{self, ErrorKind, Write};
use std::process;

/// 128 and the number of SIGPIPE: not 0, as the program did not come to its end.
const READER_GONE: i32 = 141;

/// What the macros call.
#[doc(hidden)]
pub fn write(text: fmt::Arguments<'_>) {
    let mut out = io::stdout().lock();
    // What stays in the buffer is written when the process ends, where a full disk is told to nobody.
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
