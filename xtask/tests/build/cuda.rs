//! The CUDA back-end with a toolkit of fake programs and empty files: missing parts, CMake's arguments, the build.

use camino::Utf8PathBuf;
use mlx_prefix::Backend;
use xtask::build::Options;
use xtask::host::{Host, Os};
use xtask::requirements::{missing, report};

use crate::support::{Scratch, chain};

const NVCC: &str = "case \"$*\" in\n--version) echo 'nvcc: NVIDIA (R) Cuda compiler driver'; \
                    echo 'Cuda compilation tools, release 13.0, V13.0.88' ;;\nesac";

/// A Debian machine with a toolkit in a folder that no variable names.
fn machine(scratch: &Scratch) -> Host {
    scratch.fake("cmake", "echo 'cmake version 3.31.6'");
    for name in ["ninja", "cc", "c++", "apt-get"] {
        scratch.fake(name, "");
    }
    scratch.fake("id", "echo 0");
    scratch.fake("../cuda/bin/nvcc", NVCC);
    scratch.fake("../cuda/bin/__nvcc_device_query", "printf 90");
    for (library, header) in [
        ("cublasLt", "cublasLt.h"),
        ("cufft", "cufft.h"),
        ("cusolver", "cusolverDn.h"),
        ("nvrtc", "nvrtc.h"),
    ] {
        scratch.file(&format!("cuda/lib64/lib{library}.so"), "");
        scratch.file(&format!("cuda/include/{header}"), "");
    }
    // As pip installs it: next to the toolkit, without the file name that a linker looks for.
    scratch.file("cudnn/lib/libcudnn.so.9", "");
    scratch.file("cudnn/include/cudnn.h", "");
    scratch.file("cudnn/include/cudnn_version.h", &version(9));
    let host = scratch.host(Os::Linux, std::env::consts::ARCH);
    host.with_cuda_in(scratch.path("cuda"))
}

fn version(major: u32) -> String {
    format!("#define CUDNN_MAJOR {major}\n#define CUDNN_MINOR 19\n#define CUDNN_PATCHLEVEL 0\n")
}

/// Checks that the report of everything missing contains these words.
fn lacks(host: &Host, words: &[&str]) {
    let text = report(host, &missing(host, Backend::Cuda, false));
    for word in words {
        assert!(text.contains(word), "`{word}` is not in: {text}");
    }
}

#[test]
fn a_complete_machine_lacks_nothing() {
    let scratch = Scratch::new();
    let host = machine(&scratch);
    assert_eq!(missing(&host, Backend::Cuda, false), []);
}

#[test]
fn a_machine_without_cuda_gets_the_command_that_installs_it() {
    let scratch = Scratch::new();
    let host = machine(&scratch);
    fs_err::remove_dir_all(scratch.path("cuda")).unwrap();
    fs_err::remove_dir_all(scratch.path("cudnn")).unwrap();
    let words = [
        "nvcc 12.0 or newer, not 13.1",
        "neither on PATH nor in /usr/local/cuda",
        "cuDNN 9 with its headers: cudnn.h was not found",
        "install it with:\n  ci/cuda-toolkit.sh",
    ];
    lacks(&host, &words);
    let text = report(&host, &missing(&host, Backend::Cuda, false));
    assert_eq!(text.matches("ci/cuda-toolkit.sh").count(), 1, "{text}");
    // Other builds do not need it.
    assert!(
        missing(&host, Backend::Cpu, false)
            .iter()
            .all(|item| !item.expected.contains("nvcc"))
    );
}

