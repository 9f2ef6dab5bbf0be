//! The requirements of the CUDA back-end: nvcc, a host compiler that it accepts, the toolkit's libraries, cuDNN, and a
//! CMake that supports this nvcc.

use camino::{Utf8Path, Utf8PathBuf};

use super::{Missing, Remedy, Tool, blas_for_build, parse_version};
use crate::host::Host;

/// The first nvcc with C++20.
const NVCC_MINIMUM: (u32, u32) = (12, 0);

/// The version that MLX's CMake files refuse.
const NVCC_REFUSED: (u32, u32) = (13, 1);

/// CMake 3.25 does not support C++20 with nvcc, and requires a library that CUDA 13 no longer has.
const CMAKE_MINIMUM: (u32, u32) = (3, 26);

/// The libraries of the toolkit that MLX links, each with a header.
const LIBRARIES: [(&str, &str); 4] = [
    ("cublasLt", "cublasLt.h"),
    ("cufft", "cufft.h"),
    ("cusolver", "cusolverDn.h"),
    ("nvrtc", "nvrtc.h"),
];

/// Installs everything from PyPI into a folder of the checkout.
const PACKAGES: Remedy = Remedy::Command(&["ci/cuda-toolkit.sh"]);

/// cuDNN, with the folders that are passed to CMake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cudnn {
    /// The folder of `cudnn.h`.
    pub include: Utf8PathBuf,
    /// The folder of the library.
    pub library: Utf8PathBuf,
    pub version: String,
}

/// Everything that is missing for a CUDA build. `cpu` includes the CPU back-end.
pub fn missing(host: &Host, cpu: bool) -> Vec<Missing> {
    let mut all = vec![cmake(host).err()];
    match nvcc(host) {
        Ok(nvcc) => {
            all.push(host_compiler(host, &nvcc).err());
            all.push(libraries(&nvcc).err());
        }
        Err(missing) => all.push(Some(missing)),
    }
    all.push(cudnn(host).err());
    if cpu {
        all.push(blas_for_build(host).err());
    }
    all.into_iter().flatten().collect()
}

/// CMake, at least the version that CUDA needs.
pub fn cmake(host: &Host) -> Result<Tool, Missing> {
    let tool = super::cmake(host)?;
    if parse_version(&tool.version).is_some_and(|version| version >= CMAKE_MINIMUM) {
        return Ok(tool);
    }
    let (major, minor) = CMAKE_MINIMUM;
    Err(Missing {
        expected: format!("cmake {major}.{minor} or newer, for CUDA"),
        found: format!("{} is too old ({})", tool.path, tool.version),
        remedy: Remedy::Manual(format!(
            "`pip install 'cmake>={major}.{minor}'`, with its folder first on PATH"
        )),
    })
}

/// nvcc: `CUDACXX`, else the first on `PATH`, else that of `CUDA_HOME`, `CUDA_PATH` or a known folder.
pub fn nvcc(host: &Host) -> Result<Tool, Missing> {
    let missing = |found: String, remedy: Remedy| Missing {
        expected: "nvcc 12.0 or newer, not 13.1 (NVIDIA's CUDA toolkit, or packages of PyPI)"
            .to_owned(),
        found,
        remedy,
    };
    let by_hand = |what: &str| {
        Remedy::Manual(format!(
            "{what}, or set CUDACXX to a supported nvcc; `ci/cuda-toolkit.sh` installs nvcc 13.0 and prints its path"
        ))
    };
    let (path, remedy) = match host.var("CUDACXX") {
        Some(named) => match host.find(named) {
            Some(path) => (path, by_hand("unset CUDACXX")),
            None => {
                let found = format!("CUDACXX names {named}, which does not exist");
                return Err(missing(found, by_hand("unset CUDACXX")));
            }
        },
        None => match host.find("nvcc").or_else(|| in_folders(host)) {
            Some(path) => {
                let remedy = by_hand(&format!("replace {path}"));
                (path, remedy)
            }
            None => {
                let found = "it is neither on PATH nor in /usr/local/cuda".to_owned();
                return Err(missing(found, PACKAGES));
            }
        },
    };
    let text = match host.cmd(path.as_str()).arg("--version").read() {
        Ok(text) => text,
        Err(error) => return Err(missing(format!("{error:#}"), remedy)),
    };
    // The other lines have the copyright and the build number.
    let line = text.lines().find_map(|line| line.split_once("release "));
    let Some((version, number)) = line.and_then(|(_, rest)| {
        let number = parse_version(rest.split(',').next()?)?;
        Some((rest.trim().to_owned(), number))
    }) else {
        let found = format!(
            "{path} printed `{}`",
            text.lines().next().unwrap_or_default()
        );
        return Err(missing(found, remedy));
    };
    if number < NVCC_MINIMUM || number == NVCC_REFUSED {
        let found = format!("{path} is {version}");
        return Err(missing(found, remedy));
    }
    Ok(Tool { path, version })
}

