"""Settings, read from Dask's configuration under the key ``hepcache``.

Dask merges its YAML files, ``DASK_HEPCACHE__*`` variables and
``dask.config.set``, and hands the result to every worker it starts; hepcache
adds its defaults and gives them types.
"""

from __future__ import annotations

import math
import os
import pwd
import re
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

import dask.config
import platformdirs
import yaml
from dask.utils import parse_bytes, parse_timedelta

from hepcache.errors import ConfigurationError

DEFAULTS: dict[str, Any] = yaml.safe_load(files("hepcache").joinpath("hepcache.yaml").read_text())
"""What ``hepcache.yaml`` says."""
_PREFIX = "hepcache."
_SERVER = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/@?#]+(?:/[^?#]*)?$")
_VARIABLES = "DASK_HEPCACHE"
_INHERITED = "DASK_INTERNAL_INHERIT_CONFIG"
_PARENT = "inherited from the process that started this one"
_HERE = "set in this process"
_DEFAULT = "default"
# Settings whose value null stands for something that is found out.
_RESOLVED = {
    "host": "host",
    "user": "user",
    "catalogue": "catalogue",
    "cache.directory": "cache_directory",
    "cache.group": "group_directory",
}
# Settings whose values are mappings, and no groups of settings.
_MAPPINGS = frozenset({"origin.replicas"})
_REMOVED = {
    "cache.run": "columns are evicted until 1.4 times hepcache.cache.cull is free",
    "cache.stop": "nothing is stored below a fifth of hepcache.cache.cull",
    "cache.memory": "each process holds on to 320 MiB of columns",
    "cache.verify": "checksums are compared at the first use; 'hepcache cache verify' checks all",
    "placement.epsilon": "smaller chunks divide more evenly",
    "origin.bandwidth": "LocalCluster(origin_bandwidth=...) emulates a slow link",
    "origin.bandwidth_state": "LocalCluster(origin_bandwidth=...) emulates a slow link",
    "origin.retries": "requests that fail for the moment are repeated for about 6 s",
    "origin.requests": "a host has at most 16 requests under way at one origin",
}
dask.config.update_defaults(DEFAULTS)


@dataclass(frozen=True, slots=True)
class Settings:
    """One reading of the configuration.

    ``user``: whose runs a client submits: users of one cluster take turns.
    ``cache_directory``: directory of this host's cached columns; ``{user}`` in the setting stands
    for the name of who runs the process.
    ``group_directory``: directory of the columns that a Unix group shares on this host, or
    ``None``.
    ``group_origins``: URLs below which the group's cache may hold columns.
    ``cull``: free fraction of the volume below which columns are evicted.
    ``codec``: how columns are kept: auto, raw, lz4 or zstd.
    ``neighbours``: whether hosts get columns from each other; ``neighbours_rate``: bytes per
    second that one sends at most, or ``None``.
    ``segment_entries``: target length of a segment in entries.
    ``duplicates``: how many times longer than expected a chunk may take before an idle host tries
    it too, or ``None``.
    ``lost_after_s``: seconds without a heartbeat after which a worker counts as lost, or ``None``.
    ``origin_ahead_bytes``: bytes that each process fetches for its next chunks at most; 0 for
    none.
    ``origin_replicas``: beginnings of paths, each with those that take its place, in order.
    """

    host: str
    user: str
    catalogue: Path
    cache_mode: Literal["columns", "fscache", "both"]
    cache_directory: Path
    group_directory: Path | None
    group_origins: tuple[str, ...]
    capacity_bytes: int | None
    capacity_fraction: float | None
    quota_bytes: int | None
    quota_fraction: float | None
    cull: float
    codec: Literal["auto", "raw", "lz4", "zstd"]
    neighbours: bool
    neighbours_rate: int | None
    drain_file: Path
    segment_entries: int
    duplicates: float | None
    lost_after_s: float | None
    origin_ahead_bytes: int
    origin_replicas: tuple[tuple[str, tuple[str, ...]], ...]


def settings() -> Settings:
    """Return the settings in force now.

    Raises ``ConfigurationError``: a key is unknown, or a value has the wrong type or range; the
    message names the key, the value, where it was given and what is allowed.
    """
    # Several times per chunk: what was asked for with the same words is the same.
    said = repr(dask.config.get("hepcache", {}))
    home = os.environ.get("HOME"), os.environ.get("XDG_CACHE_HOME")
    # A new name beside ours may be ours, misspelt.
    return _settings(said, tuple(dask.config.config), home)


@lru_cache(maxsize=16)
def _settings(*_: object) -> Settings:
    for key in unknown():
        raise key.error()
    return read()


