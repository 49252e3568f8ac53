"""Processors and schemas named on a command line."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import cloudpickle
from coffea.nanoevents import schemas

from hepcache.errors import ProcessorError

__all__ = ["load_processor", "load_schema"]


def load_processor(spec: str, arguments: dict[str, Any] | None = None) -> Any:
    """Return the processor that ``file.py:Name`` or ``package.module:Name`` names.

    Parameters
    ----------
    spec
        Where it is. A class is called with ``arguments``; anything else is
        taken as it is. Workers get the code itself, so they need no file.
    arguments
        Keyword arguments of the class.

    Raises
    ------
    ProcessorError
        There is no such file, module or name, or the class refuses the arguments.
    """
    place, _, name = spec.rpartition(":")
    if not place or not name:
        raise ProcessorError(f"{spec}: expected FILE.py:NAME or MODULE:NAME")
    found = _named(_module(place), name, spec)
    if not inspect.isclass(found):
        return found
    try:
        return found(**(arguments or {}))
    except TypeError as error:
        raise ProcessorError(f"{spec}: {error}; see --processor-args") from error


def load_schema(spec: str) -> type:
    """Return coffea's schema of that name, or the class that ``module:Name`` names.

    Raises
    ------
    ProcessorError
        There is none; the message lists coffea's.
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
        try:
            description.loader.exec_module(module)
        except Exception as error:
            raise ProcessorError(f"{place}: {type(error).__name__}: {error}") from error
    cloudpickle.register_pickle_by_value(module)
    return module


def _named(module: ModuleType, name: str, spec: str) -> Any:
    if not hasattr(module, name):
        public = [one for one in vars(module) if not one.startswith("_")]
        raise ProcessorError(f"{spec}: no {name!r} there; it has {', '.join(public)}")
    return getattr(module, name)
