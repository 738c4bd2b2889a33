"""A command as several ranks, one process per GPU of this machine."""

from __future__ import annotations

import ctypes as c
from typing import Any, Callable, Sequence

from . import _abi
from ._library import address, call, sized, strings


def launch(command: Sequence[str], ranks: int, *, timeout_s: float = 0,
           line: Callable[[int, bool, str], None] | None = None) -> None:
    """Runs a command as several ranks, and returns when all have ended: `ergon run`. Error names
    the first rank that fails, which ends the others. `line` is called with the rank, whether the
    line is from standard error, and the line. The ranks get the signals of this process.

    >>> ergon.launch(["./train", "--steps", "100"], 4, line=lambda rank, bad, text: print(text))
    """
    problems: list[BaseException] = []

    def pass_line(_: Any, rank: int, is_error: int, words: bytes, count: int) -> None:
        if line is None or problems:
            return
        try:
            line(rank, bool(is_error), words[:count].decode("utf-8", "replace"))
        except BaseException as problem:  # raised when the ranks have ended
            problems.append(problem)

    words = strings("command", command)
    options = sized(_abi.erg_launch_options, ranks=ranks, command=address(words),
                    timeout_s=timeout_s,
                    line=dict(_abi.erg_launch_options._fields_)["line"](pass_line))
    call("erg_launch_ranks", c.byref(options))
    if problems:
        raise problems[0]
