"""Under which address of this machine a pool can reach it."""

from __future__ import annotations

import contextlib
import re
import socket

import htcondor2
from distributed.utils import get_ip

__all__ = ["address_towards", "address_towards_pool"]


def address_towards(host: str) -> str | None:
    """Return the address from which this machine talks to another; ``None`` if it can't.

    Examples
    --------
    >>> address_towards("127.0.0.1")
    '127.0.0.1'
    """
    with contextlib.suppress(OSError):
        kind, *_, place = socket.getaddrinfo(host, 9618, type=socket.SOCK_DGRAM)[0]
        with socket.socket(kind, socket.SOCK_DGRAM) as probe:
            probe.connect(place)  # sends nothing
            return str(probe.getsockname()[0])
    return None


def address_towards_pool() -> str:
    """Return the address from which this machine talks to the pool's collector."""
    # HOST, HOST:PORT, <ADDRESS:PORT?...>, or several of them.
    text = str(htcondor2.param.get("COLLECTOR_HOST") or "")
    first = re.split(r"[,\s]+", text.strip().lstrip("<"))[0]
    host = re.split(r"[?>]", first)[0].rpartition(":")[0] or first
    found = address_towards(host) if host else None
    if found is not None and not found.startswith("127."):
        return found
    return str(get_ip())
