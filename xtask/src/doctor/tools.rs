//! The programs that every build needs.

use std::fmt::Display;

use mlx_prefix::Backend;

use super::finding::Finding;
use crate::build::backend;
use crate::build::flags::UnsafeFlag;
use crate::host::{Host, Os};
use crate::requirements::{self, Missing, Remedy};

pub(super) fn examine(host: &Host) -> Vec<Finding> {
    let compiler = requirements::cxx_compiler(host);
    let compiles = compiler.is_ok();
    let mut findings = vec![
        cmake(host),
        required(host, "ninja", requirements::ninja(host)),
        required(host, "c-compiler", requirements::c_compiler(host)),
        required(host, "cxx-compiler", compiler),
        flags(host),
        conda(host),
    ];
    if host.os == Os::Linux {
        findings.push(required(
            host,
            "kernel-compiler",
            requirements::kernel_clang(host),
        ));
        // Only a compiler knows what it finds.
        if compiles {
            findings.push(blas(host));
        }
        findings.extend(cuda(host));
    }
    findings
}

fn cmake(host: &Host) -> Finding {
    let mut finding = required(host, "cmake", requirements::cmake(host));
    let package = |remedy: &str| remedy.contains("apt-get");
    if let Some(remedy) = finding.remedy.as_mut().filter(|remedy| package(remedy)) {
        // For example on Ubuntu 22.04.
        let (major, minor) = requirements::CMAKE_MINIMUM;
        *remedy = format!(
            "`{remedy}`; if that package is too old: `pip install 'cmake>={major}.{minor}'`, and put its folder first on PATH"
        );
    }
    finding
}

/// Only `--backend cuda` needs CUDA. If nvcc or NVIDIA's driver is here, missing parts are warnings.
fn cuda(host: &Host) -> Vec<Finding> {
    let nvcc = requirements::cuda::nvcc(host);
    if nvcc.is_err() && host.var("CUDACXX").is_none() && host.find("nvidia-smi").is_none() {
        let found = "no nvcc and no NVIDIA GPU; only `cargo xtask build --backend cuda` needs them";
        return vec![Finding::ok("cuda", found)];
    }
    let optional = |id, result: Result<String, Missing>| match result {
        Ok(found) => Finding::ok(id, found),
        Err(missing) => {
            let found = format!("{missing}; only cargo xtask build --backend cuda needs it");
            Finding::warning(id, found, install(host, &missing))
        }
    };
    let shown = |tool: requirements::Tool| tool.to_string();
    let mut findings = vec![
        optional("cuda-cmake", requirements::cuda::cmake(host).map(shown)),
        optional("nvcc", nvcc.clone().map(shown)),
    ];
    if let Ok(nvcc) = &nvcc {
        let compiler = requirements::cuda::host_compiler(host, nvcc);
        let takes = || "nvcc takes the C++ compiler that it finds".to_owned();
        findings.push(optional("nvcc-host-compiler", compiler.map(|()| takes())));
        findings.push(optional(
            "cuda-libraries",
            requirements::cuda::libraries(nvcc),
        ));
    }
    let cudnn = requirements::cuda::cudnn(host);
    let shown =
        |found: requirements::cuda::Cudnn| format!("cuDNN {} ({})", found.version, found.library);
    findings.push(optional("cudnn", cudnn.map(shown)));
    findings
}

fn blas(host: &Host) -> Finding {
    match requirements::blas(host) {
        Ok(()) => Finding::ok("blas", "cblas.h, lapacke.h and their libraries"),
        // The default back-end does not need it.
        Err(missing) => Finding::warning(
            "blas",
            missing.to_string(),
            match requirements::install_commands(host, std::slice::from_ref(&missing)) {
                Ok(_) => format!("`{}`", install(host, &missing)),
                Err(_) => install(host, &missing),
            } + "; only cargo xtask test, build --cpu and build --backend cpu need it",
        ),
    }
}

pub(super) fn required(
    host: &Host,
    id: &'static str,
    result: Result<impl Display, Missing>,
) -> Finding {
    match result {
        Ok(tool) => Finding::ok(id, tool.to_string()),
        Err(missing) => Finding::error(id, missing.to_string(), install(host, &missing)),
    }
}

/// The commands that install it; otherwise what a person can do, or why there are none.
pub(super) fn install(host: &Host, missing: &Missing) -> String {
    if let Remedy::Manual(text) = &missing.remedy {
        return text.clone();
    }
    match requirements::install_commands(host, std::slice::from_ref(missing)) {
        Ok(commands) => commands
            .iter()
            .map(|words| words.join(" "))
            .collect::<Vec<_>>()
            .join(" && "),
        Err(error) => format!("{error:#}"),
    }
}

/// Flags that the build rejects.
fn flags(host: &Host) -> Finding {
    if let Some(found) = UnsafeFlag::find(host) {
        return Finding::error("compiler-flags", found.to_string(), found.remedy());
    }
    // GCC then links code that changes the processor's mode. An archive is not linked, so the build accepts it.
    if let Some(found) = UnsafeFlag::find_in(host, "LDFLAGS") {
        let text = format!(
            "{}: programs may flush denormal numbers to zero",
            found.place()
        );
        return Finding::warning("compiler-flags", text, found.remedy());
    }
    Finding::ok("compiler-flags", "no flag that changes sums")
}

fn conda(host: &Host) -> Finding {
    match requirements::conda_compiler(host) {
        None => Finding::ok("conda", "no compiler of a conda environment would be used"),
        Some(path) => {
            let found = format!("{path} comes from a conda environment");
            let remedy =
                "run `conda deactivate`, or take that folder off PATH and unset CC and CXX";
            // On macOS the build rejects it.
            match backend::default_for(host) {
                Backend::Metal => Finding::error("conda", found, remedy),
                _ => Finding::warning("conda", found, remedy),
            }
        }
    }
}
