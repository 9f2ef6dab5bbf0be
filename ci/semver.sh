#!/usr/bin/env bash
# Compares the interfaces of the published crates with the last release, or before there is one with another commit.
# usage: ci/semver.sh [COMMIT]   (HEAD^)
#
# A breaking change needs a new version. Before the first release it needs a new line in CHANGELOG.md that starts with
# `- **Breaking` and has the crate's name in backquotes. Needs cargo-semver-checks; MLX need not be built.
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
    # A new crate has nothing to break.
    if git cat-file -e "$base:crates/$package/Cargo.toml" 2>/dev/null; then packages+=("$package"); fi
done
[[ ${#packages[@]} -gt 0 ]] || { echo "$base has none of the published crates"; exit; }
echo "interfaces compared with $base"
named=
if [[ -z $released ]]; then named=$(git diff "$base" -- CHANGELOG.md | sed -n '/^+- \*\*Breaking/p'); fi
status=0
for package in "${packages[@]}"; do
    if DOCS_RS=1 cargo semver-checks --baseline-rev "$base" --package "$package"; then continue; fi
    if [[ $named == *"\`$package\`"* ]]; then
        echo "$package is not released yet, and CHANGELOG.md lists the breaking change"
        continue
    fi
    echo "error: the interface of $package has a breaking change: give it a new version, or before the first release add a line to CHANGELOG.md that begins with \"- **Breaking\" and has \`$package\`" >&2
    status=1
done
exit $status
