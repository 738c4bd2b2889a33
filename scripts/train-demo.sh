#!/bin/sh
# Trains a tiny Llama on the project's own documents, in build/train-demo: on two ranks of the CPU, the
# stages of a pipeline, or on one GPU where there is one. Usage: train-demo.sh ERGON
set -eu
ergon=$1
cd "$(dirname "$0")/.."
demo=build/train-demo
rm -rf "$demo"
mkdir -p "$demo"
cp -r examples/train/tiny.yaml examples/train/tiny-llama "$demo"
"$ergon" tokenize bytes README.md docs/decisions/*.md docs/formats/plan.md -o "$demo/tokens"
"$ergon" tokenize bytes docs/architecture.md -o "$demo/held-out"
cat >>"$demo/tiny.yaml" <<'YAML'
  validation: {data: [{file: held-out.bin}], every: 50, batches: 8}
YAML
# Microbatches for two stages; the step has the same 8 sequences.
sed 's/gpus_per_node: 1/gpus_per_node: 2/; s/^microbatch_size: 4 /microbatch_size: 2 /
    s/^microbatches: 2 /microbatches: 4 /; /^sequence:/i pipeline: 2' "$demo/tiny.yaml" >"$demo/two-stages.yaml"
train() {
    "$@" -o "$demo/run" --export "$demo/trained"
}
# Only a check, which opens the GPU: status 4 means that there is none.
if "$ergon" train "$demo/tiny.yaml" --device cuda --dry-run >/dev/null 2>&1; then
    train "$ergon" train "$demo/tiny.yaml" --device cuda
else
    train "$ergon" run -n 2 -- "$ergon" train "$demo/two-stages.yaml" --device host
fi
echo "The page is $demo/run/report.html, the log $demo/run/metrics.jsonl, the trained model $demo/trained."
