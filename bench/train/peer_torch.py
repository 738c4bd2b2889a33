#!/usr/bin/env python3
"""Trains a Llama-like model in PyTorch as a careful user writes it; rank 0 prints one JSON line.

Compiled blocks, grouped-query attention by cuDNN, bf16 products, fp32 weights, gradients and
moments, a compiled loss, gradients clipped to 1, fused AdamW: what `ergon train` is compared with
(train_bench.py). Tokens are random. Energy is what NVML's counters say, over all GPUs.

On several GPUs (torchrun): --how fsdp (FSDP2, sharded fp32 states), tensor (DTensor with sequence
parallelism; weights and moments in bf16, and no clipping, which flatters it) or pipeline (1F1B).

--hooks (on one GPU) measures what ergon's hooks cost in this trainer: blocks of steps with and
without them take turns. Then the energy of all passes is compared with the GPU's counter, and their
times with the step. It needs the package ergon (python/README.md).

usage: peer_torch.py MODEL_FOLDER --microbatch 8 --sequence 4096 [--microbatches 1] [--how one]
"""

import argparse
import contextlib
import json
import os
import time

import pynvml
import torch
import torch.distributed as dist
import torch.nn.functional as functional
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

RANK, WORLD = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
LOCAL_RANK = int(os.environ.get("LOCAL_RANK", "0"))


def rotate(x, cos, sin):
    low, high = x.chunk(2, -1)
    return torch.cat((low * cos - high * sin, high * cos + low * sin), -1)


class Block(nn.Module):
    def __init__(self, model):
        super().__init__()
        hidden, self.dim = model["hidden_size"], model["head_dim"]
        queries = model["num_attention_heads"] * self.dim
        keys = model["num_key_value_heads"] * self.dim
        ffn = model["intermediate_size"]
        self.norm_a = nn.RMSNorm(hidden, model["rms_norm_eps"])
        self.norm_m = nn.RMSNorm(hidden, model["rms_norm_eps"])
        self.q = nn.Linear(hidden, queries, False)
        self.k = nn.Linear(hidden, keys, False)
        self.v = nn.Linear(hidden, keys, False)
        self.o = nn.Linear(queries, hidden, False)
        self.gate = nn.Linear(hidden, ffn, False)
        self.up = nn.Linear(hidden, ffn, False)
        self.down = nn.Linear(ffn, hidden, False)
        self.heads_normed = model["model_type"] == "qwen3"
        if self.heads_normed:
            self.q_norm = nn.RMSNorm(self.dim, model["rms_norm_eps"])
            self.k_norm = nn.RMSNorm(self.dim, model["rms_norm_eps"])

    def forward(self, x, cos, sin):
        normed = self.norm_a(x)
        q, k, v = (linear(normed) for linear in (self.q, self.k, self.v))
        batch, tokens = q.shape[:2]
        q, k, v = (part.view(batch, tokens, -1, self.dim) for part in (q, k, v))
        if self.heads_normed:
            q, k = self.q_norm(q), self.k_norm(k)
        q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
        attended = functional.scaled_dot_product_attention(
            rotate(q, cos, sin), rotate(k, cos, sin), v, is_causal=True, enable_gqa=True
        )
        x = x + self.o(attended.transpose(1, 2).reshape(batch, tokens, -1))
        normed = self.norm_m(x)
        return x + self.down(functional.silu(self.gate(normed)) * self.up(normed))


def loss_of(logits, targets):
    return functional.cross_entropy(logits.view(-1, logits.size(-1)).float(), targets.reshape(-1))


