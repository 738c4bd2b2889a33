"""The shared library: loads it, calls it and raises its errors."""

from __future__ import annotations

import ctypes as c
import dataclasses
import html
import logging
import math
import os
import pathlib
import tempfile
import threading
from typing import Any, Callable, Iterable, Sequence, TypeVar

from . import _abi

_T = TypeVar("_T")
_Progress = Callable[[str, int, int], None]
_LEVELS = {
    _abi.ERG_WATCH_ERROR: logging.ERROR,
    _abi.ERG_WATCH_WARNING: logging.WARNING,
    _abi.ERG_WATCH_INFO: logging.INFO,
    _abi.ERG_WATCH_DEBUG: logging.DEBUG,
}
_STATUS = {
    _abi.ERG_FAILED: "failed",
    _abi.ERG_USAGE: "usage",
    _abi.ERG_INFEASIBLE: "infeasible",
    _abi.ERG_NO_DEVICE: "no device",
    _abi.ERG_RESUMABLE: "resumable",
    _abi.ERG_SUPERSEDED: "superseded",
    _abi.ERG_INTERRUPTED: "interrupted",
}


class Error(Exception):
    """An error of the library, with its message.

    status: "failed", "usage", "infeasible", "no device", "resumable", "superseded" or
    "interrupted", as include/ergon/error.h explains them.
    """

    def __init__(self, message: str, status: str = "usage") -> None:
        super().__init__(message)
        self.status = status


# ---- the library ----


def _candidates() -> list[str]:
    here = pathlib.Path(__file__).resolve().parent
    given = os.environ.get("ERGON_LIBRARY")
    if given:
        return [given]
    beside = here / "lib" / "libergon.so.0"  # of a wheel
    installed = here.parents[2] / "libergon.so.0"  # lib/ of lib/python3/dist-packages/ergon
    return [str(path) for path in (beside, installed) if path.exists()] + ["libergon.so.0"]


def _load() -> c.CDLL:
    names = _candidates()
    for name in names:
        try:
            return c.CDLL(name)
        except OSError as problem:
            last = problem
    raise ImportError(
        f"the library of ergon cannot be loaded ({last}); expected libergon.so.0 next to this "
        "package, where the loader looks, or its path in ERGON_LIBRARY"
    )


library = _load()
for _name, (_result, _arguments) in _abi.FUNCTIONS.items():
    try:
        _function = getattr(library, _name)
    except AttributeError:
        raise ImportError(
            f"the library of ergon at {library._name} has no {_name}; expected one "
            "as new as this package"
        ) from None
    _function.restype, _function.argtypes = _result, _arguments


def version() -> str:
    """The version of the library that runs."""
    return library.erg_version().decode()


# ---- calls ----


def failure(err: _abi.erg_error) -> Error:
    return Error(err.message.decode("utf-8", "replace"), _STATUS.get(err.status, "failed"))


def call(name: str, *arguments: Any) -> None:
    """Calls a fallible function; adds its last argument, the error."""
    err = _abi.erg_error()
    if getattr(library, name)(*arguments, c.byref(err)) != 0:
        raise failure(err)


def text(value: Any) -> bytes | None:
    """A text for the library: UTF-8; paths keep their bytes."""
    return None if value is None else os.fsencode(os.fspath(value))


def _named_text(name: str, value: Any) -> bytes | None:
    try:
        return text(value)
    except TypeError:
        raise TypeError(f"{name} got {value!r}, expected a text or a path") from None


def joined(name: str, words: str | Sequence[str] | None) -> str | None:
    """A list as one text, separated by commas; a text is unchanged."""
    if words is None or isinstance(words, str):
        return words
    try:
        return ",".join(words)
    except TypeError:
        raise TypeError(f"{name} got {words!r}, expected a text or a list of texts") from None


def strings(name: str, words: Sequence[str | os.PathLike[str]]) -> Any:
    """A list as an array of texts ended by NULL. The caller keeps it during the call."""
    if isinstance(words, (str, bytes)) or not isinstance(words, Iterable):
        raise TypeError(f"{name} got {words!r}, expected a list of texts or paths")
    found = [_named_text(name, word) for word in words]
    return (c.c_char_p * (len(found) + 1))(*found, None)


def address(value: Any) -> int | None:
    """A pointer to a value of ctypes, which the caller keeps during the call; None: NULL."""
    return None if value is None else c.addressof(value)


