#!/usr/bin/env python3
"""Trains the same models by ergon and by peer_torch.py, one after the other on the same GPUs, and
prints tokens/s, J/token (over all GPUs) and their ratios. Clocks stay as they are; the first steps
are not counted. Cases that need more GPUs than there are here are left out, which is said.

usage: train_bench.py ERGON FOLDER [CASE ...]     (FOLDER: for jobs and tokens, made if need be)
"""

import json
import os
import re
import subprocess
import sys
import time
from dataclasses import dataclass

import numpy
import pynvml

SEQUENCE, STEPS, WARM = 4096, 30, 10
HERE = os.path.dirname(os.path.abspath(__file__))
MODELS = os.path.join(HERE, "..", "..", "data", "models")
JOB = """\
model: .
cluster: {{nodes: 1, gpus_per_node: {gpus}, gpu: h100-sxm}}
microbatch_size: {microbatch}
microbatches: {microbatches}
sequence: {sequence}
{keys}train:
  data:
    - file: tokens.bin
      type: uint32
  updates: 1000
  schedule: constant
  learning_rate: 0.0001
  clip: 1
  log_every: 1
"""


@dataclass
class Case:
    """A model, and how ergon and the peer train it."""

    model: str
    microbatch: int
    microbatches: int = 1
    gpus: int = 1
    keys: str = ""  # of ergon's job
    how: str = "one"  # the peer
    peer: tuple = ()  # its microbatch and microbatches, where ergon's do not fit

    def tokens(self):
        """Of a step."""
        pipelines = self.gpus if "data" in self.keys else 1
        return pipelines * self.microbatches * self.microbatch * SEQUENCE


CASES = {
    "llama-3.2-1b": Case("llama-3.2-1b", 8),
    "qwen3-1.7b": Case("qwen3-1.7b", 4),
    "llama-3.2-3b": Case("llama-3.2-3b", 2, 2, keys="recompute: balanced\n", peer=(2, 1)),
}


def layers_of(chunks):
    """28 layers; the head, in the last chunk, takes as long as four."""
    last = max(1, round((28 + 4) / chunks) - 4)
    least, more = divmod(28 - last, chunks - 1)
    return [least + (i < more) for i in range(chunks - 1)] + [last]


for many in (2, 4, 8):
    CASES |= {
        f"data-{many}": Case(
            "llama-3.2-3b", 4, 1, many, f"data: {many}\nrecompute: activation\n", how="fsdp"
        ),
        f"tensor-{many}": Case("llama-3.2-3b", 4, 4, many, f"tensor: {many}\n", how="tensor"),
        f"pipeline-{many}": Case(
            "llama-3.2-3b",
            1,
            4 * many,
            many,
            f"pipeline: {many}\nlayers: {layers_of(many)}\n",
            how="pipeline",
        ),
        f"interleaved-{many}": Case(
            "llama-3.2-3b",
            1,
            4 * many,
            many,
            f"pipeline: {many}\nvirtual_stages: 2\nlayers: {layers_of(2 * many)}\n",
            how="pipeline",
        ),
    }


def write_job(folder, name, case):
    home = os.path.join(folder, name)
    os.makedirs(home, exist_ok=True)
    with open(os.path.join(MODELS, case.model, "config.json"), encoding="utf-8") as file:
        config = json.load(file)
    with open(os.path.join(home, "config.json"), "w", encoding="utf-8") as file:
        json.dump(config, file)
    random = numpy.random.default_rng(0)
    count = (STEPS + 1) * case.tokens()
    random.integers(0, config["vocab_size"], count, dtype=numpy.uint32).tofile(
        os.path.join(home, "tokens.bin")
    )
    job = os.path.join(home, "job.yaml")
    with open(job, "w", encoding="utf-8") as file:
        file.write(
            JOB.format(
                gpus=case.gpus,
                microbatch=case.microbatch,
                microbatches=case.microbatches,
                sequence=SEQUENCE,
                keys=case.keys,
            )
        )
    return job, home


def joules(gpus):
    return sum(pynvml.nvmlDeviceGetTotalEnergyConsumption(gpu) for gpu in gpus) / 1e3


def run_ergon(ergon, job, case, gpus):
    """Reads clock and energy when the lines of steps come, which is when steps end."""
    marks = {}
    command = [ergon, "train", job, "--device", "cuda", "--steps", str(STEPS)]
    if case.gpus > 1:
        command = [ergon, "run", "-n", str(case.gpus), "--", *command]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=sys.stderr, text=True) as run:
        for line in run.stderr:
            found = re.match(r"(?:\[0\] )?step (\d+)/", line)
            if found:
                marks[int(found[1])] = (time.monotonic(), joules(gpus))
            else:
                sys.stderr.write(line)
    if run.returncode != 0 or STEPS not in marks:
        print(f"{job}: ergon has not trained {STEPS} steps (status {run.returncode})")
        return None
    (begin, begin_j), (end, end_j) = marks[WARM], marks[STEPS]
    tokens = (STEPS - WARM) * case.tokens()
    return tokens / (end - begin), (end_j - begin_j) / tokens


def run_peer(home, case):
    command = [os.path.join(HERE, "peer_torch.py"), home, "--how", case.how]
    microbatch, microbatches = case.peer or (case.microbatch, case.microbatches)
    command += ["--microbatch", str(microbatch), "--microbatches", str(microbatches)]
    command += ["--sequence", str(SEQUENCE)]
    if case.gpus > 1:
        command = ["-m", "torch.distributed.run", "--nproc-per-node", str(case.gpus), *command]
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True)
    if done.returncode != 0:
        print(f"{home}: the peer has failed:\n{done.stderr[-2000:]}")
        return None
    return json.loads(done.stdout.splitlines()[-1])


def main():
    ergon, folder = sys.argv[1:3]
    pynvml.nvmlInit()
    count = pynvml.nvmlDeviceGetCount()
    print(f"{'':24}{'tokens/s':>12}{'J/token':>12}", flush=True)
    for name in sys.argv[3:] or CASES:
        case = CASES[name]
        if case.gpus > count:
            print(f"{name}: left out, since it needs {case.gpus} GPUs and there are {count}")
            continue
        job, home = write_job(folder, name, case)
        gpus = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(case.gpus)]
        own, peer = run_ergon(ergon, job, case, gpus), run_peer(home, case)
        shape = f"{case.microbatches} x {case.microbatch} x {SEQUENCE}"
        if peer:
            print(f"{name}, {shape}, {case.gpus} x {peer['card']}, PyTorch {peer['torch']}")
        if own:
            print(f"{'  ergon':24}{own[0]:12.0f}{own[1]:12.5f}")
        if peer:
            label = "  PyTorch" + (f", {case.peer[1]} x {case.peer[0]} x {SEQUENCE}" if case.peer else "")
            print(f"{label:24}{peer['tokens_per_s']:12.0f}{peer['j_per_token']:12.5f}")
        if own and peer:
            ratios = (own[0] / peer["tokens_per_s"], own[1] / peer["j_per_token"])
            print(f"{'  ratio':24}{ratios[0]:11.3f}x{ratios[1]:11.3f}x", flush=True)


if __name__ == "__main__":
    main()
