#!/usr/bin/env bash
# One job of hosted CI (.github/workflows/ci.yml). Each runs on a fresh machine and on your own; mlx-rs, after sim.
# usage: ci/hosted.sh sim|mlx-rs|cpu|cuda|metal|deny|msrv|docs|packages|semver|conclusion
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

case ${1:-} in
sim)
    # The default back-end on Linux, and the repository's full test.
    .ci/run
    # Tests with files that belong to other users.
    cargo --config 'target."cfg(all())".runner = "sudo"' test --package metal-sim --lib -- --ignored
    ;;
mlx-rs)
    # Needs the build of `sim`, libclang, and crates that the workspace does not have: mlx-rs cannot be a dependency of
    # it.
    ACCEPT=0.32.2 ci/mlx-rs.sh examples/mlx-rs run --locked
    ;;
cpu)
    cargo xtask quickstart --backend cpu --install-deps
    cargo test --package mlx-overlay-sys --package mlx-overlay --package mlx-row-policy --no-fail-fast
    ;;
cuda)
    # There is no GPU: what is added compiles, and nothing of it runs.
    cargo xtask apply-overlay
    ci/cuda.sh
    ;;
metal)
    cargo xtask quickstart --install-deps
    cargo xtask doctor
    # Every kernel that the dispatch can ask for is in the library made by this machine's Xcode.
    cargo xtask kernels --metallib target/mlx/current/lib/mlx.metallib
    cargo test --package mlx-overlay-sys --package mlx-overlay --package mlx-row-policy --no-fail-fast
    # The runner's own GPU, whatever its generation: rows under `exact` must equal M = 1.
    for bits in 2 3 4 5 6 8; do
        for m in 2 5 6 8; do
            MLX_ROW_POLICY=exact cargo run --quiet --package mlx-overlay --example quantized_matmul -- \
                --device gpu --bits "$bits" --m "$m" --json |
                python3 -c 'import json, sys
report = json.load(sys.stdin)
print("{device_name}: {bits} bits, M = {m}: {rows_differing} rows differ".format(**report))
sys.exit(report["rows_differing"] != 0)'
        done
    done
    ci/downstream.sh
    ;;
deny)
    cargo install --locked --version 0.20.2 cargo-deny
    cargo deny check
    ;;
msrv)
    version=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
    rustup toolchain install "$version" --profile minimal
    # Neither building the documentation nor type checking needs MLX.
    DOCS_RS=1 cargo "+$version" check --workspace --all-targets
    ;;
docs)
    DOCS_RS=1 RUSTDOCFLAGS='-D warnings' cargo doc --workspace --no-deps
    ;;
packages)
    ci/packages.sh
    ;;
semver)
    cargo install --locked --debug --version 0.51.0 cargo-semver-checks
    # A scheduled run has no commit before it, and after a forced push the previous one is not in the checkout.
    git rev-parse --quiet --verify "${BASELINE:=HEAD^}^{commit}" >/dev/null || BASELINE=HEAD^
    ci/semver.sh "$BASELINE"
    ;;
conclusion)
    # Skipped and cancelled jobs do not count as passed.
    python3 - <<'PY'
import json, os, sys

needs = json.loads(os.environ["NEEDS"])
bad = {name: job["result"] for name, job in needs.items() if job["result"] != "success"}
if not needs or bad:
    sys.exit(f"not passed: {bad or 'no jobs'}")
PY
    ;;
*)
    sed -n 's,^# usage,usage,p' "$0" >&2
    exit 2
    ;;
esac
