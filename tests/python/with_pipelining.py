"""torch.distributed.pipelining on CPUs by a plan: with_pipelining.py PLAN MODE CHUNKS [PAIRS]

    torchrun --nproc-per-node 4 with_pipelining.py plan.json follow 1 200

2 stages x 2 pipelines, 8 microbatches: Schedule1F1B, with 2 chunks ScheduleInterleaved1F1B. PAIRS
of steps, one with and one without hooks in turns, say what hooks cost.
"""
import random
import statistics
import sys
import time

import torch
import torch.distributed as dist
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleInterleaved1F1B

import ergon.trainers.pipelining

SIZE, BATCH, MICROBATCHES = 512, 32, 8
plan, mode, chunks = sys.argv[1], sys.argv[2], int(sys.argv[3])
pairs = int(sys.argv[4]) if len(sys.argv) > 4 else 0

torch.set_num_threads(1)
dist.init_process_group("gloo")
rank = dist.get_rank()
groups = [dist.new_group(ranks) for ranks in ([0, 1], [2, 3])]
group = groups[rank // 2]
stages = [PipelineStage(torch.nn.Sequential(*[torch.nn.Linear(SIZE, SIZE) for _ in range(4)]),
                        rank % 2 + 2 * chunk, 2 * chunks, torch.device("cpu"), group=group)
          for chunk in range(chunks)]
options = {"n_microbatches": MICROBATCHES, "loss_fn": torch.nn.functional.mse_loss}
schedule = (ScheduleInterleaved1F1B(stages, **options) if chunks > 1 else
            Schedule1F1B(stages[0], **options))
data = torch.randn(BATCH * MICROBATCHES, SIZE)


def run(function):
    for stage in stages:
        stage.submod.zero_grad()
    inputs = [data] if stages[0].is_first else []
    return function(*inputs, target=data) if stages[-1].is_last else function(*inputs)


run(schedule.step)  # learns shapes
plain = schedule.step
follower = ergon.trainers.pipelining.follow(schedule, plan=plan, mode=mode)
names = ("forward_one_chunk", "backward_one_chunk", "backward_weight_one_chunk")
hooked = [(stage, name, stage.__dict__[name]) for stage in stages for name in names]
hooked.append((schedule, "step", schedule.step))


def switch(on):
    for owner, name, function in hooked:
        if on:
            setattr(owner, name, function)
        else:
            delattr(owner, name)


for step in range(17):
    run(schedule.step)
    if step % 8 == 0:
        run(schedule.eval)
stats = follower.hook.stats
assert (stats.steps, stats.passes) == (17, 17 * 2 * MICROBATCHES * chunks), stats
print(f"rank {rank}: {stats.steps} steps, {stats.passes} passes, {stats.clock_changes} changes of "
      f"clock, planned {stats.step_planned_s:.2f} s, median {stats.step_median_s:.3f} s")

order = random.Random(1)
wall, cpu, plain_s = [], [], []
for _ in range(pairs):
    seconds = {}
    for on in order.sample((False, True), 2):
        if not on:
            switch(False)
        dist.barrier()
        begin, begin_cpu = time.perf_counter(), time.thread_time()
        run(schedule.step)
        seconds[on] = (time.perf_counter() - begin, time.thread_time() - begin_cpu)
        if not on:
            switch(True)
    wall.append(seconds[True][0] / seconds[False][0])
    cpu.append(seconds[True][1] / seconds[False][1])
    plain_s.append(seconds[False][0])
if pairs and rank == 0:
    def interval(ratios):
        middle = statistics.median(ratios)
        drawn = sorted(statistics.median(order.choices(ratios, k=len(ratios))) for _ in range(1000))
        low, high = drawn[25], drawn[974]
        return f"{100 * (middle - 1):+.2f} % ({100 * (low - 1):+.2f} to {100 * (high - 1):+.2f})"

    print(f"{pairs} pairs, a plain step {1000 * statistics.median(plain_s):.0f} ms: with hooks "
          f"longer by {interval(wall)} in time, {interval(cpu)} in the thread's CPU time; "
          "95 % intervals")
if pairs and rank == 0:  # what they cost without the noise of other work
    follower.close()
    with ergon.Hook(plan, mode=mode) as hook:
        def empty(chunk, microbatch):
            pass

        def pass_of(kind):
            return hook.around(empty, kind, lambda args, kwargs: args[0],
                               lambda args, kwargs: args[1])

        run_pass = {kind: pass_of(kind) for kind in ("forward", "backward")}
        passes = [(one.direction, one.chunk, one.microbatch) for one in ergon.Plan(plan).passes(0)]
        taken = []
        for _ in range(1000):
            begin = time.perf_counter()
            with hook.step():
                for kind, chunk, microbatch in passes:
                    run_pass[kind](chunk, microbatch)
            taken.append(time.perf_counter() - begin)
    step_us = 1e6 * statistics.median(taken)
    print(f"hooks around nothing: a step of {len(passes)} passes takes {step_us:.0f} us, "
          f"{step_us / statistics.median(plain_s) / 1e4:.3f} % of a plain step")
dist.destroy_process_group()
