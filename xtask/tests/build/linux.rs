//! The CPU back-end on Linux: missing tools (faked), and folders, times and stamps with the real cmake on a project of
//! three files that installs the same files as MLX.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::time::{Duration, SystemTime};

use camino::{Utf8Path, Utf8PathBuf};
use mlx_prefix::{Backend, Stamp, sums};
use xtask::build::Options;
use xtask::host::{Host, Os};
use xtask::proc::Cmd;

use crate::support::{Scratch, chain};

const PROJECT: &str = "cmake_minimum_required(VERSION 3.25)
project(mlx LANGUAGES C CXX)
add_library(mlx a.cpp b.cpp)
target_compile_definitions(mlx PUBLIC MLX_STATIC)
target_include_directories(mlx PUBLIC $<INSTALL_INTERFACE:include>)
target_link_libraries(mlx PRIVATE m)
install(TARGETS mlx EXPORT MLXTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY mlx DESTINATION include FILES_MATCHING PATTERN \"*.h\")
install(EXPORT MLXTargets FILE MLXTargets.cmake DESTINATION share/cmake/MLX)
";

/// The small project on a host with real tools.
fn project(scratch: &Scratch) -> (Host, Utf8PathBuf) {
    for name in ["cmake", "ninja", "cc", "c++"] {
        scratch.real(name);
    }
    scratch.file("source/CMakeLists.txt", PROJECT);
    scratch.file("source/a.cpp", "int a() { return 1; }\n");
    scratch.file("source/b.cpp", "int b() { return 2; }\n");
    scratch.file("source/mlx/old.h", "");
    // The compiler finds the linker and the assembler itself on these.
    let path = std::env::join_paths([scratch.path("bin").as_std_path(), "/usr/bin".as_ref()]);
    let host = Host::new(
        Os::Linux,
        std::env::consts::ARCH,
        [("PATH".into(), path.unwrap())],
    );
    (host, scratch.path("source"))
}

fn modified(path: &Utf8Path) -> SystemTime {
    fs_err::metadata(path).unwrap().modified().unwrap()
}

#[test]
fn a_second_build_compiles_nothing_and_a_touched_file_alone() {
    let scratch = Scratch::new();
    let (host, source) = project(&scratch);
    let build = |tree| {
        scratch
            .build(&host, Backend::Cpu, false, &source, tree)
            .unwrap()
    };
    let compiled = |built: &xtask::build::prefix::Built| {
        let log = fs_err::read_to_string(&built.log).unwrap();
        ["a.cpp", "b.cpp"]
            .map(|name| log.contains(&format!("Building CXX object CMakeFiles/mlx.dir/{name}")))
    };

    let first = build("one");
    assert_eq!(compiled(&first), [true, true]);
    assert_eq!(first.stamp.system_libs, ["m"]);
    assert_eq!(first.stamp.defines, ["MLX_STATIC"]);
    assert_eq!(Stamp::read(&first.prefix).unwrap(), first.stamp);
    assert!(first.prefix.join("include/mlx/old.h").exists());
    let stamp = first.prefix.join(Stamp::FILE_NAME);
    let written = modified(&stamp);

    let second = build("one");
    assert_eq!(second.prefix, first.prefix);
    assert_eq!(compiled(&second), [false, false]);
    assert_eq!(
        modified(&stamp),
        written,
        "an identical stamp keeps its time"
    );

    // A new tree: one file with other content and a later time, one header removed.
    edit(&scratch, "source/b.cpp", "int b() { return 3; }\n");
    fs_err::remove_file(source.join("mlx/old.h")).unwrap();
    scratch.file("source/mlx/new.h", "");
    let third = build("two");
    assert_eq!(third.prefix, first.prefix);
    assert_eq!(compiled(&third), [false, true]);
    assert_eq!(Stamp::read(&third.prefix).unwrap().final_tree, "two");
    assert!(third.prefix.join("include/mlx/new.h").exists());
    assert!(
        !third.prefix.join("include/mlx/old.h").exists(),
        "a header of the old tree was left"
    );
}

/// Ninja compares times, so it would use each of the damaged files.
#[test]
fn what_was_damaged_in_a_build_folder_is_built_again() {
    let scratch = Scratch::new();
    let (host, source) = project(&scratch);
    let build = || {
        scratch
            .build(&host, Backend::Cpu, false, &source, "one")
            .unwrap()
    };
    let built = build();
    let library = built.prefix.join("lib/libmlx.a");
    let whole = fs_err::read(&library).unwrap();
    let folder = built.prefix.with_file_name("build");
    for (name, length) in [
        ("libmlx.a", whole.len() as u64 / 2),
        ("libmlx.a", 0),
        ("CMakeFiles/mlx.dir/a.cpp.o", 100),
        ("CMakeFiles/mlx.dir/b.cpp.o", 0),
        ("build.ninja", 1000),
    ] {
        let file = fs_err::OpenOptions::new()
            .write(true)
            .open(folder.join(name));
        file.unwrap().set_len(length).unwrap();
        build();
        assert!(fs_err::read(&library).unwrap() == whole, "{name}");
        assert_eq!(sums::check(&built.prefix).unwrap(), None);
    }
    // Undamaged files are not built again.
    let object = modified(&folder.join("CMakeFiles/mlx.dir/a.cpp.o"));
    build();
    assert_eq!(modified(&folder.join("CMakeFiles/mlx.dir/a.cpp.o")), object);
    leaves_nothing(&built.prefix);
}

/// CMake remembers the folder it ran in, also in a copy: the build starts from scratch by itself, and the original
/// stays.
#[test]
fn a_copied_checkout_is_built_anew() {
    let (here, there) = (Scratch::new(), Scratch::new());
    let (host, source) = project(&here);
    let build = |scratch: &Scratch| {
        let source = scratch.path("root/vendor");
        scratch
            .build(&host, Backend::Cpu, false, &source, "one")
            .unwrap()
    };
    fs_err::rename(source, here.path("root/vendor")).unwrap();
    let original = build(&here);
    let before = snapshot(&original.prefix);
    let copy = [
        "-R",
        here.path("root/.").as_str(),
        there.path("root").as_str(),
    ]
    .map(str::to_owned);
    Cmd::new("cp").args(copy).run().unwrap();
    let built = build(&there);
    let log = fs_err::read_to_string(&built.log).unwrap();
    assert!(
        log.contains("Building CXX object CMakeFiles/mlx.dir/a.cpp"),
        "{log}"
    );
    let cache = built.prefix.with_file_name("build/CMakeCache.txt");
    let cache = fs_err::read_to_string(cache).unwrap();
    assert!(!cache.contains(here.path("root").as_str()), "{cache}");
    assert_eq!(sums::check(&built.prefix).unwrap(), None);
    assert_eq!(snapshot(&original.prefix), before);
}

/// Changes a file of the source, with a time that Ninja sees as new.
fn edit(scratch: &Scratch, relative: &str, text: &str) {
    let path = scratch.file(relative, text);
    let later = SystemTime::now() + Duration::from_secs(2);
    fs_err::File::open(path)
        .unwrap()
        .file()
        .set_modified(later)
        .unwrap();
}

/// Every file and folder of the prefix with its time and, for files, its content.
fn snapshot(prefix: &Utf8Path) -> BTreeMap<Utf8PathBuf, (SystemTime, Option<Vec<u8>>)> {
    let mut found = BTreeMap::new();
    let mut folders = vec![prefix.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in folder.read_dir_utf8().unwrap() {
            let path = entry.unwrap().into_path();
            let content = path.is_file().then(|| fs_err::read(&path).unwrap());
            if content.is_none() {
                folders.push(path.clone());
            }
            found.insert(path.clone(), (modified(&path), content));
        }
        found.insert(folder.clone(), (modified(&folder), None));
    }
    found
}

/// Only the folders and files of a finished build are left.
#[track_caller]
fn leaves_nothing(prefix: &Utf8Path) {
    let folder = prefix.parent().unwrap();
    let mut names: Vec<_> = folder
        .read_dir_utf8()
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_owned())
        .collect();
    names.sort();
    let expected = ["build", "build.log", "cmake-run.json", "lock", "prefix"];
    assert_eq!(names, expected);
}

