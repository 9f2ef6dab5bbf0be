#!/bin/sh
# Times the metallib reader on a real library and stores the raw figures.
#
#   bench/metallib.sh mlx.metallib [folder for the results]
#
# Listing walks all functions and their constants. Memory is the peak resident set, including mapped pages. Verification
# is compared with sha256sum (one thread).
set -eu

file=${1:?usage: bench/metallib.sh FILE [FOLDER]}
out=${2:-docs/reports/metallib-$(date +%F)}
runs=21

for tool in /usr/bin/time sha256sum; do
    command -v "$tool" >/dev/null || { echo "$tool is missing (Debian: time, coreutils)" >&2; exit 1; }
done
cargo build --quiet --release -p metallib --features cli
metallib=${CARGO_TARGET_DIR:-target}/release/metallib
mkdir -p "$out"

# Into the page cache, so that every run below is warm.
cat "$file" >/dev/null

measure() { # name, command...
    name=$1
    shift
    i=0
    while [ $i -lt $runs ]; do
        start=$(date +%s%N)
        /usr/bin/time --format %M --output "$out/.kib" "$@" >/dev/null
        end=$(date +%s%N)
        printf '%s\t%s\t%s\n' "$name" $(((end - start) / 1000)) "$(cat "$out/.kib")"
        i=$((i + 1))
    done
}

{
    printf 'command\tmicroseconds\tpeak_kib\n'
    measure list "$metallib" list "$file"
    measure list-names "$metallib" list --names "$file"
    measure verify "$metallib" verify "$file"
    measure verify-1-thread env RAYON_NUM_THREADS=1 "$metallib" verify "$file"
    measure sha256sum sha256sum "$file"
    measure openssl openssl dgst -sha256 "$file"
    measure start-only "$metallib" --version
} >"$out/raw.tsv"
rm -f "$out/.kib"

hashed=$("$metallib" verify "$file" | sed 's/.* one, \([0-9]*\) bytes hashed/\1/')
size=$(wc -c <"$file")
{
    echo "# metallib reader, measured"
    echo
    "$metallib" info "$file" | sed -n '/^container/p;/^minimum/p;/^functions/p' | sed 's/^/    /'
    echo "    file             $size bytes, $hashed of bitcode"
    echo "    processor        $(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -n 1), $(nproc) cores"
    echo "    sha256sum        $(sha256sum --version | head -n 1)"
    echo "    openssl          $(openssl version)"
    echo
    echo "Median (least) of $runs warm runs, process start included; \`bench/metallib.sh\`, every run in \`raw.tsv\`."
    echo
    echo "| command | median ms | least ms | peak MiB | MB/s at the median |"
    echo "|---|---|---|---|---|"
    for name in list list-names verify verify-1-thread sha256sum openssl start-only; do
        case $name in
        verify*) bytes=$hashed ;;
        sha256sum | openssl) bytes=$size ;;
        *) bytes=0 ;;
        esac
        grep "^$name	" "$out/raw.tsv" | sort -t '	' -k 2n | awk -F '\t' -v bytes="$bytes" '
            { us[NR] = $2; if ($3 > kib) kib = $3 }
            END {
                median = us[int((NR + 1) / 2)]
                rate = bytes ? sprintf("%.0f", bytes / median) : "-"
                printf "| %s | %.1f | %.1f | %.1f | %s |\n", $1, median / 1000, us[1] / 1000, kib / 1024, rate
            }'
    done
} >"$out/README.md"
cat "$out/README.md"