/// The nvcc of a toolkit that is not on `PATH`.
fn in_folders(host: &Host) -> Option<Utf8PathBuf> {
    let named = ["CUDA_HOME", "CUDA_PATH"]
        .into_iter()
        .filter_map(|name| host.var(name).map(Utf8PathBuf::from));
    let mut folders = named.chain(host.cuda_folders().iter().cloned());
    folders.find_map(|folder| host.find(folder.join("bin/nvcc").as_str()))
}

/// The compiler that nvcc calls for host code. The headers of each nvcc refuse versions that it does not support.
pub fn host_compiler(host: &Host, nvcc: &Tool) -> Result<(), Missing> {
    let mut command = host.cmd(nvcc.path.as_str());
    // CMake passes it in the same way.
    if let Some(named) = host.var("CUDAHOSTCXX") {
        command = command.args(["-ccbin", named]);
    }
    let checked = command
        .args([
            "-x",
            "cu",
            "-std=c++20",
            "-E",
            "/dev/null",
            "-o",
            "/dev/null",
        ])
        .output_with_input("");
    let why = match checked {
        Ok(output) if output.status.success() => return Ok(()),
        Ok(output) => {
            let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
            let error = stderr.lines().find(|line| line.contains("error"));
            let first = error.or(stderr.lines().next());
            first.unwrap_or("it failed").trim().to_owned()
        }
        Err(error) => format!("{error:#}"),
    };
    Err(Missing {
        expected: "a C++20 compiler that nvcc accepts for host code".to_owned(),
        found: format!("{}: {why}", nvcc.path),
        remedy: Remedy::Manual(
            "install a version of g++ that this nvcc accepts, and set CUDAHOSTCXX to it (as in `CUDAHOSTCXX=g++-13`)"
                .to_owned(),
        ),
    })
}

/// cuBLAS, cuFFT, cuSOLVER and NVRTC beside nvcc, and the driver's library or its stand-in.
pub fn libraries(nvcc: &Tool) -> Result<String, Missing> {
    let root = root(nvcc);
    let lacking: Vec<_> = LIBRARIES
        .into_iter()
        .filter(|(name, header)| {
            !header_folders(&root)
                .iter()
                .any(|folder| folder.join(header).is_file())
                || !library_folders(&root)
                    .iter()
                    .any(|folder| has_library(folder, name))
        })
        .map(|(name, _)| name)
        .collect();
    if lacking.is_empty() {
        let names = LIBRARIES.map(|(name, _)| name);
        return Ok(format!("{} ({root})", names.join(", ")));
    }
    // The script was run with `--compiler` before; without that option it installs the rest.
    let ours = root.ends_with("target/cuda/nvidia/cu13");
    Err(Missing {
        expected: "cuBLAS, cuFFT, cuSOLVER and NVRTC of the CUDA toolkit, with their headers"
            .to_owned(),
        found: format!("{root} has no {}", lacking.join(", ")),
        remedy: if ours {
            PACKAGES
        } else {
            Remedy::Manual(format!(
                "install the development packages of the toolkit in {root}; or `ci/cuda-toolkit.sh`, then set CUDACXX to \
                 the nvcc that it prints"
            ))
        },
    })
}

