#!/usr/bin/env python3
"""Trains a Llama-like model on one GPU in PyTorch as a careful user writes it; prints one JSON line.

Compiled blocks, grouped-query attention by cuDNN, bf16 products under autocast, fp32 weights,
gradients and moments, a compiled loss, gradients clipped to 1, fused AdamW: what `ergon train` is
measured beside (train_bench.py). Tokens are random. Energy is what NVML's counter says.

usage: peer_torch.py MODEL_FOLDER --microbatch 8 --sequence 4096 [--steps 20] [--warm 5]
"""

import argparse
import json
import os
import time

import pynvml
import torch
import torch.nn.functional as functional
from torch import nn


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
        batch, tokens = x.shape[:2]
        q, k, v = (
            linear(normed).view(batch, tokens, -1, self.dim) for linear in (self.q, self.k, self.v)
        )
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
    def __init__(self, model, sequence):
        super().__init__()
        hidden, words, dim = model["hidden_size"], model["vocab_size"], model["head_dim"]
        self.embedding = nn.Embedding(words, hidden)
        self.blocks = nn.ModuleList(Block(model) for _ in range(model["num_hidden_layers"]))
        self.norm = nn.RMSNorm(hidden, model["rms_norm_eps"])
        self.head = nn.Linear(hidden, words, False)
        self.head.weight = self.embedding.weight
        waves = model["rope_theta"] ** -(torch.arange(0, dim, 2, device="cuda").float() / dim)
        angles = torch.outer(torch.arange(sequence, device="cuda").float(), waves)
        self.register_buffer("cos", angles.cos().bfloat16(), False)
        self.register_buffer("sin", angles.sin().bfloat16(), False)
        self.loss = torch.compile(loss_of)

    def forward(self, ids, targets):
        x = self.embedding(ids).bfloat16()
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        return self.loss(self.head(self.norm(x)), targets)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--microbatch", type=int, required=True)
    parser.add_argument("--sequence", type=int, required=True)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--warm", type=int, default=5)
    given = parser.parse_args()
    with open(os.path.join(given.folder, "config.json"), encoding="utf-8") as file:
        model = json.load(file)
    torch.backends.cuda.enable_flash_sdp(False)
    torch.backends.cuda.enable_math_sdp(False)
    torch.backends.cuda.enable_mem_efficient_sdp(False)
    torch.manual_seed(0)
    with torch.device("cuda"):
        network = Network(model, given.sequence)
    for weight in network.parameters():
        if weight.dim() > 1:
            nn.init.normal_(weight, 0, 0.02)
    for block in network.blocks:
        block.compile()
    optimizer = torch.optim.AdamW(
        network.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True
    )
    pynvml.nvmlInit()
    gpu = pynvml.nvmlDeviceGetHandleByUUID("GPU-" + str(torch.cuda.get_device_properties(0).uuid))
    generator = torch.Generator(device="cuda").manual_seed(1)
    shape = (given.microbatch, given.sequence + 1)

    def step():
        ids = torch.randint(0, model["vocab_size"], shape, device="cuda", generator=generator)
        with torch.autocast("cuda", torch.bfloat16):
            loss = network(ids[:, :-1], ids[:, 1:])
        loss.backward()
        nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    def now():
        torch.cuda.synchronize()
        return time.monotonic(), pynvml.nvmlDeviceGetTotalEnergyConsumption(gpu) / 1e3

    for _ in range(given.warm):
        step()
    begin, begin_j = now()
    for _ in range(given.steps):
        step()
    end, end_j = now()
    tokens = given.microbatch * given.sequence * given.steps
    result = {
        "tokens_per_s": tokens / (end - begin),
        "j_per_token": (end_j - begin_j) / tokens,
        "card": torch.cuda.get_device_name(),
        "torch": torch.__version__,
    }
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
