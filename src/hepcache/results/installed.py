"""Which code is installed, and known by its version, and which is the user's own."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import sys
import sysconfig
from functools import cache
from importlib import metadata
from pathlib import Path
from types import ModuleType

import hepcache

__all__ = ["identity", "installed", "python_label"]

_libraries: dict[str, str] = {}


def python_label() -> str:
    """Return Python's name and version, as far as they decide what code does."""
    return f"{sys.implementation.name} {sys.version_info.major}.{sys.version_info.minor}"


def installed(module: str) -> str | None:
    """Return the distributions that a module is of, with their versions.

    It returns ``None`` for the user's own code: what is in no distribution, in an
    editable one, or shadows one.
    """
    top = module.partition(".")[0]
    found = _libraries.get(top)
    if found is None:
        found = _library(top)
        if found is not None:
            _libraries[top] = found
    return found


@cache
def identity(distribution: str) -> str:
    """Return what tells a distribution from all others: its name and version.

    What comes from a directory or a repository may change without its version: the content
    of its files counts, too.
    """
    try:
        found = metadata.distribution(distribution)
    except metadata.PackageNotFoundError:
        return f"{distribution} absent"
    label = f"{distribution} {found.version}"
    return label if _from_index(found) else f"{label} {_content(found)}"


def _from_index(distribution: metadata.Distribution) -> bool:
    if distribution.read_text("direct_url.json") is not None:
        return False
    # Debian leaves RECORD out; what setup.py once installed has none.
    root = Path(str(distribution.locate_file("")))
    return distribution.read_text("RECORD") is not None or root.name == "dist-packages"


def _content(distribution: metadata.Distribution) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for file in sorted(distribution.files or (), key=str):
        # Scripts, notes of installers and byte code are of one machine.
        if file.suffix == ".pyc" or ".." in file.parts or file.parts[0].endswith("-info"):
            continue
        known = file.hash.value.encode() if file.hash else Path(str(file.locate())).read_bytes()
        digest.update(b"%b\0%d\0%b" % (str(file).encode(), len(known), known))
    return digest.hexdigest()


def _library(top: str) -> str | None:
    if top in ("", "__main__", "__mp_main__"):
        return None
    places = _places(top)
    if top in sys.stdlib_module_names:
        stdlib = all(_below(place, _stdlib()) for place in places)
        return python_label() if stdlib else None
    names = _packages().get(top, [])
    roots = {root for name in names for root in _roots(name)}
    if names and places and all(_below(place, tuple(roots)) for place in places):
        return ", ".join(identity(name) for name in sorted(set(names)))
    # Where hepcache is worked on, all of its source counts, but it is not the user's.
    return f"hepcache {hepcache.__version__} {_own_source()}" if top == "hepcache" else None


@cache
def _packages() -> dict[str, list[str]]:
    return dict(metadata.packages_distributions())


@cache
def _roots(distribution: str) -> tuple[str, ...]:
    root = str(metadata.distribution(distribution).locate_file(""))
    return root, os.path.realpath(root)


@cache
def _stdlib() -> tuple[str, ...]:
    paths = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib")}
    return tuple({*paths, *map(os.path.realpath, paths)})


def _places(top: str) -> list[str]:
    """Return the files or directories of a package; none where Python itself brings it."""
    module = sys.modules.get(top)
    if isinstance(module, ModuleType):
        file, folders = getattr(module, "__file__", None), getattr(module, "__path__", ())
    else:
        try:
            spec = importlib.util.find_spec(top)
        except (ImportError, ValueError):
            return []
        if spec is None:
            return []
        file, folders = spec.origin, spec.submodule_search_locations or ()
        if file in ("built-in", "frozen"):
            file = None
    return [file] if file else [str(folder) for folder in folders]


def _below(place: str, roots: tuple[str, ...]) -> bool:
    parts = Path(place).parts
    # Installed packages lie below the standard library's directory, too.
    third = "site-packages" in parts or "dist-packages" in parts
    for root in roots:
        if place.startswith(os.path.join(root, "")):  # noqa: PTH118 - ends with a separator
            return not third or "site-packages" in root or "dist-packages" in root
    return False


@cache
def _own_source() -> str:
    root = Path(hepcache.__file__).parent
    digest = hashlib.blake2b(digest_size=16)
    for path in sorted(root.rglob("*.py")):
        digest.update(str(path.relative_to(root)).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()
