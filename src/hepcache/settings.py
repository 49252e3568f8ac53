"""Settings, read from Dask's configuration under the key ``hepcache``.

Dask merges its YAML files, ``DASK_HEPCACHE__*`` variables and
``dask.config.set``, and hands the result to every worker it starts; hepcache
adds its defaults and gives them types.
"""

from __future__ import annotations

import socket
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

import dask.config
import platformdirs
import yaml
from dask.utils import parse_bytes

from hepcache.errors import ConfigurationError

__all__ = ["Settings", "settings"]

_DEFAULTS = yaml.safe_load(files("hepcache").joinpath("hepcache.yaml").read_text())
dask.config.update_defaults(_DEFAULTS)


@dataclass(frozen=True, slots=True)
class Settings:
    """One reading of the configuration.

    Attributes
    ----------
    host
        This host's name in the placement.
    catalogue
        File of the catalogue.
    cache_directory
        Directory of this host's cached columns.
    capacity_bytes, capacity_fraction
        Limit of the cache: one of them is set, bytes or a fraction of the volume.
    verify
        When checksums are looked at.
    segment_entries
        Target length of a segment in entries.
    epsilon
        How far a host may exceed its fair share of a batch.
    origin_bandwidth
        Emulated bandwidth of the shared origin in bytes/s, or ``None``.
    origin_bandwidth_state
        File that holds the emulated link's state, or ``None``.
    origin_retries
        Attempts after a transient error of an origin.
    """

    host: str
    catalogue: Path
    cache_directory: Path
    capacity_bytes: int | None
    capacity_fraction: float | None
    verify: Literal["first-use", "always", "never"]
    segment_entries: int
    epsilon: float
    origin_bandwidth: float | None
    origin_bandwidth_state: Path | None
    origin_retries: int


def settings() -> Settings:
    """Return the settings in force now.

    Raises
    ------
    ConfigurationError
        A value has the wrong type or range; the message names the key.
    """
    home = Path(platformdirs.user_cache_dir("hepcache"))
    capacity = _get("cache.capacity")
    is_fraction = isinstance(capacity, str) and capacity.strip().endswith("%")
    verify = _get("cache.verify")
    if verify not in ("first-use", "always", "never"):
        raise ConfigurationError("hepcache.cache.verify", "first-use, always or never", verify)
    state = _get("origin.bandwidth_state")
    bandwidth = _get("origin.bandwidth")
    return Settings(
        host=str(_get("host") or socket.gethostname()),
        catalogue=Path(_get("catalogue") or home / "catalogue.sqlite").expanduser(),
        cache_directory=Path(_get("cache.directory") or home / "columns").expanduser(),
        capacity_bytes=None if is_fraction else _bytes("cache.capacity", capacity),
        capacity_fraction=_fraction("cache.capacity", capacity) if is_fraction else None,
        verify=verify,
        segment_entries=_positive("segment.entries"),
        epsilon=float(_get("placement.epsilon")),
        origin_bandwidth=None
        if bandwidth is None
        else float(_bytes("origin.bandwidth", bandwidth)),
        origin_bandwidth_state=None if state is None else Path(state),
        origin_retries=int(_get("origin.retries")),
    )


def _get(key: str) -> Any:
    return dask.config.get(f"hepcache.{key}")


def _bytes(key: str, value: object) -> int:
    try:
        # "20 MB/s" reads naturally for a bandwidth; the unit of time is always a second.
        return int(parse_bytes(str(value).removesuffix("/s")))
    except ValueError as error:
        raise ConfigurationError(f"hepcache.{key}", "bytes, such as 200 GiB", value) from error


def _fraction(key: str, value: str) -> float:
    try:
        fraction = float(value.strip().rstrip("%")) / 100
    except ValueError as error:
        raise ConfigurationError(f"hepcache.{key}", "a percentage, such as 80%", value) from error
    if not 0 < fraction <= 1:
        raise ConfigurationError(f"hepcache.{key}", "between 0% and 100%", value)
    return fraction


def _positive(key: str) -> int:
    value = _get(key)
    if not isinstance(value, int) or value <= 0:
        raise ConfigurationError(f"hepcache.{key}", "a positive number", value)
    return value
