"""Workers that send no heartbeats: stopped, or stuck where no other thread can run.

A worker's heartbeat comes from the thread of its event loop, so it stays away
when the process is stopped, when a page of a mapped file or a library waits
for a dead server with Python's lock held, and also while a library computes
for long with that lock held. The first two will not end, the third will: the
worker's nanny, a process of its own, tells how much its worker computes.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

import psutil
from distributed.protocol.pickle import dumps
from distributed.scheduler import heartbeat_interval

from hepcache.scheduling.client_requests import answers

# A child of Dask's own, so that it goes where the scheduler's log goes.
logger = logging.getLogger("distributed.scheduler.hepcache")

_INTERVAL_S = 1.0
_MISSED = 4  # a cluster of thousands of workers wants a heartbeat of each in a minute
_STALLED_S = 5.0
_LOOKING_S = 1.0
_ANSWERING_S = 5.0
_COMPUTING = 0.05  # of one core; on a machine with twenty times the work it can do
_KILLING_S = 20.0  # it asks first


class SilenceMeter:
    """How long workers have been silent, as far as the scheduler could hear them.

    A scheduler that was stopped itself, or whose machine slept, has missed
    heartbeats meanwhile: all silence begins anew.

    ``clock``: returns seconds, by which heartbeats are dated.

    >>> now = 0.0
    >>> meter = SilenceMeter(lambda: now)
    >>> meter.silent_s({"a": 0.0})
    {'a': 0.0}
    >>> now = 3.0
    >>> meter.silent_s({"a": 0.0, "b": 2.5})
    {'a': 3.0, 'b': 0.5}
    >>> now = 60.0
    >>> meter.silent_s({"a": 0.0})
    {'a': 0.0}
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._last = self._awake = clock()

    def silent_s(self, last_seen: Mapping[str, float]) -> dict[str, float]:
        """Return for how many seconds each worker has been silent; call it every second."""
        now = self._clock()
        if not 0 <= now - self._last <= _STALLED_S:
            self._awake = now
        self._last = now
        return {worker: now - max(seen, self._awake) for worker, seen in last_seen.items()}


class Heartbeats:
    """Gives up workers that hang, so that others do their work.

    Nobody knows of a worker without a nanny whether it computes: it is given up at once.

    ``lost_after_s``: seconds without a heartbeat after which a worker that does not compute counts
    as lost; ``None`` for never. With many workers, which send heartbeats more rarely, it is
    longer.
    ``on_loss``: called with a worker's state and the seconds, before it is given up.
    """

    def __init__(
        self, scheduler: Any, lost_after_s: float | None, on_loss: Callable[[Any, float], None]
    ) -> None:
        self._scheduler = scheduler
        self._lost_after_s = lost_after_s
        self._on_loss = on_loss
        self._meter = SilenceMeter()
        self._checked = 0.0
        self._judged: dict[str, asyncio.Task[None]] = {}
        self._spared: dict[str, float] = {}

    def check(self) -> None:
        """Look for workers that have been silent for too long; call it several times a second."""
        if self._lost_after_s is None or time.monotonic() - self._checked < _INTERVAL_S:
            return
        self._checked = time.monotonic()
        workers = self._scheduler.workers
        limit_s = max(self._lost_after_s, _MISSED * heartbeat_interval(len(workers)))
        silent = self._meter.silent_s({worker: ws.last_seen for worker, ws in workers.items()})
        # One that computes is looked at again when as much time has passed.
        self._spared = {
            worker: spared_s
            for worker, spared_s in self._spared.items()
            if spared_s <= silent.get(worker, 0.0)
        }
        for worker, silent_s in silent.items():
            patience_s = limit_s + self._spared.get(worker, 0.0)
            if silent_s > patience_s and worker not in self._judged:
                self._judged[worker] = asyncio.ensure_future(
                    self._judge(workers[worker], silent_s)
                )

    def close(self) -> None:
        """Stop looking."""
        for task in self._judged.values():
            task.cancel()

    async def _judge(self, ws: Any, silent_s: float) -> None:
        try:
            await self._spare_or_lose(ws, silent_s)
        finally:
            del self._judged[ws.address]

    async def _spare_or_lose(self, ws: Any, silent_s: float) -> None:
        last_seen, worker = ws.last_seen, ws.address
        share = None if ws.nanny is None else await self._computing(worker)
        if ws.last_seen != last_seen or self._scheduler.workers.get(worker) is not ws:
            return
        if share is not None and share > _COMPUTING:
            self._spared[worker] = silent_s
            logger.warning(
                "worker %s sends no heartbeat for %.0f s but computes: it is left alone",
                ws.name,
                silent_s,
            )
            return
        logger.warning("worker %s sends no heartbeat for %.0f s: it is lost", ws.name, silent_s)
        self._on_loss(ws, silent_s)
        stimulus = f"hepcache-lost-{time.time()}"
        # Its nanny starts another one; without it, the worker must go should it wake up.
        await self._scheduler.remove_worker(worker, stimulus_id=stimulus, close=ws.nanny is None)
        if ws.nanny is not None:
            try:
                async with asyncio.timeout(_KILLING_S):
                    await self._scheduler.rpc(ws.nanny).kill(reason=stimulus)
            except (OSError, TimeoutError) as error:
                logger.warning("the nanny of worker %s did not end it: %r", ws.name, error)

    async def _computing(self, worker: str) -> float | None:
        """Return what part of a core a worker computes on; ``None`` if nobody says it."""
        message = {"op": "run", "function": dumps(computing), "kwargs": dumps({})}
        found, _ = await answers(
            self._scheduler, message, [worker], within_s=_ANSWERING_S, nanny=True
        )
        return found.get(worker)


async def computing(dask_worker: Any) -> float:
    """Return what part of a core the worker of a nanny computes on; for ``Client.run``."""
    process = psutil.Process(dask_worker.pid)
    before, began = process.cpu_times(), time.monotonic()
    await asyncio.sleep(_LOOKING_S)
    after, took_s = process.cpu_times(), time.monotonic() - began
    return float(after.user + after.system - before.user - before.system) / took_s
