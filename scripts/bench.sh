#!/bin/sh
# Runs the benchmark programs of a folder one after the other; each prints its own table. The programs
# of both folders take less than ten minutes on two cores. After each table stand its seconds and its
# CPU seconds, which other work on the machine does not change.
# Usage: bench.sh FOLDER [NAME...], for example: bench.sh build/release/bench published solver
set -eu

folder=$1
shift
if [ $# -eq 0 ]; then
    for program in "$folder"/bench_*; do
        if [ -f "$program" ] && [ -x "$program" ]; then
            set -- "$@" "${program##*/bench_}"
        fi
    done
fi
used=$(mktemp)
trap 'rm -f "$used"' EXIT
# The CPU seconds of the programs so far. `times` knows those of this shell alone: no pipe, then.
cpu_s() {
    times >"$used"
    cpu=$(awk -F '[ms ]+' 'NR == 2 { printf "%.0f", 60 * ($1 + $3) + $2 + $4 }' "$used")
}
failed=""
cpu_s
for name in "$@"; do
    printf '\n== bench_%s ==\n' "$name"
    start=$(date +%s)
    before=$cpu
    "$folder/bench_$name" || failed="$failed bench_$name"
    cpu_s
    printf '(bench_%s: %d s, %d CPU s)\n' "$name" $(($(date +%s) - start)) $((cpu - before))
done
if [ -n "$failed" ]; then
    echo "these programs failed:$failed" >&2
    exit 1
fi