class Network(nn.Module):
    """All layers, or those of stage `stage` of `stages`."""

    def __init__(self, model, sequence, stage=0, stages=1):
        super().__init__()
        hidden, words, dim = model["hidden_size"], model["vocab_size"], model["head_dim"]
        last = stage + 1 == stages
        layers = model["num_hidden_layers"] // stages
        self.embedding = nn.Embedding(words, hidden) if stage == 0 else None
        self.blocks = nn.ModuleList(Block(model) for _ in range(layers))
        self.norm = nn.RMSNorm(hidden, model["rms_norm_eps"]) if last else None
        self.head = nn.Linear(hidden, words, False) if last else None
        if self.embedding is not None and last:
            self.head.weight = self.embedding.weight
        waves = model["rope_theta"] ** -(torch.arange(0, dim, 2, device="cuda").float() / dim)
        angles = torch.outer(torch.arange(sequence, device="cuda").float(), waves)
        self.register_buffer("cos", angles.cos().bfloat16(), False)
        self.register_buffer("sin", angles.sin().bfloat16(), False)

    def forward(self, x):
        if self.embedding is not None:
            x = self.embedding(x).bfloat16()
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        return x if self.head is None else self.head(self.norm(x))


def shard_states(network):
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for block in network.blocks:
        fully_shard(block, mp_policy=policy)
    fully_shard(network, mp_policy=policy)


def split_tensors(network):
    mesh = init_device_mesh("cuda", (WORLD,))
    network.bfloat16()
    columns, rows = ColwiseParallel(input_layouts=Shard(1)), RowwiseParallel(
        output_layouts=Shard(1)
    )
    whole = {name: columns for name in ("q", "k", "v", "gate", "up")}
    whole |= {"o": rows, "down": rows, "norm_a": SequenceParallel(), "norm_m": SequenceParallel()}
    for block in network.blocks:
        parallelize_module(block, mesh, whole)
    ends = {
        "embedding": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
        "norm": SequenceParallel(),
        "head": ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate()),
    }
    parallelize_module(network, mesh, ends)


def make_optimizers(network):
    """One for sharded tensors and one for others, which a fused update cannot mix."""
    kinds = [[], []]
    for weight in network.parameters():
        kinds[isinstance(weight, DTensor)].append(weight)
    keys = {"lr": 1e-4, "betas": (0.9, 0.95), "weight_decay": 0.1, "fused": True}
    return [torch.optim.AdamW(weights, **keys) for weights in kinds if weights]


