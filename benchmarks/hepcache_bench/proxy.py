"""A link of given bandwidth and latency: a TCP proxy between clients and a server.

There is no kernel here that delays packets for a user without root, so what a
client sends and gets passes this process, which holds it back: each direction
by half of the round trip, and all that comes from the server by one token
bucket, as all clients share the server's link.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

__all__ = ["proxy"]

_BLOCK = 64 * 1024
# As much may be on its way on one connection, as TCP's windows have it.
_WINDOW = 4 * 1024 * 1024


class _Link:
    """The token bucket: bytes leave one after the other."""

    def __init__(self, bandwidth: float | None) -> None:
        self._bandwidth, self._free_at = bandwidth, 0.0

    def leaves_at(self, now: float, nbytes: int) -> float:
        """Return when bytes that want to leave now have left."""
        if self._bandwidth is None:
            return now
        self._free_at = max(now, self._free_at) + nbytes / self._bandwidth
        return self._free_at


async def _pass_on(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, link: _Link, delay_s: float
) -> None:
    """Copy one direction of a connection, late."""
    clock = asyncio.get_running_loop().time
    waiting: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(_WINDOW // _BLOCK)

    async def take() -> None:
        with suppress(OSError):
            while data := await reader.read(_BLOCK):
                left_at = link.leaves_at(clock(), len(data))
                await waiting.put((left_at + delay_s, data))
                # Else one connection books the link far ahead of the others.
                await asyncio.sleep(left_at - clock())
        await waiting.put((clock() + delay_s, b""))

    taking = asyncio.create_task(take())
    with suppress(OSError):
        while True:
            due_at, data = await waiting.get()
            await asyncio.sleep(due_at - clock())
            if not data:
                break
            writer.write(data)
            await writer.drain()
    taking.cancel()
    writer.close()


async def _serve(host: str, port: int, bandwidth: float | None, round_trip_s: float) -> None:
    down, up = _Link(bandwidth), _Link(None)

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            theirs, ours = await asyncio.open_connection(host, port)
        except OSError:
            writer.close()
            return
        await asyncio.gather(
            _pass_on(reader, ours, up, round_trip_s / 2),
            _pass_on(theirs, writer, down, round_trip_s / 2),
        )

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    async with server:
        await server.serve_forever()


@contextmanager
def proxy(
    port: int, *, bandwidth: float | None = None, round_trip_s: float = 0.0
) -> Iterator[int]:
    """Run a proxy to a server of this machine in a process of its own.

    Parameters
    ----------
    port
        The server's port.
    bandwidth
        Bytes/s that all its answers share, or ``None``.
    round_trip_s
        Seconds from a question to the first byte of its answer.

    Yields
    ------
    int
        The port to connect to.
    """
    command = [sys.executable, "-m", __name__, str(port), str(bandwidth or 0), str(round_trip_s)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield int(process.stdout.readline())
        finally:
            process.terminate()


def _main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("port", type=int)
    parser.add_argument("bandwidth", type=float)
    parser.add_argument("round_trip_s", type=float)
    given = parser.parse_args()
    with suppress(KeyboardInterrupt):
        asyncio.run(_serve("127.0.0.1", given.port, given.bandwidth or None, given.round_trip_s))


if __name__ == "__main__":
    _main()
