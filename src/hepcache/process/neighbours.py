"""Columns from other hosts' caches.

A chunk's task names hosts that hold some of its columns, as the scheduler
knows it. A worker that lacks them asks a worker of such a host, over the
cluster's own connections, before it asks the origin, where that has turned out
to be faster, and where the origin fails. Columns travel as they are stored, and
are compared with their keys and checksums where they arrive.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
from distributed import get_worker
from distributed.protocol import to_serialize
from distributed.utils import sync

from hepcache.cache import ColumnCache, ColumnKey
from hepcache.cache.model import Entry
from hepcache.io.emulated_link import Link
from hepcache.io.replicas import place_label
from hepcache.process.forms import packed_form
from hepcache.settings import settings
from hepcache.telemetry import ReadLog

SEND = "hepcache_send"
"""What a worker is asked for: some of the columns that its host holds."""

logger = logging.getLogger(__name__)

_ANSWER_BYTES = 16 << 20  # that an answer has at most: so much memory it takes
_ANSWERS = 2  # that a worker makes at a time
_ANSWER_S = 30.0
_BUSY_S = 0.05
_PATIENCE_S = 10.0  # with a host that is busy, where there is no other source
_REST_S = 60.0  # of a host that has failed, or is slower than the origin
_FADING_S = 30.0  # of reading, after which half of what was measured is forgotten


class Rate:
    """Bytes per second, of which what was measured last counts most."""

    def __init__(self) -> None:
        self._nbytes = self._seconds = 0.0

    def note(self, nbytes: float, seconds: float) -> None:
        """Note that so many bytes took so many seconds."""
        faded = 0.5 ** (seconds / _FADING_S)
        self._nbytes = self._nbytes * faded + nbytes
        self._seconds = self._seconds * faded + seconds

    @property
    def bytes_per_s(self) -> float | None:
        """The rate; ``None`` before anything was measured."""
        return self._nbytes / self._seconds if self._seconds > 0 else None


class Neighbourhood:
    """What a process knows of the hosts whose caches it may ask; any thread may use it."""

    def __init__(self) -> None:
        self._rates: dict[str, Rate] = {}
        self._failed: dict[str, float] = {}
        self._tried: dict[str, float] = {}
        self._lock = threading.Lock()
        self._sending = 0

    def note(self, source: str, nbytes: int, seconds: float) -> None:
        """Note how long decoded bytes took to come from a host or an origin."""
        with self._lock:
            self._rates.setdefault(source, Rate()).note(nbytes, seconds)

    def rate(self, source: str) -> float | None:
        """Return the decoded bytes per second that a source gives; ``None`` if nobody knows."""
        rate = self._rates.get(source)
        return None if rate is None else rate.bytes_per_s

    def leave_alone(self, host: str) -> None:
        """Ask a host that has failed no more for a while."""
        self._failed[host] = time.monotonic()

    def has_failed(self, host: str) -> bool:
        """Tell whether a host has failed of late."""
        return time.monotonic() - self._failed.get(host, -_REST_S) < _REST_S

    def is_faster(self, host: str, origin: str) -> bool:
        """Tell whether a chunk should ask a host before the origin.

        What is not known yet, one chunk has to show, and from time to time another one: networks
        are busy or not.
        """
        ours, theirs = self.rate(host), self.rate(origin)
        if ours is None:
            return True
        if theirs is None:
            return not self._is_due(origin)
        return ours >= theirs or self._is_due(host)

    def _is_due(self, source: str) -> bool:
        """Tell whether a source that is not the first choice is to be tried by one chunk."""
        now = time.monotonic()
        with self._lock:
            due = now - self._tried.get(source, -_REST_S) >= _REST_S
            if due:
                self._tried[source] = now
        return due

    def of_task(
        self,
        holders: Sequence[Sequence[str]],
        cache: ColumnCache,
        path: str,
        log: ReadLog,
        *,
        shared: bool,
    ) -> Neighbours | None:
        """Return the hosts that a task's chunk may ask; ``None`` where there are none.

        ``holders``: hosts with addresses of their workers.
        ``shared``: whether the chunk's cache is that of a group.
        """
        if not holders:
            return None
        known = settings()
        others = {host: address for host, address in holders if host != known.host}
        if not others or not known.neighbours:
            return None
        return Neighbours(self, others, cache, path, log, shared=shared)

    def forget(self) -> None:
        """Forget what was measured, and who has failed."""
        with self._lock:
            self._rates.clear()
        self._failed.clear()
        self._tried.clear()

    async def send(
        self,
        own: ColumnCache,
        cache_of: Callable[[str], ColumnCache],
        *,
        keys: Sequence[Sequence[Any]],
        form: Sequence[str] | None,
        path: str,
        user: int,
        shared: bool,
    ) -> dict[str, Any]:
        """Answer another host.

        ``own``, ``cache_of``: the user's own cache, and what tells that of a file.

        ``keys``: columns that it wants. The answer has as many of them, from the first on, as
        fit into it, each as its stored bytes, or ``None``.
        ``form``: kind and name of a form that it wants, or ``None``.
        ``path``: the file, by which a group's cache knows what its members may read.
        ``user``, ``shared``: who asks, and whether for a group's cache: a private cache is for
        its user alone.
        """
        if not settings().neighbours:
            return {"refused": "its setting cache.neighbours is false"}
        if self._sending >= _ANSWERS:
            return {"busy": True}
        self._sending += 1
        try:
            # In a thread: a volume may be slow, and a file's server dead.
            cache = await asyncio.to_thread(cache_of, path)
            if user != os.getuid() and (cache is own or not shared):
                return {"refused": "its cache is another user's"}
            return await asyncio.to_thread(_answer, cache, [ColumnKey(*key) for key in keys], form)
        finally:
            self._sending -= 1


def _answer(
    cache: ColumnCache, keys: Sequence[ColumnKey], form: Sequence[str] | None
) -> dict[str, Any]:
    room, columns = _ANSWER_BYTES, list[Any]()
    for key in keys:
        data = cache.stored(key, room if columns else 1 << 40)
        if data is None and columns and cache.has(key):
            break  # it comes with the next answer
        columns.append(None if data is None else to_serialize(data))
        room -= 0 if data is None else len(data)
    sent = _ANSWER_BYTES - room
    if (rate := settings().neighbours_rate) is not None and sent:
        Link(rate, cache.layout.sent).take(sent)
    packed = None if form is None else packed_form(form[0], form[1], cache)
    return {"columns": columns, "form": packed}


class Neighbours:
    """The hosts that may have a chunk's columns; belongs to the chunk's thread."""

    def __init__(
        self,
        known: Neighbourhood,
        hosts: Mapping[str, str],
        cache: ColumnCache,
        path: str,
        log: ReadLog,
        *,
        shared: bool,
    ) -> None:
        self._known, self._hosts, self._cache, self._log = known, hosts, cache, log
        self._path, self._shared = path, shared
        origin = place_label(path)
        self._faster = {host for host in hosts if known.is_faster(host, origin)}

    @property
    def preferred(self) -> bool:
        """Whether any of them should be asked before the origin."""
        return any(not self._known.has_failed(host) for host in self._faster)

    def fetch(
        self, keys: Collection[ColumnKey], *, last_resort: bool = False
    ) -> dict[ColumnKey, Entry]:
        """Return those columns that other hosts give.

        ``last_resort``: whether the origin has failed; else only hosts that are faster are asked.
        """
        found: dict[ColumnKey, Entry] = {}
        for host, address in self._hosts.items():
            wanted = [key for key in keys if key not in found]
            if not wanted:
                break
            if last_resort or (host in self._faster and not self._known.has_failed(host)):
                began = time.perf_counter()
                came, sent_bytes = self._from(host, address, wanted, patient=last_resort)
                took_s = time.perf_counter() - began
                self._log.neighbour_s += took_s
                self._log.neighbour_bytes += sent_bytes
                if came:
                    decoded_bytes = sum(entry.nbytes for entry in came.values())
                    self._known.note(host, decoded_bytes, took_s)
                found.update(came)
        return found

    def form(self, kind: str, name: str) -> bytes | None:
        """Return a form that another host has, packed."""
        for host, address in self._hosts.items():
            if not self._known.has_failed(host):
                answer = self._ask(host, address, [], (kind, name), patient=False)
                if answer.get("form") is not None:
                    return bytes(answer["form"])
        return None

    def _from(
        self, host: str, address: str, keys: Sequence[ColumnKey], *, patient: bool
    ) -> tuple[dict[ColumnKey, Entry], int]:
        """Return what one host gives, and how many bytes that were on the way."""
        found: dict[ColumnKey, Entry] = {}
        rest, nbytes = list(keys), 0
        while rest:
            columns = self._ask(host, address, rest, None, patient=patient).get("columns")
            if not columns:
                break
            for key, data in zip(rest, columns, strict=False):
                if data is None:
                    continue
                nbytes += len(data)
                entry = self._cache.received(key, np.asarray(data))
                if entry is None:
                    # Its own next look at the column sets it aside.
                    logger.warning("%s sent a damaged column: %s", host, key)
                else:
                    found[key] = entry
            rest = rest[len(columns) :]
        return found, nbytes

    def _ask(
        self,
        host: str,
        address: str,
        keys: Sequence[ColumnKey],
        form: tuple[str, str] | None,
        *,
        patient: bool,
    ) -> dict[str, Any]:
        """Return one answer of a host; an empty one where it gives none."""
        message = {
            "keys": [tuple(key) for key in keys],
            "form": form,
            "path": self._path,
            "user": os.getuid(),
            "shared": self._shared,
        }
        until = time.monotonic() + (_PATIENCE_S if patient else 0.0)
        while True:
            try:
                answer = _asked(address, message)
            except Exception as error:  # whatever is wrong with it, there is the origin
                logger.info("%s sends no columns: %r", host, error)
                self._known.leave_alone(host)
                return {}
            if answer.get("refused"):
                logger.info("%s sends no columns: %s", host, answer["refused"])
                self._known.leave_alone(host)
                return {}
            if not answer.get("busy") or time.monotonic() >= until:
                return answer
            time.sleep(_BUSY_S)


def _asked(address: str, message: Mapping[str, Any]) -> dict[str, Any]:
    """Return a worker's answer, waiting in this thread."""
    worker = get_worker()

    async def ask() -> dict[str, Any]:
        async with asyncio.timeout(_ANSWER_S):
            answer: dict[str, Any] = await getattr(worker.rpc(address), SEND)(**message)
            return answer

    found: dict[str, Any] = sync(worker.loop, ask)
    return found