/// cuDNN 9: in `CUDNN_INCLUDE_PATH` and `CUDNN_LIBRARY_PATH`, in the toolkit, among the system's libraries, or in the
/// packages from PyPI.
pub fn cudnn(host: &Host) -> Result<Cudnn, Missing> {
    let missing = |found: &str| Missing {
        expected: "cuDNN 9 with its headers".to_owned(),
        found: found.to_owned(),
        remedy: PACKAGES,
    };
    let mut roots: Vec<_> = nvcc(host).iter().map(root).collect();
    roots.extend(host.cuda_folders().iter().cloned());
    let beside = roots
        .iter()
        .filter_map(|root| Some(root.parent()?.join("cudnn")));
    let packages = host.package_roots().map(Utf8Path::to_owned);
    let all: Vec<_> = roots
        .iter()
        .cloned()
        .chain(beside)
        .chain(packages)
        .collect();
    let named = |name: &str| host.var(name).map(|folder| vec![Utf8PathBuf::from(folder)]);
    let includes = named("CUDNN_INCLUDE_PATH")
        .unwrap_or_else(|| all.iter().flat_map(|root| header_folders(root)).collect());
    let libraries = named("CUDNN_LIBRARY_PATH")
        .unwrap_or_else(|| all.iter().flat_map(|root| library_folders(root)).collect());
    let include = includes
        .into_iter()
        .find(|folder| folder.join("cudnn.h").is_file())
        .ok_or_else(|| missing("cudnn.h was not found"))?;
    let library = libraries
        .into_iter()
        .find(|folder| has_library(folder, "cudnn") || folder.join("libcudnn.so.9").exists())
        .ok_or_else(|| missing("libcudnn.so was not found"))?;
    let header = include.join("cudnn_version.h");
    let text = fs_err::read_to_string(&header).unwrap_or_default();
    let number = |name: &str| {
        let define = format!("#define CUDNN_{name} ");
        text.lines()
            .find_map(|line| line.strip_prefix(&define)?.trim().parse::<u32>().ok())
    };
    match (number("MAJOR"), number("MINOR"), number("PATCHLEVEL")) {
        (Some(major @ 9..), Some(minor), Some(patch)) => Ok(Cudnn {
            include,
            library,
            version: format!("{major}.{minor}.{patch}"),
        }),
        (Some(major), ..) => Err(missing(&format!("{include} has cuDNN {major}"))),
        _ => Err(missing(&format!("{header} does not define its version"))),
    }
}

/// The architectures of this machine's GPUs, found as MLX's own build finds them; or why they are unknown.
pub fn architectures(host: &Host, nvcc: &Tool) -> Result<String, String> {
    let query = nvcc.path.with_file_name("__nvcc_device_query");
    let answer = host.cmd(query.as_str()).read();
    let text = answer.map_err(|error| format!("{error:#}").trim_end_matches(": ").to_owned())?;
    let mut list = Vec::new();
    for word in text.split(|c: char| c == ',' || c.is_whitespace()) {
        let Ok(number) = word.parse::<u32>() else {
            continue;
        };
        // From 9.0 on, MLX compiles for features that exist on one architecture only.
        let architecture = format!("{number}{}", if number >= 90 { "a" } else { "" });
        if !list.contains(&architecture) {
            list.push(architecture);
        }
    }
    match list.as_slice() {
        [] => Err(format!("{query} found none")),
        _ => Ok(list.join(";")),
    }
}

/// The folder of the toolkit: that of nvcc itself, not of a link to it.
fn root(nvcc: &Tool) -> Utf8PathBuf {
    let path = nvcc
        .path
        .canonicalize_utf8()
        .unwrap_or_else(|_| nvcc.path.clone());
    let root = path.parent().and_then(Utf8Path::parent);
    root.unwrap_or(&path).to_owned()
}

/// Debian's folders and NVIDIA's both use the system's name of the processor, such as `x86_64`.
fn header_folders(root: &Utf8Path) -> Vec<Utf8PathBuf> {
    let arch = std::env::consts::ARCH;
    vec![
        root.join("include"),
        root.join(format!("include/{arch}-linux-gnu")),
        root.join(format!("targets/{arch}-linux/include")),
    ]
}

fn library_folders(root: &Utf8Path) -> Vec<Utf8PathBuf> {
    let arch = std::env::consts::ARCH;
    vec![
        root.join("lib64"),
        root.join("lib"),
        root.join(format!("lib/{arch}-linux-gnu")),
        root.join(format!("targets/{arch}-linux/lib")),
    ]
}

fn has_library(folder: &Utf8Path, name: &str) -> bool {
    folder.join(format!("lib{name}.so")).exists()
}
