//! What is linked can be asked.

use mlx_overlay::{Backend, Device, Error, build_info, mlx_version};
use mlx_overlay_sys::built;

#[test]
fn the_linked_library_says_what_it_is() {
    let info = build_info().unwrap();
    assert_eq!(info.mlx_version, mlx_version().unwrap());
    assert!(env!("CARGO_PKG_NAME") == "mlx-overlay" && info.mlx_version.starts_with("0."));
    for tree in [info.tree, info.base_tree] {
        assert!(
            tree.len() == 40 && tree.bytes().all(|byte| byte.is_ascii_hexdigit()),
            "{tree}"
        );
    }
    assert_eq!(info.pristine, info.tree == info.base_tree);
    assert_eq!(info.backend.to_string(), built::BACKEND);
    assert!(
        info.prefix.join("mlx-overlay.toml").is_file(),
        "{}",
        info.prefix.display()
    );
    assert_eq!(info.metal_available, Device::Gpu.is_available().unwrap());
}

/// What is not known here would be taken for the CPU's.
#[test]
fn every_back_end_that_is_built_has_its_name_here() {
    let known = [Backend::Cpu, Backend::Metal, Backend::Sim].map(|backend| backend.to_string());
    assert_eq!(
        known,
        mlx_prefix::Backend::ALL.map(mlx_prefix::Backend::name)
    );
}

#[test]
fn a_missing_device_is_an_error() {
    match Device::Gpu.is_available().unwrap() {
        true => assert!(!Device::Gpu.architecture().unwrap().is_empty()),
        false => {
            let error = Device::Gpu.name().unwrap_err().to_string();
            assert!(error.starts_with("no GPU device"), "{error}");
        }
    }
    assert!(!Device::Cpu.name().unwrap().is_empty());
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
