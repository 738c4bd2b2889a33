"""Questions with complete answers: as text, and as JSON documents."""

from __future__ import annotations

import ctypes as c
import json
import os
from typing import Any, Callable, Optional, Sequence, Union

from . import _abi
from ._library import Handle, address, call, library, long_call, opened, sized, strings
from .clusters import simulations_options
from .jobs import layout_options, memory_options, optimize_options

_Path = Union[str, "os.PathLike[str]"]
_Progress = Optional[Callable[[str, int, int], None]]


class Answer(Handle):
    """The answer of a question of this module."""

    _free = "erg_answer_free"

    def _form(self, name: str) -> str | None:
        words = getattr(library, name)(self._pointer)
        return None if words is None else words.decode()

    @property
    def text(self) -> str:
        """The text that the command prints."""
        return self._form("erg_answer_text") or ""

    @property
    def csv(self) -> str | None:
        """Rows of a table; None: no table."""
        return self._form("erg_answer_csv")

    def document(self) -> Any:
        """The document that the command prints with --json; None: no document."""
        words = self._form("erg_answer_json")
        return None if words is None else json.loads(words)

    def check(self) -> None:
        """Raises Error if a check failed: a verification, or that a run fits into memory."""
        call("erg_answer_check", self._pointer)

    def __repr__(self) -> str:
        return self.text


def _ask(name: str, progress: _Progress, **members: Any) -> Answer:
    question = sized(getattr(_abi, name), **members)
    return Answer(long_call(name, options=question, progress=progress))


def layouts(job: _Path, *, cluster: _Path | None = None, engine: str | None = None,
            sequence: int = 0, why: str | None = None, export_as: str | None = None,
            planner: str | None = None, slots: bool = False, folder: _Path | None = None,
            progress: _Progress = None, **options: Any) -> Answer:
    """The layouts of a job file over GPUs: `ergon layout`. The options are those of Job.plan().
    check() raises Error if nothing fits.

    >>> print(ergon.ask.layouts("job.yaml", gpus=64, why="t=8,p=4,l=2"))
    """
    own = layout_options(**options)
    return _ask("erg_ask_layouts", progress, job=job, options=c.addressof(own), cluster=cluster,
                engine=engine, sequence=sequence, why=why, export_as=export_as, planner=planner,
                slots=int(slots), folder=folder)


def memory(job: _Path, *, engine: str | None = None, sequence: int = 0,
           recompute: str | None = None, offload: float | None = None, page: _Path | None = None,
           progress: _Progress = None, **options: Any) -> Answer:
    """The memory of every stage of a job file: `ergon memory`. The options are those of
    Job.memory(). check() raises Error if it does not fit."""
    own = memory_options(**options)
    share = None if offload is None else c.c_double(offload)
    return _ask("erg_ask_memory", progress, job=job, options=c.addressof(own), engine=engine,
                sequence=sequence, recompute=recompute, offload=address(share), page=page)


def optimize(job: _Path, *, microbatches: int = 0, microbatch_size: int = 0, sequence: int = 0,
             search: str | None = None, seed: int | None = None, progress: _Progress = None,
             **options: Any) -> Answer | None:
    """The plan of a job file: `ergon optimize`. The options are those of Job.optimize(). With the
    device "cuda" all ranks call it, and only the first gets an answer."""
    own = optimize_options(**options)
    drawn = None if seed is None else c.c_uint64(seed)
    answer = _ask("erg_ask_optimize", progress, job=job, options=c.addressof(own),
                  microbatches=microbatches, microbatch_size=microbatch_size, sequence=sequence,
                  search=search, seed=address(drawn))
    return answer if answer._pointer else None


def simulate(cluster: _Path, trace: _Path, profiles: _Path, policies: Union[str, Sequence[str]],
             *, progress: _Progress = None, **options: Any) -> Answer:
    """The results of policies for the jobs of a trace, as a table for each: `ergon simulate`. The
    options are those of ergon.simulate()."""
    own = simulations_options(cluster, trace, profiles, policies, **options)
    return _ask("erg_ask_simulate", progress, options=c.addressof(own))