#[test]
fn each_part_of_cuda_is_missed_by_its_name() {
    let scratch = Scratch::new();
    let host = machine(&scratch);

    scratch.fake("cmake", "echo 'cmake version 3.25.1'");
    lacks(
        &host,
        &[
            "cmake 3.26 or newer, for CUDA",
            "`pip install 'cmake>=3.26'`",
        ],
    );
    scratch.fake("cmake", "echo 'cmake version 3.31.6'");

    for (version, found) in [("13.1, V13.1.80", "is 13.1"), ("11.8, V11.8.89", "is 11.8")] {
        let old = format!("echo 'Cuda compilation tools, release {version}'");
        scratch.fake("old-nvcc", &old);
        lacks(
            &host.clone().with("CUDACXX", "old-nvcc"),
            &[found, "unset CUDACXX"],
        );
    }
    lacks(
        &host.clone().with("CUDACXX", "/no/nvcc"),
        &["CUDACXX names /no/nvcc, which does not exist"],
    );
    scratch.fake("old-nvcc", "echo hello");
    lacks(
        &host.clone().with("CUDACXX", "old-nvcc"),
        &["printed `hello`"],
    );

    let refuses = format!(
        "{NVCC}\ncase \"$*\" in *'-ccbin g++-13'*) ;; *' -E '*) echo 'host_config.h:149:2: error: #error -- \
         unsupported GNU version' >&2; exit 1 ;; esac"
    );
    scratch.fake("../cuda/bin/nvcc", &refuses);
    lacks(
        &host,
        &[
            "accepts for host code",
            "error: #error -- unsupported GNU version",
            "CUDAHOSTCXX",
        ],
    );
    let chosen = host.clone().with("CUDAHOSTCXX", "g++-13");
    assert_eq!(missing(&chosen, Backend::Cuda, false), []);
    scratch.fake("../cuda/bin/nvcc", NVCC);

    fs_err::remove_file(scratch.path("cuda/lib64/libcufft.so")).unwrap();
    fs_err::remove_file(scratch.path("cuda/include/nvrtc.h")).unwrap();
    lacks(&host, &["has no cufft, nvrtc", "development packages"]);

    scratch.file("cudnn/include/cudnn_version.h", &version(8));
    lacks(&host, &["has cuDNN 8", "ci/cuda-toolkit.sh"]);
    fs_err::remove_file(scratch.path("cudnn/lib/libcudnn.so.9")).unwrap();
    lacks(&host, &["libcudnn.so was not found"]);
}

fn options(architectures: Option<&str>) -> Options {
    Options {
        backend: Backend::Cuda,
        cpu: false,
        jit: false,
        cuda_architectures: architectures.map(str::to_owned),
    }
}

