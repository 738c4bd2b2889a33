#!/bin/sh
# Compares `ergon train` with PyTorch on the same GPU, in one session: tokens/s, J/token, ratios.
# Needs a GPU, a build with CUDA, and python3 with PyTorch and NVML. Usage: train-bench.sh ERGON
# [MODEL ...]
set -eu
ergon=$(readlink -f "$1")
shift
cd "$(dirname "$0")/.."
lacks() {
    echo "train-bench: $1 is missing here; this bench needs an NVIDIA GPU, a build of ergon with" \
        "CUDA, and python3 with torch, numpy and nvidia-ml-py" >&2
    exit 1
}
command -v python3 >/dev/null || lacks "python3"
for module in torch numpy pynvml; do
    python3 -c "import $module" 2>/dev/null || lacks "python3's module $module"
done
python3 -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' || lacks "an NVIDIA GPU"
exec python3 bench/train/train_bench.py "$ergon" build/train-bench "$@"