def sweep(file: _Path, folder: _Path, *, part: str | None = None, slurm_tasks: int = 0,
          program: _Path | None = None, progress: _Progress = None) -> Answer:
    """All simulations of a sweep file, or a script that runs them under Slurm: `ergon simulate
    --sweep`. check() raises Error if some failed."""
    return _ask("erg_ask_sweep", progress, file=file, folder=folder, part=part,
                slurm_tasks=slurm_tasks, program=program)


def monitor(gpus: str | None = None, *, interval_ms: int = 0) -> Answer:
    """The state of every GPU now: `ergon monitor --once`. Takes one to three seconds."""
    return _ask("erg_ask_monitor", None, gpus=gpus, interval_ms=interval_ms)


def probe(*, device: str | None = None, calibrate: _Path | None = None,
          rows: _Path | None = None, source: _Path | None = None, base: str | None = None,
          gpus: int = 0, seed: int | None = None, thermal: bool = False, turn_s: float = 0,
          until_s: float = 0, command: Sequence[str] | None = None,
          program: _Path | None = None, progress: _Progress = None) -> Answer | None:
    """The performance of this machine's GPUs, or how they heat each other: `ergon probe`. `source`:
    existing measurements. On GPUs all ranks call it, and only the first gets an answer."""
    drawn = None if seed is None else c.c_uint64(seed)
    words = None if command is None else strings("command", command)
    answer = _ask("erg_ask_probe", progress, device=device, calibrate=calibrate, rows=rows,
                  base=base, gpus=gpus, seed=address(drawn), thermal=int(thermal),
                  turn_s=turn_s, until_s=until_s, command=address(words), program=program,
                  **{"from": source})
    return answer if answer._pointer else None


def daemon(socket: _Path | None = None) -> Answer:
    """The leases of the daemon of clocks and power limits, and the rights of this process:
    `ergon daemon show`."""
    question = sized(_abi.erg_ask_daemon, socket=socket)
    return Answer(opened("erg_ask_daemon", c.byref(question)))


def grant(job: int, uid: int, gpus: str | None, socket: _Path | None = None) -> None:
    """Grants GPUs to a Slurm job at that daemon; None: revokes the grant. `ergon daemon grant`."""
    given = sized(_abi.erg_grant, socket=socket, job=job, uid=uid, gpus=gpus)
    call("erg_grant_gpus", c.byref(given))


def doctor(gpus: str | None = None) -> Answer:
    """The abilities of this machine, with reasons for missing ones: `ergon doctor`. Takes two
    seconds."""
    return _ask("erg_ask_doctor", None, gpus=gpus)


def programme(plan: _Path, *, stage: int = 0, method: str | None = None, point: int = 0,
              dwell_s: float = 0, least_change_mhz: float = 0, clocks_only: bool = False) -> Answer:
    """The clocks of a rank if another trainer follows a plan file: `ergon hook show`.

    >>> ergon.ask.programme("plan.json", stage=1).document()["changes"]
    """
    return _ask("erg_ask_programme", None, plan=plan, stage=stage, method=method, point=point,
                dwell_s=dwell_s, least_change_mhz=least_change_mhz, clocks_only=int(clocks_only))


def frontier(profile: _Path, microbatches: int, *, blocking_power_w: float | None = None,
             plan: _Path | None = None, virtual_stages: int = 0, interleaved: bool = False,
             points: int = 0, p2p_latency_s: float = 0, unit_s: float = 0, deadline_s: float = 0,
             energy_j: float = 0, seed: int = 0, progress: _Progress = None) -> Answer:
    """The time-energy frontier of a pipeline from a profile: `ergon frontier`.

    >>> ergon.ask.frontier("profile.csv", 12, blocking_power_w=83.6, plan="plan.json")
    """
    power = None if blocking_power_w is None else c.c_double(blocking_power_w)
    return _ask("erg_ask_frontier", progress, profile=profile, microbatches=microbatches,
                blocking_power_w=address(power), plan=plan, virtual_stages=virtual_stages,
                interleaved=int(interleaved), points=points, p2p_latency_s=p2p_latency_s,
                unit_s=unit_s, deadline_s=deadline_s, energy_j=energy_j, seed=seed)


