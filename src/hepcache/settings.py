"""Settings, read from Dask's configuration under the key ``hepcache``.

Dask merges its YAML files, ``DASK_HEPCACHE__*`` variables and
``dask.config.set``, and hands the result to every worker it starts; hepcache
adds its defaults and gives them types.
"""

from __future__ import annotations

import os
import pwd
import socket
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

import dask.config
import platformdirs
import yaml
from dask.utils import parse_bytes

from hepcache.errors import ConfigurationError

__all__ = ["DEFAULTS", "Settings", "settings"]

DEFAULTS: dict[str, Any] = yaml.safe_load(files("hepcache").joinpath("hepcache.yaml").read_text())
"""What ``hepcache.yaml`` says."""
dask.config.update_defaults(DEFAULTS)


@dataclass(frozen=True, slots=True)
class Settings:
    """One reading of the configuration.

    Attributes
    ----------
    host
        This host's name in the placement.
    catalogue
        File of the catalogue.
    cache_mode
        Who keeps what is read: hepcache decoded columns, the kernel raw pages
        of NFS (FS-Cache), or both.
    cache_directory
        Directory of this host's cached columns; ``{user}`` in the setting
        stands for the name of who runs the process.
    group_directory
        Directory of the columns that a Unix group shares on this host, or ``None``.
    capacity_bytes, capacity_fraction
        Limit of the cache: one of them is set, bytes or a fraction of the volume.
    quota_bytes, quota_fraction
        Limit of one user in it: bytes, a fraction of the capacity, or neither.
    run, cull, stop
        Free fractions of the volume: evict below ``cull`` until ``run`` is
        free; store nothing below ``stop``.
    eviction
        Name of the policy, or ``None`` for the default one.
    admit
        Whether a host keeps what it reads for another one's chunks: always,
        or when it is asked for repeatedly.
    codec
        How columns are kept: auto, raw, lz4 or zstd.
    memory_bytes
        How much of what it has read each process holds on to, decoded.
    verify
        When checksums are looked at.
    drain_file
        Workers of an HTCondor pool leave a machine on which it exists.
    segment_entries
        Target length of a segment in entries.
    epsilon
        How far a host may exceed its fair share of a batch.
    duplicates
        How many times longer than expected a chunk may take before an idle
        host tries it too, or ``None``.
    origin_bandwidth
        Emulated bandwidth of the shared origin in bytes/s, or ``None``.
    origin_bandwidth_state
        File that holds the emulated link's state, or ``None``.
    origin_retries
        Attempts after a transient error of an origin.
    origin_requests
        Requests that all processes of a host have under way at one origin at most.
    origin_ahead_bytes
        Bytes that each process fetches for its next chunks at most; 0 for none.
    """

    host: str
    catalogue: Path
    cache_mode: Literal["columns", "fscache", "both"]
    cache_directory: Path
    group_directory: Path | None
    capacity_bytes: int | None
    capacity_fraction: float | None
    quota_bytes: int | None
    quota_fraction: float | None
    run: float
    cull: float
    stop: float
    eviction: str | None
    admit: Literal["always", "repeated"]
    codec: Literal["auto", "raw", "lz4", "zstd"]
    memory_bytes: int
    verify: Literal["first-use", "always", "never"]
    drain_file: Path
    segment_entries: int
    epsilon: float
    duplicates: float | None
    origin_bandwidth: float | None
    origin_bandwidth_state: Path | None
    origin_retries: int
    origin_requests: int
    origin_ahead_bytes: int


def settings() -> Settings:
    """Return the settings in force now.

    Raises
    ------
    ConfigurationError
        A value has the wrong type or range; the message names the key.
    """
    # Several times per chunk: what was asked for with the same words is the same.
    said = repr(dask.config.get("hepcache", {}))
    return _settings(said, os.environ.get("HOME"), os.environ.get("XDG_CACHE_HOME"))


