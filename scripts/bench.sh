#!/bin/sh
# Runs the benchmark programs of a folder one after the other; each prints its own table. The programs of
# both folders take less than ten minutes on two cores.
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
failed=""
for name in "$@"; do
    printf '\n== bench_%s ==\n' "$name"
    start=$(date +%s)
    "$folder/bench_$name" || failed="$failed bench_$name"
    printf '(bench_%s: %d s)\n' "$name" $(($(date +%s) - start))
done
if [ -n "$failed" ]; then
    echo "these programs failed:$failed" >&2
    exit 1
fi
