#!/usr/bin/env python3
"""Writes ergon/_abi.py, the library's structs and functions for ctypes, from ../tests/abi/abi.txt.

    python3 python/make_abi.py            writes it
    python3 python/make_abi.py --check shows differences
"""
from __future__ import annotations

import pathlib
import re
import sys

HERE = pathlib.Path(__file__).resolve().parent
DUMP = HERE.parent / "tests" / "abi" / "abi.txt"
OUTPUT = HERE / "ergon" / "_abi.py"

NUMBERS = {
    "size_t": "c.c_size_t", "ptrdiff_t": "c.c_ssize_t", "int": "c.c_int", "double": "c.c_double",
    "int32_t": "c.c_int32", "uint32_t": "c.c_uint32", "int64_t": "c.c_int64",
    "uint64_t": "c.c_uint64", "char": "c.c_char", "void": "None",
}  # fmt: skip
CALLBACKS = {"erg_hook_exchange"}  # types of functions


def plain(kind: str) -> str:
    """A type without an array, in Python."""
    kind = kind.strip()
    if kind in NUMBERS:
        return NUMBERS[kind]
    if kind.startswith("enum "):
        return "c.c_int"
    if kind == "const char *":
        return "c.c_char_p"
    if kind.endswith("*"):
        name = kind[:-1].strip()
        return name if name in CALLBACKS else "c.c_void_p"
    if kind.startswith("struct "):
        return kind.split()[1]
    raise SystemExit(f"make_abi.py: the type '{kind}' is unknown")


def parameter(text: str) -> str:
    """The type of "const struct erg_job *job"."""
    return re.sub(r"[a-z_0-9]+$", "", text.strip()).strip()


def parameters(text: str) -> list[str]:
    if text.strip() == "void":
        return []
    return [plain(parameter(part)) for part in text.split(",") if part.strip() != "..."]


def callback(text: str) -> str:
    """A pointer to a function: "int (*cancel)(void *context)"."""
    match = re.fullmatch(r"(.*?)\(\*?\w+\)\((.*)\)", text)
    assert match, text
    return f"c.CFUNCTYPE({', '.join([plain(match[1])] + parameters(match[2]))})"


def member(kind: str, constants: dict[str, int]) -> str:
    if "(" in kind:
        return callback(kind)
    match = re.fullmatch(r"([^\[]*)\[(\w+)\]", kind)
    if match:
        return f"{plain(match[1])} * {constants.get(match[2], match[2])}"
    return plain(kind)


def make(dump: str) -> str:
    constants: dict[str, int] = {}
    sizes: dict[str, int] = {}
    members: dict[str, list[tuple[int, str, str]]] = {}
    functions: list[tuple[str, str, str]] = []
    types: list[str] = []
    for line in dump.splitlines():
        word, rest = line.split(" ", 1)
        if word == "constant":
            name, value = rest.split()
            constants[name] = int(value)
        elif word == "struct":
            name, size = rest.split()
            sizes[name] = int(size)
        elif word == "member":
            name, offset, _, kind = rest.split(" ", 3)
            struct, name = name.split(".")
            members.setdefault(struct, []).append((int(offset), name, kind))
        elif word == "type":
            match = re.fullmatch(r"typedef (.*?)\b(\w+)\((.*)\)", rest)
            assert match, rest
            types.append(f"{match[2]} = {callback(f'{match[1]}({match[2]})({match[3]})')}\n")
        else:
            match = re.fullmatch(r"(.*?)(\w+)\((.*)\)", rest)
            assert match, rest
            if "..." not in match[3]:
                functions.append((match[2], match[1].strip(), match[3]))
    out = ['"""The public headers for ctypes. Written by make_abi.py: do not edit."""\n\n'
           "import ctypes as c\n\n"]
    out += [f"{name} = {value}\n" for name, value in sorted(constants.items())]
    out += ["\n"] + types
    written: set[str] = set()

    def write(struct: str) -> None:
        fields = sorted(members[struct])
        for _, _, kind in fields:
            inner = re.match(r"struct (\w+)(\[|$)", kind)
            if inner and inner[1] not in written:
                write(inner[1])
        out.append(f"\n\nclass {struct}(c.Structure):\n    _fields_ = [\n")
        out.extend(f'        ("{name}", {member(kind, constants)}),\n' for _, name, kind in fields)
        out.append("    ]\n")
        written.add(struct)

    for struct in sorted(sizes):
        if struct not in written:
            write(struct)
    out.append("\n\nSIZES = {\n")
    out += [f"    {struct}: {size},\n" for struct, size in sorted(sizes.items())]
    out.append("}\n\nOFFSETS = {\n")
    for struct in sorted(members):
        pairs = ", ".join(f'"{name}": {offset}' for offset, name, _ in sorted(members[struct]))
        out.append(f"    {struct}: {{{pairs}}},\n")
    out.append("}\n\nFUNCTIONS = {\n")
    for name, result, arguments in sorted(functions):
        listed = ", ".join(parameters(arguments))
        out.append(f'    "{name}": ({plain(result)}, [{listed}]),\n')
    out.append("}\n")
    return "".join(out)


def main() -> int:
    text = make(DUMP.read_text())
    if "--check" not in sys.argv[1:]:
        OUTPUT.write_text(text)
        return 0
    if OUTPUT.read_text() == text:
        return 0
    print(f"{OUTPUT} does not match {DUMP}; expected the output of python3 python/make_abi.py")
    return 1


if __name__ == "__main__":
    sys.exit(main())
