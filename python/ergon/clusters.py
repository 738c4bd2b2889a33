"""Clusters of many jobs, simulated under policies."""

from __future__ import annotations

import ctypes as c
import dataclasses
import json
import os
from typing import Any, Callable, Iterator, Sequence

from . import _abi
from ._library import Handle, Page, call, joined, library, long_call, sized, take, text


@dataclasses.dataclass(frozen=True)
class SimulationResult:
    """The results of a policy; NaN: undefined, such as the mean of no jobs."""

    policy: str
    submitted_jobs: int
    finished_jobs: int
    rejected_jobs: int
    reconfigurations: int  #: starts, moves and resizings
    mean_completion_s: float
    median_completion_s: float
    p99_completion_s: float
    mean_waiting_s: float
    utilization: float  #: share of GPU-seconds that jobs had
    goodput: float  #: utilization without restarts and lost work
    deadlines_met: float
    energy_j: float
    peak_power_w: float
    cost_usd: float
    co2_kg: float
    simulated_s: float


class Simulations(Handle, Page, Sequence):
    """The results of simulate(), in the order of the policies."""

    _free = "erg_simulations_free"

    def __init__(self, pointer: c.c_void_p) -> None:
        super().__init__(pointer)
        self.results: list[SimulationResult] = []
        for index in range(library.erg_simulations_count(pointer)):
            result = sized(_abi.erg_simulations_result)
            call("erg_simulations_result", pointer, index, c.byref(result))
            self.results.append(take(SimulationResult, result))

    def __len__(self) -> int:
        return len(self.results)

    def __getitem__(self, index: Any) -> Any:
        return self.results[index]

    def __iter__(self) -> Iterator[SimulationResult]:
        return iter(self.results)

    def document(self) -> dict[str, Any]:
        """All summaries: the document of `ergon simulate --json`."""
        return json.loads(library.erg_simulations_json(self._pointer))

    def write_page(self, path: str | os.PathLike[str]) -> None:
        call("erg_simulations_write_page", self._pointer, text(path))

    def __repr__(self) -> str:
        return f"<ergon.Simulations: {', '.join(one.policy for one in self.results)}>"


def simulations_options(cluster: str | os.PathLike[str], trace: str | os.PathLike[str],
                        profiles: str | os.PathLike[str], policies: str | Sequence[str], *,
                        until_s: float | None = None, work: float = 1,
                        power_cap_w: float | None = None,
                        tariff: str | os.PathLike[str] | None = None,
                        outages: str | os.PathLike[str] | None = None,
                        failure_s: float | None = None, repair_s: float | None = None,
                        seed: int = 0, folder: str | os.PathLike[str] | None = None,
                        page: bool = False) -> _abi.erg_simulations_options:
    """Converts the options of simulate() for the library."""
    return sized(_abi.erg_simulations_options, cluster=cluster, trace=trace, profiles=profiles,
                 policies=joined("policies", policies), until_s=until_s, work=work,
                 power_cap_w=power_cap_w, tariff=tariff, outages=outages, failure_s=failure_s,
                 repair_s=repair_s, seed=seed, folder=folder, page=page)


def simulate(cluster: str | os.PathLike[str], trace: str | os.PathLike[str],
             profiles: str | os.PathLike[str], policies: str | Sequence[str], *,
             until_s: float | None = None, work: float = 1, power_cap_w: float | None = None,
             tariff: str | os.PathLike[str] | None = None,
             outages: str | os.PathLike[str] | None = None, failure_s: float | None = None,
             repair_s: float | None = None, seed: int = 0,
             folder: str | os.PathLike[str] | None = None,
             progress: Callable[[str, int, int], None] | None = None) -> Simulations:
    """Replays a trace of jobs on a cluster under one or several policies: `ergon simulate`.

    >>> ergon.simulate("cluster.yaml", "trace.csv", "profiles", ["fcfs", "ergon"])
    """
    options = simulations_options(cluster, trace, profiles, policies, until_s=until_s, work=work,
                                  power_cap_w=power_cap_w, tariff=tariff, outages=outages,
                                  failure_s=failure_s, repair_s=repair_s, seed=seed, folder=folder,
                                  page=True)
    return Simulations(long_call("erg_simulations_run", options=options, progress=progress))
