"""Models and jobs, with their memory, layouts and plans."""

from __future__ import annotations

import ctypes as c
import dataclasses
import html
import json
import os
from typing import Any, Callable, Iterator, Sequence

from . import _abi
from ._library import (Error, Handle, Page, call, joined, library, long_call, opened, sized, take,
                       text)
from .plans import Frontier, Plan

Progress = Callable[[str, int, int], None]  #: called with the task, steps done and all steps


# ---- models ----


@dataclasses.dataclass(frozen=True)
class ModelInfo:
    name: str
    architecture: str  #: "LlamaForCausalLM"
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocabulary: int
    most_positions: int  #: tokens of a sequence; 0: no bound
    window: int  #: of attention; 0: every token sees all earlier ones
    parameters: float
    trained_parameters: float
    tied: bool  #: the head shares the embedding's weights
    gated: bool


@dataclasses.dataclass(frozen=True)
class ModelWork:
    """FLOPs of one pass over some tokens, for all GPUs together."""

    linear_flops: float
    head_flops: float
    attention_flops: float
    training_flops: float  #: of an iteration
    recomputing_flops: float  #: of one with full recomputation


class Model(Handle):
    """A transformer from its config.json, a folder with one, or a name of the catalogue.

    >>> ergon.Model("llama-3.2-3b").info.parameters
    """

    _free = "erg_model_free"

    def __init__(self, name: str | os.PathLike[str]) -> None:
        super().__init__(opened("erg_model_open", text(name)))
        info = sized(_abi.erg_model_info)
        call("erg_model_info", self._pointer, c.byref(info))
        self.info = take(ModelInfo, info)

    def work(self, tokens: float, sequence: float) -> ModelWork:
        """FLOPs of `tokens` tokens in sequences of `sequence`."""
        work = sized(_abi.erg_model_work)
        call("erg_model_work", self._pointer, tokens, sequence, c.byref(work))
        return take(ModelWork, work)

    def __repr__(self) -> str:
        return f"<ergon.Model {self.info.name}: {self.info.parameters / 1e9:.3g} billion parameters>"


# ---- memory ----


@dataclasses.dataclass(frozen=True)
class MemoryInfo:
    fits: bool  #: into the GPUs
    host_fits: bool  #: offloaded tensors fit into the nodes' host memory
    binding_stage: int  #: the stage with the least free memory, or the largest shortage
    tensor: int
    context: int
    pipeline: int
    data: int
    virtual_stages: int
    microbatch_size: int
    microbatches: int
    sequence: int
    recompute: str
    offload: float
    change: str  #: the shortage, and the smallest change that helps; "": it fits
    fsdp: int  #: ranks that share the weights; 1: not sharded


@dataclasses.dataclass(frozen=True)
class StageMemory:
    """One GPU of a stage at its memory peak, in bytes."""

    gpu: str
    peak_bytes: float
    gpu_bytes: float  #: available for them
    weights_bytes: float
    gradients_bytes: float
    optimizer_bytes: float
    activations_bytes: float
    other_bytes: float
    host_bytes: float
    offload: float
    layers: int


class Memory(Handle, Page):
    """The memory of each stage of a layout: Job.memory()."""

    _free = "erg_memory_free"

    def __init__(self, pointer: c.c_void_p) -> None:
        super().__init__(pointer)
        info = sized(_abi.erg_memory_info)
        call("erg_memory_info", pointer, c.byref(info))
        self.info = take(MemoryInfo, info)
        self.stages: list[StageMemory] = []
        for index in range(info.stages):
            stage = sized(_abi.erg_memory_stage_info)
            call("erg_memory_stage", pointer, index, c.byref(stage))
            self.stages.append(take(StageMemory, stage))

    @property
    def fits(self) -> bool:
        """Whether it fits into GPUs and hosts."""
        return self.info.fits and self.info.host_fits

    def document(self) -> dict[str, Any]:
        """The document of `ergon memory --json`."""
        return json.loads(library.erg_memory_json(self._pointer))

    def write_page(self, path: str | os.PathLike[str]) -> None:
        call("erg_memory_write_page", self._pointer, text(path))

    def __repr__(self) -> str:
        worst = self.stages[self.info.binding_stage]
        return (f"<ergon.Memory: {'fits' if self.fits else 'does not fit'}, stage "
                f"{self.info.binding_stage} needs {worst.peak_bytes / 2**30:.2f} of "
                f"{worst.gpu_bytes / 2**30:.2f} GiB>")


# ---- layouts ----


@dataclasses.dataclass(frozen=True)
class Layout:
    """A layout of a job, and its iteration, for all GPUs together."""

    name: str  #: "t=2,c=2,p=8,l=2"
    gpus: int
    tensor: int
    context: int
    pipeline: int
    data: int
    virtual_stages: int
    microbatch_size: int
    microbatches: int
    batch: int
    recompute: str
    offload: float
    time_s: float
    energy_j: float
    power_w: float
    tokens_per_s: float
    mfu: float  #: share of the GPUs' peak, 0 to 1
    peak_bytes: float  #: of the GPU with the highest peak
    fsdp: int  #: ranks that share the weights; 1: not sharded


