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
from functools import lru_cache
from pathlib import Path
from typing import Any

from distributed import get_worker
from distributed.core import send_recv
from distributed.protocol import to_serialize
from distributed.utils import sync

from hepcache.cache import ColumnCache, ColumnKey
from hepcache.cache.model import Entry
from hepcache.io.emulated_link import Link
from hepcache.io.replicas import Rests, place_label
from hepcache.process.forms import packed_form
from hepcache.settings import settings
from hepcache.telemetry import ReadLog

SEND = "hepcache_send"
"""What a worker is asked for: some of the columns that its host holds."""

logger = logging.getLogger(__name__)

_ANSWER_BYTES = 16 << 20  # that an answer has at most: so much memory it takes
_ANSWERS = 2  # that a worker makes at a time
_CONNECT_S, _ANSWER_S = 5.0, 30.0
_LAST_CONNECT_S, _LAST_ANSWER_S = 30.0, 120.0  # where there is no other source
_BUSY_S = 0.05
_PATIENCE_S = 120.0  # with a host that is busy, where there is no other source
_PAUSE_S = 60.0  # after which a source that was slower is tried again
_FADING_S = 30.0  # of reading, after which half of what was measured is forgotten
_LIMITED_S = 2.0  # of sending under a limit, that one answer has at most
_BACKLOG_S = 5.0  # of sending under a limit, that may wait


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
        self.failed = Rests()
        self.gave_all = True
        """Whether the hosts that were asked last had all that was wanted."""
        self._rates: dict[str, Rate] = {}
        self._tried: dict[str, float] = {}
        self._lock = threading.Lock()
        self._sending = 0

    def note(self, source: str, nbytes: int, seconds: float) -> None:
        """Note how long decoded bytes took to come from a host or an origin."""
        self.failed.end(source)
        with self._lock:
            self._rates.setdefault(source, Rate()).note(nbytes, seconds)

    def rate(self, source: str) -> float | None:
        """Return the decoded bytes per second that a source gives; ``None`` if nobody knows."""
        rate = self._rates.get(source)
        return None if rate is None else rate.bytes_per_s

    def is_faster(self, host: str, origin: str) -> bool:
        """Tell whether to ask a host before the origin, as far as is known."""
        if self.failed.reason(host):
            return False
        ours, theirs = self.rate(host), self.rate(origin)
        if ours is None or theirs is None or self.failed.reason(origin):
            return True
        return ours >= theirs

    def is_due(self, host: str, origin: str) -> bool:
        """Tell whether a chunk should try what is not the first choice: host, or origin.

        What is not known, one chunk has to show. A host that was slower is asked for one answer
        from time to time: networks are busy or not.
        """
        if self.failed.reason(host) or self.failed.reason(origin):
            return False
        faster = self.is_faster(host, origin)
        if faster and (self.rate(host) is None or self.rate(origin) is not None):
            return False
        source, now = origin if faster else host, time.monotonic()
        with self._lock:
            due = now - self._tried.get(source, -_PAUSE_S) >= _PAUSE_S
            if due:
                self._tried[source] = now
        return due

    def of_task(
        self,
        holders: Sequence[Sequence[str]],
        cache: ColumnCache,
        path: str,
        places: Sequence[str],
        log: ReadLog,
        *,
        shared: bool,
    ) -> Neighbours | None:
        """Return the hosts that a task's chunk may ask; ``None`` where there are none.

        ``holders``: hosts with addresses of their workers.
        ``path``, ``places``: the file, and where it lies if not there alone.
        ``shared``: whether the chunk's cache is that of a group.
        """
        if not holders:
            return None
        known = settings()
        others = {host: address for host, address in holders if host != known.host}
        if not others or not known.neighbours:
            return None
        return Neighbours(self, others, cache, path, places, log, shared=shared)

    def forget(self) -> None:
        """Forget what was measured, and who has failed."""
        with self._lock:
            self._rates.clear()
        self.failed.forget()
        self._tried.clear()
        self.gave_all = True

    async def send(
        self,
        own: ColumnCache,
        cache_of: Callable[[str, Sequence[str]], ColumnCache],
        *,
        keys: Sequence[Sequence[Any]],
        form: Sequence[str] | None,
        path: str,
        places: Sequence[str],
        user: int,
        shared: bool,
    ) -> dict[str, Any]:
        """Answer another host.

        ``own``, ``cache_of``: the user's own cache, and what tells that of a file.

        ``keys``: columns that it wants. The answer has as many of them, from the first on, as
        fit into it, each as its stored bytes, or ``None``.
        ``form``: kind and name of a form that it wants, or ``None``.
        ``path``, ``places``: the file, by which a group's cache knows what its members may read.
        ``user``, ``shared``: who asks, and whether for a group's cache: a private cache is for
        its user alone.
        """
        known = settings()
        if not known.neighbours:
            return {"refused": "its setting cache.neighbours is false"}
        rate = known.neighbours_rate
        # All of the user's processes on the host share it, whichever cache they send from.
        limit = None if rate is None else _limit(rate, own.layout.sent)
        if self._sending >= _ANSWERS or (limit is not None and limit.backlog_s > _BACKLOG_S):
            return {"busy": True}
        self._sending += 1
        try:
            # In a thread: a volume may be slow, and a file's server dead.
            cache = await asyncio.to_thread(cache_of, path, places)
            if user != os.getuid() and (cache is own or not shared):
                return {"refused": "its cache is another user's"}
            wanted = [ColumnKey(*key) for key in keys]
            return await asyncio.to_thread(_answer, cache, wanted, form, limit)
        finally:
            self._sending -= 1


