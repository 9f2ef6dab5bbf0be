//! Names the files that a build is compiling, from the system's table of processes. Ninja names a file only when it is
//! done, and the first ones take long.

use std::collections::HashSet;

use camino::Utf8Path;

use crate::proc::Cmd;

/// How many files are named.
const SHOWN: usize = 3;

#[derive(Debug)]
struct Process {
    id: u32,
    parent: u32,
    /// The arguments, with a NUL after each if the system keeps them apart, else with a blank.
    command: String,
}

/// The files that the processes below this one compile now, as `ops.cpp, array.cpp`; empty if there are none.
pub(super) fn files() -> String {
    list(&outputs(std::process::id(), &table()))
}

fn list(files: &[String]) -> String {
    let shown = files[..files.len().min(SHOWN)].join(", ");
    match files.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// The names after `-o` in the command lines below `root`. A compiler's own children (cc1plus, as) are left out.
fn outputs(root: u32, table: &[Process]) -> Vec<String> {
    let mut files = Vec::new();
    let mut seen = HashSet::from([root]);
    let mut parents = vec![root];
    while let Some(parent) = parents.pop() {
        for process in table.iter().filter(|process| process.parent == parent) {
            match output(&process.command) {
                Some(file) => files.push(file),
                None if seen.insert(process.id) => parents.push(process.id),
                None => {}
            }
        }
    }
    files.sort();
    files.dedup();
    files
}

/// The name of the file that a command writes, without `.o`: the last `-o` in its arguments, or in a shell's text.
fn output(command: &str) -> Option<String> {
    let argument = command.rsplit_once("\0-o\0");
    let text = command.rsplit_once(" -o ");
    let path = match (argument, text) {
        (Some((_, rest)), _) => rest.split('\0').next(),
        (None, Some((_, rest))) => match rest.chars().next() {
            Some(quote @ ('"' | '\'')) => rest.split(quote).nth(1),
            _ => rest.split([' ', '\0']).next(),
        },
        (None, None) => None,
    };
    let name = Utf8Path::new(path?).file_name()?;
    Some(name.strip_suffix(".o").unwrap_or(name).to_owned())
}

/// All processes; empty if the system does not list them.
fn table() -> Vec<Process> {
    if cfg!(target_os = "linux") {
        // A minimal container has no ps.
        let entries = fs_err::read_dir("/proc").into_iter().flatten().flatten();
        return entries
            .filter_map(|entry| of_proc(entry.file_name().to_str()?.parse().ok()?))
            .collect();
    }
    let listed = Cmd::new("ps").args(["-axo", "pid=,ppid=,args="]).read();
    listed
        .unwrap_or_default()
        .lines()
        .filter_map(of_ps)
        .collect()
}

/// A process of Linux, unless it has ended.
fn of_proc(id: u32) -> Option<Process> {
    let stat = fs_err::read_to_string(format!("/proc/{id}/stat")).ok()?;
    // The name is in parentheses and may contain anything; the state and the parent's id follow.
    let parent = stat.rsplit_once(')')?.1.split_whitespace().nth(1)?;
    let command = fs_err::read(format!("/proc/{id}/cmdline")).ok()?;
    let command = String::from_utf8_lossy(&command);
    Some(Process {
        id,
        parent: parent.parse().ok()?,
        command: command.into_owned(),
    })
}

/// A line of ps.
fn of_ps(line: &str) -> Option<Process> {
    let (id, rest) = line.trim_start().split_once(' ')?;
    let (parent, command) = rest.trim_start().split_once(' ')?;
    Some(Process {
        id: id.parse().ok()?,
        parent: parent.parse().ok()?,
        command: command.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ninja's commands run in a shell, or in place of it; ccache starts the compiler, and that its parts.
    const TABLE: &str = "
    1     0 /sbin/init
   10     1 xtask build
   11    10 cmake --build /a b/build --target install
   12    11 /usr/bin/ninja install
   20    12 /bin/sh -c cd '/a b' && xcrun metal -c '/a b/k.metal' -o kernels/k.air
   21    20 metal -c /a b/k.metal -o /tmp/k.ll
   30    12 ccache c++ -MD -MF x.d -o CMakeFiles/mlx.dir/mlx/ops.cpp.o -c /a b/ops.cpp
   31    30 c++ -o CMakeFiles/mlx.dir/mlx/ops.cpp.o -c /a b/ops.cpp
   32    31 cc1plus -o /tmp/ccx.s
   40     1 cc -o other.o
   41    12 cmake -E touch x -o
";

    #[test]
    fn the_outermost_commands_with_an_output_count() {
        let table: Vec<_> = TABLE.lines().filter_map(of_ps).collect();
        assert_eq!(table.len(), 11);
        assert_eq!(outputs(10, &table), ["k.air", "ops.cpp"]);
        assert_eq!(outputs(32, &table), [""; 0]);
    }

    #[test]
    fn an_output_may_have_blanks() {
        for (command, file) in [
            ("c++\0-o\0/a b/x y.o\0-c\0x.cpp\0", "x y"),
            (
                "sh\0-c\0cd \"/a b\" && metal k.air -o \"/a b/mlx k.metallib\"\0",
                "mlx k.metallib",
            ),
            ("sh\0-c\0: && c++ -o x.o -c '/a b/x.cpp'\0", "x"),
        ] {
            assert_eq!(output(command).as_deref(), Some(file));
        }
        assert_eq!(output("cmake\0-E\0touch\0-o"), None);
    }

    #[test]
    fn a_long_list_is_cut() {
        let files = ["a", "b", "c", "d", "e"].map(str::to_owned);
        assert_eq!(list(&files[..0]), "");
        assert_eq!(list(&files[..3]), "a, b, c");
        assert_eq!(list(&files), "a, b, c and 2 more");
    }

    #[test]
    fn this_systems_table_has_this_process() {
        let this = std::process::id();
        let found = table().into_iter().find(|process| process.id == this);
        let found = found.unwrap();
        assert!(found.parent > 0 && !found.command.is_empty(), "{found:?}");
    }
}
