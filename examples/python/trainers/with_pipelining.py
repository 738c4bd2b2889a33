"""torch.distributed.pipelining by a plan of 2 stages and 8 microbatches, on CPUs as it stands.

    torchrun --nproc-per-node 2 with_pipelining.py plan.json observe
"""
import sys

import torch
import torch.distributed as dist
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

import ergon.trainers.pipelining

dist.init_process_group("gloo")
layers = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU())
stage = PipelineStage(layers, dist.get_rank(), dist.get_world_size(), torch.device("cpu"))
schedule = Schedule1F1B(stage, n_microbatches=8, loss_fn=torch.nn.functional.mse_loss)
follower = ergon.trainers.pipelining.follow(schedule, plan=sys.argv[1], mode=sys.argv[2])
optimizer = torch.optim.AdamW(stage.submod.parameters())
for _ in range(4):
    if stage.is_first:
        schedule.step(torch.randn(64, 64))
    else:
        schedule.step(target=torch.randn(64, 64))
    optimizer.step()
    optimizer.zero_grad()
print(f"rank {dist.get_rank()}: {follower.hook.stats.steps} steps, "
      f"{follower.hook.stats.passes} passes, {follower.hook.stats.clock_changes} changes of clock")
dist.destroy_process_group()
