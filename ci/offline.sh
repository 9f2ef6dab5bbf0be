#!/usr/bin/env bash
# Runs from a clean clone to the quickstart's last line without a network: in a network namespace without a route.
# usage: ci/offline.sh cache|registry|archives
#
#   cache     packages come from cargo's own cache
#   registry  packages come from a local registry that keeps the .crate files, with an empty cargo home
#   archives  MLX and its inputs come from local files, the Rust packages from such a registry
#
# The packages are fetched first, with a network. Tools must be installed (`cargo xtask doctor`). The compile cache is
# used if there is one; it contains nothing that was fetched.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

way=${1:-}
case $way in cache | registry | archives) ;; *) sed -n 's,^# usage,usage,p' "$0" >&2; exit 2 ;; esac

isolate=(unshare --net)
[[ $(id -u) == 0 ]] || isolate=(unshare --map-root-user --net)
"${isolate[@]}" true || { echo "this machine permits no network namespace; run as root" >&2; exit 1; }
if "${isolate[@]}" git ls-remote https://github.com/ml-explore/mlx.git >/dev/null 2>&1; then
    echo "the namespace has a route" >&2
    exit 1
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
git clone --quiet --no-hardlinks . "$work/clone"
home=${CARGO_HOME:-$HOME/.cargo}

# With a network: the workspace's packages, and the carriers in mlx.toml, requested as `cargo xtask fetch` does.
cargo fetch --quiet --locked
locks=(Cargo.lock)
mapfile -t carriers < <(python3 - <<'PY'
import tomllib

manifest = tomllib.load(open("mlx.toml", "rb"))
found = [source["carrier"] for source in manifest["mlx"]["source"] if "carrier" in source]
found += [entry["carrier"] for entry in manifest["input"]]
for name, version in dict.fromkeys((c["crate"], c["version"]) for c in found):
    print(name, version)
PY
)
for carrier in "${carriers[@]}"; do
    read -r name version <<<"$carrier"
    mkdir -p "$work/$name/src"
    touch "$work/$name/src/lib.rs"
    printf '[package]\nname = "carrier"\nedition = "2024"\n[workspace]\n[target."cfg(any())".dependencies]\n%s = "=%s"\n' \
        "$name" "$version" >"$work/$name/Cargo.toml"
    (cd "$work/$name" && cargo fetch --quiet)
    locks+=("$work/$name/Cargo.lock")
done

# local_registry LOCK…: makes a cargo home that has only a local registry with the packages in the locks.
local_registry() {
    ci/local_registry.py "$work/registry" "$home" "$@"
    mkdir "$work/home"
    cat >"$work/home/config.toml" <<TOML
[source.crates-io]
replace-with = "local"
[source.local]
local-registry = "$work/registry"
TOML
    export CARGO_HOME=$work/home
}

options=()
case $way in
registry)
    local_registry "${locks[@]}"
    ;;
archives)
    # The registry has no carriers: their content must come from the files.
    read -r name version <<<"${carriers[0]}"
    cp "$home"/registry/cache/*/"$name-$version.crate" "$work/"
    options=(--source "$work/$name-$version.crate")
    mkdir -p "$work/clone/target/overlay/archives"
    read -r name version <<<"${carriers[-1]}"
    tar -xzf "$(echo "$home"/registry/cache/*/"$name-$version.crate")" -C "$work" --wildcards "*/vendor/*"
    find "$work/$name-$version/vendor" -type f -exec cp -t "$work/clone/target/overlay/archives" {} +
    local_registry Cargo.lock
    ;;
esac

cd "$work/clone"
# Nothing that was built elsewhere may be used.
unset CARGO_TARGET_DIR MLX_OVERLAY_PREFIX
export CARGO_NET_OFFLINE=true
"${isolate[@]}" cargo xtask quickstart --offline "${options[@]}"
echo "from a clean clone to the quickstart's end without a network: passed ($way)"
