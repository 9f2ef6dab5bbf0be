//! The properties of the linked library.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use mlx_overlay::{Backend, Device, Error, build_info};
use toml::Table;

/// The linked library's properties agree with its prefix and the lock.
#[test]
fn the_linked_library_says_what_it_is() {
    let info = build_info().unwrap();
    let table = |path| -> Table { std::fs::read_to_string(path).unwrap().parse().unwrap() };
    let stamp = table(info.prefix.join("mlx-overlay.toml"));
    assert_eq!(info.mlx_version, stamp["version"].as_str().unwrap());
    assert_eq!(info.backend.to_string(), stamp["backend"].as_str().unwrap());
    assert_eq!(info.cpu, stamp["cpu"].as_bool().unwrap());
    assert_eq!(info.jit, stamp["jit"].as_bool().unwrap());
    assert_eq!(info.pristine, stamp["pristine"].as_bool().unwrap());
    let lock = table(concat!(env!("CARGO_MANIFEST_DIR"), "/../../mlx.lock").into());
    let pinned = |tree: &str| lock[tree].as_str().unwrap();
    assert_eq!(info.base_tree, pinned("base_tree"));
    let tree = if info.pristine {
        "base_tree"
    } else {
        "final_tree"
    };
    assert_eq!(info.tree, pinned(tree));
    match info.backend {
        Backend::Cpu | Backend::Cuda => assert!(!info.metal_available),
        Backend::Sim => assert!(info.metal_available),
        // A Mac without a GPU, such as a virtual machine, has MLX's Metal back-end but no device.
        _ => assert_eq!(info.metal_available, Device::Gpu.is_available().unwrap()),
    }
}

/// An unknown device would otherwise count as the CPU.
#[test]
fn every_back_end_that_is_built_has_its_name_here() {
    let known = [Backend::Cpu, Backend::Cuda, Backend::Metal, Backend::Sim]
        .map(|backend| backend.to_string());
    assert_eq!(
        known,
        mlx_prefix::Backend::ALL.map(mlx_prefix::Backend::name)
    );
}

#[test]
fn a_missing_device_is_an_error() {
    for (device, missing) in [
        (Device::Gpu, "no GPU device"),
        (Device::Cpu, "no CPU device"),
    ] {
        if device.is_available().unwrap() {
            assert!(!device.name().unwrap().is_empty());
        } else {
            let error = device.name().unwrap_err().to_string();
            assert!(error.starts_with(missing), "{error}");
        }
    }
    if Device::Gpu.is_available().unwrap() {
        assert!(!Device::Gpu.architecture().unwrap().is_empty());
    }
}

#[test]
fn a_missing_device_is_told_in_words_of_who_has_only_the_crate() {
    let cpu = Error::NoDevice(Device::Cpu).to_string();
    assert_eq!(
        cpu,
        "no CPU device: the linked MLX was built without the CPU back-end (`--cpu`)"
    );
    let gpu = Error::NoDevice(Device::Gpu).to_string();
    assert!(gpu.contains("no Metal back-end"), "{gpu}");
    for error in [cpu, gpu, Error::NoPolicies.to_string()] {
        assert!(!error.contains("cargo xtask"), "{error}");
    }
}
