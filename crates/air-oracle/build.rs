//! Compiles the runner and the simulator's engine.

use std::path::Path;

fn main() {
    // The simulator's engine works only on Linux; elsewhere the crate builds, and reports this when it runs.
    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() != Ok("linux") {
        return;
    }
    let simulator = Path::new("../metal-sim");
    let sources = ["engine/engine.cpp", "engine/context.cpp"].map(|file| simulator.join(file));
    cc::Build::new()
        .cpp(true)
        .std("c++20")
        .opt_level(2)
        .include(simulator.join("abi"))
        .include(simulator.join("engine"))
        .file("runtime/runner.cpp")
        .files(&sources)
        .compile("oracle");
    println!("cargo::rerun-if-changed=runtime");
    for folder in ["abi", "engine"] {
        println!(
            "cargo::rerun-if-changed={}",
            simulator.join(folder).display()
        );
    }
}
