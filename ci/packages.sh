#!/usr/bin/env bash
# Publishes all published crates as a dry run: packs them, makes cargo compile each from its package, and checks each
# against crates.io's limit.
# usage: ci/packages.sh [--no-verify | list]
#
# --no-verify skips the compilation; `list` prints the crates. MLX need not be built. Needs cargo 1.90.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# The published crates: those without `publish = false`.
packages=()
while read -r manifest; do
    packages+=("$(sed -n 's/^name = "\(.*\)"/\1/p' "$manifest" | head -n 1)")
done < <(grep --files-without-match '^publish = false' xtask/Cargo.toml crates/*/Cargo.toml)
[[ ${#packages[@]} -gt 0 ]] || { echo "error: no package is published" >&2; exit 1; }
verify=()
case ${1:-} in
'') ;;
--no-verify) verify=(--no-verify) ;;
list)
    printf '%s\n' "${packages[@]}"
    exit
    ;;
*)
    sed -n 's,^# usage,usage,p' "$0" >&2
    exit 2
    ;;
esac

version=$(cargo --version | sed 's/^cargo \([0-9.]*\).*/\1/')
IFS=. read -r major minor _ <<<"$version"
[[ $major -gt 1 || $minor -ge 90 ]] || {
    echo "error: this is cargo $version, but publishing a workspace needs 1.90: rustup update stable, or RUSTUP_TOOLCHAIN=<a later one>" >&2
    exit 1
}

limit=$((10 * 1024 * 1024))
out=$PWD/target/packages
rm -rf "$out/package"
DOCS_RS=1 cargo publish --quiet --workspace --dry-run --allow-dirty --target-dir "$out" ${verify[@]+"${verify[@]}"}
status=0
for package in "${packages[@]}"; do
    file=$(find "$out/package" -name "$package-[0-9]*.crate" -print -quit)
    size=$(wc -c <"$file")
    printf '%-20s %9d bytes\n' "$package" "$size"
    if [[ $size -ge $limit ]]; then
        echo "error: $file is above crates.io's $limit bytes" >&2
        status=1
    fi
    manifest=$(tar -xzOf "$file" "$(basename "$file" .crate)/Cargo.toml")
    for field in description license repository documentation readme keywords categories; do
        grep -q "^$field = " <<<"$manifest" || {
            echo "error: $package has no $field" >&2
            status=1
        }
    done
done
# The build script compares with the lock: without it the package is useless.
file=$(find "$out/package" -name 'mlx-overlay-sys-[0-9]*.crate' -print -quit)
grep -q '^final_tree' <<<"$(tar -xzOf "$file" "$(basename "$file" .crate)/mlx.lock")"
exit $status
