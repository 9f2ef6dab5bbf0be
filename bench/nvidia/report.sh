#!/usr/bin/env bash
# Makes a table and a picture of what run.sh left in a folder (needs gnuplot).
#
#   bench/nvidia/report.sh docs/reports/gpu-<date> >table.md
set -euo pipefail

out=${1:?"name the folder with run.sh's results"}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# What both tables are made with: columns by name, and how weights are called. The first report has no column `mode`.
# shellcheck disable=SC2016 # the dollars are awk's
common='
    NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; next }
    function mode() { return "mode" in at ? $at["mode"] : "affine" }
    function weights() { return mode() == "affine" ? $at["bits"] " bits" : mode() }'

# Of each kernel's times, lines of M and ratio for the picture, shape by shape.
awk -F, -v OFS=' | ' -v work="$work" "$common"'
    {
        case_ = $at["shape"] " " weights()
        if (!(case_ in what)) {
            order[++cases] = case_
            what[case_] = sprintf("%s (%s, %s), %s", $at["shape"], $at["n"], $at["k"], weights())
            # How the fp modes are told apart below: another change to MLX begins at this N.
            n = $at["n"]
            side[case_] = weights() ", N " (n < 2048 ? "below" : n > 2048 ? "above" : "=") " 2048"
            if (!(side[case_] in side_seen)) {
                side_seen[side[case_]] = 1
                sides[++side_count] = side[case_]
            }
        }
        m = $at["m"]
        kernel = $at["kernel"]
        ratio[case_, kernel, m] = $at["ratio_to_m1"]
        print m " " $at["ratio_to_m1"] >(work "/" case_ " " kernel)
        if (kernel == "qmv" && m == 1) {
            one[case_] = $at["microseconds"]
            part[case_] = $at["of_read_ceiling"]
        }
        if (kernel ~ /-cap-8$/ && m == 8 && !(kernel in seen)) {
            seen[kernel] = 1
            kernels[++count] = kernel
        }
        if (!($at["shape"] in shape_seen)) {
            shape_seen[$at["shape"]] = 1
            shapes = shapes (shapes ? " " : "") $at["shape"]
        }
        if (!(weights() in weights_seen)) {
            weights_seen[weights()] = 1
            all_weights = all_weights (all_weights ? "," : "") weights()
        }
        title = mode() == "affine" ? "bfloat16, groups of 64" : "bfloat16"
    }
    function cell(case_, kernel, m) { return sprintf("%.2f", ratio[case_, kernel, m]) }
    END {
        wide = ("wide-cap-8" in seen)
        split(wide ? "2 3 4 5 6 7 8 12 14 15 16" : "2 3 4 5 6 8 12 16", rows, " ")
        printf "| shape (N, K), %s | one row, us | of the read ceiling | kernel |", wide ? "weights" : "bits"
        for (i = 1; i in rows; i++) printf " M = %s |", rows[i]
        printf "\n|---|--:|--:|---|"
        for (i = 1; i in rows; i++) printf "--:|"
        print ""
        split("qmv streamed-cap-5 streamed-cap-8" (wide ? " wide-cap-5 wide-cap-8" : ""), shown, " ")
        for (c = 1; c <= cases; c++)
            for (k = 1; k in shown; k++) {
                if (k == 1) printf "| %s | %.1f | %.2f ", what[order[c]], one[order[c]], part[order[c]]
                else printf "| | | "
                printf "| `%s` |", shown[k]
                for (i = 1; i in rows; i++) printf " %s |", cell(order[c], shown[k], rows[i])
                print ""
            }
        if (wide) {
            # Where the two caps have other tiles: the geometric mean over shapes.
            split("6 7 8 11 12 13 14 15 16", rows, " ")
            printf "\n| time under cap 8 over cap 5 | kernel |"
            for (i = 1; i in rows; i++) printf " M = %s |", rows[i]
            printf " all | faster, slower by over 3 %% |\n|---|---|"
            for (i = 1; i in rows; i++) printf "--:|"
            print "--:|---|"
            for (s = 1; s <= side_count; s++)
                for (k = 1; k <= 2; k++) {
                    kernel = k == 1 ? "wide" : "streamed"
                    printf "| %s | `%s` |", k == 1 ? sides[s] : "", kernel
                    all = points = faster = slower = 0
                    for (i = 1; i in rows; i++) {
                        sum = shape_count = 0
                        for (c = 1; c <= cases; c++) {
                            if (side[order[c]] != sides[s]) continue
                            r = ratio[order[c], kernel "-cap-8", rows[i]] / ratio[order[c], kernel "-cap-5", rows[i]]
                            sum += log(r)
                            shape_count++
                            faster += r < 0.97
                            slower += r > 1.03
                        }
                        printf " %.2f |", exp(sum / shape_count)
                        all += sum
                        points += shape_count
                    }
                    printf " %.2f | %d, %d of %d |\n", exp(all / points), faster, slower, points
                }
        } else {
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
        }
        print shapes "\n" all_weights "\n" title >(work "/cases")
    }' "$out/time.csv"

