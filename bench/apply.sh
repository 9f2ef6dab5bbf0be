#!/usr/bin/env bash
# Times apply-overlay and status on the real MLX, compares them with `git apply` and `quilt push -a`, and stores the raw
# figures.
#
#   bench/apply.sh [folder for the results]
#
# Works on a copy of this checkout's pin, patches and fetched objects; vendor/mlx is not touched. git and quilt only
# patch: they verify neither the source tree nor the result. So each is also timed together with a copy of the pristine
# tree and a hash of the result, so that the work is comparable.
set -eu

out=${1:-docs/reports/apply-$(date +%F)}
runs=${RUNS:-21}

for tool in git quilt; do
    command -v "$tool" >/dev/null || { echo "$tool is missing (Debian: git, quilt)" >&2; exit 1; }
done
cargo build --quiet --release -p xtask
xtask=$(pwd)/${CARGO_TARGET_DIR:-target}/release/xtask
"$xtask" fetch >/dev/null

mkdir -p "$out"
out=$(cd "$out" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/checkout/target/overlay" "$work/quilt"
cp -r mlx.toml mlx.lock patches "$work/checkout/"
cp -r target/overlay/mlx.git "$work/checkout/target/overlay/"
cd "$work/checkout"
"$xtask" apply-overlay --offline --revert >/dev/null
cp -a vendor/mlx "$work/pristine"
cp patches/*.patch "$work/quilt/"
sed -e 's/#.*//' -e 's/[[:space:]]*$//' -e '/^$/d' -e 's/$/.patch/' patches/series >"$work/quilt/series"
mapfile -t patches < <(sed "s|^|$work/quilt/|" "$work/quilt/series")
export QUILT_PATCHES="$work/quilt" GIT_CONFIG_GLOBAL=/dev/null GIT_CEILING_DIRECTORIES="$work"

nothing() { :; }
cold() { rm -rf vendor/mlx; }
pristine() { "$xtask" apply-overlay --offline --revert; }
applied() { "$xtask" apply-overlay --offline; }
copied() { rm -rf "$work/tree" && cp -a "$work/pristine" "$work/tree"; }
removed() { rm -rf "$work/tree"; }
git_apply() { (cd "$work/tree" && git apply "${patches[@]}"); }
quilt_push() { (cd "$work/tree" && quilt push -a); }
whole_git() { cp -a "$work/pristine" "$work/tree" && git_apply && tree_id; }
whole_quilt() { cp -a "$work/pristine" "$work/tree" && quilt_push && rm -rf "$work/tree/.pc" && tree_id; }
tree_id() { (cd "$work/tree" && git init --quiet && git add --all --force && git write-tree); }

measure() { # name, preparation, command...
    name=$1
    prepare=$2
    shift 2
    i=0
    while [ $i -le "$runs" ]; do
        "$prepare" >/dev/null
        start=$(date +%s%N)
        "$@" >/dev/null
        end=$(date +%s%N)
        # The first run warms the cache.
        [ $i -eq 0 ] || printf '%s\t%s\n' "$name" $(((end - start) / 1000))
        i=$((i + 1))
    done
}

{
    printf 'command\tmicroseconds\n'
    measure apply-cold cold "$xtask" apply-overlay --offline
    measure apply-on-pristine pristine "$xtask" apply-overlay --offline
    measure revert applied "$xtask" apply-overlay --offline --revert
    applied >/dev/null
    measure apply-no-op nothing "$xtask" apply-overlay --offline
    measure status nothing "$xtask" status --json
    measure git-apply-alone copied git_apply
    measure quilt-push-alone copied quilt_push
    measure copy-git-apply-hash removed whole_git
    measure copy-quilt-push-hash removed whole_quilt
} >"$out/raw.tsv"

cpu=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo 2>/dev/null | head -1)
files=$(find "$work/pristine" -type f | wc -l)
load=$(cut -d' ' -f1 /proc/loadavg 2>/dev/null || echo unknown)
{
    printf '# apply-overlay, measured\n\n'
    printf '    processor    %s, %s cores\n' "${cpu:-$(uname -m)}" "$(getconf _NPROCESSORS_ONLN)"
    printf '    file system  %s\n' "$(stat -f -c %T "$work" 2>/dev/null || echo unknown)"
    printf '    load         %s at the end (1 minute)\n' "$load"
    printf '    files        %s\n' "$files"
    printf '    %s, quilt %s\n\n' "$(git --version)" "$(quilt --version)"
    # shellcheck disable=SC2016 # the backquotes are Markdown's
    printf '`bench/apply.sh`, release binary, warm file cache, %s runs each, process start included; every run in `raw.tsv`.\n\n' "$runs"
    printf '| command | median ms | least ms |\n|---|---|---|\n'
    for name in $(sed 1d "$out/raw.tsv" | cut -f1 | uniq); do
        sed 1d "$out/raw.tsv" | awk -F'\t' -v name="$name" '$1 == name { print $2 }' | sort -n | awk -v name="$name" '
            { value[NR] = $1 }
            END { printf "| %s | %.1f | %.1f |\n", name, value[int((NR + 1) / 2)] / 1000, value[1] / 1000 }'
    done
    # shellcheck disable=SC2016
    printf '\nAll of `apply-*`, `revert` and `status` hash every file. `apply-cold` writes the whole tree from fetched objects; '
    # shellcheck disable=SC2016
    printf '`git-apply-alone` and `quilt-push-alone` patch an existing tree and hash nothing; the last two rows do all of the work with other tools.\n'
    case $load in
        [01].* | unknown) ;;
        *) printf '\nOther processes used the processors (load %s): compare the rows with each other; the absolute figures are too high.\n' "$load" ;;
    esac
} >"$out/README.md"
cat "$out/README.md"
