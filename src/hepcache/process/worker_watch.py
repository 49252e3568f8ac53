"""Says so when a run waits for workers that don't come."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from distributed import Client

from hepcache.display import seconds_text

logger = logging.getLogger(__name__)

_LOOK_S = 5.0
_FIRST_S = 60.0
_AGAIN_S = 300.0


@contextmanager
def watched_workers(client: Client) -> Iterator[None]:
    """Say when a cluster has had no worker for a minute, and again every five minutes."""
    ended = threading.Event()
    threading.Thread(
        target=_watch, args=(client, ended), name="hepcache-worker-watch", daemon=True
    ).start()
    try:
        yield
    finally:
        ended.set()


def _watch(client: Client, ended: threading.Event) -> None:
    since: float | None = None
    due_s = _FIRST_S
    while not ended.wait(_LOOK_S):
        try:
            workers = len(client.nthreads())
        except Exception:
            return  # the run itself says that the scheduler is gone
        now = time.monotonic()
        if workers:
            if due_s > _FIRST_S:
                logger.warning("workers have come, after %s: the run goes on", _since(since, now))
            since, due_s = None, _FIRST_S
            continue
        since = now if since is None else since
        if now - since >= due_s:
            due_s += _AGAIN_S
            logger.warning(
                "no worker for %s, and the run waits for one: %s", _since(since, now), why(client)
            )


def _since(since: float | None, now: float) -> str:
    return seconds_text(0.0 if since is None else now - since)


def why(client: Client) -> str:
    """Return what is known of why a client's cluster has no workers, and what to do."""
    cluster = client.cluster
    if cluster is None:
        return f"start workers for the scheduler at {client.scheduler.address}"
    name = type(cluster).__name__
    requested = len(getattr(cluster, "requested", ()))
    if not requested:
        return f"{name} has asked for none; cluster.scale(4) asks for four"
    return (
        f"{name} has asked for {requested}, and none has come; look into their logs or the "
        "queue of the batch system"
    )
