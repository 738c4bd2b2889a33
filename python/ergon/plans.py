"""Plans, and the points of time and energy at which an iteration can run."""

from __future__ import annotations

import array
import ctypes as c
import dataclasses
import json
import os
from typing import Any, Iterator, Sequence

from . import _abi
from ._library import Error, Handle, Page, call, library, opened, sized, take, text

METHODS = ("sequential", "sequential+clocks", "nanobatching", "nanobatching+clocks", "ergon")


@dataclasses.dataclass(frozen=True)
class Point:
    """One way to run an iteration, for all GPUs of a pipeline together."""

    index: int  #: in the frontier; 0: the fastest
    time_s: float
    energy_j: float
    power_w: float  #: mean
    static_energy_j: float  #: of energy_j; NaN: unknown


@dataclasses.dataclass(frozen=True)
class Pass:
    """A pass of one microbatch on one GPU of a stage."""

    direction: str  #: "forward" or "backward"
    microbatch: int
    chunk: int
    start_s: float
    time_s: float
    energy_j: float
    clock_mhz: int  #: 0: the GPU's own choice
    mode: str  #: "sequential", "nanobatch" or "overlap"


@dataclasses.dataclass(frozen=True)
class PlanInfo:
    """The job of a plan, and its selected point."""

    name: str | None
    model: str | None
    gpu: str
    kinds: int
    tensor: int
    context: int
    pipeline: int
    data: int
    virtual_stages: int
    microbatch_size: int
    microbatches: int
    sequence: int
    passes: int  #: per stage in an iteration
    method: str
    rule: str  #: how the point was chosen
    point: int  #: from 0 on
    time_s: float
    energy_j: float
    static_energy_j: float
    step_time_s: float  #: with the sums of gradients and the optimizer; NaN: unknown
    step_energy_j: float
    points: int  #: of the frontier of that method


