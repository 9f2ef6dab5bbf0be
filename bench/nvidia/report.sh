#!/usr/bin/env bash
# Makes tables of the results that run.sh left in a folder.
#
#   bench/nvidia/report.sh docs/reports/gpu-<date> >tables.md
set -euo pipefail

out=${1:?"name the folder with run.sh's results"}
# Shared by the tables: columns by name, and the names of weights and shapes.
# shellcheck disable=SC2016 # the dollars are awk's
common='
    NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; next }
    function weights() { return $at["mode"] == "affine" ? $at["bits"] " bits" : $at["mode"] }
    function shape() { return $at["shape"] " (" $at["n"] ", " $at["k"] "), " weights() }
    function begin_table(first, count, head) {
        printf "\n| %s |", first
        for (i = 1; i <= count; i++) printf " %s |", head[i]
        printf "\n|---|"
        for (i = 1; i <= count; i++) printf "--:|"
        print ""
    }'

# Times compared with one row, each with its share of the read ceiling.
awk -F, "$common"'
    {
        s = shape()
        k = $at["kernel"]
        m = $at["m"]
        if (!(s in seen)) { seen[s] = 1; order[++shapes] = s }
        cell[s, k, m] = sprintf("%.2f (%.2f)", $at["ratio_to_m1"], $at["of_read_ceiling"])
        if (k == "qmv" && m == 1) one[s] = sprintf("%.1f us (%.2f)", $at["microseconds"], $at["of_read_ceiling"])
        if (k ~ /^r[0-9]/ && !(k in other)) { other[k] = 1; others[++other_count] = k }
    }
    END {
        split("2 3 4 5 6 7 8 12 16", rows, " ")
        printf "\n| shape (N, K), weights | one row | kernel |"
        for (i = 1; i in rows; i++) printf " M = %s |", rows[i]
        printf "\n|---|--:|---|"
        for (i = 1; i in rows; i++) printf "--:|"
        print ""
        split("qmv streamed alternative", shown, " ")
        for (c = 1; c <= shapes; c++)
            for (k = 1; k in shown; k++) {
                if (!((order[c], shown[k], 2) in cell)) continue
                printf "| %s | %s | `%s` |", k == 1 ? order[c] : "", k == 1 ? one[order[c]] : "", shown[k]
                for (i = 1; i in rows; i++) printf " %s |", cell[order[c], shown[k], rows[i]]
                print ""
            }
        begin_table("other arrangements, M = 8", other_count, others)
        for (c = 1; c <= shapes; c++) {
            printf "| %s |", order[c]
            for (k = 1; k <= other_count; k++) printf " %s |", cell[order[c], others[k], 8]
            print ""
        }
    }' "$out/time.csv"

# MLX's own kernel for several rows: the geometric mean over shapes of its time under cap 8 over that under cap 5.
awk -F, "$common"'
    $at["kernel"] ~ /^wide-cap-/ {
        n = $at["n"]
        side = weights() ", N " (n < 2048 ? "below" : n > 2048 ? "above" : "=") " 2048"
        if (!(side in seen)) { seen[side] = 1; order[++sides] = side }
        key = side SUBSEP $at["m"] SUBSEP $at["shape"]
        if ($at["kernel"] == "wide-cap-5") five[key] = $at["microseconds"]
        else eight[key] = $at["microseconds"]
    }
    END {
        for (key in eight) {
            split(key, part, SUBSEP)
            if (!(key in five)) continue
            sum[part[1], part[2]] += log(eight[key] / five[key])
            count[part[1], part[2]]++
        }
        split("6 7 8 12 16", rows, " ")
        for (i = 1; i in rows; i++) head[i] = "M = " rows[i]
        begin_table("time of `qmv_wide` under cap 8 over cap 5", i - 1, head)
        for (s = 1; s <= sides; s++) {
            printf "| %s |", order[s]
            for (i = 1; i in rows; i++) {
                c = count[order[s], rows[i]]
                printf " %s |", c ? sprintf("%.2f", exp(sum[order[s], rows[i]] / c)) : ""
            }
            print ""
        }
    }' "$out/time.csv"

awk -F, "$common"'
    $at["type"] == "bfloat" && $at["label"] == "shipped" && $at["mode"] !~ /_hgs$/ &&
    ($at["mode"] != "affine" || $at["group_size"] == 64) && $at["twin"] == "qmv_fast" {
        tile = $at["tile"]
        what = weights() (tile < 2 ? "" : $at["sharing"] > 0 || $at["rows"] > 2 ? ", shared or 4 outputs" : ", 2 outputs")
        if (tile == 0) { one[weights()] = $at["registers"] " (" $at["simdgroups_resident"] ")"; next }
        if (tile < 2) next
        if (!(what in seen)) { seen[what] = 1; order[++kernels] = what; of_weights[what] = weights() }
        cell[what, tile] = $at["registers"] " (" $at["simdgroups_resident"] ")" ($at["spilled_bytes"] > 0 ? " + " $at["spilled_bytes"] " B" : "")
        of = $at["of"]
    }
    END {
        split("2 3 4 6 8", tiles, " ")
        head[1] = "one row"
        for (i = 1; i in tiles; i++) head[i + 1] = "V = " tiles[i]
        begin_table("registers per lane (simdgroups resident of " of ") + bytes spilled, bfloat16", i, head)
        for (k = 1; k <= kernels; k++) {
            printf "| %s | %s |", order[k], one[of_weights[order[k]]]
            for (i = 1; i in tiles; i++) printf " %s |", cell[order[k], tiles[i]]
            print ""
        }
    }' "$out/registers.csv"

# What simdgroups wait for, in the order of the launches: head then mlp, and for each width M = 1, 2, 4, 8 and 16.
[ -f "$out/profile.csv" ] || exit 0
awk -F, '
    NR == 1 {
        for (i = 1; i <= NF; i++) {
            name = $i
            sub(/ \[.*/, "", name)
            at[name] = i
            if (match(name, /_stalled_.*_per_/)) stall[i] = substr(name, RSTART + 9, RLENGTH - 14)
        }
        print "\n| profiled kernel | threadgroups | us | DRAM | cycles that issue | simdgroups resident | waits most for |"
        print "|---|--:|--:|--:|--:|--:|---|"
        next
    }
    {
        first = second = 0
        for (i in stall) {
            if (!first || $i + 0 > $first + 0) { second = first; first = i }
            else if (!second || $i + 0 > $second + 0) second = i
        }
        printf "| %s | %d | %.1f | %.0f %% | %.0f %% | %.0f %% | %s, %s |\n", $at["kernel"], $at["launch__grid_size"],
            $at["gpu__time_duration.sum"] / 1000, $at["dram__throughput.avg.pct_of_peak_sustained_elapsed"],
            $at["smsp__issue_active.avg.pct_of_peak_sustained_active"],
            $at["sm__warps_active.avg.pct_of_peak_sustained_active"], stall[first], stall[second]
    }' "$out/profile.csv"