def read() -> Settings:
    """Return the settings in force now, whatever else the configuration holds.

    Raises ``ConfigurationError``: a value has the wrong type or range.
    """
    values = {**_DEFAULT_VALUES, **dict(leaves(dask.config.get("hepcache", {})))}
    home = Path(platformdirs.user_cache_dir("hepcache"))
    capacity_bytes, capacity_fraction = _size(values, "cache.capacity")
    quota_bytes, quota_fraction = (
        (None, None) if values["cache.quota"] is None else _size(values, "cache.quota")
    )
    duplicates = values["placement.duplicates"]
    return Settings(
        host=_name(values, "host") or socket.gethostname(),
        user=_name(values, "user") or _login(),
        catalogue=_path(values, "catalogue") or home / "catalogue.sqlite",
        cache_mode=_one_of(values, "cache.mode", "columns", "fscache", "both"),
        cache_directory=_path(values, "cache.directory") or home / "columns",
        group_directory=_path(values, "cache.group"),
        group_origins=_urls(values, "cache.group_origins"),
        capacity_bytes=capacity_bytes,
        capacity_fraction=capacity_fraction,
        quota_bytes=quota_bytes,
        quota_fraction=quota_fraction,
        cull=_fraction(values, "cache.cull"),
        codec=_one_of(values, "cache.codec", "auto", "raw", "lz4", "zstd"),
        neighbours=_switch(values, "cache.neighbours"),
        neighbours_rate=None
        if values["cache.neighbours_rate"] is None
        else _rate(values, "cache.neighbours_rate"),
        drain_file=_given_path(values, "drain_file", "a path"),
        segment_entries=_whole(values, "segment.entries", least=1),
        duplicates=None if duplicates is None else _above(values, "placement.duplicates", 1),
        lost_after_s=None
        if values["placement.lost_after"] is None
        else _seconds(values, "placement.lost_after"),
        origin_ahead_bytes=_bytes(values, "origin.ahead", least=0),
        origin_replicas=_prefixes(values, "origin.replicas"),
    )


def _refused(values: Mapping[str, Any], key: str, expected: str) -> ConfigurationError:
    value = values[key]
    return ConfigurationError(f"{_PREFIX}{key}", expected, value, _source(key, value))


def _source(key: str, value: object) -> str:
    """Return where a value was given; ``""`` for a default."""
    if value == _DEFAULT_VALUES.get(key):
        return ""
    found, source = given(os.environ).get(f"{_PREFIX}{key}", (None, ""))
    return source if source and found == value else _HERE


def _name(values: Mapping[str, Any], key: str) -> str | None:
    value = values[key]
    # A host may be called 12, and a variable that says so is read as a number.
    if isinstance(value, bool) or not isinstance(value, str | int | None) or value == "":
        raise _refused(values, key, "a name, or null")
    return None if value is None else str(value)


def _login() -> str:
    """Return who runs this process, and where; of a user without a name the number."""
    try:
        name = pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        name = str(os.geteuid())
    return f"{name}@{socket.gethostname()}"


def _path(values: Mapping[str, Any], key: str) -> Path | None:
    return None if values[key] is None else _given_path(values, key, "a path, or null")


def _given_path(values: Mapping[str, Any], key: str, expected: str) -> Path:
    value = values[key]
    text = os.fspath(value) if isinstance(value, str | os.PathLike) else ""
    if not isinstance(text, str) or not text.strip() or "\0" in text:
        raise _refused(values, key, expected)
    # A path may name its user, so that one setting serves all of a machine.
    if "{user}" in text:
        try:
            text = text.replace("{user}", pwd.getpwuid(os.geteuid()).pw_name)
        except KeyError:
            expected = f"a path without {{user}}, because user {os.geteuid()} has no name here"
            raise _refused(values, key, expected) from None
    try:
        return Path(text).expanduser()
    except RuntimeError:
        raise _refused(values, key, "a path below a home directory that is known") from None


def _urls(values: Mapping[str, Any], key: str) -> tuple[str, ...]:
    given = values[key]
    urls = tuple(given) if isinstance(given, list | tuple) else (given,)
    if not all(isinstance(url, str) and _SERVER.match(url) for url in urls):
        raise _refused(values, key, "a list of URLs, each with a server, such as root://server//")
    return urls