#[test]
fn a_failed_build_says_why_and_leaves_the_old_prefix() {
    let scratch = Scratch::new();
    let (host, source) = project(&scratch);
    let build = |tree| scratch.build(&host, Backend::Cpu, false, &source, tree);
    let built = build("one").unwrap();
    let whole = snapshot(&built.prefix);
    edit(&scratch, "source/a.cpp", "#error deliberately broken\n");
    // The file that it left cannot be listed, but that is not the first error. Not every system allows such names.
    let stranger = OsStr::from_bytes(b"\xff");
    let folder = built.log.with_file_name("build").into_std_path_buf();
    if cfg!(target_os = "linux") {
        fs_err::write(folder.join(stranger), "").unwrap();
    }

    let text = chain(build("two"));
    assert!(text.contains("#error deliberately broken"), "{text}");
    assert!(text.contains(built.log.as_str()), "{text}");
    for leak in ["panicked", "cargo:", "build script"] {
        assert!(!text.contains(leak), "`{leak}` in {text}");
    }
    assert_eq!(Stamp::read(&built.prefix).unwrap(), built.stamp);
    assert!(snapshot(&built.prefix) == whole, "the prefix was changed");
}

#[test]
fn an_install_that_ends_halfway_leaves_the_old_prefix() {
    let scratch = Scratch::new();
    let (host, source) = project(&scratch);
    let build = || scratch.build(&host, Backend::Cpu, false, &source, "one");
    let built = build().unwrap();
    let whole = snapshot(&built.prefix);
    // The same tree, but something else that the library is made from has changed, such as the simulated device.
    edit(&scratch, "source/b.cpp", "int c() { return 3; }\n");
    let halfway = format!("{PROJECT}install(CODE \"message(FATAL_ERROR halfway)\")\n");
    edit(&scratch, "source/CMakeLists.txt", &halfway);

    let text = chain(build());
    assert!(text.contains("halfway"), "{text}");
    assert!(snapshot(&built.prefix) == whole, "the prefix was changed");

    // The remains of the failed build do no harm.
    edit(&scratch, "source/CMakeLists.txt", PROJECT);
    build().unwrap();
    let library = fs_err::read(built.prefix.join("lib/libmlx.a")).unwrap();
    assert!(library.windows(4).any(|name| name == b"_Z1c"));
    leaves_nothing(&built.prefix);
}

