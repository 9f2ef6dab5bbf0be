//! Shared code of our programs: output to a pipe, files written safely, progress, and plots.

pub mod chart;
pub mod file;

mod output;
mod progress;

pub use progress::Progress;

#[doc(hidden)]
pub use output::write;

/// Prints to standard output, like the standard library's macro of this name.
#[macro_export]
macro_rules! print {
    ($($argument:tt)*) => {
        $crate::write(::std::format_args!($($argument)*))
    };
}

/// Prints to standard output with a newline, like the standard library's macro of this name.
#[macro_export]
macro_rules! println {
    () => {
        $crate::print!("\n")
    };
    ($($argument:tt)*) => {
        $crate::print!("{}\n", ::std::format_args!($($argument)*))
    };
}