def _prefixes(values: Mapping[str, Any], key: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
    given = {} if values[key] is None else values[key]
    expected = (
        "null, or beginnings of paths and URLs, each with a list of what is tried in its place, "
        "all of which end in / or none, such as {/store/: [root://xcache//store/]}"
    )
    if not isinstance(given, Mapping):
        raise _refused(values, key, expected)
    found = []
    for prefix, places in given.items():
        listed = tuple(places) if isinstance(places, list | tuple) else ()
        texts = (prefix, *listed)
        if not listed or not all(isinstance(text, str) and text.strip() for text in texts):
            raise _refused(values, key, expected)
        # Else a name would be glued to a directory's, or a slash be doubled.
        if len({text.endswith("/") for text in texts}) > 1:
            raise _refused(values, key, expected)
        found.append((prefix, listed))
    return tuple(found)


def _bytes(values: Mapping[str, Any], key: str, *, least: int) -> int:
    value = values[key]
    expected = f"bytes, at least {least}, such as 200 GiB"
    if isinstance(value, bool) or not any(map(str.isdecimal, str(value))):
        raise _refused(values, key, expected)
    try:
        found = int(parse_bytes(str(value)))
    except (ValueError, OverflowError):
        raise _refused(values, key, expected) from None
    if found < least:
        raise _refused(values, key, expected)
    return found


def _rate(values: Mapping[str, Any], key: str) -> int:
    text = str(values[key])
    try:
        return _bytes({**values, key: text.removesuffix("/s")}, key, least=1)
    except ConfigurationError:
        raise _refused(values, key, "bytes per second, such as 500 MB/s, or null") from None


def _switch(values: Mapping[str, Any], key: str) -> bool:
    if not isinstance(values[key], bool):
        raise _refused(values, key, "true or false")
    return bool(values[key])


def _size(values: Mapping[str, Any], key: str) -> tuple[int | None, float | None]:
    """Return bytes or a fraction, whichever a value is."""
    value = values[key]
    if isinstance(value, str) and value.strip().endswith("%"):
        return None, _fraction(values, key)
    try:
        return _bytes(values, key, least=1), None
    except ConfigurationError:
        expected = "bytes, at least 1, such as 200 GiB, or a percentage, such as 80%"
        raise _refused(values, key, expected) from None


def _fraction(values: Mapping[str, Any], key: str) -> float:
    value = values[key]
    try:
        fraction = math.nan
        if not isinstance(value, bool):
            fraction = float(str(value).strip().removesuffix("%")) / 100
    except ValueError:
        pass
    if not 0 < fraction <= 1:
        raise _refused(values, key, "a percentage above 0% and up to 100%, such as 80%")
    return fraction


def _one_of(values: Mapping[str, Any], key: str, *choices: str) -> Any:
    value = values[key]
    if value not in choices:
        null = "null, " if _DEFAULT_VALUES[key] is None else ""
        raise _refused(values, key, f"{null}{', '.join(choices[:-1])} or {choices[-1]}")
    return value


def _above(values: Mapping[str, Any], key: str, bound: float) -> float:
    value = values[key]
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not bound < number < math.inf:
        raise _refused(values, key, f"a number above {bound}")
    return number


def _seconds(values: Mapping[str, Any], key: str) -> float:
    value = values[key]
    try:
        number = math.nan
        # A unit alone would be one of it.
        if not isinstance(value, bool) and any(map(str.isdecimal, str(value))):
            number = float(parse_timedelta(value))
    except (TypeError, ValueError, KeyError, OverflowError, AttributeError):
        pass
    if not 0 < number < math.inf:
        raise _refused(values, key, "a time above 0 s, such as 30 s, or null")
    return number


def _whole(values: Mapping[str, Any], key: str, *, least: int) -> int:
    value = values[key]
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise _refused(values, key, f"a whole number from {least}")
    return value


@dataclass(frozen=True, slots=True)
class Unknown:
    """A key that nothing reads.

    ``key``: its whole name, such as ``hepcache.cache.capcity``.
    ``near``: the known key that comes near; ``""`` for none.
    """

    key: str
    value: Any
    source: str
    near: str
    expected: str

    def error(self) -> ConfigurationError:
        """Return what is to be raised."""
        return ConfigurationError(self.key, self.expected, self.value, self.source)


def unknown(env: Mapping[str, str] | None = None) -> list[Unknown]:
    """Return the keys that nothing reads, misspelt or of a wrong structure."""
    # What this process sets need not be in any file; and Dask puts the defaults
    # in place of a value where settings should be, so that only its file still has it.
    found = {key: (value, _HERE) for key, value in _ours(dask.config.config)}
    found.update(given(os.environ if env is None else env))
    known = {f"{_PREFIX}{key}" for key in _DEFAULT_VALUES}
    groups = {key.rpartition(".")[0] for key in known}
    return [
        _unknown(key, value, source)
        for key, (value, source) in found.items()
        if key not in known and not (key in groups and value is None)
    ]


def _unknown(key: str, value: Any, source: str) -> Unknown:
    for name in _DEFAULT_VALUES:
        if f"{_PREFIX}{name}".startswith(f"{key}."):
            expected = f"settings below it, such as {_PREFIX}{name}"
            return Unknown(key, value, source, name, expected)
    if (reason := _REMOVED.get(key.removeprefix(_PREFIX))) is not None:
        return Unknown(key, value, source, "", f"no value, since this setting is gone ({reason})")
    # The first name too may be wrong, as one underscore too few makes it in a variable.
    name = key.removeprefix("hepcache") if key.startswith("hepcache") else key.partition(".")[2]
    near = next(iter(get_close_matches(name.strip("._'"), _DEFAULT_VALUES, 1)), "")
    hint = f"did you mean {_PREFIX}{near}?" if near else "'hepcache config show' lists them"
    if "'" in key:
        hint = "names stand below each other in a file, not with dots between them"
    return Unknown(key, value, source, near, f"the name of a setting ({hint})")


def given(env: Mapping[str, str]) -> dict[str, tuple[Any, str]]:
    """Return value and source of all keys that something sets, the last word first."""
    found: dict[str, tuple[Any, str]] = {}
    for path, config in dask.config.collect_yaml(dask.config.paths, return_paths=True):
        found.update({key: (value, str(path)) for key, value in _ours(config)})
    if _INHERITED in env:
        config = dask.config.deserialize(env[_INHERITED])
        found.update({key: (value, _PARENT) for key, value in _ours(config)})
    for name in sorted(env):
        if name.startswith(_VARIABLES):
            config = dask.config.collect_env({name: env[name]})
            found.update({key: (value, f"${name}") for key, value in _ours(config)})
    return found


def _ours(config: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Return what is below ``hepcache``, and below what was to be called so."""
    ours = {
        name: value
        for name, value in config.items()
        if str(name).startswith("hepcache")
        or get_close_matches(str(name).lower(), ["hepcache"], cutoff=0.85)
    }
    return leaves(ours)


def leaves(tree: Any, above: str = "") -> Iterator[tuple[str, Any]]:
    """Return key and value of every setting in a tree of them."""
    for name, value in tree.items() if isinstance(tree, Mapping) else ():
        plain = str(name).replace("-", "_")
        # To Dask a dot within a name is none between two.
        key = f"{above}{plain!r}" if "." in plain else f"{above}{plain}"
        if isinstance(value, Mapping) and key.removeprefix(_PREFIX) not in _MAPPINGS:
            yield from leaves(value, f"{key}.")
        else:
            yield key, value


_DEFAULT_VALUES = dict(leaves(DEFAULTS["hepcache"]))


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting as it is in force.

    ``key``: its name below ``hepcache``, such as ``cache.capacity``.
    ``source``: ``default``, a file's path, an environment variable, or ``this process``.
    """

    key: str
    value: Any
    source: str
    default: Any
    resolved: str = ""


@dataclass(frozen=True, slots=True)
class Configured:
    """The configuration in force.

    ``settings``: all of hepcache's, in the order of its defaults.
    ``problem``: why the values are refused; ``""`` if they are not.
    """

    settings: tuple[Setting, ...]
    unknown: tuple[Unknown, ...]
    problem: str
    paths: tuple[str, ...]


def configured(env: Mapping[str, str] | None = None) -> Configured:
    """Return every setting with its value and where that comes from."""
    known = dict(leaves(DEFAULTS["hepcache"]))
    env = os.environ if env is None else env
    sources = given(env)
    try:
        chosen, problem = read(), ""
    except ConfigurationError as error:
        chosen, problem = None, str(error)
    found = []
    for key, default in known.items():
        value = dask.config.get(f"hepcache.{key}", default)
        stated, source = sources.get(f"hepcache.{key}", (default, _DEFAULT))
        # What neither files nor variables say was set by the program itself.
        where = source if stated == value else "this process"
        found.append(Setting(key, value, where, default, _resolved(key, value, chosen)))
    paths = tuple(map(str, dask.config.paths))
    return Configured(tuple(found), tuple(unknown(env)), problem, paths)


def _resolved(key: str, value: Any, chosen: Settings | None) -> str:
    if key not in _RESOLVED or chosen is None:
        return ""
    found = getattr(chosen, _RESOLVED[key])
    return "" if found is None or str(found) == str(value) else str(found)


def as_yaml(value: Any) -> str:
    """Return a setting's value as it is written in a file."""
    text: str = yaml.safe_dump(value, default_flow_style=True, width=10**6)
    return text.removesuffix("\n").removesuffix("\n...")
