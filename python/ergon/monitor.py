"""The state of every GPU as a picture for a terminal."""

from __future__ import annotations

import ctypes as c
import dataclasses
from typing import Any

from . import _abi
from ._library import Handle, call, library, opened, sized, take

STYLES = ("plain", "strong", "faint", "good", "warning", "bad")  #: by enum erg_style


@dataclasses.dataclass(frozen=True)
class PictureRun:
    """A part of one row in one style; rows and columns count from 0."""

    row: int
    column: int
    style: str  #: one of STYLES
    text: str


class Monitor(Handle):
    """The picture of `ergon monitor`, for your own terminal.

    >>> monitor = ergon.Monitor("all")
    >>> for run in monitor.draw(24, 80): print(run.row, run.text)
    """

    _free = "erg_monitor_close"

    def __init__(self, gpus: str | None = None, *, interval_ms: int = 0) -> None:
        options = sized(_abi.erg_monitor_options, gpus=gpus, interval_ms=interval_ms)
        super().__init__(opened("erg_monitor_open", c.byref(options)))

    def __len__(self) -> int:
        """The number of GPUs."""
        return library.erg_monitor_gpus(self._pointer)

    def page(self, rows: int) -> int:
        """The number of GPUs that fit on this number of rows."""
        return library.erg_monitor_page(self._pointer, rows)

    def draw(self, rows: int, columns: int, *, first: int = 0,
             ascii: bool = False) -> list[PictureRun]:
        """The current state, filling all columns of all rows. `first`: the GPU at the top."""
        picture = sized(_abi.erg_monitor_picture, rows=rows, columns=columns, first=first,
                        ascii=int(ascii))
        call("erg_monitor_draw", self._pointer, c.byref(picture))
        return [self._run(index) for index in range(library.erg_monitor_runs(self._pointer))]

    def _run(self, index: int) -> PictureRun:
        raw: Any = sized(_abi.erg_monitor_run)
        call("erg_monitor_run", self._pointer, index, c.byref(raw))
        return take(PictureRun, raw, style=STYLES[raw.style])