class Plan(Handle, Page):
    """A plan.json, or the result of Job.optimize() or Layouts.plan().

    >>> plan = ergon.Plan("out/plan.json")
    >>> plan.select(deadline=5.2).energy_j
    """

    _free = "erg_plan_free"

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__(opened("erg_plan_open", text(path)))

    @classmethod
    def parse(cls, plan: str, name: str = "plan") -> Plan:
        """A plan from its text; `name` is the file's name in messages."""
        encoded = plan.encode()
        return cls._of(opened("erg_plan_open_text", text(name), encoded, len(encoded)))

    @property
    def info(self) -> PlanInfo:
        """Its job, and the currently selected point."""
        info = sized(_abi.erg_plan_info)
        call("erg_plan_info", self._pointer, c.byref(info))
        return take(PlanInfo, info)

    @property
    def methods(self) -> list[str]:
        """The methods with points in the plan."""
        found = []
        for index in range(len(METHODS)):
            info = sized(_abi.erg_plan_method_info)
            call("erg_plan_method", self._pointer, index, c.byref(info))
            if info.points > 0:
                found.append(info.name.decode())
        return found

    def frontier(self, method: str | None = None) -> Frontier:
        """The points of a method; None: the selected one."""
        return Frontier(self, method or self.info.method)

    def select(self, *, method: str | None = None, point: int | None = None,
               pick: str | None = None, deadline: float | None = None,
               energy: float | None = None, power: float | None = None,
               straggler: float | None = None) -> Point:
        """Selects a point, and returns it.

        point: its index from 0 on. pick: "fastest", "least_energy" or "knee". Or by bounds in
        seconds, joules and watts: the least energy with a deadline or a straggler (a time until
        which the pipeline must wait anyway), otherwise the fastest. Raises Error with the status
        "infeasible" if no point is within the bounds; the selection then stays.
        """
        goal = sized(_abi.erg_plan_goal, method=method,
                     point=0 if point is None else point + 1, pick=pick, deadline_s=deadline,
                     energy_j=energy, power_w=power, straggler_s=straggler)
        call("erg_plan_choose", self._pointer, c.byref(goal))
        info = self.info
        return _point(self, info.method, info.point)

    def passes(self, stage: int) -> list[Pass]:
        """The passes of a stage's GPUs in an iteration at the selected point, in order."""
        count = c.c_size_t()
        call("erg_plan_passes", self._pointer, stage, None, 0, c.byref(count))
        passes = (_abi.erg_plan_pass * count.value)()
        passes[0].size = c.sizeof(_abi.erg_plan_pass)
        call("erg_plan_passes", self._pointer, stage, passes, count, c.byref(count))
        names = {_abi.ERG_FORWARD: "forward", _abi.ERG_BACKWARD: "backward"}
        return [take(Pass, one, direction=names[one.direction]) for one in passes]

    def expand(self) -> dict[str, Any]:
        """The selected point with the launch slot and SMs of every communication: the document of
        `ergon show --json`."""
        return json.loads(library.erg_plan_chosen_json(self._pointer))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the plan as a file for Plan()."""
        call("erg_plan_save", self._pointer, text(path))

    def write_page(self, path: str | os.PathLike[str]) -> None:
        call("erg_plan_write_page", self._pointer, text(path))

    def __repr__(self) -> str:
        info = self.info
        return (f"<ergon.Plan of {info.name or 'a job'}: {info.method}, point {info.point}, "
                f"{info.time_s:.4g} s, {info.energy_j:.4g} J>")


def _point(plan: Plan, method: str, index: int) -> Point:
    info = sized(_abi.erg_plan_point_info)
    call("erg_plan_point", plan._pointer, text(method), index, c.byref(info))
    return take(Point, info, index=index)


class Frontier(Page, Sequence):
    """The points of a method of a plan, in order of rising time and strictly falling energy.

    times_s and energies_j are arrays of doubles, which numpy and others take without a copy.
    """

    def __init__(self, plan: Plan, method: str) -> None:
        self.plan = plan
        self.method = method
        index = METHODS.index(method) if method in METHODS else -1
        if index < 0:
            raise Error(f"the method '{method}' is unknown; expected one of {', '.join(METHODS)}")
        info = sized(_abi.erg_plan_method_info)
        call("erg_plan_method", plan._pointer, index, c.byref(info))
        self.points = [_point(plan, method, i) for i in range(info.points)]
        self.times_s = array.array("d", (point.time_s for point in self.points))
        self.energies_j = array.array("d", (point.energy_j for point in self.points))

    def __len__(self) -> int:
        return len(self.points)

    def __getitem__(self, index: Any) -> Any:
        return self.points[index]

    def __iter__(self) -> Iterator[Point]:
        return iter(self.points)

    def select(self, **goal: Any) -> Point:
        """Selects a point of this method, like Plan.select()."""
        return self.plan.select(method=self.method, **goal)

    def write_page(self, path: str | os.PathLike[str]) -> None:
        self.plan.write_page(path)

    def __repr__(self) -> str:
        if not self.points:
            return f"<ergon.Frontier of {self.method}: no points>"
        first, last = self.points[0], self.points[-1]
        return (f"<ergon.Frontier of {self.method}: {len(self)} points from {first.time_s:.4g} s, "
                f"{first.energy_j:.4g} J to {last.time_s:.4g} s, {last.energy_j:.4g} J>")


class _Ways:
    """A frontier of the library's own, for combine()."""

    def __init__(self, ways: Sequence[tuple[float, float]] = ()) -> None:
        self.frontier = _abi.erg_frontier()
        library.erg_frontier_init(c.byref(self.frontier))
        for index, (time_s, energy_j) in enumerate(ways):
            library.erg_frontier_add(c.byref(self.frontier), time_s, energy_j, index)
        library.erg_frontier_filter(c.byref(self.frontier))

    def read(self) -> list[tuple[float, float, int]]:
        points = c.cast(self.frontier.points, c.POINTER(_abi.erg_point))
        return [(points[i].time_s, points[i].energy_j, points[i].recipe)
                for i in range(self.frontier.count)]

    def __del__(self) -> None:
        library.erg_frontier_release(c.byref(self.frontier))


def combine(first: Sequence[tuple[float, float]],
            *others: Sequence[tuple[float, float]]) -> list[tuple[float, float, tuple[int, ...]]]:
    """Combines sequential pieces of work: each piece has a list of (seconds, joules), one per
    option. Returns (seconds, joules, indices) of the sums that no other sum beats, with the option
    of each piece.
    """
    total = _Ways(first)
    chosen = [(recipe,) for _, _, recipe in total.read()]
    for ways in others:
        one, result = _Ways(ways), _Ways()
        own = one.read()
        library.erg_frontier_sum(c.byref(result.frontier), c.byref(total.frontier),
                                 c.byref(one.frontier))
        chosen = [chosen[recipe // len(own)] + (own[recipe % len(own)][2],)
                  for _, _, recipe in result.read()]
        total = result
    return [(time_s, energy_j, chosen[i]) for i, (time_s, energy_j, _) in enumerate(total.read())]