awk -F, "$common"'
    # A scale of the whole matrix changes what is done once, at the end.
    $at["type"] == "bfloat" && mode() !~ /_hgs$/ && ($at["label"] == "shipped" || $at["label"] == "wide") &&
    (mode() != "affine" || $at["group_size"] == 64) {
        kernel = $at["twin"] "`, " weights()
        if (!(kernel in seen)) {
            seen[kernel] = 1
            order[++count] = kernel
        }
        cell[kernel, $at["tile"]] = $at["registers"] " (" $at["simdgroups_resident"] ")"
        if (mode() != "affine") {
            cell[kernel, $at["tile"]] = cell[kernel, $at["tile"]] sprintf(", %.1f KB", $at["code_bytes"] / 1e3)
            groups = ""
        } else {
            groups = ", groups of 64"
        }
        spilled += $at["spilled_bytes"]
        of = $at["of"]
    }
    END {
        printf "\n| registers a lane (simdgroups resident of %s)%s | one row |", of, groups ? "" : ", code"
        for (v = 2; v <= 8; v++) printf " V = %s |", v
        printf "\n|---|--:|"
        for (v = 2; v <= 8; v++) printf "--:|"
        print ""
        for (k = 1; k <= count; k++) {
            printf "| `%s | %s |", order[k], cell[order[k], 0]
            for (v = 2; v <= 8; v++) printf " %s |", cell[order[k], v]
            print ""
        }
        printf "\nbfloat16%s; %d bytes spilled in all of them.\n", groups, spilled
    }' "$out/registers.csv"

{ read -r shapes; read -r weights; read -r title; } <"$work/cases"
across=$(wc -w <<<"$shapes")
IFS=, read -ra down <<<"$weights"
quoted=("${down[@]/#/\"}")
quoted=("${quoted[@]/%/\"}")
lines=()
line() { # kernel, colour and name
    lines+=("file(\"$1\") with linespoints pt 7 ps 0.4 lw 2 lc rgb \"$2\" title \"$3\"")
}
line qmv "#888888" "row by row"
line streamed-cap-5 "#e69f00" "streamed, cap 5"
line streamed-cap-8 "#0072b2" "streamed, cap 8"
if [ -f "$work/${shapes%% *} ${down[0]} wide-cap-5" ]; then
    line wide-cap-5 "#cc79a7" "MLX's wide, cap 5"
    line wide-cap-8 "#009e73" "MLX's wide, cap 8"
fi
joined() { # by commas
    local list
    list=$(printf '%s, ' "$@")
    echo "${list%, }"
}

gnuplot <<PLOT
set terminal svg size 300*$across,310*${#down[@]} dynamic font "sans-serif,13" background "white"
set output "$out/time.svg"
set multiplot layout ${#down[@]},$across title "Time of M rows against one row of MLX's qmv ($title)" font ",16"
set key top left reverse Left samplen 1.5 font ",11"
set grid lc rgb "#dddddd"
set border 3
set tics nomirror out
set xrange [0.5:16.5]
set xtics (1, 4, 8, 12, 16)
set yrange [0:*]
set ytics autofreq
array weights[${#down[@]}] = [$(joined "${quoted[@]}")]
file(kernel) = "$work/".shape." ".weights[i]." ".kernel
do for [i = 1:${#down[@]}] {
  do for [shape in "$shapes"] {
    set title sprintf("%s, %s", shape, weights[i])
    set xlabel "rows M"
    set ylabel (shape eq word("$shapes", 1) ? "times one row" : "")
    if (shape eq word("$shapes", 1)) { set key on } else { set key off }
    plot $(joined "${lines[@]}")
  }
}
unset multiplot
PLOT
