#!/bin/sh
# Runs the GPU tests (gpu_*), then the GPU benches (bench_*) of a folder; each prints its own lines,
# and the script prints its exit status and time.
# A test that exits with 77 was skipped. It needs no other file of the project.
# Usage: gpu-check.sh FOLDER, for example: gpu-check.sh build/release/gpu
set -eu

folder=$1
failed=""
for program in "$folder"/gpu_* "$folder"/bench_*; do
    [ -x "$program" ] || continue
    name=${program##*/}
    printf '\n== %s ==\n' "$name"
    status=0 began=$(date +%s)
    "$program" || status=$?
    printf '== %s: status %s after %s s ==\n' "$name" "$status" "$(($(date +%s) - began))"
    if [ "$status" -ne 0 ] && [ "$status" -ne 77 ]; then
        failed="$failed $name"
    fi
done
if [ -n "$failed" ]; then
    printf '\nfailed:%s\n' "$failed"
    exit 1
fi
