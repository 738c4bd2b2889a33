"""Questions whose answers are shown as a whole: as text, and as documents of JSON."""

from __future__ import annotations

import ctypes as c
import json
import os
from typing import Any, Callable, Optional, Sequence, Union

from . import _abi
from ._library import Handle, call, library, long_call, sized, text

_Path = Union[str, "os.PathLike[str]"]
_Progress = Optional[Callable[[str, int, int], None]]


class Answer(Handle):
    """What a question of this module gives."""

    _free = "erg_answer_free"

    def _form(self, name: str) -> str | None:
        words = getattr(library, name)(self._pointer)
        return None if words is None else words.decode()

    @property
    def text(self) -> str:
        """For people, as the command prints it."""
        return self._form("erg_answer_text") or ""

    @property
    def csv(self) -> str | None:
        """Rows of a table; None: it has none."""
        return self._form("erg_answer_csv")

    def document(self) -> Any:
        """As the command prints it with --json; None: it has no document."""
        words = self._form("erg_answer_json")
        return None if words is None else json.loads(words)

    def check(self) -> None:
        """Raises Error where what was asked about does not hold: a verification, a run's memory."""
        call("erg_answer_check", self._pointer)

    def __repr__(self) -> str:
        return self.text


def _ask(name: str, progress: _Progress, **members: Any) -> Answer:
    question = sized(getattr(_abi, name), **{
        key: text(value) if isinstance(value, (str, os.PathLike)) else value
        for key, value in members.items() if value is not None})
    return Answer(long_call(name, options=question, progress=progress))


def doctor(gpus: str | None = None) -> Answer:
    """What this machine can and cannot do, and why: `ergon doctor`. Takes two seconds."""
    return _ask("erg_ask_doctor", None, gpus=gpus)


def programme(plan: _Path, *, stage: int = 0, method: str | None = None, point: int = 0,
              dwell_s: float = 0, least_change_mhz: float = 0, clocks_only: bool = False) -> Answer:
    """The clocks that a rank gets when another trainer follows a plan's file: `ergon hook show`.

    >>> ergon.ask.programme("plan.json", stage=1).document()["changes"]
    """
    return _ask("erg_ask_programme", None, plan=plan, stage=stage, method=method, point=point,
                dwell_s=dwell_s, least_change_mhz=least_change_mhz, clocks_only=int(clocks_only))


def frontier(profile: _Path, microbatches: int, *, blocking_power_w: float | None = None,
             plan: _Path | None = None, virtual_stages: int = 0, interleaved: bool = False,
             points: int = 0, p2p_latency_s: float = 0, unit_s: float = 0, deadline_s: float = 0,
             energy_j: float = 0, seed: int = 0, progress: _Progress = None) -> Answer:
    """The time-energy frontier of a pipeline from a profile's file: `ergon frontier`.

    >>> ergon.ask.frontier("profile.csv", 12, blocking_power_w=83.6, plan="plan.json")
    """
    power = None if blocking_power_w is None else c.c_double(blocking_power_w)
    return _ask("erg_ask_frontier", progress, profile=profile, microbatches=microbatches,
                blocking_power_w=None if power is None else c.addressof(power), plan=plan,
                virtual_stages=virtual_stages, interleaved=int(interleaved), points=points,
                p2p_latency_s=p2p_latency_s, unit_s=unit_s, deadline_s=deadline_s,
                energy_j=energy_j, seed=seed)


def fit(rows: _Path | None = None, *, engine: str, keys: str, runs: Sequence[_Path] = (),
        job: _Path | None = None, cluster: _Path | None = None, output: _Path | None = None,
        folds: int = 0, progress: _Progress = None) -> Answer:
    """The constants of an engine that explain measured iterations: `ergon fit`.

    >>> ergon.ask.fit("rows.csv", engine="megatron-a100", keys="gemm_efficiency", job="job.yaml")
    """
    paths = (c.c_char_p * max(len(runs), 1))(*(text(run) for run in runs))
    return _ask("erg_ask_fit", progress, rows=rows, engine=engine, keys=keys,
                runs=c.cast(paths, c.c_void_p), run_count=len(runs), job=job, cluster=cluster,
                output=output, folds=folds)


def verify(job: _Path, plan: _Path, *, layers: int = 0, device: str | None = None,
           repeatable: bool = False, progress: _Progress = None) -> Answer:
    """A plan's schedule on a stack of layers, beside its pieces: `ergon verify`. check() says
    whether they agree."""
    return _ask("erg_ask_verify", progress, job=job, plan=plan, layers=layers, device=device,
                repeatable=int(repeatable))


def jobs(live: _Path, *, all: bool = False) -> Answer:
    """What the jobs of a cluster's scheduler have and do: `ergon jobs`."""
    return _ask("erg_ask_jobs", None, live=live, all=int(all))


def submit(live: _Path, *, job: _Path | None = None, like: str | None = None,
           resume: _Path | None = None, arguments: Sequence[str] = (), gpus: int = 0,
           gpus_most: int = 0, type: str | None = None, deadline: str | None = None,
           weight: float = 0, per_node: bool = False, program: _Path | None = None,
           measure_s: float = 0) -> Answer:
    """A job given to a cluster's scheduler: `ergon submit`.

    >>> ergon.ask.submit("live.yaml", job="job.yaml", deadline="08:00:00").document()["folder"]
    """
    words = (c.c_char_p * (len(arguments) + 1))(*(text(one) for one in arguments), None)
    return _ask("erg_ask_submit", None, live=live, job=job, like=like, resume=resume,
                arguments=c.cast(words, c.c_void_p), argument_count=len(arguments), gpus=gpus,
                gpus_most=gpus_most, type=type, deadline=deadline, weight=weight,
                per_node=int(per_node), program=program, measure_s=measure_s)


def trace(cluster: _Path, profiles: _Path, *, recipe: _Path | None = None,
          log: _Path | None = None, seed: int = 0, progress: _Progress = None) -> Answer:
    """A trace of jobs as text: drawn as a recipe says, or imported from another cluster's log."""
    return _ask("erg_ask_trace", progress, cluster=cluster, profiles=profiles, recipe=recipe,
                log=log, seed=seed)


def calculon(model: _Path, system: _Path, folder: _Path, *, gpus: int = 0,
             batch: int = 0) -> Answer:
    """Files of Calculon as files of ours: `ergon import calculon`."""
    return _ask("erg_ask_calculon", None, model=model, system=system, folder=folder, gpus=gpus,
                batch=batch)


def tokenize(model: _Path, files: Sequence[_Path], output: _Path, *, key: str | None = None,
             end: str | None = None, progress: _Progress = None) -> Answer:
    """Texts as the token files that training reads: `ergon tokenize`.

    >>> ergon.ask.tokenize("bytes", ["book.txt"], "book").document()["tokens"]
    """
    paths = (c.c_char_p * max(len(files), 1))(*(text(file) for file in files))
    return _ask("erg_ask_tokenize", progress, model=model, files=c.cast(paths, c.c_void_p),
                file_count=len(files), output=output, key=key, end=end)