def measure_hooks(step, now, gpu, steps):
    """What observing hooks cost, and how their sums fit the whole; step(hook or None) is a step."""
    import ergon

    keys = {"mode": "observe", "markers": "events", "energy": True, "gpu": gpu}
    seconds = {True: [], False: []}
    with ergon.Hook(**keys) as hook:
        for block in range(24):
            hooked = block % 4 in (1, 2)  # off, on, on, off: a drift of the clock cancels
            with contextlib.nullcontext() if hooked else hook.paused():
                begin, _ = now()
                for _ in range(steps):
                    step(hook if hooked else None)
                seconds[hooked].append((now()[0] - begin) / steps)
    off, on = (sum(seconds[hooked]) / len(seconds[hooked]) for hooked in (False, True))
    with ergon.Hook(**keys) as hook:
        begin, begin_j = now()
        for _ in range(4 * steps):
            step(hook)
        end, end_j = now()
        classes, stats = hook.classes, hook.stats
    passes_j = sum(one.energy_j * one.count for one in classes)
    passes_s = sum(one.mean_s * one.count for one in classes)
    between_j = stats.waiting_w * (end - begin - passes_s)
    return {
        "step_ms": 1e3 * off,
        "step_with_hooks_ms": 1e3 * on,
        "cost": on / off - 1,
        "blocks_ms": {str(hooked): [1e3 * each for each in seconds[hooked]] for hooked in seconds},
        "joules_over_counter": (passes_j + between_j) / (end_j - begin_j),
        "passes_s_over_steps": passes_s / (end - begin),
        "step_median_ms": 1e3 * stats.step_median_s,
        "classes": [
            (one.kind, one.count, 1e3 * one.mean_s, one.power_w, one.uncertainty_j, one.quality)
            for one in classes
        ],
        "trouble": stats.trouble,
    }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--how", default="one", choices=("one", "fsdp", "tensor", "pipeline"))
    parser.add_argument("--microbatch", type=int, required=True)
    parser.add_argument("--microbatches", type=int, default=1)
    parser.add_argument("--sequence", type=int, required=True)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--warm", type=int, default=5)
    parser.add_argument("--hooks", action="store_true")
    given = parser.parse_args()
    how = given.how
    if given.hooks and how != "one":
        parser.error("--hooks needs --how one")
    with open(os.path.join(given.folder, "config.json"), encoding="utf-8") as file:
        model = json.load(file)
    torch.cuda.set_device(LOCAL_RANK)
    if WORLD > 1:
        dist.init_process_group("nccl", device_id=torch.device("cuda", LOCAL_RANK))
    torch.backends.cuda.enable_flash_sdp(False)
    torch.backends.cuda.enable_math_sdp(False)
    torch.backends.cuda.enable_mem_efficient_sdp(False)
    torch.manual_seed(0)
    with torch.device("cuda"):
        stages = (RANK, WORLD) if how == "pipeline" else (0, 1)
        network = Network(model, given.sequence, *stages)
    for weight in network.parameters():
        if weight.dim() > 1:
            nn.init.normal_(weight, 0, 0.02)
    if how == "fsdp":
        shard_states(network)
    elif how == "tensor":
        split_tensors(network)
    for block in network.blocks:
        block.compile()
    optimizers = make_optimizers(network)
    autocast = torch.autocast("cuda", torch.bfloat16, enabled=how in ("one", "pipeline"))
    loss = torch.compile(loss_of)
    if how == "pipeline":
        stage = PipelineStage(network, RANK, WORLD, torch.device("cuda", LOCAL_RANK))
        schedule = Schedule1F1B(stage, given.microbatches, loss_fn=loss)
    pynvml.nvmlInit()
    gpus = [
        pynvml.nvmlDeviceGetHandleByUUID("GPU-" + str(torch.cuda.get_device_properties(i).uuid))
        for i in range(WORLD)
    ]
    generator = torch.Generator(device="cuda").manual_seed(1 + RANK * (how == "fsdp"))

    def draw(count):
        ids = torch.randint(
            0, model["vocab_size"], (count, given.sequence + 1), device="cuda", generator=generator
        )
        return ids[:, :-1], ids[:, 1:]

    def run_pipeline():
        ids, targets = draw(given.microbatch * given.microbatches)
        first, last = RANK == 0, RANK + 1 == WORLD
        with autocast:
            schedule.step(
                *((ids,) if first else ()), **({"target": targets, "losses": []} if last else {})
            )

    def passes_of(hook):
        """A pass of the hook as a context, or nothing."""
        if hook is None:
            return lambda *_: contextlib.nullcontext()
        stream = torch.cuda.current_stream().cuda_stream
        return lambda kind, microbatch=-1: hook.instruction(kind, 0, microbatch, stream)

    def run_microbatches(within):
        for i in range(given.microbatches):
            ids, targets = draw(given.microbatch)
            with within("forward", i), autocast:
                part = loss(network(ids), targets) / given.microbatches
            with within("backward", i):
                part.backward()

    def update():
        if how != "tensor":
            nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

    def step(hook=None):
        within = passes_of(hook)
        with hook.step() if hook else contextlib.nullcontext():
            run_pipeline() if how == "pipeline" else run_microbatches(within)
            with within("other"):
                update()

    def now():
        torch.cuda.synchronize()
        if WORLD > 1:
            dist.barrier()
        joules = sum(pynvml.nvmlDeviceGetTotalEnergyConsumption(gpu) for gpu in gpus) / 1e3
        return time.monotonic(), joules

    for _ in range(given.warm):
        step()
    if given.hooks:
        uuid = "GPU-" + str(torch.cuda.get_device_properties(0).uuid)
        print(json.dumps(measure_hooks(step, now, uuid, given.steps)), flush=True)
        return
    begin, begin_j = now()
    for _ in range(given.steps):
        step()
    end, end_j = now()
    pipelines = WORLD if how == "fsdp" else 1
    tokens = pipelines * given.microbatches * given.microbatch * given.sequence * given.steps
    result = {
        "tokens_per_s": tokens / (end - begin),
        "j_per_token": (end_j - begin_j) / tokens,
        "card": torch.cuda.get_device_name(),
        "torch": torch.__version__,
    }
    if RANK == 0:
        print(json.dumps(result), flush=True)
    if WORLD > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
