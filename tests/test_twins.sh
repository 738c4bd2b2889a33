#!/bin/sh
# The examples of the public headers, in C and in Python: each runs, and both say the same.
# Usage: test_twins.sh PROGRAMS SOURCE_DIR ERGON FAKE_NVML LIBRARY [PYTHON]
# PROGRAMS is the folder of the compiled examples. Without PYTHON those in C run alone.
set -eu

programs=$1
source=$2
ergon=$3
python=${6-}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
export ERGON_NVML="$4" ERGON_FAKE_NVML="$work/gpus" ERGON_LIBRARY="$5"
export PYTHONPATH="$source/python" PYTHONDONTWRITEBYTECODE=1
# GPUs are claimed by their UUID, so those of other tests have others.
printf 'gpus 2\ngpu * power 0=500\ngpu 0 uuid GPU-twins-%s-0\ngpu 1 uuid GPU-twins-%s-1\n' $$ $$ >gpus
[ -n "$python" ] || echo "there is no Python here: the examples in C run alone"

# Numbers that are measured differ from run to run.
timed() {
    sed 's/[0-9][0-9.]* s\b/T s/g; s/[0-9][0-9.]* ms/T ms/g; s/[0-9.]* +- [0-9.]* J/E J/g
         s/mean [0-9]* W/mean W/; s/, [0-9]* changes/, N changes/' "$1"
}

run() { # NAME WHOSE ARGUMENTS: what it says is in NAME.WHOSE
    name=$1
    whose=$2
    shift 2
    if [ "$whose" = c ]; then
        set -- "$programs/$name" "$@"
    else
        set -- "$python" "$source/examples/python/$name.py" "$@"
    fi
    if ! "$@" >"$name.$whose" 2>errors; then
        echo "$*: failed and said"
        cat "$name.$whose" errors
        exit 1
    fi
    [ -s "$name.$whose" ] || { echo "$* said nothing"; exit 1; }
}

compare() { # NAME exactly|timed
    [ -n "$python" ] || return 0
    if [ "$2" = exactly ]; then
        cp "$1.c" one
        cp "$1.py" other
    else
        timed "$1.c" >one
        timed "$1.py" >other
    fi
    diff one other && return 0
    echo "examples/c/$1.c (<) and examples/python/$1.py (>) differ"
    exit 1
}

twin() { # NAME ARGUMENTS
    name=$1
    shift
    run "$name" c "$@"
    [ -z "$python" ] || run "$name" py "$@"
    compare "$name" exactly
}

for example in "$source"/examples/c/*.c "$source"/examples/python/*.py; do
    if [ "$(wc -l <"$example")" -gt 60 ]; then
        echo "$example has more than 60 lines"
        exit 1
    fi
done

sed 's/microbatches: 8/microbatches: 4/; s/method: gp/method: random/' \
    "$source/examples/quickstart.yaml" >job.yaml
twin model llama-3.2-3b
twin job job.yaml microbatches 16
twin job job.yaml pipeline 4
grep -q "it cannot run as it is" job.c || { echo "job.c took a layout of 32 GPUs on 16"; exit 1; }
twin memory "$source/examples/kwai/llama-65b.yaml"
twin layout "$source/examples/kwai/llama2-7b.yaml" 8
twin frontier
twin simulate "$source/examples/cluster"
twin kernels "$source/tests/data/kernels/kineto.json"
run characterize c "$source/examples/characterize/charllm-fault-h200.yaml" out-study-c
[ -z "$python" ] || run characterize py "$source/examples/characterize/charllm-fault-h200.yaml" out-study-py
compare characterize exactly
[ -z "$python" ] || diff -r out-study-c out-study-py
run optimize c job.yaml out-c
[ -z "$python" ] || run optimize py job.yaml out-py
compare optimize exactly
twin plan out-c/plan.json 2.3

run telemetry c
[ -z "$python" ] || run telemetry py
compare telemetry timed

# A GPU that takes the least energy at 400 W.
printf 'gpus 1\ngpu 0 follow limit 300=900 400=300 500=900\ngpu 0 counter 0.02 0\ngpu 0 uuid GPU-twins-%s-2\n' $$ >curve
(
    export ERGON_FAKE_NVML="$work/curve"
    twin tune 300 500 100
    grep -qx "least energy at 400 W" tune.c || { echo "tune.c: $(cat tune.c)"; exit 1; }
)
run watch c job.yaml out-watch 5
cp watch.c watched
rm -r out-watch
[ -z "$python" ] || run watch py job.yaml out-watch 5
compare watch exactly
[ "$(wc -l <watched)" -eq 2 ] || { echo "watch.c was not stopped: $(cat watched)"; exit 1; }

# Each rank knows how many there are; lines of ranks come in any order.
for whose in c ${python:+py}; do
    run launch "$whose" 2 sh -c 'echo "$ERGON_RANK of $ERGON_WORLD_SIZE"'
    sort "launch.$whose" -o "launch.$whose"
done
compare launch exactly
grep -qx "rank 1: 1 of 2" launch.c || { echo "launch.c: $(cat launch.c)"; exit 1; }

printf 'stage,instruction,frequency,time,energy\n%s\n%s\n%s\n%s\n' 0,forward,1410,0.010,4 \
    0,forward,1200,0.012,3 0,backward,1410,0.020,8 0,backward,1200,0.024,6 >profile.csv
twin ask profile.csv 4
"$ergon" frontier profile.csv -m 4 -p 80 --plan hooked.json --quiet >log
for mode in "" observe; do
    run hook c hooked.json 4 3 $mode
    [ -z "$python" ] || run hook py hooked.json 4 3 $mode
    compare hook timed
done

cp -r "$source/examples/train/tiny.yaml" "$source/examples/train/tiny-llama" .
"$ergon" tokenize bytes "$source"/docs/*.md "$source"/docs/decisions/*.md -o tokens >log
run train c tiny.yaml 4
[ -z "$python" ] || run train py tiny.yaml 4
compare train timed
