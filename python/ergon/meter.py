"""Energy of parts of a program, on all its GPUs and the CPU; also with the calls of Zeus."""

from __future__ import annotations

import ctypes as c
import dataclasses
import math
import os
import sys
import time
from types import TracebackType
from typing import Any, Sequence

from . import _abi
from ._library import Error, call, known, library, opened, sized, take, text

QUALITIES = ("missing", "measured", "estimated", "power only")  #: by enum erg_energy_quality


@dataclasses.dataclass(frozen=True)
class WindowGpu:
    """A GPU in a window; NaN: unknown. uncertainty_j: 95 %."""

    energy_j: float
    uncertainty_j: float
    power_energy_j: float  #: from integrated power readings, the second source
    ratio: float  #: of both sources; close to 1 if they agree
    power_mean_w: float
    power_peak_w: float
    temperature_begin_c: float
    temperature_end_c: float
    temperature_max_c: float
    memory_temperature_max_c: float
    throttled_power_s: float
    throttled_thermal_s: float
    sm_clock_mean_mhz: float
    quality: str  #: one of QUALITIES
    lost: bool


@dataclasses.dataclass(frozen=True)
class WindowResult:
    """Time and energy of a part of a program; NaN: unknown."""

    time_s: float
    energy_j: float  #: of the GPUs whose energy is known
    energy_gpus: int  #: number of these GPUs
    uncertainty_j: float
    cpu_j: float
    cpu_uncertainty_j: float
    dram_j: float
    dram_uncertainty_j: float
    gpus: list[WindowGpu]


@dataclasses.dataclass(frozen=True)
class MeterGpu:
    name: str
    uuid: str
    trouble: str  #: why it cannot be read; "": it works
    index: int  #: in the driver's order
    counter_period_s: float
    power_period_s: float
    read_latency_s: float


def _result(raw: _abi.erg_window_result) -> WindowResult:
    gpus = [take(WindowGpu, raw.gpu[i], quality=QUALITIES[raw.gpu[i].quality])
            for i in range(raw.gpus)]
    return take(WindowResult, raw, gpus=gpus)


class Window:
    """A measured part of a program: Meter.window().

    Work on a GPU is asynchronous: wait for it before the window begins and before it ends.
    """

    def __init__(self, meter: Meter, name: str) -> None:
        self._meter = meter
        self.name = name
        self.result: WindowResult | None = None  #: set when the window has ended
        self._pointer: int | None = None

    def begin(self) -> Window:
        if self._pointer:
            raise Error(f"the window '{self.name}' has begun already; expected its end first")
        self._pointer = library.erg_window_begin(self._meter._open())
        self._meter._windows.add(self)
        return self

    def _taken(self) -> int:
        self._meter._open()
        if not self._pointer:
            raise Error(f"the window '{self.name}' has not begun; expected begin() first")
        return self._pointer

    def look(self) -> WindowResult:
        """The values so far; does not wait."""
        raw = sized(_abi.erg_window_result)
        call("erg_window_look", self._taken(), c.byref(raw))
        return _result(raw)

    def end(self) -> WindowResult:
        """Returns once the counters have moved twice, about 0.2 s later."""
        raw = sized(_abi.erg_window_result)
        pointer, self._pointer = self._taken(), None
        self._meter._windows.discard(self)
        call("erg_window_end", pointer, c.byref(raw))
        self.result = _result(raw)
        return self.result

    def cancel(self) -> None:
        """Drops the window without a result."""
        pointer, self._pointer = self._taken(), None
        self._meter._windows.discard(self)
        library.erg_window_cancel(pointer)

    def __enter__(self) -> Window:
        return self.begin()

    def __exit__(self, kind: type[BaseException] | None, problem: BaseException | None,
                 trace: TracebackType | None) -> None:
        if kind is None:
            self.end()
        elif self._pointer:
            self.cancel()


