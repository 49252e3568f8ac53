"""An HTTP proxy before an S3 server that answers wrongly when it is told to."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Literal

Fault = Literal["busy", "cut", "flip", "drop"] | None
"""503; half of the body; one bit of the body changed; no answer at all."""

_BUSY = (
    b'<?xml version="1.0"?><Error><Code>SlowDown</Code><Message>Reduce your rate</Message></Error>'
)


class FaultyProxy(ThreadingHTTPServer):
    """Passes requests on, but asks ``choose(method, path, how often)`` first."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, port: int) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.target, self.port = port, self.server_address[1]
        self.choose: Callable[[str, str, int], Fault] = lambda *_: None
        self.seen: dict[tuple[str, str, str], int] = {}
        self.faults = 0
        self.lock = threading.Lock()

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing of clients that went away."""


class _Handler(BaseHTTPRequestHandler):
    server: FaultyProxy
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def _pass(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        proxy, key = self.server, (self.command, self.path, self.headers.get("Range", ""))
        with proxy.lock:
            proxy.seen[key] = count = proxy.seen.get(key, 0) + 1
            fault = proxy.choose(self.command, self.path, count)
            proxy.faults += fault is not None
        if fault == "drop":
            self.close_connection = True
            return
        if fault == "busy":
            self._answer(503, {"Content-Type": "application/xml"}, _BUSY)
            return
        try:
            status, headers, data = self._ask(body)
        except OSError:
            self.close_connection = True
            return
        if fault == "flip" and data:
            data = data[:-1] + bytes([data[-1] ^ 1])
        self._answer(status, headers, data, cut=fault == "cut")

    do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = _pass  # noqa: N815 - http.server's names

    def _ask(self, body: bytes) -> tuple[int, dict[str, str], bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.server.target, timeout=60)
        try:
            # The signature covers the host that the client knows: ours.
            connection.putrequest(
                self.command, self.path, skip_host=True, skip_accept_encoding=True
            )
            for name, value in self.headers.items():
                connection.putheader(name, value)
            connection.endheaders(body)
            answer = connection.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read()
        except http.client.HTTPException as error:
            raise OSError from error
        finally:
            connection.close()

    def _answer(
        self, status: int, headers: dict[str, str], data: bytes, cut: bool = False
    ) -> None:
        self.send_response_only(status)
        lengths = {one.lower(): value for one, value in headers.items()}
        for name, value in headers.items():
            if name.lower() not in ("content-length", "transfer-encoding", "connection"):
                self.send_header(name, value)
        length = lengths.get("content-length") if self.command == "HEAD" else len(data)
        self.send_header("Content-Length", str(length or 0))
        self.end_headers()
        self.wfile.write(data[: len(data) // 2] if cut else data)
        self.close_connection |= cut


@contextmanager
def faulty_proxy(port: int) -> Iterator[FaultyProxy]:
    """Run a proxy before the server on a port of this machine."""
    with FaultyProxy(port) as proxy:
        thread = threading.Thread(target=proxy.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield proxy
        finally:
            proxy.shutdown()
            thread.join(timeout=30)
