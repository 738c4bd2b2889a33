#!/usr/bin/env python3
"""Trains the same models by ergon and by peer_torch.py, one after the other on one GPU, and prints
tokens/s, J/token and their ratios. Clocks stay as they are; the first steps are not counted.

usage: train_bench.py ERGON FOLDER [MODEL ...]     (FOLDER: for jobs and tokens, made if need be)
"""

import json
import os
import re
import subprocess
import sys
import time

import numpy
import pynvml

SEQUENCE, STEPS, WARM = 4096, 30, 10
MICROBATCHES = {"llama-3.2-1b": 8, "qwen3-1.7b": 4}
HERE = os.path.dirname(os.path.abspath(__file__))
MODELS = os.path.join(HERE, "..", "..", "data", "models")
JOB = """\
model: {model}
cluster: {{nodes: 1, gpus_per_node: 1, gpu: h100-sxm}}
microbatch_size: {microbatch}
microbatches: 1
sequence: {sequence}
train:
  data:
    - file: tokens.bin
      type: uint32
  updates: 1000
  schedule: constant
  learning_rate: 0.0001
  clip: 1
  log_every: 1
"""


def write_job(folder, name, microbatch):
    model = os.path.join(folder, name)
    os.makedirs(model, exist_ok=True)
    with open(os.path.join(MODELS, name, "config.json"), encoding="utf-8") as file:
        config = json.load(file)
    with open(os.path.join(model, "config.json"), "w", encoding="utf-8") as file:
        json.dump(config, file)
    count = (STEPS + 1) * microbatch * SEQUENCE
    random = numpy.random.default_rng(0)
    random.integers(0, config["vocab_size"], count, dtype=numpy.uint32).tofile(
        os.path.join(model, "tokens.bin")
    )
    job = os.path.join(model, "job.yaml")
    with open(job, "w", encoding="utf-8") as file:
        file.write(JOB.format(model=".", microbatch=microbatch, sequence=SEQUENCE))
    return job, model


def run_ergon(ergon, job, microbatch, gpu):
    """Reads clock and energy when the lines of steps come, which is when steps end."""
    marks = {}
    command = [ergon, "train", job, "--device", "cuda", "--steps", str(STEPS)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=sys.stderr, text=True) as run:
        for line in run.stderr:
            found = re.match(r"step (\d+)/", line)
            if found:
                joules = pynvml.nvmlDeviceGetTotalEnergyConsumption(gpu) / 1e3
                marks[int(found[1])] = (time.monotonic(), joules)
            else:
                sys.stderr.write(line)
    if run.returncode != 0 or STEPS not in marks:
        sys.exit(f"{job}: ergon has not trained {STEPS} steps (status {run.returncode})")
    (begin, begin_j), (end, end_j) = marks[WARM], marks[STEPS]
    tokens = (STEPS - WARM) * microbatch * SEQUENCE
    return tokens / (end - begin), (end_j - begin_j) / tokens


def run_peer(model, microbatch):
    command = [sys.executable, os.path.join(HERE, "peer_torch.py"), model]
    command += ["--microbatch", str(microbatch), "--sequence", str(SEQUENCE)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"{model}: the peer has failed:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def main():
    ergon, folder = sys.argv[1:3]
    pynvml.nvmlInit()
    gpu = pynvml.nvmlDeviceGetHandleByIndex(0)
    print(f"{'':24}{'tokens/s':>12}{'J/token':>12}", flush=True)
    for name in sys.argv[3:] or MICROBATCHES:
        microbatch = MICROBATCHES[name]
        job, model = write_job(folder, name, microbatch)
        speed, energy = run_ergon(ergon, job, microbatch, gpu)
        peer = run_peer(model, microbatch)
        print(f"{name}, {microbatch} x {SEQUENCE}, {peer['card']}, PyTorch {peer['torch']}")
        print(f"{'  ergon':24}{speed:12.0f}{energy:12.5f}")
        print(f"{'  PyTorch':24}{peer['tokens_per_s']:12.0f}{peer['j_per_token']:12.5f}")
        ratios = (speed / peer["tokens_per_s"], energy / peer["j_per_token"])
        print(f"{'  ratio':24}{ratios[0]:11.3f}x{ratios[1]:11.3f}x", flush=True)


if __name__ == "__main__":
    main()
