#!/bin/sh
# Runs what one machine of several GPUs can show, part after part: programs of gpu-check, training
# beside PyTorch, long sequences by recomputation and offloading, plans against training, checkpoints
# under other layouts, ranks that die or hang, and a study beside its emulated twin. A part that fails
# does not stop the others; logs and runs stay in OUT.
# Usage: many-gpus.sh BUILD OUT [PART ...]   BUILD has ergon and gpu/; parts are the functions below.
# Environment: GPUS (default: all), DEVICE=host (a rehearsal: tiny models on CPUs, parts without
# PyTorch), LIMIT (seconds for a part, default 600).
set -eu

here=$(cd "$(dirname "$0")/.." && pwd)
build=$(cd "$1" && pwd)
ergon=$build/ergon
mkdir -p "$2"
out=$(cd "$2" && pwd)
shift 2
device=${DEVICE:-cuda}
gpus=${GPUS:-$(nvidia-smi --query-gpu=index --format=csv,noheader | wc -l)}
limit=${LIMIT:-600}
[ "$gpus" -ge 2 ] || { echo "many-gpus: $gpus GPU here, expected two or more" >&2; exit 77; }
half=$((gpus / 2))
if [ "$device" = host ]; then
    big=tiny deep=tiny long=128 sequence=64 microbatch=2 microbatches=8 dtype='--dtype float32'
else
    big=llama-3.2-3b deep=llama-3.2-3b long=12288 sequence=4096 microbatch=4 dtype=
    microbatches=$((gpus > 4 ? gpus : 4)) # enough for data ranks
    [ "$gpus" -lt 4 ] || deep=llama-2-7b
fi

# A folder OUT/NAME with a job of MODEL; further lines of the job come from standard input.
job() { # NAME MODEL SEQUENCE MICROBATCH MICROBATCHES
    mkdir -p "$out/$1"
    if [ "$2" = tiny ]; then
        # Heads and layers that four and eight ranks can share.
        sed -E 's/("num_(attention_heads|hidden_layers)"): *[0-9]+/\1: 8/
            s/("num_key_value_heads"): *[0-9]+/\1: 8/
            s/("(hidden|intermediate)_size"): *[0-9]+/\1: 128/; /"head_dim"/d' \
            "$here/examples/train/tiny-llama/config.json" >"$out/$1/config.json"
    else
        cp "$here/data/models/$2/config.json" "$out/$1/config.json"
    fi
    [ -e "$out/tokens.idx" ] || "$ergon" tokenize bytes "$here"/docs/*.md "$here"/docs/*/*.md -o "$out/tokens"
    {
        printf 'model: .\nengine: ergon\n'
        printf 'cluster: {nodes: 1, gpus_per_node: %s, gpu: h100-sxm}\n' "$gpus"
        printf 'sequence: %s\nmicrobatch_size: %s\nmicrobatches: %s\n' "$3" "$4" "$5"
        cat
        printf 'train:\n  data: [{file: ../tokens.bin}]\n  updates: 100000\n  schedule: constant\n'
        printf '  learning_rate: 0.0001\n  log_every: 1\n'
    } >"$out/$1/job.yaml"
}

# Trains OUT/NAME to a step. More options of `ergon train` follow.
train() { # NAME STEP [OPTION ...]
    name=$1 step=$2
    shift 2
    # shellcheck disable=SC2086 # dtype is two words or none
    (cd "$out/$name" && "$ergon" run -n "$gpus" -- "$ergon" train job.yaml --device "$device" \
        $dtype --steps "$step" -o run "$@")
}

# Speed and energy of the later half of a run's steps.
row() { # NAME [RUN]
    python3 - "$out/$1/${2:-run}/metrics.jsonl" "$1${2:+, $2}" <<'END'
import json, sys
lines = [json.loads(line) for line in open(sys.argv[1], encoding="utf-8")]
steps = [line for line in lines if "step_ms" in line and line.get("loss") is not None]
half = steps[len(steps) // 2:]
ms = [s["step_ms"]["mean"] if isinstance(s["step_ms"], dict) else s["step_ms"] for s in half]
joules = [s["energy_j"] for s in half if s.get("energy_j") is not None]
energy = f"{sum(joules) / len(joules):.1f} J" if len(joules) == len(half) else "- J"
print(f"{sys.argv[2]}: {sum(ms) / len(ms):.1f} ms a step, {energy}, loss {half[-1]['loss']:.5f}, "
      f"{sum(s['tokens_per_s'] for s in half) / len(half):.0f} tokens/s")
END
}

# ---- parts ----

check() {
    sh "$here/scripts/gpu-check.sh" "$build/gpu"
}

# Layouts of all GPUs, each beside PyTorch where it has the like.
bench() {
    sh "$here/scripts/train-bench.sh" "$ergon" "tensor-$gpus" "data-$gpus" "pipeline-$gpus" \
        "interleaved-$gpus"
}

# Products of degrees, which must train with the losses of one kind of degree.
degrees() {
    while read -r name keys; do
        batches=$microbatches
        case $keys in *data*) batches=$((microbatches / half)) ;; esac # of each copy
        printf '%b' "$keys" | job "$name" "$big" "$sequence" "$microbatch" "$batches"
        train "$name" 12 --fresh
        row "$name"
    done <<END
tensor tensor: $gpus\n
pipeline pipeline: $gpus\n
context-tensor context: $half\ntensor: 2\n
pipeline-tensor pipeline: $half\ntensor: 2\n
pipeline-interleaved pipeline: 2\nvirtual_stages: 2\ndata: $half\n
END
}

