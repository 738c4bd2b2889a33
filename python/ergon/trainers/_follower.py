"""Shared by adapters: the place of a rank, its hook, its stream, and the gather over ranks."""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import functools
import inspect
import os
import sys
from typing import Any, Callable, Iterator

from .._library import Error
from ..hook import Hook
from ..plans import Plan

_LEGACY_STREAM = 1  # CU_STREAM_LEGACY: torch uses 0 for it, which means "none" for a hook


@dataclasses.dataclass(frozen=True)
class Place:
    """The place of a rank, and the passes of its trainer in a step."""

    stage: int = 0
    stages: int = 1
    chunks: int = 1
    microbatches: int | None = None  #: None: unknown until its passes run
    replica: int = 0
    replicas: int = 1


def _torch() -> Any:
    """The torch that the trainer has imported, or None."""
    return sys.modules.get("torch")


def _cuda() -> Any:
    """torch.cuda if it uses NVIDIA GPUs, otherwise None."""
    torch = _torch()
    if torch is None or not torch.version.cuda or not torch.cuda.is_available():
        return None
    return torch.cuda if torch.cuda.is_initialized() else None


def _distributed() -> Any:
    """torch.distributed if there is a process group, otherwise None."""
    torch = _torch()
    if torch is None or not torch.distributed.is_available():
        return None
    return torch.distributed if torch.distributed.is_initialized() else None


def _rank() -> int:
    distributed = _distributed()
    if distributed:
        return distributed.get_rank()
    return int(os.environ.get("RANK", os.environ.get("SLURM_PROCID", "0")))


def check_signature(function: Any, name: str, *arguments: str) -> None:
    """Refuses a trainer whose function is missing or has other arguments."""
    if not callable(function):
        raise Error(f"this version of the trainer has no {name}(), needed to follow a plan")
    found = inspect.signature(function).parameters
    absent = [one for one in arguments if one not in found]
    if absent:
        raise Error(f"{name}() of this version of the trainer takes ({', '.join(found)}), expected "
                    f"{' and '.join(absent)} among them")


def check_plan(plan: Plan, name: str, place: Place) -> None:
    """Refuses, on all ranks at once, a plan for a pipeline other than the trainer's."""
    info = plan.info
    for what, planned, runs in (("stages", info.pipeline, place.stages),
                                ("chunks per stage", info.virtual_stages, place.chunks),
                                ("microbatches per step", info.microbatches, place.microbatches)):
        if runs is not None and runs != planned:
            raise Error(f"{name} is for {planned} {what}, the trainer runs {runs}; expected a plan "
                        "for this pipeline")


class Follower:
    """The hook in a trainer, once the trainer has reported the rank's place."""

    def __init__(self, trainer: str, plan: str | os.PathLike[str] | None = None,
                 agree: bool = True, **options: Any) -> None:
        self.hook: Hook | None = None  #: its stats are the measurements
        self._trainer, self._plan, self._agree, self._options = trainer, plan, agree, options
        self._pauses = 0

    # ---- opening ----

    def open(self, place: Place) -> Hook:
        """Called once on every rank of the job, after the process group exists."""
        options = dict(self._options)
        text = options.get("plan_text")
        planned = self._plan is not None or text is not None
        name = "the plan" if self._plan is None else os.fspath(self._plan)
        if planned:
            check_plan(Plan.parse(text) if self._plan is None else Plan(self._plan), name, place)
        options.setdefault("mode", "follow" if planned else "observe")
        cuda = _cuda()
        if cuda:
            options.setdefault("markers", "events")
            options.setdefault("gpu", _gpu(cuda))
        self.stream = functools.partial(_stream, cuda) if cuda else 0
        hook = Hook(self._plan, stage=place.stage, replica=place.replica, **options)
        atexit.register(hook.close)
        self.hook = hook
        ranks = _distributed().get_world_size() if _distributed() is not None else 1
        profiles = options["mode"] == "profile" and ranks > 1
        agrees = self._agree and planned and place.replicas > 1 and ranks > 1
        if agrees or profiles:
            hook.agree(self.gather, ranks)
        if _rank() == 0:
            microbatches = "?" if place.microbatches is None else place.microbatches
            print(f"ergon: {self._trainer} in mode {options['mode']}"
                  f"{', ' + name if planned else ''}: {place.stages} stages x {place.chunks} "
                  f"chunks x {microbatches} microbatches, {place.replicas} pipelines"
                  f"{' that agree on late ones' if agrees else ''}, markers "
                  f"{options.get('markers', 'host')}", file=sys.stderr, flush=True)
        return hook

    @functools.cached_property
    def _group(self) -> Any:
        """A separate group on CPUs, so that the trainer's groups never wait for it."""
        return _distributed().new_group(backend="gloo")

    def gather(self, mine: bytes) -> list[bytes]:
        """The bytes of all ranks in rank order; all ranks call it."""
        torch, distributed = _torch(), _distributed()
        kind = {"dtype": torch.uint8, "device": "cpu"}
        parts = [torch.empty(len(mine), **kind) for _ in range(distributed.get_world_size())]
        distributed.all_gather(parts, torch.tensor(list(mine), **kind), group=self._group)
        return [bytes(part.tolist()) for part in parts]

    def pipeline_of(self, ranks: list[int]) -> tuple[int, int]:
        """The index of these ranks' pipeline, and the number of pipelines; all ranks call it."""
        if not self._agree or _distributed() is None:
            return 0, 1
        firsts = sorted({int.from_bytes(one, "little")
                         for one in self.gather(min(ranks).to_bytes(8, "little"))})
        return firsts.index(min(ranks)), len(firsts)

    # ---- steps and passes ----

    def around(self, function: Callable[..., Any], kind: str, chunk: Any = -1,
               microbatch: Any = -1) -> Callable[..., Any]:
        """Like Hook.around(), on the stream that is current at the call."""
        return self.hook.around(function, kind, chunk, microbatch, self.stream)

    def begin(self, kind: int) -> None:
        self.hook.begin(kind, stream=self.stream() if self.stream else 0)

    def end(self) -> None:
        self.hook.end(self.stream() if self.stream else 0)

    def pause(self) -> None:
        """Like Hook.pause(); pauses may nest."""
        if self._pauses == 0:
            self.hook.pause()
        self._pauses += 1

    def resume(self) -> None:
        self._pauses -= 1
        if self._pauses == 0:
            self.hook.resume()

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Also a decorator."""
        self.pause()
        try:
            yield
        finally:
            self.resume()

    def close(self) -> None:
        """Unlocks the GPU, like the end of the process. The trainer must run no step after it."""
        if self.hook:
            self.hook.close()


def _stream(cuda: Any) -> int:
    return cuda.current_stream().cuda_stream or _LEGACY_STREAM


def _gpu(cuda: Any) -> str | None:
    """The GPU's UUID, independent of CUDA_VISIBLE_DEVICES; None: this torch has none."""
    uuid = getattr(cuda.get_device_properties(cuda.current_device()), "uuid", None)
    return None if uuid is None else f"GPU-{uuid}"
