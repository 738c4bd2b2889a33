#!/bin/sh
# Trains a tiny Llama on the project's own documents, in build/train-demo. Usage: train-demo.sh ERGON
set -eu
ergon=$1
cd "$(dirname "$0")/.."
demo=build/train-demo
rm -rf "$demo"
mkdir -p "$demo"
cp -r examples/train/tiny.yaml examples/train/tiny-llama "$demo"
"$ergon" tokenize bytes README.md docs/*.md -o "$demo/tokens"
"$ergon" train "$demo/tiny.yaml" -o "$demo/run" --export "$demo/trained"
echo "The page is $demo/run/report.html, the log $demo/run/metrics.jsonl, the trained model $demo/trained."
