"""A small server of byte ranges that misbehaves as told."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class HttpOrigin(ThreadingHTTPServer):
    """Serves ``files`` by name.

    Attributes
    ----------
    faults
        What to do instead of answering, one after the other: a status,
        ``"drop"`` for a connection that ends in the middle of the body, or
        ``"whole"`` for the whole file whatever was asked for.
    most
        The most requests for ranges that were under way at once.
    dead
        Whether it answers 503 to everything.
    hold
        Cleared, it keeps requests for ranges waiting.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files: dict[str, bytes] = {}
        self.etags: dict[str, str] = {}
        self.faults: list[int | str] = []
        self.asked: list[tuple[int, int]] = []
        self.now = self.most = 0
        self.dead = False
        self.lock = threading.Lock()
        self.hold = threading.Event()
        self.hold.set()
        self.came = threading.Semaphore(0)

    def url(self, name: str) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/{name}"

    def handle_error(self, *_) -> None:
        pass


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: HttpOrigin

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        with self.server.lock:
            self.server.now += 1
            self.server.most = max(self.server.most, self.server.now)
        self.server.came.release()
        try:
            self.server.hold.wait(30)
            self._answer(body=True)
        finally:
            with self.server.lock:
                self.server.now -= 1

    def _answer(self, *, body: bool) -> None:
        name = self.path.partition("?")[0].lstrip("/")
        data, etag = self.server.files.get(name), self.server.etags.get(name, '"1"')
        fault = self.server.faults.pop(0) if body and self.server.faults else None
        if self.server.dead:
            self._status(503)
        elif isinstance(fault, int):
            self._status(fault)
        elif data is None:
            self._status(404)
        elif self.headers.get("If-Match", etag) != etag:
            self._status(412)
        else:
            self._give(data, etag, fault, body=body)

    def _status(self, code: int) -> None:
        self.send_response(code)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _give(self, data: bytes, etag: str, fault: str | None, *, body: bool) -> None:
        ranged = self.headers.get("Range") if fault != "whole" else None
        if ranged:
            low, _, high = ranged.removeprefix("bytes=").partition("-")
            start, stop = int(low), int(high) + 1
            self.server.asked.append((start, stop))
        else:
            start, stop = 0, len(data)
        part = data[start:stop]
        self.send_response(206 if ranged else 200)
        self.send_header("Content-Length", str(len(part)))
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("ETag", etag)
        if ranged:
            self.send_header("Content-Range", f"bytes {start}-{stop - 1}/{len(data)}")
        self.end_headers()
        if body and fault == "drop":
            self.wfile.write(part[: len(part) // 2])
            self.wfile.flush()
            self.close_connection = True
            self.connection.close()
        elif body:
            self.wfile.write(part)

    def log_message(self, *_) -> None:
        pass


@contextmanager
def http_origin() -> Iterator[HttpOrigin]:
    with HttpOrigin() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield server
        finally:
            server.hold.set()
            server.shutdown()
            thread.join()