def fit(rows: _Path | None = None, *, engine: str, keys: str, runs: Sequence[_Path] = (),
        job: _Path | None = None, cluster: _Path | None = None, output: _Path | None = None,
        folds: int = 0, progress: _Progress = None) -> Answer:
    """The constants of an engine, fitted to measured iterations: `ergon fit`.

    >>> ergon.ask.fit("rows.csv", engine="megatron-a100", keys="gemm_efficiency", job="job.yaml")
    """
    paths = strings("runs", runs)
    return _ask("erg_ask_fit", progress, rows=rows, engine=engine, keys=keys,
                runs=address(paths), run_count=len(paths) - 1, job=job, cluster=cluster,
                output=output, folds=folds)


def verify(job: _Path, plan: _Path, *, layers: int = 0, device: str | None = None,
           repeatable: bool = False, progress: _Progress = None) -> Answer:
    """A plan's schedule on a stack of layers, compared with its parts: `ergon verify`. check()
    raises Error if they disagree."""
    return _ask("erg_ask_verify", progress, job=job, plan=plan, layers=layers, device=device,
                repeatable=int(repeatable))


def jobs(live: _Path, *, all: bool = False) -> Answer:
    """The state of the jobs of a cluster's scheduler: `ergon jobs`."""
    return _ask("erg_ask_jobs", None, live=live, all=int(all))


def submit(live: _Path, *, job: _Path | None = None, like: str | None = None,
           resume: _Path | None = None, arguments: Sequence[str] = (), gpus: int = 0,
           gpus_most: int = 0, type: str | None = None, deadline: str | None = None,
           weight: float = 0, per_node: bool = False, program: _Path | None = None,
           measure_s: float = 0) -> Answer:
    """Submits a job to a cluster's scheduler: `ergon submit`.

    >>> ergon.ask.submit("live.yaml", job="job.yaml", deadline="08:00:00").document()["folder"]
    """
    words = strings("arguments", arguments)
    return _ask("erg_ask_submit", None, live=live, job=job, like=like, resume=resume,
                arguments=address(words), argument_count=len(words) - 1, gpus=gpus,
                gpus_most=gpus_most, type=type, deadline=deadline, weight=weight,
                per_node=int(per_node), program=program, measure_s=measure_s)


def trace(cluster: _Path, profiles: _Path, *, recipe: _Path | None = None,
          log: _Path | None = None, seed: int = 0, progress: _Progress = None) -> Answer:
    """A trace of jobs as text: drawn by a recipe, or imported from another cluster's log."""
    return _ask("erg_ask_trace", progress, cluster=cluster, profiles=profiles, recipe=recipe,
                log=log, seed=seed)


def calculon(model: _Path, system: _Path, folder: _Path, *, gpus: int = 0,
             batch: int = 0) -> Answer:
    """Converts files of Calculon to ergon's files: `ergon import calculon`."""
    return _ask("erg_ask_calculon", None, model=model, system=system, folder=folder, gpus=gpus,
                batch=batch)


def tokenize(model: _Path, files: Sequence[_Path], output: _Path, *, key: str | None = None,
             end: str | None = None, progress: _Progress = None) -> Answer:
    """Converts texts to token files for training: `ergon tokenize`.

    >>> ergon.ask.tokenize("bytes", ["book.txt"], "book").document()["tokens"]
    """
    paths = strings("files", files)
    return _ask("erg_ask_tokenize", progress, model=model, files=address(paths),
                file_count=len(paths) - 1, output=output, key=key, end=end)