class Layouts(Handle, Page, Sequence):
    """Layouts of a job, best first: Job.plan()."""

    _free = "erg_layouts_free"

    def __init__(self, pointer: c.c_void_p, page: bool) -> None:
        super().__init__(pointer)
        self._has_page = page
        self.layouts: list[Layout] = []
        for index in range(library.erg_layouts_count(pointer)):
            row = sized(_abi.erg_layouts_row)
            call("erg_layouts_row", pointer, index, c.byref(row))
            self.layouts.append(take(Layout, row))

    def __len__(self) -> int:
        return len(self.layouts)

    def __getitem__(self, index: Any) -> Any:
        return self.layouts[index]

    def __iter__(self) -> Iterator[Layout]:
        return iter(self.layouts)

    def job(self, index: int = 0) -> Job:
        """The job with that layout instead of its own, for Job.optimize() or training."""
        pointer = c.c_void_p()
        call("erg_layouts_job", self._pointer, index, c.byref(pointer))
        return Job._of(pointer)

    def plan(self) -> Plan:
        """The best layout as a plan, if clocks were chosen, by an objective, a bound or a page."""
        pointer = c.c_void_p()
        call("erg_layouts_plan", self._pointer, c.byref(pointer))
        return Plan._of(pointer)

    def document(self) -> dict[str, Any]:
        """The document of `ergon layout --json`."""
        return json.loads(library.erg_layouts_json(self._pointer))

    def write_page(self, path: str | os.PathLike[str]) -> None:
        """Writes the page; needs Job.plan(page=True)."""
        call("erg_layouts_write_page", self._pointer, text(path))

    def _repr_html_(self) -> str:
        if self._has_page:
            return super()._repr_html_()
        names = ("name", "gpus", "time_s", "energy_j", "mfu", "peak_bytes", "recompute")
        head = "".join(f"<th>{name}</th>" for name in names)
        rows = "".join(
            "<tr>" + "".join(f"<td>{html.escape(_short(getattr(one, name)))}</td>"
                             for name in names) + "</tr>" for one in self.layouts)
        return f"<table><tr>{head}</tr>{rows}</table>"

    def __repr__(self) -> str:
        best = self.layouts[0]
        return (f"<ergon.Layouts: {len(self)}, the best {best.name} on {best.gpus} GPUs, "
                f"{best.time_s:.4g} s, {best.energy_j:.4g} J>")


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


# ---- options of Job's functions for the library ----


def memory_options(*, layout: str | None = None, gpus: int | None = None,
                   batch: int | None = None, solve_offload: str | None = None,
                   per_stage: bool = False, accounting: str | None = None,
                   layer_copies: bool = False) -> _abi.erg_memory_options:
    return sized(_abi.erg_memory_options, layout=layout, gpus=gpus, batch=batch,
                 solve_offload=solve_offload, per_stage=per_stage, accounting=accounting,
                 layer_copies=layer_copies)


def layout_options(gpus: int | str | None = None, *, batch: int | None = None,
                   batch_slack: float = 0, layout: str | None = None,
                   recompute: str | None = None, per_stage: bool = False,
                   objective: str | None = None, deadline: float | None = None,
                   energy: float | None = None, power: float | None = None,
                   memory_bytes: float | None = None, host_bytes: float | None = None,
                   top: int = 10, page: bool = False,
                   fsdp: bool = False) -> _abi.erg_layouts_options:
    return sized(_abi.erg_layouts_options, gpus=None if gpus is None else str(gpus), batch=batch,
                 batch_slack=batch_slack, layout=layout, recompute=recompute, per_stage=per_stage,
                 objective=objective, deadline_s=deadline, energy_j=energy, power_w=power,
                 memory_bytes=memory_bytes, host_bytes=host_bytes, top=top, page=page, fsdp=fsdp)


def optimize_options(*, device: str = "emulated", folder: str | os.PathLike[str] | None = None,
                     methods: str | Sequence[str] | None = None, deadline: float | None = None,
                     energy: float | None = None,
                     lock_clocks: bool = False) -> _abi.erg_optimize_options:
    return sized(_abi.erg_optimize_options, device=device, folder=folder,
                 methods=joined("methods", methods) or None, deadline_s=deadline, energy_j=energy,
                 lock_clocks=lock_clocks)


# ---- jobs ----


@dataclasses.dataclass(frozen=True)
class JobInfo:
    name: str
    model: str
    gpu: str  #: of the cluster's own nodes
    stack: str
    engine: str | None
    recompute: str
    gpus: int  #: of the cluster, all kinds
    kinds: int
    tensor: int
    context: int
    pipeline: int
    data: int
    virtual_stages: int
    microbatch_size: int
    microbatches: int
    sequence: int
    batch: int  #: sequences of an iteration
    offload: float