#[test]
fn an_empty_library_is_not_installed() {
    let scratch = Scratch::new();
    let (host, source) = project(&scratch);
    let library = "$ENV{DESTDIR}${CMAKE_INSTALL_PREFIX}/lib/libmlx.a";
    let emptied = format!("{PROJECT}install(CODE [[file(WRITE \"{library}\" \"\")]])\n");
    edit(&scratch, "source/CMakeLists.txt", &emptied);
    let text = chain(scratch.build(&host, Backend::Cpu, false, &source, "one"));
    assert!(text.contains("lib/libmlx.a is missing or empty"), "{text}");
}

#[test]
fn a_prefix_that_is_as_it_was_built_is_left_alone_and_a_damaged_one_is_mended() {
    let scratch = Scratch::new();
    let (host, source) = project(&scratch);
    let build = || {
        let built = scratch.build(&host, Backend::Cpu, false, &source, "one");
        built.unwrap().prefix
    };
    let prefix = build();
    let whole = snapshot(&prefix);
    build();
    assert!(
        snapshot(&prefix) == whole,
        "an unchanged prefix has new times"
    );

    let contents = || -> Vec<_> {
        let found = snapshot(&prefix).into_iter();
        found.map(|(path, (_, content))| (path, content)).collect()
    };
    let good = contents();
    let (library, header) = (
        prefix.join("lib/libmlx.a"),
        prefix.join("include/mlx/old.h"),
    );
    let damages: [&dyn Fn(); 6] = [
        &|| fs_err::write(&library, "").unwrap(),
        // Like a failing disk: size and time do not reveal it.
        &|| {
            let time = modified(&library);
            let mut bytes = fs_err::read(&library).unwrap();
            *bytes.last_mut().unwrap() ^= 1;
            fs_err::write(&library, bytes).unwrap();
            let file = fs_err::OpenOptions::new().write(true).open(&library);
            file.unwrap().file().set_modified(time).unwrap();
        },
        &|| fs_err::remove_file(&header).unwrap(),
        &|| fs_err::remove_file(prefix.join(Stamp::FILE_NAME)).unwrap(),
        &|| fs_err::remove_file(prefix.join(sums::FILE_NAME)).unwrap(),
        &|| fs_err::remove_dir_all(&prefix).unwrap(),
    ];
    for (number, damage) in damages.iter().enumerate() {
        damage();
        build();
        assert!(contents() == good, "damage {number} was not repaired");
        leaves_nothing(&prefix);
    }
}

#[test]
fn a_prefix_lists_all_its_files_with_their_sums() {
    let scratch = Scratch::new();
    let (host, source) = project(&scratch);
    let built = scratch.build(&host, Backend::Cpu, false, &source, "one");
    let prefix = built.unwrap().prefix;
    let list = fs_err::read_to_string(prefix.join(sums::FILE_NAME)).unwrap();
    let names: Vec<_> = list.lines().map(|line| &line[66..]).collect();
    for name in [Stamp::FILE_NAME, "lib/libmlx.a", "include/mlx/old.h"] {
        assert!(names.contains(&name), "no {name} in {list}");
    }
    let files = snapshot(&prefix)
        .into_values()
        .filter_map(|(_, content)| content);
    assert_eq!(names.len(), files.count() - 1, "all except the list itself");
}

