"""Tunes one knob of the GPUs, the power limit or the SM clock, during a training loop."""

from __future__ import annotations

import contextlib
import ctypes as c
import dataclasses
import os
from typing import Any, Iterator

from . import _abi
from ._library import Error, call, fill, library, opened, sized, take

KNOBS = {"power": _abi.ERG_TUNE_POWER, "clock": _abi.ERG_TUNE_CLOCK}
SELECTORS = {"energy": _abi.ERG_TUNE_ENERGY, "time": _abi.ERG_TUNE_TIME,
             "cost": _abi.ERG_TUNE_COST, "slowdown": _abi.ERG_TUNE_SLOWDOWN,
             "budget": _abi.ERG_TUNE_BUDGET}
STATES = ("measuring", "done", "failed")


@dataclasses.dataclass(frozen=True)
class TuneStats:
    state: str  #: one of STATES
    value: int  #: current value: W or MHz
    meets: bool  #: when done: some value meets the slowdown or the budget
    searches: int  #: started searches; more than 1: steps have changed
    blocks: int  #: measured
    steps: int


@dataclasses.dataclass(frozen=True)
class TunePoint:
    """A measured value; times and energies are per step."""

    value: int
    blocks: int
    time_s: float
    energy_j: float
    time_uncertainty_s: float  #: 95 %; NaN: one block
    energy_uncertainty_j: float


class Tune:
    """Finds the best value of a knob on the steps of the training itself: ergon/tune.h.

    >>> with ergon.Tune("power", selector="slowdown", slowdown=1.05) as tune:
    ...     for batch in data:
    ...         with tune.step():
    ...             train(batch)  # and wait for the GPU, or run ahead by little
    >>> tune.stats.value

    knob: "power" (W) or "clock" (MHz). selector: "cost" (weight), "energy", "time", "slowdown" or
    "budget" (budget_j, of a step and all GPUs). gpus: as in Meter; all get the same value. profile:
    a file of measurements, which is read if it exists and written otherwise. None: the library's
    default. close() restores the previous setting.
    """

    def __init__(self, knob: str, *, selector: str = "cost", weight: float | None = None,
                 slowdown: float | None = None, budget_j: float | None = None,
                 gpus: str | None = None, profile: str | os.PathLike[str] | None = None,
                 least: int | None = None, most: int | None = None, step: int | None = None,
                 settle_steps: int | None = None, measure_steps: int | None = None,
                 measure_s: float | None = None) -> None:
        for option, word, words in (("knob", knob, KNOBS), ("selector", selector, SELECTORS)):
            if word not in words:
                raise Error(f"{option} got '{word}', expected one of {', '.join(words)}")
        options = _abi.erg_tune_options()
        library.erg_tune_defaults(c.byref(options))
        fill(options, knob=KNOBS[knob], selector=SELECTORS[selector], weight=weight,
             slowdown=slowdown, budget_j=budget_j, gpus=gpus, profile=profile, least=least,
             most=most, step=step, settle_steps=settle_steps, measure_steps=measure_steps,
             measure_s=measure_s)
        self._options = options  # keeps the texts, which the library reads later
        self._last: tuple[TuneStats, list[TunePoint]] | None = None
        self._process = os.getpid()
        self._pointer: c.c_void_p | None = opened("erg_tune_open", c.byref(options))

    def step_begin(self) -> None:
        call("erg_tune_step_begin", self._open())

    def step_end(self) -> None:
        """At the end of a block of steps this waits for the energy counters, about 0.2 s. A failure
        restores the previous setting, and later calls raise the same error."""
        call("erg_tune_step_end", self._open())

    @contextlib.contextmanager
    def step(self) -> Iterator[None]:
        """A step. If the body raises, the step does not end."""
        self.step_begin()
        yield
        self.step_end()

    @property
    def stats(self) -> TuneStats:
        """The statistics; after close(), those at the close."""
        if not self._pointer and self._last:
            return self._last[0]
        stats = sized(_abi.erg_tune_stats)
        library.erg_tune_stats(self._open(), c.byref(stats))
        return take(TuneStats, stats, state=STATES[stats.state])

    @property
    def points(self) -> list[TunePoint]:
        """The measured values in rising order; also after close()."""
        if not self._pointer and self._last:
            return self._last[1]
        found: list[TunePoint] = []
        point = sized(_abi.erg_tune_point)
        while library.erg_tune_point(self._open(), len(found), c.byref(point)) == 0:
            found.append(take(TunePoint, point))
        return found

    def _open(self) -> c.c_void_p:
        if not self._pointer:
            raise Error("the tuner is closed")
        if self._process != os.getpid():
            raise Error("the tuner belongs to the parent process; expected one of this process")
        return self._pointer

    def close(self) -> None:
        """Restores the previous setting; raises Error if that fails."""
        if not self._pointer or self._process != os.getpid():
            return
        self._last = self.stats, self.points
        pointer, self._pointer = self._pointer, None
        call("erg_tune_close", pointer)

    def __enter__(self) -> Tune:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __del__(self) -> None:
        pointer, self._pointer = getattr(self, "_pointer", None), None
        if pointer and self._process == os.getpid():
            library.erg_tune_close(pointer, None)
