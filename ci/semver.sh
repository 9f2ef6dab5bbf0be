#!/usr/bin/env bash
# Compares the interfaces of the published crates with the last release's, or before there is one with another commit's.
# usage: ci/semver.sh [COMMIT]   (HEAD^)
#
# A break needs another version. Before the first release it needs a line in CHANGELOG.md that begins with **Breaking.
# Needs cargo-semver-checks; MLX need not be built.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

[[ $# -le 1 ]] || { sed -n 's,^# usage,usage,p' "$0" >&2; exit 2; }
released=$(git describe --tags --abbrev=0 --match 'v[0-9]*' HEAD 2>/dev/null || true)
base=${released:-${1:-HEAD^}}
git rev-parse --quiet --verify "$base^{commit}" >/dev/null || {
    echo "error: there is no commit $base to compare with; fetch the history (git fetch --unshallow)" >&2
    exit 1
}

packages=()
for package in $(ci/packages.sh list); do
    # A crate that is new has nothing to break.
    if git cat-file -e "$base:crates/$package/Cargo.toml" 2>/dev/null; then packages+=("--package=$package"); fi
done
[[ ${#packages[@]} -gt 0 ]] || { echo "$base has none of the published crates"; exit; }
echo "interfaces compared with $base"
if DOCS_RS=1 cargo semver-checks --baseline-rev "$base" "${packages[@]}"; then exit; fi
if [[ -z $released ]] && git diff "$base" -- CHANGELOG.md | grep -q '^+- \*\*Breaking'; then
    echo "not released yet, and CHANGELOG.md names what breaks"
    exit
fi
echo "error: what a published crate offers has changed: give it another version, or before the first release name the change as **Breaking in CHANGELOG.md" >&2
exit 1
