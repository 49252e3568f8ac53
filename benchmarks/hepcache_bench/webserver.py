"""A web server of byte ranges, with TLS where openssl can make a certificate."""

from __future__ import annotations

import argparse
import os
import shutil
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

__all__ = ["webserver"]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = 1 << 20
    root = Path()

    def do_HEAD(self) -> None:
        """Answer with a file's size."""
        self._answer(body=False)

    def do_GET(self) -> None:
        """Answer with a file or a range of it."""
        self._answer(body=True)

    def _answer(self, *, body: bool) -> None:
        path = self.root / Path(self.path).name
        try:
            file = path.open("rb")
        except OSError:
            self.send_error(404)
            return
        with file:
            found = os.fstat(file.fileno())
            low, _, high = self.headers.get("Range", "").removeprefix("bytes=").partition("-")
            start, stop = int(low or 0), int(high or found.st_size - 1) + 1
            stop = min(stop, found.st_size)
            self.send_response(206 if low else 200)
            self.send_header("Accept-Ranges", "bytes")
            self.send_header("Content-Length", str(stop - start))
            self.send_header("ETag", f'"{found.st_mtime_ns:x}-{found.st_size:x}"')
            if low:
                self.send_header("Content-Range", f"bytes {start}-{stop - 1}/{found.st_size}")
            self.end_headers()
            if body:
                file.seek(start)
                self.wfile.write(file.read(stop - start))

    def log_message(self, *_: object) -> None:
        """Say nothing."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, certificate: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self._context = None
        if certificate:
            self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._context.load_cert_chain(certificate)

    def finish_request(self, request: object, client_address: object) -> None:
        """Shake hands in the connection's own thread."""
        if self._context is not None:
            request = self._context.wrap_socket(request, server_side=True)  # type: ignore[arg-type]
        super().finish_request(request, client_address)  # type: ignore[arg-type]

    def handle_error(self, *_: object) -> None:
        """Leave it to the client to tell."""


@contextmanager
def webserver(directory: Path, scratch: Path) -> Iterator[tuple[str, int]]:
    """Serve the files of a directory from a process of its own.

    Parameters
    ----------
    directory
        The files.
    scratch
        Where the certificate is made.

    Yields
    ------
    str, int
        ``"https"``, or ``"http"`` where there is no openssl, and the port.
    """
    certificate = _certificate(scratch)
    command = [sys.executable, "-m", __name__, os.fspath(directory), certificate]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield "https" if certificate else "http", int(process.stdout.readline())
        finally:
            process.terminate()


def _certificate(scratch: Path) -> str:
    openssl = shutil.which("openssl")
    if openssl is None:
        return ""
    both = scratch / "certificate.pem"
    subprocess.run(
        [openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
         "-nodes", "-days", "2", "-subj", "/CN=localhost", "-keyout", both, "-out",
         scratch / "public.pem"],
        check=True, capture_output=True,
    )  # fmt: skip
    with both.open("ab") as file:
        file.write((scratch / "public.pem").read_bytes())
    return os.fspath(both)


def _main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("certificate")
    given = parser.parse_args()
    _Handler.root = given.directory
    with _Server(given.certificate) as server, suppress(KeyboardInterrupt):
        print(server.server_address[1], flush=True)
        server.serve_forever()


if __name__ == "__main__":
    _main()
