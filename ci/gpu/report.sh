#!/usr/bin/env bash
# Makes a table and a picture of what run.sh left in a folder (needs gnuplot).
#
#   ci/gpu/report.sh docs/benchmarks/gpu-<date> >table.md
set -euo pipefail

out=${1:?"name the folder with run.sh's results"}

awk -F, -v OFS=' | ' '
    NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; next }
    {
        case_ = $at["shape"] " " $at["bits"]
        if (!(case_ in what)) {
            order[++cases] = case_
            what[case_] = sprintf("%s (%s, %s), %s bits", $at["shape"], $at["n"], $at["k"], $at["bits"])
        }
        m = $at["m"]
        kernel = $at["kernel"]
        ratio[case_, kernel, m] = $at["ratio_to_m1"]
        if (kernel == "qmv" && m == 1) {
            one[case_] = $at["microseconds"]
            part[case_] = $at["of_read_ceiling"]
        }
        if (kernel ~ /-cap-8$/ && m == 8 && !(kernel in seen)) {
            seen[kernel] = 1
            kernels[++count] = kernel
        }
    }
    function cell(case_, kernel, m) { return sprintf("%.2f", ratio[case_, kernel, m]) }
    END {
        split("2 3 4 5 6 8 12 16", rows, " ")
        printf "| shape (N, K), bits | one row, us | of the read ceiling | kernel |"
        for (i = 1; i in rows; i++) printf " M = %s |", rows[i]
        printf "\n|---|--:|--:|---|"
        for (i = 1; i in rows; i++) printf "--:|"
        print ""
        split("qmv streamed-cap-5 streamed-cap-8", shown, " ")
        for (c = 1; c <= cases; c++)
            for (k = 1; k in shown; k++) {
                if (k == 1) printf "| %s | %.1f | %.2f ", what[order[c]], one[order[c]], part[order[c]]
                else printf "| | | "
                printf "| `%s` |", shown[k]
                for (i = 1; i in rows; i++) printf " %s |", cell(order[c], shown[k], rows[i])
                print ""
            }
        printf "\n| M = 8 |"
        for (k = 1; k <= count; k++) printf " `%s` |", substr(kernels[k], 1, length(kernels[k]) - 6)
        printf "\n|---|"
        for (k = 1; k <= count; k++) printf "--:|"
        print ""
        for (c = 1; c <= cases; c++) {
            printf "| %s |", what[order[c]]
            for (k = 1; k <= count; k++) printf " %s |", cell(order[c], kernels[k], 8)
            print ""
        }
    }' "$out/time.csv"

awk -F, '
    NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; next }
    $at["label"] == "shipped" && $at["type"] == "bfloat" && $at["group_size"] == 64 {
        kernel = $at["twin"] " " $at["bits"]
        if (!(kernel in seen)) {
            seen[kernel] = 1
            order[++count] = kernel
        }
        cell[kernel, $at["tile"]] = $at["registers"] " (" $at["simdgroups_resident"] ")"
        spilled += $at["spilled_bytes"]
        of = $at["of"]
    }
    END {
        printf "\n| registers a lane (simdgroups resident of %s) | one row |", of
        for (v = 2; v <= 8; v++) printf " V = %s |", v
        printf "\n|---|--:|"
        for (v = 2; v <= 8; v++) printf "--:|"
        print ""
        for (k = 1; k <= count; k++) {
            split(order[k], name, " ")
            printf "| `%s`, %s bits | %s |", name[1], name[2], cell[order[k], 0]
            for (v = 2; v <= 8; v++) printf " %s |", cell[order[k], v]
            print ""
        }
        printf "\nbfloat16, groups of 64; %d bytes spilled in all of them.\n", spilled
    }' "$out/registers.csv"

# One kernel's times as lines of M and ratio, shape by shape.
lines=$(mktemp -d)
trap 'rm -rf "$lines"' EXIT
awk -F, -v to="$lines" 'NR > 1 { print $6, $11 >(to "/" $1 "-" $4 "-" $5) }' "$out/time.csv"

gnuplot <<PLOT
set terminal svg size 1500,620 dynamic font "sans-serif,13" background "white"
set output "$out/time.svg"
set multiplot layout 2,5 title "Time of M rows against one row of MLX's qmv (bfloat16, groups of 64)" font ",16"
set key top left reverse Left samplen 1.5 font ",11"
set grid lc rgb "#dddddd"
set border 3
set tics nomirror out
set xrange [0.5:16.5]
set xtics (1, 4, 8, 12, 16)
set yrange [0:*]
set ytics autofreq
do for [width in "4 8"] {
  do for [shape in "head mlp mlp-tail square narrow"] {
    set title sprintf("%s, %s bits", shape, width)
    set xlabel "rows M"
    set ylabel (shape eq "head" ? "times one row" : "")
    if (shape eq "head") { set key on } else { set key off }
    file(kernel) = "$lines/".shape."-".width."-".kernel
    plot file("qmv") with linespoints pt 7 ps 0.4 lw 2 lc rgb "#888888" title "row by row", \
         file("streamed-cap-5") with linespoints pt 7 ps 0.4 lw 2 lc rgb "#e69f00" title "streamed, cap 5", \
         file("streamed-cap-8") with linespoints pt 7 ps 0.4 lw 2 lc rgb "#0072b2" title "streamed, cap 8"
  }
}
unset multiplot
PLOT