def fill(struct: _T, **values: Any) -> _T:
    """Sets the given members of a struct; None: not given, the member is unchanged. TypeError names
    an unknown member, or one that cannot have its value."""
    kinds = dict(struct._fields_)  # type: ignore[attr-defined]
    for name, value in values.items():
        if name not in kinds:
            raise TypeError(f"{type(struct).__name__} has no member '{name}'")
        if value is None:
            continue
        if kinds[name] is c.c_char_p:  # since ctypes would accept a number as an address
            value = _named_text(name, value)
        try:
            setattr(struct, name, value)
        except TypeError as problem:
            raise TypeError(f"{name} got {value!r}: {problem}") from None
    return struct


def sized(struct: type[_T], **values: Any) -> _T:
    """A struct with its size, and the given members, as by fill()."""
    return fill(struct(size=c.sizeof(struct)), **values)  # type: ignore[arg-type,call-arg]


def take(cls: type[_T], struct: Any, **more: Any) -> _T:
    """A dataclass with the values of the struct that have its fields' names."""
    values = dict(more)
    for field in dataclasses.fields(cls):  # type: ignore[arg-type]
        if field.name in more:
            continue
        value = getattr(struct, field.name)
        if isinstance(value, bytes):
            value = value.decode("utf-8", "replace")
        values[field.name] = bool(value) if field.type == "bool" else value
    return cls(**values)


_Handle = TypeVar("_Handle", bound="Handle")


class Handle:
    """An object of the library, freed with its last reference."""

    _free: str

    def __init__(self, pointer: c.c_void_p) -> None:
        self._pointer = pointer

    def __del__(self) -> None:
        pointer, self._pointer = getattr(self, "_pointer", None), None
        if pointer:
            getattr(library, self._free)(pointer)

    @classmethod
    def _of(cls: type[_Handle], pointer: c.c_void_p) -> _Handle:
        """One of a class whose __init__ makes it in another way."""
        handle = cls.__new__(cls)
        Handle.__init__(handle, pointer)
        return handle


def opened(name: str, *arguments: Any) -> c.c_void_p:
    """Calls a function that makes a handle, its first argument."""
    pointer = c.c_void_p()
    call(name, c.byref(pointer), *arguments)
    return pointer


# ---- long calls ----


class _Listener:
    """The watch of a long call: its log, its progress, and requests to end it."""

    def __init__(self, progress: _Progress | None) -> None:
        self.stop = False
        self.problem: BaseException | None = None
        self._progress = progress
        self.watch = sized(
            _abi.erg_watch,
            log=dict(_abi.erg_watch._fields_)["log"](self._on_log),
            progress=dict(_abi.erg_watch._fields_)["progress"](self._on_progress),
            cancel=dict(_abi.erg_watch._fields_)["cancel"](lambda context: int(self.stop)),
        )

    def _on_log(self, context: int, level: int, line: bytes) -> None:
        logging.getLogger("ergon").log(_LEVELS[level], "%s", line.decode("utf-8", "replace"))

    def _on_progress(self, context: int, task: bytes, done: int, total: int) -> None:
        if not self._progress or self.stop:
            return
        try:
            self._progress(task.decode(), done, total)
        except BaseException as problem:  # raised in the calling thread
            self.problem, self.stop = problem, True


def long_call(name: str, *arguments: Any, options: Any, progress: _Progress | None) -> c.c_void_p:
    """Like opened(), with a watch in the options, the last argument. An interrupt
    (KeyboardInterrupt), or an exception of `progress`, ends the call between two of its steps."""
    listener = _Listener(progress)
    options.watch = c.addressof(listener.watch)
    made: list[c.c_void_p] = []
    problems: list[BaseException] = []

    def run() -> None:
        try:
            made.append(opened(name, *arguments, c.byref(options)))
        except BaseException as problem:
            problems.append(problem)

    thread = threading.Thread(target=run)
    thread.start()
    while thread.is_alive():
        try:
            thread.join(0.2)
        except BaseException as problem:
            listener.problem, listener.stop = problem, True
    if listener.problem:
        raise listener.problem
    if problems:
        raise problems[0]
    return made[0]


# ---- pages ----


class Page:
    """A result with an HTML page, for write_page() and notebooks."""

    def write_page(self, path: str | os.PathLike[str]) -> None:
        """Writes the page as one self-contained file."""
        raise NotImplementedError

    def html(self) -> str:
        """The page as text."""
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "page.html"
            self.write_page(path)
            return path.read_text(encoding="utf-8")

    def _repr_html_(self) -> str:
        page = html.escape(self.html(), quote=True)
        style = "width: 100%; height: 800px; border: 0"
        return f'<iframe srcdoc="{page}" style="{style}"></iframe>'


def known(value: float) -> float | None:
    """None instead of NaN."""
    return None if math.isnan(value) else value
