#!/usr/bin/env python3
"""Computes again in PyTorch what dump_decoder wrote, and compares tensor by tensor.

The reference is PyTorch in fp32 from the same bf16 weights. Beside ergon's distance from it stands
that of PyTorch itself in bf16: roundings explain as much. A tensor passes when its relative
distance (norm of the difference over norm of the reference) is at most the tolerance of bf16, 2 %,
or of fp32, 0.1 %, for the loss. "worst element" is the largest difference over the largest element
of the reference.

usage: compare_torch.py FOLDER     (of dump_decoder; on a GPU where there is one)
"""

import os
import sys

import torch
import torch.nn.functional as functional

TOLERANCE = {"bf16": 2e-2, "f32": 1e-3}
TYPES = {"bf16": torch.bfloat16, "f32": torch.float32, "i32": torch.int32}


def read_folder(folder, device):
    tensors = {}
    with open(os.path.join(folder, "tensors.txt"), encoding="ascii") as lines:
        for line in lines:
            name, kind, count = line.split()
            path = os.path.join(folder, name + ".bin")
            values = torch.from_file(path, size=int(count), dtype=TYPES[kind])
            tensors[name] = values.to(device)
    with open(os.path.join(folder, "model.txt"), encoding="ascii") as lines:
        model = {key: float(value) for key, value in (line.split() for line in lines)}
    return tensors, model


def shapes(model):
    hidden, dim, ffn = int(model["hidden"]), int(model["head_dim"]), int(model["ffn"])
    heads, groups, vocab = int(model["heads"]), int(model["kv_heads"]), int(model["vocab"])
    return {
        "norm_a": (hidden,),
        "qkv": ((heads + 2 * groups) * dim, hidden),
        "q_norm": (dim,),
        "k_norm": (dim,),
        "proj": (hidden, heads * dim),
        "norm_m": (hidden,),
        "fc1": (2 * ffn, hidden),
        "fc2": (hidden, ffn),
        "embedding": (vocab, hidden),
        "norm_final": (hidden,),
        "head": (vocab, hidden),
    }


def rms_norm(x, weight, eps):
    y = x.float()
    y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + eps)
    return (y * weight.float()).to(x.dtype)


def rotate(x, theta):
    """x: [batch, heads, sequence, dim]; element i turns with element i + dim / 2."""
    half = x.shape[-1] // 2
    frequency = theta ** (-torch.arange(half, device=x.device, dtype=torch.float64) / half)
    angle = torch.arange(x.shape[2], device=x.device, dtype=torch.float64)[:, None] * frequency
    cosine, sine = angle.cos().float(), angle.sin().float()
    low, high = x[..., :half].float(), x[..., half:].float()
    return torch.cat((low * cosine - high * sine, high * cosine + low * sine), -1).to(x.dtype)


def compute(tensors, model, dtype):
    """Inputs, outputs and gradients of one pass with weights of `dtype`, by the dump's names."""
    batch, sequence = int(model["sequences"]), int(model["sequence"])
    heads, groups, dim = int(model["heads"]), int(model["kv_heads"]), int(model["head_dim"])
    eps, theta = model["norm_eps"], model["rope_theta"]
    weights = {
        name: tensors[name].reshape(shape).to(dtype).requires_grad_()
        for name, shape in shapes(model).items()
        if name in tensors
    }
    head = weights.get("head", weights["embedding"])

    x = functional.embedding(tensors["ids"].long().reshape(batch, sequence), weights["embedding"])
    x.retain_grad()
    normed = rms_norm(x, weights["norm_a"], eps)
    qkv = functional.linear(normed, weights["qkv"]).view(batch, sequence, -1, dim).transpose(1, 2)
    q, k, v = qkv.split((heads, groups, groups), dim=1)
    if "q_norm" in weights:
        q, k = rms_norm(q, weights["q_norm"], eps), rms_norm(k, weights["k_norm"], eps)
    q, k = rotate(q, theta), rotate(k, theta)
    repeat = heads // groups
    k, v = k.repeat_interleave(repeat, 1), v.repeat_interleave(repeat, 1)
    attended = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    attended = attended.transpose(1, 2).reshape(batch, sequence, heads * dim)
    middle = x + functional.linear(attended, weights["proj"])
    gate, up = functional.linear(rms_norm(middle, weights["norm_m"], eps), weights["fc1"]).chunk(
        2, dim=-1
    )
    active = (functional.silu(gate.float()) * up.float()).to(dtype)
    y = middle + functional.linear(active, weights["fc2"])
    y.retain_grad()
    logits = functional.linear(rms_norm(y, weights["norm_final"], eps), head).float()
    targets = tensors["targets"].long()
    targets = torch.where(targets < 0, torch.full_like(targets, -100), targets)
    loss = functional.cross_entropy(
        logits.reshape(batch * sequence, -1), targets, ignore_index=-100, reduction="sum"
    ) / (batch * sequence)
    loss.backward()

    found = {"loss": loss, "input": x, "output": y, "d_input": x.grad, "d_output": y.grad}
    found.update({"d_" + name: weight.grad for name, weight in weights.items()})
    return {name: value.detach().float().flatten() for name, value in found.items()}


def distance(value, reference):
    return ((value - reference).norm() / reference.norm()).item()


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    tensors, model = read_folder(sys.argv[1], device)
    reference = compute(tensors, model, torch.float32)
    rounded = compute(tensors, model, torch.bfloat16)
    print(f"PyTorch {torch.__version__} on {device}; {sys.argv[1]}")
    print(f"{'tensor':<14}{'ergon':>10}{'PyTorch bf16':>14}{'worst element':>15}{'allowed':>9}")
    failed = 0
    for name, expected in reference.items():
        value = tensors[name].float()
        allowed = TOLERANCE["f32" if name == "loss" else "bf16"]
        relative = distance(value, expected)
        worst = ((value - expected).abs().max() / expected.abs().max()).item()
        good = relative <= allowed
        failed += not good
        print(
            f"{name:<14}{relative:>10.2e}{distance(rounded[name], expected):>14.2e}"
            f"{worst:>15.2e}{allowed:>9.0e}  {'ok' if good else 'FAILED'}"
        )
    print("all within tolerance" if not failed else f"{failed} tensors beyond tolerance")
    sys.exit(failed != 0)


if __name__ == "__main__":
    main()