class Meter:
    """Watches the GPUs ("0,2", a UUID or its beginning, "all"; None: those of
    CUDA_VISIBLE_DEVICES).

    >>> meter = ergon.Meter()
    >>> with meter.window("step") as window:
    ...     work()  # and wait for the GPUs
    >>> window.result.energy_j
    """

    def __init__(self, gpus: str | None = None) -> None:
        self._windows: set[Window] = set()
        self._process = os.getpid()
        self._pointer: c.c_void_p | None = opened("erg_meter_open", text(gpus))

    def _open(self) -> c.c_void_p:
        if not self._pointer:
            raise Error("the meter is closed")
        if self._process != os.getpid():
            raise Error("the meter belongs to the parent process; expected one of this process")
        return self._pointer

    @property
    def gpus(self) -> list[MeterGpu]:
        """The watched GPUs, in the order of results."""
        found = []
        for index in range(library.erg_meter_gpus(self._open())):
            info = sized(_abi.erg_meter_gpu)
            call("erg_meter_gpu", self._pointer, index, c.byref(info))
            found.append(take(MeterGpu, info))
        return found

    def window(self, name: str = "") -> Window:
        """A window, which begins with begin() or as a context. Windows may nest and overlap."""
        return Window(self, name)

    def close(self) -> None:
        """Closes the meter; drops open windows."""
        pointer, self._pointer = self._pointer, None
        for window in self._windows:
            window._pointer = None
        self._windows.clear()
        if pointer and self._process == os.getpid():
            library.erg_meter_close(pointer)

    def __enter__(self) -> Meter:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_pointer", None):
            self.close()


# ---- the calls of Zeus ----


@dataclasses.dataclass
class Measurement:
    """A window as zeus.monitor.ZeusMonitor returns it: seconds and joules."""

    time: float
    gpu_energy: dict[int, float]
    cpu_energy: dict[int, float] | None = None
    dram_energy: dict[int, float] | None = None
    result: WindowResult | None = None  #: all of it, with its uncertainty

    @property
    def total_energy(self) -> float:
        """Of the GPUs."""
        return sum(self.gpu_energy.values())


class ZeusMonitor:
    """A meter by the calls of zeus.monitor.ZeusMonitor: begin_window(), end_window().

    Differences: GPUs are read in parallel and in the background; the energy is that between the
    window's own ends, with its uncertainty; and nothing waits for the GPUs unless
    sync_execution=True (PyTorch's CUDA devices). gpu_indices are among the visible GPUs, as for
    Zeus. The arguments approx_instant_energy and cpu_indices are accepted without effect: short
    windows are always estimated, and all CPU packages count as one.
    """

    def __init__(self, gpu_indices: Sequence[int] | None = None,
                 cpu_indices: Sequence[int] | None = None, approx_instant_energy: bool = False,
                 log_file: str | os.PathLike[str] | None = None, sync_execution_with: str = "torch",
                 ) -> None:
        if sync_execution_with != "torch":
            raise Error(f"sync_execution_with got '{sync_execution_with}', expected 'torch'")
        self._meter = Meter()
        count = len(self._meter.gpus)
        self.gpu_indices = list(range(count)) if gpu_indices is None else list(gpu_indices)
        for index in self.gpu_indices:
            if not 0 <= index < count:
                raise Error(f"GPU {index} of {count}; expected one from 0 to {count - 1}")
        self._windows: dict[str, tuple[Window, float]] = {}
        self._log = open(log_file, "w", encoding="utf-8") if log_file else None
        if self._log:
            names = [f"gpu{index}_energy" for index in self.gpu_indices]
            print(",".join(["start_time", "window_name", "elapsed_time"] + names), file=self._log)

    def _wait(self, wanted: bool) -> None:
        torch = sys.modules.get("torch")
        if wanted and torch is not None and torch.cuda.is_available():
            for index in self.gpu_indices:
                torch.cuda.synchronize(index)

    def begin_window(self, key: str, sync_execution: bool = False) -> None:
        """Begins the window `key`."""
        if key in self._windows:
            raise ValueError(f"Measurement window '{key}' already exists")
        self._wait(sync_execution)
        self._windows[key] = (self._meter.window(key).begin(), time.time())

    def end_window(self, key: str, sync_execution: bool = False,
                   cancel: bool = False) -> Measurement:
        """Ends the window `key`; `cancel`: without a measurement."""
        if key not in self._windows:
            raise ValueError(f"Measurement window '{key}' does not exist")
        window, started = self._windows.pop(key)
        if cancel:
            window.cancel()
            return Measurement(time=0.0, gpu_energy={index: 0.0 for index in self.gpu_indices})
        self._wait(sync_execution)
        result = window.end()
        cpu_j, dram_j = known(result.cpu_j), known(result.dram_j)
        measured = Measurement(
            time=result.time_s,
            gpu_energy={index: result.gpus[index].energy_j for index in self.gpu_indices},
            cpu_energy=None if cpu_j is None else {0: cpu_j},
            dram_energy=None if dram_j is None else {0: dram_j},
            result=result)
        if self._log:
            joules = ["" if math.isnan(value) else repr(value)
                      for value in measured.gpu_energy.values()]
            print(",".join([repr(started), key, repr(measured.time)] + joules), file=self._log,
                  flush=True)
        return measured

    def close(self) -> None:
        """Ends watching."""
        self._windows.clear()
        self._meter.close()
        if self._log:
            self._log.close()
