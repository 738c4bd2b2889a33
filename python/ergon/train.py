"""Trains a job; this process is one rank."""

from __future__ import annotations

import ctypes as c
import dataclasses
import os
from typing import Any, Callable, Iterator

from . import _abi
from ._library import Error, call, library, opened, sized, take, text

DEVICES = {"any": _abi.ERG_TRAIN_ANY, "gpu": _abi.ERG_TRAIN_GPU, "host": _abi.ERG_TRAIN_HOST}
TYPES = {"bfloat16": _abi.ERG_TRAIN_BFLOAT16, "float32": _abi.ERG_TRAIN_FLOAT32}
ENDS = {_abi.ERG_TRAIN_GOES_ON: None, _abi.ERG_TRAIN_DONE: "done",
        _abi.ERG_TRAIN_STOPPED: "stopped", _abi.ERG_TRAIN_TIME_UP: "time up"}


@dataclasses.dataclass(frozen=True)
class TrainStats:
    """Values of the latest step; NaN: unknown."""

    step: int
    steps: int
    updates: int
    tokens: int
    loss: float
    validation_loss: float
    gradient_norm: float
    learning_rate: float
    step_s: float
    j_per_token: float
    j_per_token_uncertainty: float
    memory_bytes: int
    clipped: bool
    skipped: bool
    saved: bool
    rank: int
    ranks: int
    end: str | None  #: why training ends; None: it continues
    resumed: str | None  #: the checkpoint from which the run continued


class Train:
    """A run of a job file: ergon/train.h. All ranks make the same calls in the same order.

    >>> for stats in ergon.Train("job.yaml", folder="run", steps=100):
    ...     print(stats.step, stats.loss)
    """

    def __init__(self, job: str | os.PathLike[str], *,
                 folder: str | os.PathLike[str] | None = None, init: str | None = None,
                 device: str = "any", type: str = "bfloat16", fresh: bool = False,
                 plan: str | os.PathLike[str] | None = None, method: str | None = None,
                 point: int | None = None, deadline: float | None = None,
                 energy: float | None = None, lock_clocks: bool = False, steps: int = 0,
                 time_s: float | None = None, line: Callable[[str], None] | None = None) -> None:
        """point: of the plan, from 0 on. line: called at rank 0 with each line of the log."""
        if device not in DEVICES or type not in TYPES:
            raise Error(f"device '{device}' and type '{type}'; expected one of "
                        f"{', '.join(DEVICES)} and of {', '.join(TYPES)}")
        options = sized(
            _abi.erg_train_options, folder=folder, init=init, device=DEVICES[device],
            type=TYPES[type], fresh=fresh, plan=plan, method=method,
            point=0 if point is None else point + 1, deadline_s=deadline, energy_budget_j=energy,
            lock_clocks=lock_clocks, steps=steps, time_s=time_s)
        self._line: Any = None
        if line:
            kind = dict(_abi.erg_train_options._fields_)["line"]
            self._line = kind(lambda context, said: line(said.decode("utf-8", "replace")))
            options.line = self._line
        self._pointer: c.c_void_p | None = opened("erg_train_open", text(job), c.byref(options))

    def resume(self, checkpoint: str | os.PathLike[str] | None = None) -> None:
        """Call it before the first step: continues from a checkpoint; None: the newest in the run's
        folder, if any."""
        call("erg_train_resume", self._open(), text(checkpoint))

    def step(self) -> TrainStats:
        """Makes one step, and validation, log and checkpoint if due."""
        call("erg_train_step", self._open())
        return self.stats

    @property
    def stats(self) -> TrainStats:
        stats = sized(_abi.erg_train_stats)
        call("erg_train_stats", self._open(), c.byref(stats))
        return take(TrainStats, stats, end=ENDS[stats.end])

    def __iter__(self) -> Iterator[TrainStats]:
        """Makes the remaining steps, from the newest checkpoint on; then closes the run."""
        try:
            self.resume()
            while not self.stats.end:
                yield self.step()
        finally:
            self.close()

    def stop(self) -> None:
        """Requests an end after the next step, with a checkpoint; any thread may call it."""
        library.erg_train_stop(self._open(), 1)

    def checkpoint(self) -> None:
        """Writes a checkpoint of the latest step, and waits until it is complete."""
        call("erg_train_checkpoint", self._open())

    def export(self, folder: str | os.PathLike[str]) -> None:
        """Writes the model in Hugging Face's format."""
        call("erg_train_export", self._open(), text(folder))

    def _open(self) -> c.c_void_p:
        if not self._pointer:
            raise Error("the run is closed")
        return self._pointer

    def close(self) -> None:
        """Finishes the log."""
        pointer, self._pointer = self._pointer, None
        if pointer:
            call("erg_train_close", pointer)

    def __enter__(self) -> Train:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __del__(self) -> None:
        pointer, self._pointer = getattr(self, "_pointer", None), None
        if pointer:
            library.erg_train_close(pointer, None)
