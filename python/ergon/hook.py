"""Plans inside a trainer of one's own: the clocks of a rank, its passes checked and timed."""

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
    """What a hook has seen so far; NaN: not known."""

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
    below_s: float  #: the clock was below the one set, though the GPU worked
    order_errors: int
    programme_changes: int
    planned_changes: int
    programme_energy_j: float
    planned_energy_j: float
    planned_times_hold: bool
    waiting_w: float
    point: int
    trouble: str  #: a sentence; "": all is well
    profile_clocks: int  #: clocks that a profile has so far
    profile_over: bool  #: no further clock is tried
    profile: str  #: on rank 0: what was written, and the command that plans by it


@dataclasses.dataclass(frozen=True)
class HookClass:
    """Passes of one kind, chunk and clock; NaN: not known."""

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
    """A point of the plan that is run from some step on."""

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
    """One rank that follows a plan: ergon/hook.h.

    >>> with ergon.Hook("plan.json", stage=rank) as hook:
    ...     for batch in data:
    ...         with hook.step():
    ...             for i in range(microbatches):
    ...                 with hook.instruction("forward", microbatch=i): ...
    ...                 with hook.instruction("backward", microbatch=i): ...

    A trainer that calls functions is wrapped by around() and step_of(). mode "follow" sets the
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
        self._err = _abi.erg_error()  # made once: passes allocate nothing for it
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
        """A pass of a kind of KINDS begins; -1: not known."""
        self._check(library.erg_hook_begin(self._open(), kind, chunk, microbatch, stream or None,
                                           self._to_err))

    def end(self, stream: int = 0) -> None:
        self._check(library.erg_hook_end(self._open(), stream or None, self._to_err))

    @contextlib.contextmanager
    def step(self) -> Iterator[None]:
        """All passes of the plan in their order. A body that raises leaves the step unended."""
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
        """Between two steps, an evaluation or a checkpoint: calls are ignored. As a decorator, too:
        evaluate = hook.paused()(evaluate)."""
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
        """The function as a pass. chunk and microbatch may be functions of its arguments (a tuple
        and a dict), stream one of nothing."""
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
        """The function as a step; `paused` says of its arguments whether it is none."""

        @functools.wraps(function)
        def within(*args: Any, **kwargs: Any) -> Any:
            with self.paused() if paused and paused(args, kwargs) else self.step():
                return function(*args, **kwargs)

        return within

    # ---- late pipelines ----

    def late(self, factor: float) -> HookChoice:
        """Some other pipeline needs `factor` times the planned time: what is run from the next step
        on. All ranks of all other pipelines call it between the same two steps."""
        choice = sized(_abi.erg_hook_choice)
        self._check(library.erg_hook_late(self._open(), factor, c.byref(choice), self._to_err))
        return take(HookChoice, choice, cause=CAUSES[choice.cause])

    def agree(self, exchange: Callable[[bytes], list[bytes]] | None, ranks: int) -> None:
        """Ranks agree on who is late by `exchange`, which gathers the bytes of all ranks in their
        order, every 16th step, and between the clocks of a profile; None ends it. An exception of
        it fails the step."""
        kind = _abi.erg_hook_exchange

        def gather(context: int, mine: int, everyone: int, count: int) -> int:
            try:
                parts = exchange(c.string_at(mine, count)) if exchange else []
                if len(parts) != ranks or any(len(part) != count for part in parts):
                    return -1
                c.memmove(everyone, b"".join(parts), ranks * count)
                return 0
            except Exception:  # the step says that it failed
                return -1

        function = kind(gather) if exchange else kind(0)
        self._check(library.erg_hook_agree(self._open(), function, None, ranks, self._to_err))
        self._exchange = function  # lives as long as it is called

    def agreed(self) -> HookChoice | None:
        """What was decided last; None before the first decision."""
        choice = sized(_abi.erg_hook_choice)
        if library.erg_hook_agreed(self._open(), c.byref(choice)) != 0 or choice.from_step < 0:
            return None
        return take(HookChoice, choice, cause=CAUSES[choice.cause])

    # ---- what it has seen ----

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
        """Unlocks the GPU; raises Error where it may still be locked."""
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
