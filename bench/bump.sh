#!/bin/sh
# shellcheck disable=SC2016 # backquotes in the report are Markdown's
# Times a bump from MLX 0.32.0 to 0.32.4 with local sources, compares it with `git am -3`, and stores the raw figures.
#
#   bench/bump.sh [folder for the results]
#
# The patch is affine-tile-cap as it was written for 0.32.0. Works on a copy; this checkout is not touched.
set -eu

out=${1:-docs/reports/bump-$(date +%F)}
runs=${RUNS:-21}

command -v git >/dev/null || { echo "git is missing" >&2; exit 1; }
cargo build --quiet --release -p xtask
xtask=$(pwd)/${CARGO_TARGET_DIR:-target}/release/xtask
fixtures=$(pwd)/crates/patchset/tests/fixtures

mkdir -p "$out"
out=$(cd "$out" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export GIT_CONFIG_GLOBAL=/dev/null GIT_CEILING_DIRECTORIES="$work"

# A project at 0.32.0 with that one patch applied.
mkdir -p "$work/project/patches"
cp mlx.toml "$work/project/"
cd "$work/project"
: >patches/series
"$xtask" apply-overlay --update-lock --offline >/dev/null 2>&1
"$xtask" bump-pin v0.32.0 --offline >/dev/null 2>&1
echo affine-tile-cap >patches/series
cp "$fixtures/affine-tile-cap-0.32.0.patch" patches/affine-tile-cap.patch
"$xtask" apply-overlay --update-lock --offline >/dev/null 2>&1
mkdir "$work/start"
cp -r mlx.toml mlx.lock patches "$work/start/"

# The same for git: a commit for each version, and the patch as a mail.
tree() { sed -n "/^version = \"$1\"/,/^tree = /s/^tree = \"\(.*\)\"/\1/p" mlx.toml | tail -1; }
old=$(sed -n 's/^base_tree = "\(.*\)"/\1/p' mlx.lock)
new=$(tree 0.32.4)
git init --quiet "$work/git"
echo "$work/project/target/overlay/mlx.git/objects" >"$work/git/.git/objects/info/alternates"
cd "$work/git"
git config user.name bench
git config user.email bench@localhost
git tag new "$(git commit-tree "$new" -m 0.32.4)"
git tag old "$(git commit-tree "$old" -m 0.32.0)"
git checkout --quiet old
git apply --index "$work/start/patches/affine-tile-cap.patch"
git commit --quiet -m cap
git format-patch --quiet --full-index -1 --stdout >"$work/cap.mail"
cd "$work/project"

restore() { rm -rf mlx.toml mlx.lock patches docs && cp -r "$work/start/." .; }
at_new() { (cd "$work/git" && git checkout --quiet --force new && git clean --quiet -d --force); }
at_old() { (cd "$work/git" && git checkout --quiet --force old && git clean --quiet -d --force); }
git_am() { (cd "$work/git" && git am --quiet -3 "$work/cap.mail"); }
whole_am() { (cd "$work/git" && git checkout --quiet new && git am --quiet -3 "$work/cap.mail" && git format-patch --full-index -1 --stdout && git rev-parse 'HEAD^{tree}'); }

# Both must produce the same tree, or the times mean nothing.
restore
"$xtask" bump-pin v0.32.4 --offline >/dev/null 2>&1
cmp patches/affine-tile-cap.patch "$fixtures/affine-tile-cap-0.32.4.patch"
at_new
git_am
test "$(cd "$work/git" && git rev-parse 'HEAD^{tree}')" = "$(sed -n 's/^final_tree = "\(.*\)"/\1/p' mlx.lock)"

# CPU time of all commands so far, in microseconds; unlike wall time, it does not grow when other processes run.
spent() {
    awk 'NR == 2 { for (i = 1; i <= 2; i++) { split($i, part, "[ms]"); sum += part[1] * 60 + part[2] } printf "%d", sum * 1000000 }' "$work/times"
}
times >"$work/times"

measure() { # name, preparation, command...
    name=$1
    prepare=$2
    shift 2
    i=0
    while [ $i -le "$runs" ]; do
        "$prepare" >/dev/null
        times >"$work/times"
        before=$(spent)
        start=$(date +%s%N)
        "$@" >/dev/null 2>&1
        end=$(date +%s%N)
        times >"$work/times"
        # The first run warms the cache.
        [ $i -eq 0 ] || printf '%s\t%s\t%s\n' "$name" $(((end - start) / 1000)) $(($(spent) - before))
        i=$((i + 1))
    done
}

{
    printf 'command\tmicroseconds\tprocessor_microseconds\n'
    measure bump-pin restore "$xtask" bump-pin v0.32.4 --offline
    measure bump-pin-dry-run restore "$xtask" bump-pin v0.32.4 --offline --dry-run
    measure git-am-3-alone at_new git_am
    measure git-checkout-am-3-export at_old whole_am
} >"$out/raw.tsv"

cpu=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo 2>/dev/null | head -1)
load=$(cut -d' ' -f1 /proc/loadavg 2>/dev/null || echo unknown)
{
    printf '# bump-pin from 0.32.0 to 0.32.4, measured\n\n'
    printf '    processor    %s, %s cores\n' "${cpu:-$(uname -m)}" "$(getconf _NPROCESSORS_ONLN)"
    printf '    file system  %s\n' "$(stat -f -c %T "$work" 2>/dev/null || echo unknown)"
    printf '    load         %s at the end (1 minute)\n' "$load"
    printf '    %s\n\n' "$(git --version)"
    printf '`bench/bump.sh`, release binary, warm file cache, sources fetched, %s runs each, process start included; every run in `raw.tsv`. The target is 3 s.\n\n' "$runs"
    printf '| command | median ms | most ms | median processor ms |\n|---|---|---|---|\n'
    for name in $(sed 1d "$out/raw.tsv" | cut -f1 | uniq); do
        column() { sed 1d "$out/raw.tsv" | awk -F'\t' -v name="$name" -v column="$1" '$1 == name { print $column }' | sort -n; }
        wall=$(column 2 | awk '{ value[NR] = $1 } END { printf "%.1f | %.1f", value[int((NR + 1) / 2)] / 1000, value[NR] / 1000 }')
        processor=$(column 3 | awk '{ value[NR] = $1 } END { printf "%.0f", value[int((NR + 1) / 2)] / 1000 }')
        printf '| %s | %s | %s |\n' "$name" "$wall" "$processor"
    done
    printf '\n`bump-pin` hashes all of `vendor/mlx`, merges, compares the watched functions, writes pin, lock, patch and report. '
    printf '`git-am-3-alone` only patches the new files, which are already checked out; the last row also checks them out and exports the patch. '
    printf 'Both must produce the same tree, or the script stops.\n'
    case $load in
        [01].* | unknown) ;;
        *) printf '\nOther processes used the processors (load %s): compare the rows with each other; the absolute figures are too high.\n' "$load" ;;
    esac
} >"$out/README.md"
cat "$out/README.md"
