"""Studies: one job in every combination of layout, microbatch and optimisation."""

from __future__ import annotations

import ctypes as c
import dataclasses
import json
import os
from typing import Any, Callable

from . import _abi
from ._library import Handle, call, library, long_call, sized, take


@dataclasses.dataclass(frozen=True)
class StudyCounts:
    """Numbers of a study's points by result."""

    ran: int  #: in this call
    ok: int
    memory: int  #: do not fit
    impossible: int
    failed: int
    skipped: int
    failed_findings: int  #: published findings that these points contradict


class Study(Handle):
    """The result of characterize(); its figures and page are in the folder."""

    _free = "erg_characterization_free"

    def __init__(self, pointer: c.c_void_p) -> None:
        super().__init__(pointer)
        counts = sized(_abi.erg_characterization_counts)
        call("erg_characterization_counts", pointer, c.byref(counts))
        self.counts: StudyCounts = take(StudyCounts, counts)

    def document(self) -> dict[str, Any]:
        """All points and findings: the document of `ergon characterize --json`."""
        return json.loads(library.erg_characterization_json(self._pointer))

    def __repr__(self) -> str:
        return f"<ergon.Study: {self.counts.ok} points>"


def characterize(file: str | os.PathLike[str] | None, folder: str | os.PathLike[str] | None = None,
                 *, only: str | None = None, figures: str | None = None, right: str | None = None,
                 sensor: str | None = None, transient_s: float | None = None, jobs: int = 0,
                 retry: bool = False, seed: int | None = None,
                 progress: Callable[[str, int, int], None] | None = None) -> Study:
    """Runs the points of a study that are missing in its folder, and draws figures: `ergon
    characterize`. Without a file: figures and findings of the points in the folder.

    >>> ergon.characterize("sweep.yaml", "out").counts
    """
    options = sized(_abi.erg_characterization_options, file=file, folder=folder, only=only,
                    figures=figures, right=right, sensor=sensor, transient_s=transient_s,
                    jobs=jobs, retry=int(retry), seeded=int(seed is not None), seed=seed)
    return Study(long_call("erg_characterize", options=options, progress=progress))
