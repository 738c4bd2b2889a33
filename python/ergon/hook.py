"""Plans in your own trainer: sets the clocks of a rank, and checks and times its passes."""

from __future__ import annotations

import contextlib
import ctypes as c
import dataclasses
import functools
import os
from typing import Any, Callable, Iterator

from . import _abi
from ._library import Error, call, failure, fill, library, opened, sized, take, text
from .meter import QUALITIES

MODES = {"observe": _abi.ERG_HOOK_OBSERVE, "follow": _abi.ERG_HOOK_FOLLOW,
         "profile": _abi.ERG_HOOK_PROFILE}
MARKERS = {"host": _abi.ERG_MARK_HOST, "events": _abi.ERG_MARK_EVENTS,
           "memory": _abi.ERG_MARK_MEMORY}
KINDS = {"forward": _abi.ERG_FORWARD, "backward": _abi.ERG_BACKWARD,
         "backward-weight": _abi.ERG_BACKWARD_WEIGHT, "other": _abi.ERG_OTHER}
CAUSES = ("none", "unknown", "thermal", "power brake", "power cap", "asked")
LEASES = ("none", "direct", "ended")


@dataclasses.dataclass(frozen=True)
class HookStats:
    """The measurements of a hook so far; NaN: unknown."""

    lease: str  #: one of LEASES
    steps: int
    step_last_s: float
    step_median_s: float
    step_planned_s: float
    busy_s: float
    passes: int
    clock_requests: int
    clock_changes: int
    clock_superseded: int
    clock_refused: int
    clock_late: int
    clock_call_mean_s: float
    clock_call_worst_s: float
    below_s: float  #: seconds in which the clock of the working GPU was below the set one
    order_errors: int
    programme_changes: int
    planned_changes: int
    programme_energy_j: float
    planned_energy_j: float
    planned_times_hold: bool
    waiting_w: float
    point: int
    trouble: str  #: a sentence; "": all is well
    profile_clocks: int  #: clocks in the profile so far
    profile_over: bool  #: no further clock is tried
    profile: str  #: on rank 0: the written file, and the command that plans with it


@dataclasses.dataclass(frozen=True)
class HookClass:
    """Passes of one kind, chunk and clock; NaN: unknown."""

    kind: str
    chunk: int
    clock_mhz: int
    count: int
    mean_s: float
    planned_s: float
    power_w: float
    energy_j: float
    uncertainty_j: float
    quality: str


@dataclasses.dataclass(frozen=True)
class HookChoice:
    """A point of the plan that runs from some step on."""

    point: int
    method: str
    time_s: float
    energy_j: float
    held_energy_j: float
    from_step: int
    late_replica: int
    cause: str


def _word(words: dict[str, int], option: str, word: str) -> int:
    if word not in words:
        raise Error(f"{option} got '{word}', expected one of {', '.join(words)}")
    return words[word]


