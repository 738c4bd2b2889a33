"""DeepSpeed: a PipelineEngine follows a plan.

    engine, *_ = deepspeed.initialize(model=PipelineModule(...), ...)
    ergon.trainers.deepspeed.follow(engine, plan="plan.json")
    ... engine.train_batch() ...

Other engines of DeepSpeed have no schedule: call ergon.Hook in their loops.
"""

from __future__ import annotations

import os
from typing import Any

from deepspeed.runtime.pipe import schedule

from .._library import Error
from ._follower import Follower, Place, check_signature


def follow(engine: Any, plan: str | os.PathLike[str] | None = None, agree: bool = True,
           **options: Any) -> Follower:
    """Call it on every rank, before the first train_batch()."""
    passes = dict(getattr(engine, "_INSTRUCTION_MAP", {}))
    kinds = ((schedule.ForwardPass, "forward"), (schedule.BackwardPass, "backward"))
    if not all(one in passes for one, _ in kinds):
        raise Error(f"a {type(engine).__name__} has no schedule of passes; expected the "
                    "PipelineEngine that deepspeed.initialize() makes of a PipelineModule")
    for one, _ in kinds:
        check_signature(passes[one], passes[one].__name__, "buffer_id")
    for name in ("train_batch", "eval_batch"):
        check_signature(getattr(engine, name, None), name, "data_iter")
    follower = Follower("DeepSpeed", plan, agree, **options)
    hook = follower.open(Place(engine.stage_id, engine.num_stages, 1, engine.micro_batches,
                               engine.grid.get_data_parallel_id(), engine.grid.data_parallel_size))
    for one, kind in kinds:  # a buffer's number is not a microbatch's
        passes[one] = follower.around(passes[one], kind, chunk=0)
    engine._INSTRUCTION_MAP = passes  # only for this engine; its class keeps its own
    engine.train_batch = hook.step_of(engine.train_batch)
    engine.eval_batch = follower.paused()(engine.eval_batch)
    return follower
