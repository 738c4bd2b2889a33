#!/bin/sh
# Makes profiles/prof_optimal.csv again: of every job on 1 to 32 GPUs of every kind the frontier of
# time and power over layouts and clocks, as ergon layout finds it. Takes a minute on one core.
#
#   sh examples/cluster/make-profiles.sh [ERGON]
set -eu
ergon=$(command -v "${1:-ergon}")
case $ergon in
/*) ;;
*) ergon=$PWD/$ergon ;;
esac
cd "$(dirname "$0")"
mkdir -p profiles
trap 'rm -f profiles/*.new' EXIT
: >profiles/all.new
for job in jobs/*.yaml; do
    for nodes in a100-40gb:megatron-kwai-a100:1,2,4,8,16 a100-80gb:megatron-kwai-a100:1,2,4,8,16,32 \
        h800:megatron-kwai-h800:1,2,4,8,16,32; do
        rest=${nodes#*:}
        "$ergon" layout "$job" --cluster "nodes/${nodes%%:*}.yaml" --engine "${rest%%:*}" \
            --gpus "${rest#*:}" --export profile >>profiles/all.new
    done
done
awk 'NR == 1 || !/^model,/' profiles/all.new >profiles/prof_optimal.csv.new
mv profiles/prof_optimal.csv.new profiles/prof_optimal.csv
