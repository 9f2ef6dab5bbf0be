//! MLX's official libraries, from the `mlx-metal` wheels on PyPI (240 MB, kept in target/mlx-metal-wheels):
//! `cargo test -p xtask --test kernels -- --ignored`.

use std::collections::{BTreeMap, BTreeSet};

use super::wheels::official;
use super::{report, strings};

/// What an official library of the pin lacks, by family: only what the patches add.
#[test]
#[ignore = "downloads 190 MB from PyPI"]
fn the_pins_own_libraries_lack_what_the_overlay_adds() {
    for (platform, kernels) in [
        ("macosx_14_0_arm64", 17_248),
        ("macosx_15_0_arm64", 17_251),
        ("macosx_26_0_arm64", 18_817),
    ] {
        let (code, report) = report(&official("0.32.4", platform), &[]);
        assert_eq!(code, Some(1));
        assert_eq!(report["metallib"]["kernels"], kernels);
        // It has every other kernel of the tree, and no kernel that the tree lacks.
        assert_eq!(report["pristine"], kernels);
        let missing = strings(&report["missing"]);
        assert_eq!(missing, strings(&report["diff"]["added"]), "{platform}");
        assert_eq!(strings(&report["diff"]["removed"]), BTreeSet::new());
        let mut families: BTreeMap<&str, usize> = BTreeMap::new();
        for name in &missing {
            let family = [
                "affine_qmv_wide",
                "affine_qmv_streamed",
                "mxfp4_qmv_streamed",
                "mxfp8_qmv_streamed",
                "nvfp4_qmv_streamed",
                "mlx_overlay_tree",
            ]
            .into_iter()
            .find(|family| name.starts_with(family));
            *families.entry(family.unwrap_or(name)).or_default() += 1;
        }
        let added = [
            ("affine_qmv_streamed", 1_260),
            ("affine_qmv_wide", 378),
            ("mlx_overlay_tree", 1),
            ("mxfp4_qmv_streamed", 60),
            ("mxfp8_qmv_streamed", 60),
            // With a global scale too, which only products without batch have.
            ("nvfp4_qmv_streamed", 90),
        ];
        assert_eq!(families, BTreeMap::from(added), "{platform}");
    }
}
