"""The wheel: the package with the library from a build, its dependencies and its data."""

import os
import pathlib
import re
import shutil
import subprocess
import sys

from setuptools import Distribution, setup
from setuptools.command.build_py import build_py

try:
    from setuptools.command.bdist_wheel import bdist_wheel
except ImportError:  # before setuptools 70
    from wheel.bdist_wheel import bdist_wheel

HERE = pathlib.Path(__file__).resolve().parent
SOURCE = HERE.parent
# Libraries that every Linux of the baseline has (PEP 600), so a wheel must not contain them.
SYSTEM = re.compile(
    r"(ld-linux.*|lib(c|m|dl|rt|pthread|util|resolv|gcc_s|stdc\+\+|z))\.so\.[0-9.]+|linux-vdso.*")


def tree():
    """The build folder."""
    folder = pathlib.Path(os.environ.get("ERGON_TREE", SOURCE / "build" / "release"))
    if not (folder / "src" / "libergon.so").exists():
        sys.exit(f"{folder}/src/libergon.so does not exist; expected the library that `make` "
                 "builds, or its build folder in ERGON_TREE")
    return folder


def version():
    header = (SOURCE / "include" / "ergon" / "ergon.h").read_text()
    return re.search(r'#define ERG_VERSION "(.*)"', header)[1]


def needed(library):
    """The libraries that a library needs beyond those of the system: {name: path}."""
    said = subprocess.run(["ldd", library], stdout=subprocess.PIPE, text=True, check=True).stdout
    found = {}
    for name, path in re.findall(r"^\s*(\S+) => (\S+)", said, re.MULTILINE):
        if path == "not":
            sys.exit(f"{library} needs {name}, which is missing")
        if not SYSTEM.fullmatch(name):
            found[name] = pathlib.Path(path).resolve()
    return found


def terms(libraries):
    """The copyright files of the libraries' Debian packages: {name: path}."""
    if not shutil.which("dpkg-query"):
        return {}
    said = subprocess.run(["dpkg-query", "-S", *{name for path in libraries
                                                for name in (str(path), path.name)}],
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout
    names = {line.split(":")[0] for line in said.splitlines()
             if pathlib.Path(line.split(": ")[1]).name in {path.name for path in libraries}}
    files = {name: pathlib.Path("/usr/share/doc") / name / "copyright" for name in names}
    return {name: path for name, path in files.items() if path.exists()}


def glibc():
    """The version of this machine's C library, which the wheel requires: "2_36"."""
    return os.confstr("CS_GNU_LIBC_VERSION").split()[1].replace(".", "_")


class BuildWithLibrary(build_py):
    def run(self):
        super().run()
        build, package = tree(), pathlib.Path(self.build_lib) / "ergon"
        folder = package / "lib"
        folder.mkdir(parents=True, exist_ok=True)
        library = (build / "src" / "libergon.so").resolve()
        copies = {"libergon.so.0": library, **needed(library)}
        for name, path in copies.items():
            shutil.copy2(path, folder / name)
            (folder / name).chmod(0o755)
            subprocess.run(["patchelf", "--set-rpath", "$ORIGIN", folder / name], check=True)
        licenses = package / "licenses"
        licenses.mkdir(exist_ok=True)
        shutil.copy2(SOURCE / "LICENSE", licenses / "ergon")
        for name, path in terms(list(copies.values())).items():
            shutil.copy2(path, licenses / name)
        guardian = package / "libexec" / "ergon" / "ergon-guardian"
        guardian.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(build / "libexec" / "ergon" / "ergon-guardian", guardian)
        shutil.copytree(SOURCE / "data", package / "share" / "ergon", dirs_exist_ok=True)


class LibraryWheel(bdist_wheel):
    def finalize_options(self):
        super().finalize_options()
        self.root_is_pure = False

    def get_tag(self):
        machine = super().get_tag()[2].rsplit("linux_", 1)[1]
        return "py3", "none", f"manylinux_{glibc()}_{machine}"


class WithLibrary(Distribution):
    def has_ext_modules(self):
        return True


setup(version=version(), distclass=WithLibrary,
      cmdclass={"build_py": BuildWithLibrary, "bdist_wheel": LibraryWheel})
