"""Opening a store by its URL, also where a store was sent to."""

from __future__ import annotations

import copyreg
import json
from pathlib import Path
from threading import Lock
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit
from weakref import WeakValueDictionary

from hepcache.errors import ConfigurationError, StoreError
from hepcache.eventstore.engines.engine import MemoryEngine
from hepcache.eventstore.engines.lmdb import LmdbEngine
from hepcache.eventstore.shard.shard import LocalShard
from hepcache.eventstore.store import Store
from hepcache.io.atomic import sync, write_atomically

FORMAT = 1
_DESCRIPTION = "store.json"
_MOST_SHARDS = 4096
_named: WeakValueDictionary[str, _Shards] = WeakValueDictionary()
_lock = Lock()


class _Shards(list[LocalShard]):
    """The shards of a named store in memory; it lives as long as a store uses it."""


def connect(url: str | Path, *, cache_bytes: int = 256 << 20) -> Store:
    """Open an event store; make it if it is missing.

    Parameters
    ----------
    url
        - ``mem://``: in this process, removed with the store; all callers that open
          ``mem://name`` in this process share it.
        - ``file:///path`` or a plain path: embedded, in a directory of a local volume, for any
          number of processes of this machine. With ``?sync=false`` a power failure (not a
          kill) may lose the last writes.
        - ``tls://scheduler:port`` or ``tcp://...``: the service on the workers of a Dask
          cluster (``hepcache store serve``).

        ``?shards=N`` sets the number of shards of a new store of the first two kinds: as
        many processes can write at the same time. It can't be changed later.
    cache_bytes
        Capacity of the cache that :meth:`SubRun.prefetch` fills.

    Raises
    ------
    ConfigurationError
        The URL is invalid.
    StoreError
        It can't be opened.

    Examples
    --------
    >>> import numpy as np
    >>> store = connect("mem://")
    >>> event = store.create("nova/prod5").create(43).create(56).create(25)
    >>> event["rec_energy"] = np.array([1.5, 2.5])
    >>> store["nova/prod5"][43][56][25]["rec_energy"].tolist()
    [1.5, 2.5]
    """
    text = str(url)
    if "://" not in text:
        text = Path(text).expanduser().resolve().as_uri()
    parts = urlsplit(text)
    options = dict(parse_qsl(parts.query))
    if parts.scheme == "mem":
        return Store(text, _in_memory(parts.netloc + parts.path, options), cache_bytes=cache_bytes)
    if parts.scheme == "file" and parts.netloc in ("", "localhost"):
        shards = _embedded(Path(unquote(parts.path)), options)
        return Store(text, shards, cache_bytes=cache_bytes)
    if parts.scheme in ("tcp", "tls"):
        from hepcache.eventstore.service.client import connect_service

        return connect_service(text, cache_bytes=cache_bytes)
    raise ConfigurationError(
        "event store", "mem://, file:///path, or the tls:// or tcp:// address of a scheduler", text
    )


def _number(options: dict[str, str], default: int) -> int:
    given = options.get("shards", str(default))
    if not given.isdecimal() or not 1 <= int(given) <= _MOST_SHARDS:
        raise ConfigurationError("shards", f"a number in 1..{_MOST_SHARDS}", given)
    return int(given)


def _in_memory(name: str, options: dict[str, str]) -> list[LocalShard]:
    with _lock:
        shards = _named.get(name) if name else None
        if shards is None:
            shards = _Shards(LocalShard(MemoryEngine()) for _ in range(_number(options, 1)))
            if name:
                _named[name] = shards
        return shards


def _embedded(directory: Path, options: dict[str, str]) -> list[LocalShard]:
    sync = options.get("sync", "true").lower()
    if sync not in ("true", "false"):
        raise ConfigurationError("sync", "true or false", sync)
    number = _description(directory, _number(options, 1))["shards"]
    if "shards" in options and int(options["shards"]) != number:
        raise ConfigurationError(
            "shards", f"{number}, as this store was made with", options["shards"]
        )
    return [
        LocalShard(LmdbEngine(directory / "shards" / f"{shard:04d}", sync=sync == "true"))
        for shard in range(number)
    ]


def _description(directory: Path, shards: int) -> dict[str, Any]:
    """Return the description in a store's directory, written where it is missing."""
    path = directory / _DESCRIPTION
    try:
        if not path.exists():
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            wanted = {"format": FORMAT, "what": "hepcache event store", "shards": shards}
            text = json.dumps(wanted).encode() + b"\n"
            write_atomically(path, text, mode=0o600, overwrite=False)
            sync(directory)
        found: dict[str, Any] = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise StoreError(str(directory), f"{_DESCRIPTION} can't be used: {error}") from error
    if found.get("format") != FORMAT:
        raise StoreError(
            str(directory), f"format {found.get('format')!r}, this hepcache reads {FORMAT}"
        )
    return found


def _opened_elsewhere(store: Store) -> tuple[Any, tuple[str]]:
    """Pickle a store as its URL, by which another process opens it."""
    if store.url.startswith("mem:"):
        raise ConfigurationError(
            "store",
            "one that other processes can reach (file:///path, or a service on the cluster)",
            store.url,
        )
    return connect, (store.url,)


copyreg.pickle(Store, _opened_elsewhere)