#[test]
fn flags_that_change_sums_are_refused() {
    let scratch = Scratch::new();
    let (host, source) = project(&scratch);
    let build = |name: &str, value: &str| {
        let host = host.clone().with(name, value);
        scratch.build(&host, Backend::Cpu, false, &source, "one")
    };
    let native = format!("CXXFLAGS_{}", host.target);
    for (name, value, flag) in [
        ("CXXFLAGS", "-O3 -ffast-math", "-ffast-math"),
        ("CFLAGS", "-Ofast", "-Ofast"),
        (
            "HOST_CFLAGS",
            "-funsafe-math-optimizations",
            "-funsafe-math-optimizations",
        ),
        (&native, "-fassociative-math -g", "-fassociative-math"),
        ("CXXFLAGS", "-ffp-model=fast", "-ffp-model=fast"),
    ] {
        let text = chain(build(name, value));
        let words = format!("{name} has {flag}");
        assert!(
            text.contains(&words) && text.contains("remove it from"),
            "{text}"
        );
    }
    assert!(!scratch.path("root/target").exists());
    build("CXXFLAGS", "-O1 -fno-fast-math").unwrap();
}

#[test]
fn blas_that_cmake_does_not_find_is_explained() {
    let scratch = Scratch::new();
    let (host, source) = project(&scratch);
    scratch.file(
        "source/CMakeLists.txt",
        "cmake_minimum_required(VERSION 3.25)\nproject(mlx CXX)\n\
         set(BLA_VENDOR NoSuchVendor)\nfind_package(LAPACK REQUIRED)\n",
    );
    let text = chain(scratch.build(&host, Backend::Cpu, false, &source, "one"));
    assert!(text.contains("Could NOT find BLAS"), "{text}");
    assert!(
        text.contains("apt-get install -y libopenblas-dev liblapacke-dev"),
        "{text}"
    );
}

#[test]
fn missing_blas_is_reported_before_cmake_runs_if_the_simulated_device_has_a_cpu_back_end() {
    let scratch = Scratch::new();
    scratch.fake("cmake", "echo 'cmake version 3.25.1'");
    for name in ["ninja", "cc", "apt-get"] {
        scratch.fake(name, "");
    }
    scratch.fake(
        "c++",
        "[ \"$1\" = --version ] && exit 0\n\
         case \"$(/bin/cat)\" in *lapacke.h*) echo 'fatal error: lapacke.h' >&2; exit 1 ;; esac",
    );
    scratch.fake("clang++-19", "echo 'Debian clang version 19.1.7'");
    scratch.fake("id", "echo 0");
    // metal-simc is built after the checks.
    scratch.fake("cargo", "echo 'cargo was called' >&2; exit 1");
    let host = scratch.host(Os::Linux, "x86_64");
    let build = |cpu| {
        let options = Options {
            backend: Backend::Sim,
            cpu,
            jit: false,
            cuda_architectures: None,
        };
        chain(scratch.build_with(&host, &options, &scratch.path("source"), "one"))
    };
    let text = build(true);
    for part in [
        "lapacke.h: fatal error: lapacke.h",
        "\n  apt-get install -y --no-install-recommends libopenblas-dev liblapacke-dev",
    ] {
        assert!(text.contains(part), "`{part}` is not in: {text}");
    }
    assert!(!text.contains("quickstart"), "{text}");
    let text = build(false);
    assert!(text.contains("cargo was called"), "{text}");
}

#[test]
fn all_missing_tools_are_named_at_once_with_one_command() {
    let scratch = Scratch::new();
    scratch.fake("cmake", "echo 'cmake version 3.22.1'");
    scratch.fake("c++", "case \"$*\" in --version) echo 'g++ 7.5' ;; *) echo 'error: unrecognized option -std=c++20' >&2; exit 1 ;; esac");
    scratch.fake("cc", "echo 'gcc 7.5'");
    scratch.fake("apt-get", "");
    scratch.fake("id", "echo 1000");
    scratch.fake("sudo", "");
    let host = scratch.host(Os::Linux, "x86_64");
    let text = chain(scratch.build(&host, Backend::Cpu, false, &scratch.path("source"), "one"));
    for part in [
        "cmake 3.25 or newer",
        "is too old (cmake version 3.22.1)",
        "`ninja` is not on PATH",
        "a C++20 compiler",
        "unrecognized option -std=c++20",
        "sudo apt-get install -y --no-install-recommends cmake ninja-build g++",
    ] {
        assert!(text.contains(part), "`{part}` is not in: {text}");
    }
    // The tools were queried, but nothing was built or installed.
    let record = scratch.record();
    let acted = |line: &&String| line.starts_with("sudo ") || line.starts_with("apt-get ");
    assert_eq!(record.iter().find(acted), None);
    assert!(!scratch.path("root/target").exists());
}

#[test]
fn jit_without_metal_is_refused() {
    let scratch = Scratch::new();
    let (host, source) = project(&scratch);
    let text = chain(scratch.build(&host, Backend::Cpu, true, &source, "one"));
    assert!(text.contains("--jit"), "{text}");
}
