#!/bin/sh
# Trains over two machines, which are network namespaces joined by a cable: two ranks in each, through
# TCP. The log is that of the same ranks on one machine. Skipped (77) where namespaces cannot be made.
# Usage: test_train_machines.sh ERGON SOURCE_DIR
set -eu
ergon=$1
source=$2
work=$(mktemp -d)
machines=""
# shellcheck disable=SC2086 # a list of processes
trap 'kill $machines 2>/dev/null || true; rm -rf "$work"' EXIT

skip() {
    echo "skipped: $1"
    exit 77
}

command -v ip >/dev/null && command -v nsenter >/dev/null ||
    skip "iproute2 or util-linux is not here"
unshare -n true 2>/dev/null || skip "this user may not make network namespaces"
unshare -n sleep 300 &
machines="$!"
unshare -n sleep 300 &
machines="$machines $!"
first=${machines% *}
second=${machines#* }
own=$(readlink /proc/self/ns/net)
for machine in $machines; do # until it has left this namespace
    until [ "$(readlink "/proc/$machine/ns/net")" != "$own" ]; do sleep 0.05; done
done
ip link add cable0 netns "$first" type veth peer name cable1 netns "$second" 2>/dev/null ||
    skip "this kernel has no virtual cables (veth)"

on() {
    machine=$1
    shift
    nsenter -t "$machine" -n "$@"
}
on "$first" ip address add 10.77.0.1/24 dev cable0
on "$second" ip address add 10.77.0.2/24 dev cable1
for machine in $machines; do
    on "$machine" ip link set lo up
done
on "$first" ip link set cable0 up
on "$second" ip link set cable1 up

cp -r "$source/examples/train/tiny-llama" "$work"
sed 's/^microbatches: .*/microbatches: 4/; s/gpus_per_node: 1/gpus_per_node: 4/
     s/^microbatch_size: .*/microbatch_size: 2/' "$source/examples/train/tiny.yaml" >"$work/job.yaml"
printf 'tensor: 2\npipeline: 2\n' >>"$work/job.yaml"
"$ergon" tokenize bytes "$source/README.md" -o "$work/tokens" >"$work/tokenize.log"


# Rank $1 on the machine of process $2, its $3th there.
export WORLD_SIZE=4 LOCAL_WORLD_SIZE=2 MASTER_ADDR=10.77.0.1 MASTER_PORT=29511
export ERGON_JOB_SECRET=between-two-machines
ranks=""
for rank in 0 1 2 3; do
    machine=$first
    [ $rank -lt 2 ] || machine=$second
    RANK=$rank LOCAL_RANK=$((rank % 2)) on "$machine" "$ergon" train "$work/job.yaml" \
        --device host --dtype float32 -n 4 -q -o "$work/two" >"$work/rank$rank.log" 2>&1 &
    ranks="$ranks $!"
done
for rank in $ranks; do
    wait "$rank" || { cat "$work"/rank*.log; exit 1; }
done
unset WORLD_SIZE LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT
"$ergon" run -n 4 -- "$ergon" train "$work/job.yaml" --device host --dtype float32 -n 4 -q \
    -o "$work/one" >"$work/one.log" 2>&1 || { cat "$work/one.log"; exit 1; }

for run in one two; do
    grep -o '"loss":[^,]*,"gradient_norm":[^,]*' "$work/$run/metrics.jsonl" >"$work/$run.losses"
done
[ "$(wc -l <"$work/one.losses")" -eq 4 ]
cmp "$work/one.losses" "$work/two.losses"
