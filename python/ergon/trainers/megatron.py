"""Megatron-Core, and trainers that use its schedules: Megatron-LM, Megatron-Bridge, NeMo 2.

    import ergon.trainers.megatron
    ergon.trainers.megatron.install(plan="plan.json")
    pretrain(...)

The hook opens at the first step, when Megatron-Core has its ranks. The combined schedule that
overlaps the exchanges of experts (combined_1f1b), and hybrid context parallelism, run passes that
no plan contains, and are refused.
"""

from __future__ import annotations

import functools
import os
from typing import Any, Callable

from megatron.core import parallel_state
from megatron.core.pipeline_parallel import schedules

from .._library import Error
from ._follower import Follower, Place, check_signature

STEPS = ("forward_backward_no_pipelining", "forward_backward_pipelining_without_interleaving",
         "forward_backward_pipelining_with_interleaving")
OTHERS = ("combined_1f1b", "hybrid_context_parallel_forward_backward")


def install(plan: str | os.PathLike[str] | None = None, agree: bool = True,
            **options: Any) -> Follower:
    """Call it on every rank, before the trainer calls get_forward_backward_func(). The follower's
    hook is None until the first step."""
    if hasattr(getattr(schedules, STEPS[0], None), "follows_ergon"):
        raise Error("Megatron-Core already follows a plan; expected one install() per process")
    check_signature(getattr(schedules, "forward_step", None), "forward_step", "current_microbatch",
                    "vp_stage")
    check_signature(getattr(schedules, "backward_step", None), "backward_step")
    for name in STEPS:
        check_signature(getattr(schedules, name, None), name, "forward_only", "num_microbatches")
    follower = Follower("Megatron-Core", plan, agree, **options)
    for name in STEPS:
        setattr(schedules, name, _step(follower, getattr(schedules, name)))
    for name in [one for one in vars(schedules) if one.startswith(OTHERS)]:
        setattr(schedules, name, _refused(name))
    return follower


def _step(follower: Follower, function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def within(*args: Any, **kwargs: Any) -> Any:
        if follower.hook is None:
            _open(follower, kwargs["num_microbatches"])
        with follower.paused() if kwargs.get("forward_only") else follower.hook.step():
            return function(*args, **kwargs)

    within.follows_ergon = True
    return within


def _open(follower: Follower, microbatches: int) -> None:
    chunks = parallel_state.get_virtual_pipeline_model_parallel_world_size() or 1
    follower.open(Place(parallel_state.get_pipeline_model_parallel_rank(),
                        parallel_state.get_pipeline_model_parallel_world_size(), chunks,
                        microbatches, parallel_state.get_data_parallel_rank(),
                        parallel_state.get_data_parallel_world_size()))

    def number(name: str, otherwise: int) -> Callable[[tuple, dict], int]:
        return lambda args, kwargs: otherwise if kwargs.get(name) is None else kwargs[name]

    schedules.forward_step = follower.around(schedules.forward_step, "forward",
                                             number("vp_stage", 0),
                                             number("current_microbatch", -1))
    schedules.backward_step = follower.around(schedules.backward_step, "backward")


def _refused(name: str) -> Callable[..., Any]:
    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise Error(f"Megatron-Core runs {name}(), whose passes no plan contains; expected "
                    "overlap_moe_expert_parallel_comm and hybrid_context_parallel off")

    return refuse
