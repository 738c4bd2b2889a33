"""torch.distributed.pipelining: a schedule follows a plan.

    schedule = Schedule1F1B(stage, n_microbatches=8, loss_fn=loss)
    ergon.trainers.pipelining.follow(schedule, plan="plan.json")
    ... schedule.step(x) ...

torchtitan: follow(trainer.pp_schedule, plan=...) before trainer.train(). Every schedule whose stage
i is on rank i modulo their number can be hooked; a plan has the order of Schedule1F1B or
ScheduleInterleaved1F1B. A step is a step of the schedule: a trainer that accumulates gradients over
several of them runs several steps of the plan.
"""

from __future__ import annotations

import os
from typing import Any

import torch.distributed as dist

from .._library import Error
from ._follower import Follower, Place, check_signature


def follow(schedule: Any, plan: str | os.PathLike[str] | None = None, mesh: Any = None,
           agree: bool = True, **options: Any) -> Follower:
    """Call it on every rank, before the first step. mesh: the DeviceMesh of the job with all
    dimensions; dp* and data* give the pipeline of a rank. Default: each process group of stages is
    a pipeline. This counts tensor ranks as separate pipelines, so that none is ever late."""
    stages = getattr(schedule, "_stages", None) or [getattr(schedule, "_stage", None)]
    if stages[0] is None or not hasattr(schedule, "_has_backward"):
        raise Error(f"a {type(schedule).__name__} is not a schedule of "
                    "torch.distributed.pipelining that ergon can follow; expected its _stage or "
                    "_stages, and _has_backward")
    first = stages[0]
    for stage in stages:
        check_signature(stage.forward_one_chunk, "forward_one_chunk", "fwd_chunk_id")
        check_signature(stage.backward_one_chunk, "backward_one_chunk", "bwd_chunk_id")
        check_signature(stage.backward_weight_one_chunk, "backward_weight_one_chunk",
                        "bwd_chunk_id")
        if stage.stage_index % first.group_size != first.group_rank:
            raise Error(f"a {type(schedule).__name__} puts stage {stage.stage_index} on rank "
                        f"{first.group_rank} of {first.group_size}; expected stages in order, as "
                        "in Schedule1F1B and ScheduleInterleaved1F1B")
    follower = Follower(f"torch {type(schedule).__name__}", plan, agree, **options)
    replica, replicas = (_in_mesh(mesh) if mesh is not None else
                         follower.pipeline_of(dist.get_process_group_ranks(first.group)))
    hook = follower.open(Place(first.group_rank, first.group_size, len(stages),
                               getattr(schedule, "_n_microbatches", None), replica, replicas))
    for stage in stages:
        chunk = stage.stage_index // first.group_size
        for name, argument, kind in (("forward_one_chunk", "fwd_chunk_id", "forward"),
                                     ("backward_one_chunk", "bwd_chunk_id", "backward"),
                                     ("backward_weight_one_chunk", "bwd_chunk_id",
                                      "backward-weight")):
            setattr(stage, name, follower.around(
                getattr(stage, name), kind, chunk,
                lambda args, kwargs, argument=argument: args[0] if args else kwargs[argument]))
    # schedule.eval() calls step() without a backward pass, like step() without a loss.
    schedule.step = hook.step_of(schedule.step, lambda args, kwargs: not schedule._has_backward)
    return follower


def _in_mesh(mesh: Any) -> tuple[int, int]:
    replica, replicas = 0, 1
    for index, name in enumerate(mesh.mesh_dim_names or ()):
        if name.startswith(("dp", "data")):
            replica = replica * mesh.size(index) + mesh.get_local_rank(name)
            replicas *= mesh.size(index)
    return replica, replicas
