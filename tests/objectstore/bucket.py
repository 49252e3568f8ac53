"""A bucket in memory behind S3's protocol, whose requests fail in ways that pass."""

from __future__ import annotations

import hashlib
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit
from xml.etree import ElementTree as ET
from xml.sax.saxutils import escape

STATUSES = {
    "internal error": (500, "InternalError"),
    "bad gateway": (502, "BadGateway"),
    "slow down": (503, "SlowDown"),
    "gateway timeout": (504, "GatewayTimeout"),
    "too many requests": (429, "TooManyRequests"),
    "request timeout": (400, "RequestTimeout"),
    "conflict": (409, "OperationAborted"),
}
"""Failures that are answers."""

FAILURES = (*STATUSES, "reset", "no answer", "half an answer")
"""What happens to a request; behind the last, the request was carried out."""


class Bucket(ThreadingHTTPServer):
    """Fails the first ``times`` requests of the kind ``fault[0]`` by ``fault[1]``."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.objects: dict[str, bytes] = {}
        self.uploads: dict[str, dict[int, bytes]] = {}
        self.fault: tuple[str, str] | None = None
        self.times = 2
        self.failed = 0
        self.lock = threading.Lock()

    @property
    def uri(self) -> str:
        """Where a store's objects lie."""
        return f"ntpl+s3+http://127.0.0.1:{self.server_address[1]}/bucket/base"

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing of clients that went away."""

    def failure(self, kind: str) -> str:
        """Return what shall happen to a request, or ``""``."""
        with self.lock:
            if self.fault is None or self.fault[0] != kind or self.failed >= self.times:
                return ""
            self.failed += 1
            return self.fault[1]


class _Handler(BaseHTTPRequestHandler):
    server: Bucket
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        parts = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(parts.query, True).items()}
        key = unquote(parts.path).removeprefix("/bucket").strip("/")
        kind = self._kind(query)
        failure = self.server.failure(kind)
        if failure in STATUSES:
            status, code = STATUSES[failure]
            said = f"<Error><Code>{code}</Code><Message>again</Message></Error>"
            self._answer(status, said.encode(), {})
        elif failure in ("reset", "no answer"):
            if failure == "reset":
                self.connection.setsockopt(
                    socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
                )
            self.close_connection = True
            self.connection.close()
        else:
            with self.server.lock:
                status, data, headers = self._done(kind, key, query, body)
            self._answer(status, data, headers, cut=failure == "half an answer")

    do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = _serve  # noqa: N815 - http.server's names

    def _kind(self, query: dict[str, str]) -> str:
        if self.command == "POST":
            return next(k for k in ("uploads", "uploadId", "delete") if k in query)
        if self.command == "GET" and "list-type" in query:
            return "list"
        if self.command == "GET" and "Range" in self.headers:
            return "range"
        if self.command == "PUT" and "partNumber" in query:
            return "part"
        conditions = ("If-Match", "If-None-Match")
        if self.command == "PUT" and any(name in self.headers for name in conditions):
            return "conditional put"
        return self.command.lower()

    def _done(
        self, kind: str, key: str, query: dict[str, str], body: bytes
    ) -> tuple[int, bytes, dict[str, str]]:
        objects = self.server.objects
        if kind in ("put", "conditional put"):
            there = objects.get(key)
            wanted = self.headers.get("If-Match")
            refused = wanted is not None and (there is None or wanted != _tag(there))
            if refused or (self.headers.get("If-None-Match") == "*" and there is not None):
                return 412, b"<Error><Code>PreconditionFailed</Code><Message/></Error>", {}
            objects[key] = body
            return 200, b"", {"ETag": _tag(body)}
        if kind == "uploads":
            upload = str(len(self.server.uploads))
            self.server.uploads[upload] = {}
            return (
                200,
                _document("InitiateMultipartUploadResult", f"<UploadId>{upload}</UploadId>"),
                {},
            )
        if kind == "part":
            self.server.uploads[query["uploadId"]][int(query["partNumber"])] = body
            return 200, b"", {"ETag": _tag(body)}
        if kind == "uploadId":
            sent = self.server.uploads.get(query["uploadId"], {})
            objects[key] = b"".join(sent[number] for number in sorted(sent))
            return 200, _document("CompleteMultipartUploadResult", "<ETag>x</ETag>"), {}
        if kind == "delete" and self.command == "POST":
            names = [
                item.text or "" for item in ET.fromstring(body).iter() if item.tag.endswith("Key")
            ]
            for name in names:
                objects.pop(name, None)
            gone = "".join(f"<Deleted><Key>{escape(name)}</Key></Deleted>" for name in names)
            return 200, _document("DeleteResult", gone), {}
        if kind == "delete":
            objects.pop(key, None)
            return 204, b"", {}
        if kind == "list":
            prefix = query.get("prefix", "")
            found = "".join(
                f"<Contents><Key>{escape(name)}</Key><Size>{len(data)}</Size>"
                "<LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>"
                for name, data in sorted(objects.items())
                if name.startswith(prefix)
            )
            return (
                200,
                _document("ListBucketResult", f"<IsTruncated>false</IsTruncated>{found}"),
                {},
            )
        if key not in objects:
            return 404, b"<Error><Code>NoSuchKey</Code><Message>none</Message></Error>", {}
        data = objects[key]
        headers = {"ETag": _tag(data), "Last-Modified": "Thu, 01 Jan 2026 00:00:00 GMT"}
        if kind == "range":
            first, last = (int(n) for n in self.headers["Range"].removeprefix("bytes=").split("-"))
            headers["Content-Range"] = f"bytes {first}-{last}/{len(data)}"
            return 206, data[first : last + 1], headers
        return 200, data, headers

    def _answer(
        self, status: int, data: bytes, headers: dict[str, str], *, cut: bool = False
    ) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        # Behind half an answer the connection ends; an empty one has no end at all.
        self.send_header("Content-Length", str(len(data) + (cut and not data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data[: len(data) // 2] if cut else data)
        self.close_connection |= cut


def _document(name: str, content: str) -> bytes:
    space = "http://s3.amazonaws.com/doc/2006-03-01/"
    return f'<?xml version="1.0"?><{name} xmlns="{space}">{content}</{name}>'.encode()


def _tag(data: bytes) -> str:
    return f'"{hashlib.md5(data).hexdigest()}"'


@contextmanager
def failing_bucket() -> Iterator[Bucket]:
    """Run a bucket on a port of this machine."""
    with Bucket() as bucket:
        thread = threading.Thread(target=bucket.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield bucket
        finally:
            bucket.shutdown()
            thread.join(timeout=30)