@lru_cache(maxsize=4)
def _limit(rate: int, state: Path) -> Link:
    return Link(rate, state)


def _answer(
    cache: ColumnCache, keys: Sequence[ColumnKey], form: Sequence[str] | None, limit: Link | None
) -> dict[str, Any]:
    most = _ANSWER_BYTES
    if limit is not None:
        most = min(most, int(limit.bandwidth * _LIMITED_S))
    sent, columns = 0, list[Any]()
    for key in keys:
        # The first comes whatever it takes, or nobody would ever have it.
        data = cache.stored(key, most - sent if sent else None)
        if data is None and sent and cache.has(key):
            break  # it comes with the next answer
        columns.append(None if data is None else to_serialize(data))
        sent += 0 if data is None else len(data)
    if limit is not None:
        limit.take(sent)
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
        places: Sequence[str],
        log: ReadLog,
        *,
        shared: bool,
    ) -> None:
        self._known, self._hosts, self._cache, self._log = known, hosts, cache, log
        self._path, self._places, self._shared = path, tuple(places), shared
        self._origin = place_label(path)
        self._chosen: dict[str, bool] = {}

    @property
    def suffice(self) -> bool:
        """Whether they are likely to give all that is missing, so that none need be read ahead."""
        known = self._known
        return known.gave_all and any(known.is_faster(host, self._origin) for host in self._hosts)

    def fetch(
        self, keys: Collection[ColumnKey], *, last_resort: bool = False
    ) -> dict[ColumnKey, Entry]:
        """Return those columns that other hosts give.

        ``last_resort``: whether the origin has failed; else only hosts that are faster are asked.
        """
        if last_resort:
            self._known.failed.begin(self._origin, "it could not be read")
        found: dict[ColumnKey, Entry] = {}
        for host, address in self._hosts.items():
            wanted = [key for key in keys if key not in found]
            if wanted and (last_resort or self._is_asked(host)):
                found.update(self._from(host, address, wanted, last_resort=last_resort))
        self._known.gave_all = len(found) == len(keys)
        return found

    def form(self, kind: str, name: str, *, last_resort: bool = False) -> bytes | None:
        """Return a form that another host has, packed."""
        for host, address in self._hosts.items():
            if last_resort or not self._known.failed.reason(host):
                answer = self._ask(host, address, [], (kind, name), last_resort=last_resort)
                packed = answer.get("form")
                if isinstance(packed, bytes):
                    return packed
        return None

    def _is_asked(self, host: str) -> bool:
        """Tell whether to ask a host now, where the origin may be asked, too."""
        known = self._known
        if host not in self._chosen:
            # For the whole chunk: a few bytes would tell nothing of a source's rate.
            trial = known.is_due(host, self._origin)
            self._chosen[host] = known.is_faster(host, self._origin) != trial
        return self._chosen[host] and not known.failed.reason(host)

    def _from(
        self, host: str, address: str, keys: Sequence[ColumnKey], *, last_resort: bool
    ) -> dict[ColumnKey, Entry]:
        """Return what one host gives, answer by answer as long as it is faster."""
        found: dict[ColumnKey, Entry] = {}
        rest = list(keys)
        while rest:
            began = time.perf_counter()
            answer = self._ask(host, address, rest, None, last_resort=last_resort)
            columns = answer.get("columns")
            if not isinstance(columns, list | tuple) or not columns:
                break
            came = self._received(host, rest, columns)
            took_s = time.perf_counter() - began
            self._log.neighbour_s += took_s
            if came:
                self._known.note(host, sum(entry.nbytes for entry in came.values()), took_s)
            found.update(came)
            rest = rest[len(columns) :]
            if not (last_resort or self._known.is_faster(host, self._origin)):
                break
        return found

    def _received(
        self, host: str, keys: Sequence[ColumnKey], columns: Sequence[Any]
    ) -> dict[ColumnKey, Entry]:
        """Return the columns of an answer that are what they should be."""
        found: dict[ColumnKey, Entry] = {}
        for key, data in zip(keys, columns, strict=False):
            if data is None:
                continue
            self._log.neighbour_bytes += getattr(data, "nbytes", 0)
            entry = self._cache.received(key, data)
            if entry is None:
                # What is damaged on its disk it would have set aside itself.
                logger.warning("%s sent a damaged column: %s", host, key)
                self._known.failed.begin(host, "it sent a damaged column")
            else:
                found[key] = entry
        return found

    def _ask(
        self,
        host: str,
        address: str,
        keys: Sequence[ColumnKey],
        form: tuple[str, str] | None,
        *,
        last_resort: bool,
    ) -> dict[str, Any]:
        """Return one answer of a host; an empty one where it gives none."""
        message = {
            "keys": [tuple(key) for key in keys],
            "form": form,
            "path": self._path,
            "places": self._places,
            "user": os.getuid(),
            "shared": self._shared,
        }
        connect_s, answer_s, busy_s = _CONNECT_S, _ANSWER_S, 0.0
        if last_resort:
            connect_s, answer_s, busy_s = _LAST_CONNECT_S, _LAST_ANSWER_S, _PATIENCE_S
        until = time.monotonic() + busy_s
        while True:
            try:
                answer = _asked(address, message, connect_s, answer_s)
                problem = str(answer.get("refused", ""))
            except Exception as error:  # whatever is wrong with it, there is the origin
                answer, problem = {}, repr(error)
            if problem:
                logger.info("%s sends no columns: %s", host, problem)
                self._known.failed.begin(host, problem)
                return {}
            if not answer.get("busy") or time.monotonic() >= until:
                return answer
            time.sleep(_BUSY_S)


def _asked(
    address: str, message: Mapping[str, Any], connect_s: float, answer_s: float
) -> dict[str, Any]:
    """Return a worker's answer, waiting in this thread."""
    worker = get_worker()

    async def ask() -> dict[str, Any]:
        # A worker that is gone would be tried for as long as one may take to answer.
        async with asyncio.timeout(connect_s):
            connection = await worker.rpc.connect(address)
        try:
            async with asyncio.timeout(answer_s):
                answer: dict[str, Any] = await send_recv(connection, op=SEND, **message)
                return answer
        finally:
            worker.rpc.reuse(address, connection)

    found: dict[str, Any] = sync(worker.loop, ask)
    return found
