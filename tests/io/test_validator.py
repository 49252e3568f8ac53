from __future__ import annotations

import functools
import os
import threading
from collections.abc import Iterator
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import uproot
from tests.rootfiles import WriteTree, settle

from hepcache.catalogue.catalogue import Catalogue
from hepcache.errors import BadFileError
from hepcache.fileset import load_fileset
from hepcache.formats.registry import probe
from hepcache.io.validator import freshness_of, storage_options


class _Handler(BaseHTTPRequestHandler):
    """Serve one directory with ranges; paths below /bare/ tell nothing but the size."""

    def __init__(self, root: Path, log: list[str], *args: object) -> None:
        self.root, self.log = root, log
        super().__init__(*args)  # type: ignore[arg-type]

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def _answer(self, *, body: bool) -> None:
        self.log.append(f"{self.command} {self.path}")
        bare, name = self.path.startswith("/bare/"), Path(self.path).name
        path = self.root / name
        if name == "forbidden.root":
            self.send_error(403)
            return
        if not path.is_file():
            self.send_error(404)
            return
        data = path.read_bytes()
        start, stop = 0, len(data)
        if wanted := self.headers.get("Range"):
            first, _, last = wanted.removeprefix("bytes=").partition("-")
            start, stop = int(first), min(int(last) + 1 if last else stop, stop)
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{stop - 1}/{len(data)}")
        else:
            self.send_response(200)
        self.send_header("Content-Length", str(stop - start))
        self.send_header("Accept-Ranges", "bytes")
        if not bare:
            self.send_header("Last-Modified", formatdate(path.stat().st_mtime, usegmt=True))
        self.end_headers()
        if body:
            self.wfile.write(data[start:stop])

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[str, list[str]]]:
    """Serve tmp_path; yield the URL and the list of requests."""
    log: list[str] = []
    handler = functools.partial(_Handler, tmp_path, log)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as http:
        thread = threading.Thread(target=http.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{http.server_port}", log
        http.shutdown()
        thread.join()


def test_a_written_file_changes_its_validator(write_tree: WriteTree) -> None:
    path = write_tree()
    before = freshness_of(str(path))
    assert before == freshness_of(str(path))
    assert before.settled
    os.utime(path, ns=(0, path.stat().st_mtime_ns + 1))
    assert freshness_of(str(path)).validator != before.validator
    settle(path)
    with path.open("ab") as file:
        file.write(b"x")
    settle(path)
    assert freshness_of(str(path)).validator != before.validator


def test_a_file_written_a_moment_ago_is_not_settled(write_tree: WriteTree) -> None:
    assert not freshness_of(str(write_tree(settled=False))).settled


def test_a_url_is_asked_by_head(write_tree: WriteTree, server: tuple[str, list[str]]) -> None:
    url, log = server
    path = write_tree()
    before = freshness_of(f"{url}/file.root")
    assert before.size == path.stat().st_size
    assert before.settled
    assert log == ["HEAD /file.root"]
    os.utime(path, (1, 1))
    after = freshness_of(f"{url}/file.root")
    assert after.validator != before.validator


def test_a_remote_file_written_a_moment_ago_is_not_settled(
    write_tree: WriteTree, server: tuple[str, list[str]]
) -> None:
    write_tree(settled=False)
    assert not freshness_of(f"{server[0]}/file.root").settled


def test_a_pipe_is_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.root")
    with pytest.raises(BadFileError, match="not a regular file"):
        freshness_of(str(tmp_path / "pipe.root"))


def test_a_server_that_tells_only_the_size_proves_nothing(
    write_tree: WriteTree, server: tuple[str, list[str]]
) -> None:
    write_tree()
    assert not freshness_of(f"{server[0]}/bare/file.root").settled


def test_a_remote_file_is_opened_once(
    write_tree: WriteTree, server: tuple[str, list[str]], catalogue: Catalogue
) -> None:
    url, log = server
    path = write_tree()
    fileset = load_fileset({"tt": [f"{url}/file.root"]}, treename="Events")
    ((_, first),), _ = catalogue.records(fileset)
    assert first.path == f"{url}/file.root"
    assert first.tag == probe(str(path), "Events").tag
    assert any(request.startswith("GET") for request in log)
    log.clear()
    ((_, second),), _ = catalogue.records(fileset)
    assert second == first
    assert log == ["HEAD /file.root"]


def test_bad_urls_are_named_together(server: tuple[str, list[str]], catalogue: Catalogue) -> None:
    url, _ = server
    with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as closed:
        dead = f"http://127.0.0.1:{closed.server_port}"
    urls = {
        f"{url}/missing.root": "no such file on the server",
        f"{url}/forbidden.root": "403",
        f"{dead}/a.root": "Connect",
        "nonsense://host/a.root": "nonsense",
    }
    with pytest.raises(BadFileError) as caught:
        catalogue.records(load_fileset({"tt": list(urls)}, treename="Events"))
    assert list(caught.value.problems) == list(urls)
    for path, words in urls.items():
        assert words in caught.value.problems[path]


def test_a_truncated_remote_file_is_refused(
    write_tree: WriteTree, server: tuple[str, list[str]]
) -> None:
    path = write_tree(lengths=(2000, 2000))
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(BadFileError, match="truncated"):
        probe(f"{server[0]}/file.root", "Events")
    path.write_bytes(b"<html>please log in</html>")
    with pytest.raises(BadFileError, match=r"not a ROOT file|damaged or unreadable"):
        probe(f"{server[0]}/file.root", "Events")


def test_options_are_shared_out_as_uproot_does() -> None:
    ours = dict.fromkeys(uproot.reading.open.defaults) | {"timeout": 5, "object_cache": None}
    assert storage_options({**ours, "headers": {"a": "b"}}) == {"headers": {"a": "b"}}
