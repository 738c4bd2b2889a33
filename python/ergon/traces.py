"""Traces of GPUs: their kernels, by category."""

from __future__ import annotations

import ctypes as c
import dataclasses
import json
import os
from typing import Any, Callable, Iterator, Sequence

from . import _abi
from ._library import Handle, address, call, library, long_call, sized, strings, take


@dataclasses.dataclass(frozen=True)
class KernelCategory:
    """The kernels of one category on one GPU."""

    count: int
    summed_s: float  #: of all its kernels, on all streams
    exposed_s: float  #: in which one runs; communication and copies: without computation
    wait_s: float  #: part of summed_s: exchanges waiting for their last peer; NaN: unknown
    energy_j: float


@dataclasses.dataclass(frozen=True)
class KernelGpu:
    """One GPU of one trace; window_s is the sum of the next three."""

    file: str
    rank: int
    device: int
    window_s: float
    compute_s: float
    exposed_s: float  #: time in which only communication or copies run
    idle_s: float
    energy_j: float  #: NaN without a recording
    idle_energy_j: float
    categories: dict[str, KernelCategory]


class Kernels(Handle, Sequence):
    """The GPUs of traces, in the order of files and devices."""

    _free = "erg_kernels_free"

    def __init__(self, pointer: c.c_void_p) -> None:
        super().__init__(pointer)
        self.gpus: list[KernelGpu] = []
        for index in range(library.erg_kernels_gpus(pointer)):
            gpu = sized(_abi.erg_kernels_gpu)
            call("erg_kernels_gpu", pointer, index, c.byref(gpu))
            names = (library.erg_kernels_category_name(i).decode()
                     for i in range(_abi.ERG_CATEGORIES))
            self.gpus.append(take(KernelGpu, gpu, categories={
                name: take(KernelCategory, one) for name, one in zip(names, gpu.category)}))

    def __len__(self) -> int:
        return len(self.gpus)

    def __getitem__(self, index: Any) -> Any:
        return self.gpus[index]

    def __iter__(self) -> Iterator[KernelGpu]:
        return iter(self.gpus)

    def document(self) -> dict[str, Any]:
        """The document of `ergon import kineto --json`."""
        return json.loads(library.erg_kernels_json(self._pointer))

    def __repr__(self) -> str:
        return f"<ergon.Kernels: {len(self)} GPUs>"


def kernels(files: Sequence[str | os.PathLike[str]], *,
            recording: str | os.PathLike[str] | None = None, categories: str | None = None,
            progress: Callable[[str, int, int], None] | None = None) -> Kernels:
    """Time and energy from traces of PyTorch's profiler and ergon's training: `ergon import
    kineto`.

    >>> ergon.kernels(["rank-0.json.gz", "rank-1.json.gz"], recording="node.rec")
    """
    paths = strings("files", files)
    options = sized(_abi.erg_kernels_options, files=address(paths),
                    file_count=len(paths) - 1, recording=recording, categories=categories)
    return Kernels(long_call("erg_kernels_import", options=options, progress=progress))