@lru_cache(maxsize=16)
def _settings(*_: str | None) -> Settings:
    home = Path(platformdirs.user_cache_dir("hepcache"))
    capacity_bytes, capacity_fraction = _size("cache.capacity")
    if capacity_bytes is None and capacity_fraction is None:
        raise ConfigurationError("hepcache.cache.capacity", "bytes or a percentage", None)
    quota_bytes, quota_fraction = _size("cache.quota")
    run, cull, stop = (_fraction(f"cache.{name}") for name in ("run", "cull", "stop"))
    if not stop < cull < run:
        expected = "stop below cull below run, as cachefilesd has them"
        raise ConfigurationError("hepcache.cache.run", expected, f"{run}, {cull}, {stop}")
    group, eviction = _get("cache.group"), _get("cache.eviction")
    state = _get("origin.bandwidth_state")
    bandwidth, duplicates = _get("origin.bandwidth"), _get("placement.duplicates")
    return Settings(
        host=str(_get("host") or socket.gethostname()),
        catalogue=Path(_get("catalogue") or home / "catalogue.sqlite").expanduser(),
        cache_mode=_one_of("cache.mode", "columns", "fscache", "both"),
        cache_directory=_own(_get("cache.directory") or home / "columns"),
        group_directory=None if group is None else Path(group).expanduser(),
        capacity_bytes=capacity_bytes,
        capacity_fraction=capacity_fraction,
        quota_bytes=quota_bytes,
        quota_fraction=quota_fraction,
        run=run,
        cull=cull,
        stop=stop,
        eviction=None if eviction is None else str(eviction),
        admit=_one_of("cache.admit", "always", "repeated"),
        codec=_one_of("cache.codec", "auto", "raw", "lz4", "zstd"),
        memory_bytes=_bytes("cache.memory", _get("cache.memory")),
        verify=_one_of("cache.verify", "first-use", "always", "never"),
        drain_file=Path(_get("drain_file")),
        segment_entries=_positive("segment.entries"),
        epsilon=_above("placement.epsilon", 0),
        duplicates=None if duplicates is None else _above("placement.duplicates", 1),
        origin_bandwidth=None
        if bandwidth is None
        else float(_bytes("origin.bandwidth", bandwidth)),
        origin_bandwidth_state=None if state is None else Path(state),
        origin_retries=int(_get("origin.retries")),
        origin_requests=_positive("origin.requests"),
        origin_ahead_bytes=_bytes("origin.ahead", _get("origin.ahead")),
    )


def _own(path: str | Path) -> Path:
    """Return a path that may name its user, so that one setting serves all of a machine."""
    text = str(path)
    if "{user}" in text:
        text = text.replace("{user}", pwd.getpwuid(os.geteuid()).pw_name)
    return Path(text).expanduser()


def _get(key: str) -> Any:
    return dask.config.get(f"hepcache.{key}")


def _bytes(key: str, value: object) -> int:
    try:
        # "20 MB/s" reads naturally for a bandwidth; the unit of time is always a second.
        return int(parse_bytes(str(value).removesuffix("/s")))
    except ValueError as error:
        raise ConfigurationError(f"hepcache.{key}", "bytes, such as 200 GiB", value) from error


def _size(key: str) -> tuple[int | None, float | None]:
    """Return bytes or a fraction, whichever a value is; neither for null."""
    value = _get(key)
    if value is None:
        return None, None
    if isinstance(value, str) and value.strip().endswith("%"):
        return None, _fraction(key)
    return _bytes(key, value), None


def _fraction(key: str) -> float:
    value = _get(key)
    try:
        fraction = float(str(value).strip().rstrip("%")) / 100
    except ValueError as error:
        raise ConfigurationError(f"hepcache.{key}", "a percentage, such as 80%", value) from error
    if not 0 < fraction <= 1:
        raise ConfigurationError(f"hepcache.{key}", "between 0% and 100%", value)
    return fraction


def _one_of(key: str, *choices: str) -> Any:
    value = _get(key)
    if value not in choices:
        expected = f"{', '.join(choices[:-1])} or {choices[-1]}"
        raise ConfigurationError(f"hepcache.{key}", expected, value)
    return value


def _above(key: str, bound: float) -> float:
    value = _get(key)
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = bound
    if not number > bound:
        raise ConfigurationError(f"hepcache.{key}", f"a number above {bound}", value)
    return number


def _positive(key: str) -> int:
    value = _get(key)
    if not isinstance(value, int) or value <= 0:
        raise ConfigurationError(f"hepcache.{key}", "a positive number", value)
    return value
