"""DeepSpeed's pipeline by a plan of 2 stages and 8 microbatches, on CPUs as it stands.

    torchrun --nproc-per-node 2 with_deepspeed.py plan.json observe
"""
import sys

import torch

import deepspeed
import ergon.trainers.deepspeed
from deepspeed.pipe import PipelineModule

deepspeed.init_distributed()
layers = [torch.nn.Linear(64, 64) for _ in range(4)]
model = PipelineModule(layers, num_stages=2, loss_fn=torch.nn.functional.mse_loss)
config = {"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 8,
          "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "torch_adam": True}}}
engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
follower = ergon.trainers.deepspeed.follow(engine, plan=sys.argv[1], mode=sys.argv[2])
batches = iter(lambda: (torch.randn(4, 64), torch.randn(4, 64)), None)
for _ in range(4):
    engine.train_batch(batches)
stats = follower.hook.stats
print(f"rank {engine.global_rank}: {stats.steps} steps, {stats.passes} passes, "
      f"{stats.clock_changes} changes of clock")