class Hook:
    """A rank that follows a plan: ergon/hook.h.

    >>> with ergon.Hook("plan.json", stage=rank) as hook:
    ...     for batch in data:
    ...         with hook.step():
    ...             for i in range(microbatches):
    ...                 with hook.instruction("forward", microbatch=i): ...
    ...                 with hook.instruction("backward", microbatch=i): ...

    around() and step_of() wrap the functions of a trainer. mode "follow" sets the
    plan's clocks, "observe" only checks and times, "profile" tries clocks on ordinary steps and
    writes the file `profile` (default: profile.csv) for "ergon frontier"; several ranks call
    agree() first. `stream` of a pass is a CUstream as a number,
    torch.cuda.current_stream().cuda_stream, for markers "events" and "memory"; 0: the host's clock.
    """

    def __init__(self, plan: str | os.PathLike[str] | None = None, *, plan_text: str | None = None,
                 method: str | None = None, point: int = -1, stage: int = 0, replica: int = 0,
                 mode: str = "follow", gpu: str | None = None, daemon: str | None = None,
                 dwell_s: float = 0, least_change_mhz: float = 0, markers: str = "host",
                 energy: bool = False, strict: bool = True, clocks_only: bool = False,
                 profile: str | os.PathLike[str] | None = None) -> None:
        options = _abi.erg_hook_options()
        library.erg_hook_defaults(c.byref(options))
        fill(options, plan=plan, plan_text=plan_text, method=method, point=point, stage=stage,
             replica=replica, mode=_word(MODES, "mode", mode), gpu=gpu, daemon=daemon,
             dwell_s=dwell_s, least_change_mhz=least_change_mhz,
             markers=_word(MARKERS, "markers", markers), energy=energy, strict=strict,
             clocks_only=clocks_only)
        self._exchange: Any = None
        self._err = _abi.erg_error()  # made once, so that passes allocate nothing
        self._to_err = c.byref(self._err)
        if profile is not None and mode != "profile":
            raise Error(f"mode is \"{mode}\", expected \"profile\" with the file of a profile")
        self._pointer: c.c_void_p | None = opened("erg_hook_open", c.byref(options))
        if profile is not None:
            call("erg_hook_profile_to", self._pointer, text(profile))

    # ---- steps and passes ----

    def _check(self, result: int) -> None:
        if result != 0:
            raise failure(self._err)

    def step_begin(self) -> None:
        self._check(library.erg_hook_step_begin(self._open(), self._to_err))

    def step_end(self) -> None:
        self._check(library.erg_hook_step_end(self._open(), self._to_err))

    def begin(self, kind: int, chunk: int = -1, microbatch: int = -1, stream: int = 0) -> None:
        """Begins a pass of a kind of KINDS; -1: unknown."""
        self._check(library.erg_hook_begin(self._open(), kind, chunk, microbatch, stream or None,
                                           self._to_err))

    def end(self, stream: int = 0) -> None:
        self._check(library.erg_hook_end(self._open(), stream or None, self._to_err))

    @contextlib.contextmanager
    def step(self) -> Iterator[None]:
        """All passes of the plan in their order. If the body raises, the step does not end."""
        self.step_begin()
        yield
        self.step_end()

    @contextlib.contextmanager
    def instruction(self, kind: str, chunk: int = -1, microbatch: int = -1,
                    stream: int = 0) -> Iterator[None]:
        """A pass: "forward", "backward", "backward-weight" or "other"."""
        self.begin(_word(KINDS, "kind", kind), chunk, microbatch, stream)
        yield
        self.end(stream)

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """A pause between two steps, for an evaluation or a checkpoint: calls are ignored. Also a
        decorator: evaluate = hook.paused()(evaluate)."""
        self.pause()
        try:
            yield
        finally:
            self.resume()

    def pause(self) -> None:
        if library.erg_hook_pause(self._open()) != 0:
            raise Error("a hook pauses between two steps; expected the end of this one first")

    def resume(self) -> None:
        if library.erg_hook_resume(self._open()) != 0:
            raise Error("nothing is paused; expected pause() first")

    # ---- functions of a trainer ----

    def around(self, function: Callable[..., Any], kind: str,
               chunk: int | Callable[[tuple, dict], int] = -1,
               microbatch: int | Callable[[tuple, dict], int] = -1,
               stream: int | Callable[[], int] = 0) -> Callable[..., Any]:
        """Wraps a function as a pass. chunk and microbatch may be functions of its arguments (a
        tuple and a dict), stream a function without arguments."""
        number = _word(KINDS, "kind", kind)

        @functools.wraps(function)
        def within(*args: Any, **kwargs: Any) -> Any:
            of_chunk = chunk(args, kwargs) if callable(chunk) else chunk
            of_microbatch = microbatch(args, kwargs) if callable(microbatch) else microbatch
            on = stream() if callable(stream) else stream
            self.begin(number, of_chunk, of_microbatch, on)
            result = function(*args, **kwargs)
            self.end(on)
            return result

        return within

    def step_of(self, function: Callable[..., Any],
                paused: Callable[[tuple, dict], bool] | None = None) -> Callable[..., Any]:
        """Wraps a function as a step; `paused`, a function of its arguments, returns true for calls
        that are not steps."""

        @functools.wraps(function)
        def within(*args: Any, **kwargs: Any) -> Any:
            with self.paused() if paused and paused(args, kwargs) else self.step():
                return function(*args, **kwargs)

        return within

    # ---- late pipelines ----

    def late(self, factor: float) -> HookChoice:
        """Another pipeline needs `factor` times the planned time: returns the point to run from the
        next step on. All ranks of all other pipelines call it between the same two steps."""
        choice = sized(_abi.erg_hook_choice)
        self._check(library.erg_hook_late(self._open(), factor, c.byref(choice), self._to_err))
        return take(HookChoice, choice, cause=CAUSES[choice.cause])

    def agree(self, exchange: Callable[[bytes], list[bytes]] | None, ranks: int) -> None:
        """Makes ranks agree on late pipelines every 16th step, and between the clocks of a profile,
        by `exchange`, which gathers the bytes of all ranks in rank order; None ends this. An
        exception of `exchange` fails the step."""
        kind = _abi.erg_hook_exchange

        def gather(context: int, mine: int, everyone: int, count: int) -> int:
            try:
                parts = exchange(c.string_at(mine, count)) if exchange else []
                if len(parts) != ranks or any(len(part) != count for part in parts):
                    return -1
                c.memmove(everyone, b"".join(parts), ranks * count)
                return 0
            except Exception:  # the step reports the failure
                return -1

        function = kind(gather) if exchange else kind(0)
        self._check(library.erg_hook_agree(self._open(), function, None, ranks, self._to_err))
        self._exchange = function  # kept as long as it may be called

    def agreed(self) -> HookChoice | None:
        """The latest decision; None before the first."""
        choice = sized(_abi.erg_hook_choice)
        if library.erg_hook_agreed(self._open(), c.byref(choice)) != 0 or choice.from_step < 0:
            return None
        return take(HookChoice, choice, cause=CAUSES[choice.cause])

    # ---- measurements ----

    @property
    def stats(self) -> HookStats:
        stats = sized(_abi.erg_hook_stats)
        library.erg_hook_stats(self._open(), c.byref(stats))
        return take(HookStats, stats, lease=LEASES[stats.lease])

    @property
    def classes(self) -> list[HookClass]:
        found = []
        names = {number: name for name, number in KINDS.items()}
        about = sized(_abi.erg_hook_class)
        while library.erg_hook_class(self._open(), len(found), c.byref(about)) == 0:
            found.append(take(HookClass, about, kind=names[about.kind],
                              quality=QUALITIES[about.quality]))
        return found

    # ---- its end ----

    def _open(self) -> c.c_void_p:
        if not self._pointer:
            raise Error("the hook is closed")
        return self._pointer

    def close(self) -> None:
        """Unlocks the GPU; raises Error if it may still be locked."""
        pointer, self._pointer = self._pointer, None
        if pointer:
            call("erg_hook_close", pointer)

    def __enter__(self) -> Hook:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __del__(self) -> None:
        pointer, self._pointer = getattr(self, "_pointer", None), None
        if pointer:
            library.erg_hook_close(pointer, None)
