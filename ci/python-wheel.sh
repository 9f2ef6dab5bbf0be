#!/usr/bin/env bash
# Makes a Python wheel of MLX from a build of this repository, in seconds, and prints its path. The bindings come from
# PyPI (those of the pinned version); the library under them is linked from the prefix.
# usage: ci/python-wheel.sh PREFIX PARENT [LINKER-ARGUMENT…], e.g. pip install "$(ci/python-wheel.sh PREFIX PARENT)"
#
# The wheel is in a folder below PARENT, named by its content, and reused if it exists. Its version, for example
# 0.32.4+overlay.TREE, is later than PyPI's 0.32.4, so pip keeps it if a package requires that or later. PYTHON selects
# the Python that it is for (python3). Needs llvm-objcopy 19 (OBJCOPY selects another), and PyPI.
set -euo pipefail

fail() { printf 'error: %s\n' "$1" >&2; exit 1; }

[[ $# -ge 2 ]] || { sed -n 's,^# usage,usage,p' "$0" >&2; exit 2; }
prefix=$1 parent=$2
shift 2
python=${PYTHON:-python3} objcopy=${OBJCOPY:-llvm-objcopy-19}
made_by="make one with: cargo xtask build --cpu"
[[ -f $prefix/mlx-overlay.toml ]] || fail "$prefix has no mlx-overlay.toml, so it is not a prefix of a build; $made_by"
"$python" -c 'import ensurepip, sys; assert sys.version_info >= (3, 11)' 2>/dev/null ||
    fail "$python is not Python 3.11 or later with venv (apt-get install python3-venv); name another in PYTHON"
command -v "$objcopy" >/dev/null ||
    fail "$objcopy is not on PATH; install llvm-19 (apt-get install llvm-19), or name another in OBJCOPY"
stamp() { "$python" - "$prefix/mlx-overlay.toml" "$1" <<'PY'; }
import sys, tomllib
value = tomllib.load(open(sys.argv[1], "rb"))[sys.argv[2]]
print(*value if isinstance(value, list) else [value])
PY
[[ $(stamp backend) == sim || $(stamp backend) == cpu ]] ||
    fail "$prefix is a $(stamp backend) build, but a sim or cpu build is needed; $made_by"
[[ $(stamp cpu) == True ]] || fail "$prefix has no CPU back-end, which MLX's Python needs; $made_by"

inputs=("$0" "$prefix"/mlx-overlay.toml "$prefix"/{bin,lib}/*)
for argument in "$@"; do [[ ! -f $argument ]] || inputs+=("$argument"); done
tag=$("$python" -c 'import sys; print(sys.implementation.cache_tag)')
out=$parent/$({ echo "$tag" "$@"; for file in "${inputs[@]}"; do [[ ! -f $file ]] || cat "$file"; done; } | sha256sum | cut -c1-12)
for wheel in "$out"/mlx-*.whl; do
    [[ ! -f $wheel ]] || { echo "$wheel"; exit; }
done
mkdir -p "$out"
work=$(mktemp -d "$out/wheel.XXXXXX")
trap 'rm -rf "$work"; rmdir "$out" 2>/dev/null || true' EXIT

version=$(stamp version)
pip=("$python" -m pip)
if ! "$python" -c 'import pip' 2>/dev/null; then
    "$python" -m venv "$work/venv"
    pip=("$work/venv/bin/pip")
fi
"${pip[@]}" --disable-pip-version-check download --quiet --no-deps --only-binary :all: --dest "$work" \
    "mlx==$version" >"$work/log" 2>&1 ||
    fail "pip fetched no mlx==$version for $tag: $(grep -i '^error' "$work/log" | tail -n 1)
PyPI must be reachable once, or PIP_FIND_LINKS must name a folder with that wheel"

# The bindings load libmlx.so. It is linked from the objects of the static library. Those hide their symbols, so the
# ones that the bindings may need are made visible first. "protected", because the objects were compiled to refer to
# each other directly, and still do.
nm --defined-only --extern-only "$prefix/lib/libmlx.a" 2>/dev/null |
    awk 'NF == 3 && $3 ~ /mlx/ { print $3 }' | sort -u >"$work/symbols"
"$objcopy" --set-symbols-visibility="$work/symbols=protected" "$prefix/lib/libmlx.a" "$work/visible.a"
libs=()
for name in $(stamp static_libs); do [[ $name == mlx ]] || libs+=("-l$name"); done
for name in $(stamp system_libs); do libs+=("-l$name"); done
for path in $(stamp link_search); do libs+=("-L$path"); done
"${CXX:-c++}" -shared -o "$work/libmlx.so" "$@" -Wl,--whole-archive "$work/visible.a" -Wl,--no-whole-archive \
    -L"$prefix/lib" "${libs[@]}"

"$python" - "$work" "$prefix" "$out" <<'PY'
import base64, glob, hashlib, os, platform, re, sys, tomllib, zipfile

work, prefix, out = sys.argv[1:]
stamp = tomllib.load(open(f"{prefix}/mlx-overlay.toml", "rb"))
(theirs,) = glob.glob(f"{work}/mlx-*.whl")
label = "pristine" if stamp["pristine"] else "overlay"
version = f"{stamp['version']}+{label}.{stamp['final_tree'][:8]}"
_, _, python, abi, _ = os.path.basename(theirs).split("-")
# Not manylinux: it links libraries of this system.
tag = f"{python}-{abi}-linux_{platform.machine()}"

record = []
name = f"mlx-{version}-{tag}.whl"
with zipfile.ZipFile(theirs) as source, zipfile.ZipFile(
    f"{work}/{name}", "w", zipfile.ZIP_DEFLATED, compresslevel=1
) as wheel:
    (info,) = {path.split("/")[0] for path in source.namelist() if ".dist-info/" in path}

    def put(path, data, mode=0o644):
        entry = zipfile.ZipInfo(path)
        entry.compress_type = zipfile.ZIP_DEFLATED
        entry.external_attr = (0o100000 | mode) << 16
        wheel.writestr(entry, data)
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        record.append(f"{path},sha256={digest},{len(data)}\n")

    def put_file(path, file):
        with open(file, "rb") as opened:
            put(path, opened.read(), os.stat(file).st_mode & 0o777)

    for entry in source.infolist():
        if entry.is_dir() or entry.filename == f"{info}/RECORD":
            continue
        data, path = source.read(entry), entry.filename
        if path == f"{info}/METADATA":
            head, _, body = data.decode().partition("\n\n")
            head = re.sub(r"(?m)^Version: .*$", f"Version: {version}", head)
            # Packages that install another library at the same place, like the extra `cpu`.
            head = re.sub(r"(?m)^Requires-Dist: mlx-.*\n", "", head)
            data = f"{head}\n\n{body}".encode()
        elif path == f"{info}/WHEEL":
            data = re.sub(r"(?m)^Tag: .*$", f"Tag: {tag}", data.decode()).encode()
        put(path.replace(info, f"mlx-{version}.dist-info", 1), data, entry.external_attr >> 16 & 0o777 or 0o644)
    put_file("mlx/lib/libmlx.so", f"{work}/libmlx.so")
    # Records the build, and includes the kernels and their compiler, so that the wheel needs no prefix.
    put_file("mlx/lib/mlx-overlay.toml", f"{prefix}/mlx-overlay.toml")
    for file in [stamp.get("metallib"), "bin/metal-simc"]:
        if file and os.path.isfile(f"{prefix}/{file}"):
            put_file(f"mlx/lib/{os.path.basename(file)}", f"{prefix}/{file}")
    record_path = f"mlx-{version}.dist-info/RECORD"
    wheel.writestr(record_path, "".join(record) + f"{record_path},,\n")
os.rename(f"{work}/{name}", f"{out}/{name}")
print(f"{out}/{name}")
PY
