"""Programs of one text or of several files, loaded as users load them."""

from __future__ import annotations

import ast
import importlib
import itertools
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import awkward as ak
import cloudpickle

from hepcache import fingerprint

numbers = itertools.count()


def write_files(text: str, directory: Path, name: str = "analysis") -> str:
    """Write a program's files; return the text of its first."""
    main, *others = text.split("#: ")
    for other in others:
        path, _, content = other.partition("\n")
        (directory / path).parent.mkdir(exist_ok=True)
        (directory / path).write_text(content)
    (directory / f"{name}.py").write_text(main)
    return main


def forget(directory: Path) -> None:
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None)).startswith(f"{directory}/"):
            del sys.modules[name]
    for key in list(ak.behavior):
        if "HepcacheTest" in str(key):
            del ak.behavior[key]


def from_module(text: str, directory: Path) -> Any:
    name = f"analysis_{next(numbers)}"
    write_files(text, directory, name)
    return importlib.import_module(name).thing


def from_notebook(text: str, directory: Path) -> Any:
    """Run a text as a notebook does: statement by statement, in one namespace."""
    names: dict[str, Any] = {"__name__": "__main__", "__builtins__": __builtins__}
    main = write_files(text, directory)
    for number, statement in enumerate(ast.parse(main).body):
        cell = compile(
            ast.Module([statement], []), f"<ipython-input-{number}>", "exec", dont_inherit=True
        )
        exec(cell, names)
    return names["thing"]


def pickled_by_value(text: str, directory: Path) -> bytes:
    thing = from_module(text, directory)
    own = [
        module
        for module in list(sys.modules.values())
        if str(getattr(module, "__file__", None)).startswith(f"{directory}/")
    ]
    for module in own:
        cloudpickle.register_pickle_by_value(module)
    try:
        return cloudpickle.dumps(thing)
    finally:
        for module in own:
            cloudpickle.unregister_pickle_by_value(module)


def in_directory(
    text: str,
    load: Callable[[str, Path], Any] = from_module,
    look: Callable[[Any], str] = fingerprint,
) -> str:
    """Return what a look at a program gives, which leaves no module behind."""
    with tempfile.TemporaryDirectory() as place:
        sys.path.insert(0, place)
        importlib.invalidate_caches()
        try:
            return look(load(text, Path(place)))
        finally:
            sys.path.remove(place)
            forget(Path(place))
