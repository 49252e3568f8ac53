"""Where each setting's value comes from: defaults, files of Dask's, or the environment."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

import dask.config
import yaml

from hepcache.errors import ConfigurationError
from hepcache.settings import DEFAULTS, Settings, settings

__all__ = ["Configured", "Setting", "as_yaml", "configured"]

_DEFAULT = "default"
_PARENT = "inherited from the process that started this one"
_INHERITED = "DASK_INTERNAL_INHERIT_CONFIG"
# Settings whose value null stands for something that is found out.
_RESOLVED = {
    "host": "host",
    "catalogue": "catalogue",
    "cache.directory": "cache_directory",
    "cache.group": "group_directory",
}


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting as it is in force.

    Attributes
    ----------
    key
        Its name below ``hepcache``, such as ``cache.capacity``.
    value
        As it was given.
    source
        ``default``, a file's path, an environment variable, or ``this process``.
    default
        What it would be otherwise.
    resolved
        What it stands for on this machine, where that is something else.
    """

    key: str
    value: Any
    source: str
    default: Any
    resolved: str = ""


@dataclass(frozen=True, slots=True)
class Configured:
    """The configuration in force.

    Attributes
    ----------
    settings
        All of hepcache's, in the order of its defaults.
    unknown
        Keys that nothing reads, with their source and the known key that comes near.
    problem
        Why the values are refused; ``""`` if they are not.
    paths
        Where Dask looks for files, those that count most last.
    """

    settings: tuple[Setting, ...]
    unknown: tuple[tuple[str, str, str], ...]
    problem: str
    paths: tuple[str, ...]


def configured(env: Mapping[str, str] | None = None) -> Configured:
    """Return every setting with its value and where that comes from.

    Parameters
    ----------
    env
        The environment; this process's by default.
    """
    known = dict(_leaves(DEFAULTS["hepcache"]))
    sources = _sources(os.environ if env is None else env)
    try:
        chosen, problem = settings(), ""
    except ConfigurationError as error:
        chosen, problem = None, str(error)
    found = []
    for key, default in known.items():
        value = dask.config.get(f"hepcache.{key}")
        given, source = sources.get(key, (default, _DEFAULT))
        # What neither files nor variables say was set by the program itself.
        where = source if given == value else "this process"
        found.append(Setting(key, value, where, default, _resolved(key, value, chosen)))
    unknown = tuple(
        (key, source, next(iter(get_close_matches(key, known, 1)), ""))
        for key, (_, source) in sources.items()
        if key not in known
    )
    return Configured(tuple(found), unknown, problem, tuple(map(str, dask.config.paths)))


def _resolved(key: str, value: Any, chosen: Settings | None) -> str:
    if key not in _RESOLVED or chosen is None:
        return ""
    found = getattr(chosen, _RESOLVED[key])
    return "" if found is None or str(found) == str(value) else str(found)


def _sources(env: Mapping[str, str]) -> dict[str, tuple[Any, str]]:
    """Return value and source of all keys that something sets, the last word first."""
    found: dict[str, tuple[Any, str]] = {}
    for path, config in dask.config.collect_yaml(dask.config.paths, return_paths=True):
        for key, value in _ours(config):
            found[key] = value, str(path)
    if _INHERITED in env:
        for key, value in _ours(dask.config.deserialize(env[_INHERITED])):
            found[key] = value, _PARENT
    for name in sorted(env):
        if name.startswith("DASK_HEPCACHE__"):
            for key, value in _ours(dask.config.collect_env({name: env[name]})):
                found[key] = value, f"${name}"
    return found


def _ours(config: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    below = config.get("hepcache")
    if isinstance(below, Mapping):
        yield from _leaves(below)


def _leaves(tree: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in tree.items():
        key = f"{above}{str(name).replace('-', '_')}"
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{key}.")
        else:
            yield key, value


def as_yaml(value: Any) -> str:
    """Return a setting's value as it is written in a file."""
    text: str = yaml.safe_dump(value, default_flow_style=True, width=10**6)
    return text.removesuffix("\n").removesuffix("\n...")