# Long sequences over a pipeline: everything recomputed, then balanced with the least offloading that
# fits, then neither, which is refused where memory does not suffice.
offload() {
    for name in full balanced none; do
        echo "recompute: $name" | job "$name" "$deep" "$long" 1 $((4 * gpus))
        cd "$out/$name"
        if ! "$ergon" layout job.yaml --layout "p=$gpus,b=1" --recompute "$name" --export job >fits.yaml; then
            echo "$name: not trained"
            continue
        fi
        mv fits.yaml job.yaml
        "$ergon" memory job.yaml
        train "$name" 8 --fresh
        row "$name"
    done
}

# A plan measured on these GPUs, its layers verified, and fifty steps by it and without it.
plan() {
    for name in tensor context-tensor; do
        [ -e "$out/$name/job.yaml" ] || { echo "$name: run the part 'degrees' first"; return 1; }
        cd "$out/$name"
        if [ "$device" = host ]; then
            "$ergon" optimize job.yaml -o plan
            "$ergon" verify job.yaml plan/plan.json
        else
            "$ergon" run -n "$gpus" -- "$ergon" optimize job.yaml --device cuda -o plan
            "$ergon" run -n "$gpus" -- "$ergon" verify job.yaml plan/plan.json --device cuda
        fi
        for way in ergon nanobatching sequential; do
            train "$name" 50 --fresh -o "run-$way" --plan plan/plan.json --method "$way" --point 1 --force
            row "$name" "run-$way"
        done
    done
}

# A checkpoint of tensor ranks goes on under pipeline, data and mixed degrees.
reshard() {
    printf 'tensor: %s\n' "$gpus" | job reshard "$big" "$sequence" "$microbatch" "$microbatches"
    train reshard 4 --fresh
    at=4
    for keys in "pipeline: $gpus" "data: $gpus" "pipeline: 2\ntensor: $half"; do
        batches=$microbatches
        case $keys in data*) batches=$((microbatches / gpus)) ;; esac
        printf '%b\n' "$keys" | job reshard "$big" "$sequence" "$microbatch" "$batches"
        at=$((at + 4))
        train reshard "$at" --resume latest
    done
    row reshard
}

# A rank that is killed ends the run with a sentence and leaves no process; so does one that stops.
failures() {
    printf 'tensor: %s\n' "$gpus" | job failures "$big" "$sequence" "$microbatch" "$microbatches"
    for signal in KILL STOP; do
        train failures 100000 --fresh >"$out/failures/$signal.log" 2>&1 &
        run=$!
        for _ in $(seq 300); do
            ! grep -q 'step 3/' "$out/failures/$signal.log" || break
            sleep 1
        done
        victim=$(pgrep -f "^$ergon train job.yaml" | tail -n 1)
        kill -"$signal" "$victim"
        began=$(date +%s)
        status=0
        wait "$run" || status=$?
        echo "$signal: status $status after $(($(date +%s) - began)) s"
        tail -n 3 "$out/failures/$signal.log"
        ! pgrep -f "^$ergon train job.yaml" || { echo "$signal: ranks are left"; return 1; }
        [ "$status" -ne 0 ] || return 1
        rm -rf "$out/failures/run"
    done
}

# The local study on these GPUs, with the emulated twin of each point.
study() {
    mkdir -p "$out/study"
    sed "s/^gpus_per_node:.*/gpus_per_node: $gpus/" "$here/examples/characterize/local-gpus.yaml" \
        >"$out/study/local-gpus.yaml"
    cp "$here/examples/characterize/local.yaml" "$out/study/local.yaml"
    real='--device cuda'
    [ "$device" != host ] || real=
    # shellcheck disable=SC2086 # two words or none
    "$ergon" characterize "$out/study/local.yaml" $real -o "$out/study/run"
}

# ---- all of it ----

# A part runs in a shell of its own with a limit, so that -e applies in it.
if [ -n "${MANY_GPUS_PART:-}" ]; then
    "$MANY_GPUS_PART"
    exit 0
fi
every="check bench degrees offload plan reshard failures study"
[ "$device" != host ] || every="degrees offload plan reshard failures study"
[ $# -eq 0 ] || every=$*
failed=
for part in $every; do
    began=$(date +%s)
    echo "== $part =="
    status=0
    MANY_GPUS_PART=$part GPUS=$gpus DEVICE=$device timeout -k 20 "$limit" \
        sh "$here/scripts/many-gpus.sh" "$build" "$out" >"$out/$part.log" 2>&1 || status=$?
    grep -E '(tokens/s|status|ratio|x +[0-9.]+x$|failed|not trained)' "$out/$part.log" || true
    echo "== $part: status $status after $(($(date +%s) - began)) s =="
    [ "$status" -eq 0 ] || failed="$failed $part"
done
[ -z "$failed" ] || { echo "failed:$failed"; exit 1; }