/// A project without kernels, which installs a shared library as MLX does.
const PROJECT: &str = "cmake_minimum_required(VERSION 3.25)
project(mlx LANGUAGES C CXX)
include(FetchContent)
add_library(mlx a.cpp)
foreach(name nvtx3 cudnn cutlass cccl)
  FetchContent_Declare(${name} URL http://127.0.0.1:9/none)
  FetchContent_MakeAvailable(${name})
endforeach()
target_include_directories(mlx PRIVATE ${cccl_SOURCE_DIR}/include PUBLIC $<INSTALL_INTERFACE:include>)
target_link_libraries(mlx PUBLIC $<BUILD_INTERFACE:nvtx3-cpp> PRIVATE $<BUILD_INTERFACE:cudnn_frontend>)
file(WRITE ${CMAKE_BINARY_DIR}/told \"${MLX_CUDA_ARCHITECTURES} ${CUDNN_LIBRARY_PATH} ${CMAKE_CUDA_COMPILER}\")
install(TARGETS mlx EXPORT MLXTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY mlx DESTINATION include FILES_MATCHING PATTERN \"*.h\")
install(EXPORT MLXTargets FILE MLXTargets.cmake DESTINATION share/cmake/MLX)
";

/// The small project, with this machine's tools in place of the fakes.
fn project(scratch: &Scratch) -> (Host, Utf8PathBuf) {
    let host = machine(scratch);
    for name in ["ninja", "cc", "c++"] {
        fs_err::remove_file(scratch.path("bin").join(name)).unwrap();
        scratch.real(name);
    }
    let cmake = Host::current().find("cmake").expect("cmake is installed");
    // Debian 12's is too old for CUDA, but works for this project.
    let body =
        format!("[ \"$1\" = --version ] || exec {cmake} \"$@\"\necho 'cmake version 3.31.6'");
    scratch.fake("cmake", &body);
    scratch.file("source/CMakeLists.txt", PROJECT);
    scratch.file(
        "source/a.cpp",
        "#include <cuda/a>\n#include <cudnn_frontend.h>\n#include <nvtx3/nvtx3.hpp>\nint a() { return CUDA + FRONTEND + NVTX; }\n",
    );
    for (file, text) in [
        ("cccl/include/cuda/a", "#define CUDA 1\n"),
        (
            "cudnn-frontend/include/cudnn_frontend.h",
            "#ifdef CUDNN_FRONTEND_SKIP_JSON_LIB\n#define FRONTEND 2\n#endif\n",
        ),
        ("nvtx3/include/nvtx3/nvtx3.hpp", "#define NVTX 3\n"),
        ("cutlass/include/cute/a", ""),
        ("../source/mlx/mlx.h", ""),
    ] {
        scratch.file(&format!("inputs/{file}"), text);
    }
    let path = std::env::join_paths([scratch.path("bin").as_std_path(), "/usr/bin".as_ref()]);
    (host.with("PATH", path.unwrap()), scratch.path("source"))
}

#[test]
fn a_shared_library_is_built_with_the_pinned_headers() {
    let scratch = Scratch::new();
    let (host, source) = project(&scratch);
    let built = scratch
        .build_with(&host, &options(None), &source, "one")
        .unwrap();
    assert!(built.prefix.join("lib/libmlx.so").is_file());
    let stamp = &built.stamp;
    assert_eq!(
        (&stamp.static_libs[..], &stamp.system_libs[..]),
        (&[][..], &["mlx".to_owned()][..])
    );
    for (tool, version) in [
        ("nvcc", "13.0, V13.0.88"),
        ("cuDNN", "9.19.0"),
        // From 9.0 on, with the features of that GPU only.
        ("CUDA architectures", "90a"),
    ] {
        assert_eq!(stamp.tools[tool], version);
    }
    let told = fs_err::read_to_string(built.prefix.with_file_name("build").join("told")).unwrap();
    let expected = ["90a", "cudnn/lib", "cuda/bin/nvcc"].map(|part| match part {
        "90a" => part.to_owned(),
        path => scratch.path(path).into_string(),
    });
    assert_eq!(told, expected.join(" "));

    // Other GPUs are another build.
    let other = scratch
        .build_with(&host, &options(Some("80;90a")), &source, "one")
        .unwrap();
    assert_ne!(other.prefix, built.prefix);
    assert_eq!(other.stamp.tools["CUDA architectures"], "80;90a");
}

#[test]
fn without_a_gpu_the_architecture_must_be_named() {
    let scratch = Scratch::new();
    let host = machine(&scratch);
    for body in ["echo 'no driver' >&2; exit 1", "true"] {
        scratch.fake("../cuda/bin/__nvcc_device_query", body);
        let text = chain(scratch.build_with(&host, &options(None), &scratch.path("source"), "one"));
        for part in ["no NVIDIA GPU was found", "--cuda-architectures 90a`"] {
            assert!(text.contains(part), "`{part}` is not in: {text}");
        }
    }
    assert!(!scratch.path("root/target").exists());
}

#[test]
fn flags_with_which_bits_do_not_hold_are_refused() {
    let scratch = Scratch::new();
    let host = machine(&scratch).with("NVCC_APPEND_FLAGS", "--use_fast_math");
    let text =
        chain(scratch.build_with(&host, &options(Some("90a")), &scratch.path("source"), "one"));
    assert!(
        text.contains("NVCC_APPEND_FLAGS has --use_fast_math"),
        "{text}"
    );
}
