#!/usr/bin/env bash
# Packs every crate that is published, and checks each against crates.io's limit.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

limit=$((10 * 1024 * 1024))
# What the workspace publishes: all that does not say `publish = false`.
mapfile -t manifests < <(grep --files-without-match '^publish = false' xtask/Cargo.toml crates/*/Cargo.toml)
packages=()
for manifest in "${manifests[@]}"; do
    packages+=("$(sed -n 's/^name = "\(.*\)"/\1/p' "$manifest" | head -n 1)")
done
[[ ${#packages[@]} -gt 0 ]] || { echo "no package is published" >&2; exit 1; }

out=$PWD/target/packages
rm -rf "$out"
cargo package --quiet --no-verify --allow-dirty --target-dir "$out" "${packages[@]/#/--package=}"
status=0
for package in "${packages[@]}"; do
    file=$(echo "$out/package/$package"-[0-9]*.crate)
    size=$(wc -c <"$file")
    printf '%-20s %9d bytes\n' "$package" "$size"
    if [[ $size -ge $limit ]]; then
        echo "$file is above crates.io's $limit bytes" >&2
        status=1
    fi
done
# The build script compares with the lock: without it the package is useless.
tar -xzOf "$out"/package/mlx-overlay-sys-[0-9]*.crate --wildcards '*/mlx.lock' | grep -q '^final_tree'
exit $status