class Job(Handle):
    """A model and the GPUs to train it on: a job file, its keys by name, or both.

    >>> job = ergon.Job("job.yaml", microbatches=16)
    >>> job = ergon.Job(model="llama-3.2-3b", tensor=8, pipeline=2, microbatch_size=8,
    ...                 microbatches=8, sequence=4096,
    ...                 cluster={"nodes": 2, "gpus_per_node": 8, "gpu": "A100-SXM4-40GB"})
    >>> frontier = job.optimize()
    >>> layouts = job.plan(gpus=64)

    examples/quickstart.yaml explains every key. Relative paths in keys start at the file's folder
    or, without a file, at the current one.
    """

    _free = "erg_job_free"

    def __init__(self, file: str | os.PathLike[str] | None = None, **keys: Any) -> None:
        if file is None:
            encoded = json.dumps(keys, ensure_ascii=False, allow_nan=False).encode()
            super().__init__(opened("erg_job_open_text", b"job", encoded, len(encoded)))
            return
        super().__init__(opened("erg_job_open", text(file)))
        for key, value in keys.items():
            self.set(key, value)

    @classmethod
    def parse(cls, job: str, name: str = "job") -> Job:
        """A job from the text of a file; `name` is its path in messages."""
        encoded = job.encode()
        return cls._of(opened("erg_job_open_text", text(name), encoded, len(encoded)))

    def set(self, key: str, value: Any) -> Job:
        """Sets a key such as "microbatches" or "cluster.nodes", and checks the job again; a refused
        value does not change the job."""
        encoded = json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
        call("erg_job_set", c.byref(self._pointer), text(key), encoded)
        return self

    def check(self) -> None:
        """Raises Error if the job cannot run as it is: its layout, its cluster, its GPUs."""
        call("erg_job_check", self._pointer)

    @property
    def info(self) -> JobInfo:
        info = sized(_abi.erg_job_info)
        call("erg_job_info", self._pointer, c.byref(info))
        return take(JobInfo, info)

    @property
    def text(self) -> str:
        """The file's text, with the keys that were set."""
        return library.erg_job_text(self._pointer).decode("utf-8", "replace")

    def memory(self, *, layout: str | None = None, gpus: int | None = None,
               batch: int | None = None, solve_offload: str | None = None,
               per_stage: bool = False, accounting: str | None = None,
               layer_copies: bool = False, progress: Progress | None = None) -> Memory:
        """The memory of each stage, for the job's own layout or `layout`, such as
        "t=2,c=2,p=8,l=2". solve_offload: "gpu", or bytes such as "64GiB", to find the smallest
        ratio of offloading that fits."""
        options = memory_options(layout=layout, gpus=gpus, batch=batch,
                                 solve_offload=solve_offload, per_stage=per_stage,
                                 accounting=accounting, layer_copies=layer_copies)
        return Memory(long_call("erg_memory_find", self._pointer, options=options,
                                progress=progress))

    def plan(self, gpus: int | str | None = None, *, batch: int | None = None,
             batch_slack: float = 0, layout: str | None = None, recompute: str | None = None,
             per_stage: bool = False, objective: str | None = None, deadline: float | None = None,
             energy: float | None = None, power: float | None = None,
             memory_bytes: float | None = None, host_bytes: float | None = None, top: int = 10,
             page: bool = False, fsdp: bool = False,
             progress: Progress | None = None) -> Layouts:
        """The best layouts of the job on a number of GPUs (None: all of its cluster; "8-64" and
        "any" also choose the number). The job needs the key `engine`.

        objective: "fastest" or "least_energy"; deadline, energy and power: bounds of an iteration
        in seconds, joules and watts. Any of these also chooses clocks. page: computes everything on
        the page, which takes longer. fsdp: includes layouts of one stage that shard weights over
        data ranks.
        """
        options = layout_options(gpus, batch=batch, batch_slack=batch_slack, layout=layout,
                                 recompute=recompute, per_stage=per_stage, objective=objective,
                                 deadline=deadline, energy=energy, power=power,
                                 memory_bytes=memory_bytes, host_bytes=host_bytes, top=top,
                                 page=page, fsdp=fsdp)
        return Layouts(long_call("erg_layouts_find", self._pointer, options=options,
                                 progress=progress), page)

    def optimize(self, *, device: str = "emulated", folder: str | os.PathLike[str] | None = None,
                 methods: str | Sequence[str] | None = None, deadline: float | None = None,
                 energy: float | None = None, lock_clocks: bool = False,
                 progress: Progress | None = None) -> Frontier:
        """The frontier of the job's training iteration, with its plan: frontier.plan.

        device: "emulated", or "cuda", the GPUs of this machine. folder: for plan.json, report.html,
        and all measurements, from which an interrupted call continues. deadline, energy: the point
        to select, instead of the job's goal. lock_clocks (experimental): with "cuda", also searches
        clocks.
        """
        options = optimize_options(device=device, folder=folder, methods=methods,
                                   deadline=deadline, energy=energy, lock_clocks=lock_clocks)
        pointer = long_call("erg_optimize_job", self._pointer, options=options, progress=progress)
        if not pointer:
            raise Error("this rank took part; rank 0 has the plan", "no device")
        return Plan._of(pointer).frontier()

    def __repr__(self) -> str:
        info = self.info
        return f"<ergon.Job {info.name}: {info.model} on {info.gpus} {info.gpu}>"
