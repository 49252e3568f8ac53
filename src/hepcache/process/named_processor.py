"""Processors and schemas named on a command line."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from difflib import SequenceMatcher
from pathlib import Path
from types import ModuleType
from typing import Any

import cloudpickle
from coffea.nanoevents import schemas
from coffea.processor import ProcessorABC

from hepcache.errors import ProcessorError


def load_processor(spec: str, arguments: dict[str, Any] | None = None) -> Any:
    """Return the processor that ``file.py:Name`` or ``package.module:Name`` names.

    ``spec``: where it is; without a name it is the only processor there. A class is called with
    ``arguments``; anything else is taken as it is. Workers get the code itself, and that of
    modules beside the file, so they need no files.
    Raises ``ProcessorError``: there is no such file, module or name, or the class refuses the
    arguments.
    """
    place, _, name = spec.rpartition(":")
    if not place:
        place, name = name, ""
    module = _module(place)
    processors = _processors(module)
    if not name:
        if len(processors) != 1:
            raise ProcessorError(f"{spec}: {_choice(place, processors, '')}")
        (name,) = processors
    elif not hasattr(module, name):
        raise ProcessorError(f"{spec}: no {name!r} there; {_choice(place, processors, name)}")
    found = getattr(module, name)
    if not inspect.isclass(found):
        return found
    try:
        return found(**(arguments or {}))
    except TypeError as error:
        raise ProcessorError(
            f"{spec}: {error}; it takes {inspect.signature(found)}, see --arg"
        ) from error


def _processors(module: ModuleType) -> list[str]:
    """Return the names of the processors that a module defines."""
    return [
        name
        for name, value in vars(module).items()
        if isinstance(value, ProcessorABC)
        or (
            inspect.isclass(value)
            and issubclass(value, ProcessorABC)
            and not inspect.isabstract(value)
            and value.__module__ == module.__name__
        )
    ]


def _choice(place: str, processors: list[str], name: str) -> str:
    """Say which processors there are, the one with the most similar name first."""
    if not processors:
        return "it defines no subclass of coffea.processor.ProcessorABC; name a function as :NAME"
    nearest = sorted(
        processors,
        key=lambda known: SequenceMatcher(None, known.lower(), name.lower()).ratio(),
        reverse=True,
    )
    return f"its processors are {', '.join(f'{place}:{known}' for known in nearest)}"


def load_schema(spec: str) -> type:
    """Return coffea's schema of that name, or the class that ``module:Name`` names.

    Raises ``ProcessorError``: there is none; the message lists coffea's.
    """
    if ":" in spec:
        place, _, name = spec.rpartition(":")
        found = _named(_module(place), name, spec)
        if not isinstance(found, type):
            raise ProcessorError(f"{spec}: expected a class, found {found!r}")
        return found
    known = sorted(name for name in schemas.__all__ if name.endswith("Schema"))
    if spec not in known:
        raise ProcessorError(f"no schema {spec!r}; coffea has {', '.join(known)}")
    coffeas: type = getattr(schemas, spec)
    return coffeas


def _module(place: str) -> ModuleType:
    if not place.endswith(".py"):
        try:
            module = importlib.import_module(place)
        except ImportError as error:
            raise ProcessorError(f"{place}: {error}") from error
    else:
        path = Path(place)
        if not path.is_file():
            raise ProcessorError(f"{place}: no such file")
        description = importlib.util.spec_from_file_location(path.stem, path)
        assert description is not None
        assert description.loader is not None
        module = importlib.util.module_from_spec(description)
        sys.modules[path.stem] = module
        directory = path.resolve().parent
        before = set(sys.modules)
        # What stands beside it can be imported, as by python FILE.py.
        sys.path.insert(0, str(directory))
        try:
            description.loader.exec_module(module)
        except Exception as error:
            raise ProcessorError(f"{place}: {type(error).__name__}: {error}") from error
        for name in sys.modules.keys() - before:
            _send_by_value(sys.modules[name], directory)
    cloudpickle.register_pickle_by_value(module)
    return module


def _send_by_value(module: ModuleType, directory: Path) -> None:
    """Let workers get a module's code if it stands beside the file, where no worker may look."""
    place = Path(getattr(module, "__file__", None) or "/")
    if place.is_relative_to(directory) and "site-packages" not in place.parts:
        cloudpickle.register_pickle_by_value(module)


def _named(module: ModuleType, name: str, spec: str) -> Any:
    if not hasattr(module, name):
        public = [known for known in vars(module) if not known.startswith("_")]
        raise ProcessorError(f"{spec}: no {name!r} there; it has {', '.join(public)}")
    return getattr(module, name)
