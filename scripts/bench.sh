#!/bin/sh
# Runs the benchmark programs of a folder one after the other; each prints its own table.
# Usage: bench.sh FOLDER [NAME...], for example: bench.sh build/release/bench published solver
set -eu

folder=$1
shift
if [ $# -eq 0 ]; then
    set -- $(cd "$folder" && ls | sed -n 's/^bench_\([a-z0-9_]*\)$/\1/p')
fi
for name in "$@"; do
    printf '\n== bench_%s ==\n' "$name"
    "$folder/bench_$name"
done
