"""Files that lie at several places, some of which die, or have something else."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import fsspec
import numpy as np
import pytest
import uproot
from tests.io.http_origin import HttpOrigin, http_origin

from hepcache.errors import OriginError
from hepcache.formats.column import Flat
from hepcache.formats.registry import forget_sources, open_source, probe
from hepcache.formats.source import TreeRef
from hepcache.io import replicas, retry
from hepcache.telemetry import ReadLog


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    replicas.forget_failures()
    yield
    replicas.forget_failures()
    forget_sources()


@pytest.fixture
def servers() -> Iterator[tuple[HttpOrigin, HttpOrigin]]:
    with http_origin() as one, http_origin() as two:
        yield one, two
        # Connections that were broken on purpose must not be used again.
        fsspec.filesystem("http").clear_instance_cache()


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let what failed be tried again at once."""
    monkeypatch.setattr(retry, "pause_s", lambda _: 0.0)


def ref_to(path: Path, *places: str) -> TreeRef:
    known = probe(str(path), "Events")
    return TreeRef(
        path="/store/tree.root",
        tree=known.tree,
        uuid=known.uuid,
        tag=known.tag,
        validator="",
        boundaries=(0, known.entries),
        places=places,
    )


def read(ref: TreeRef, name: str, start: int, stop: int, log: ReadLog) -> np.ndarray:
    column = open_source(ref).read([name], start, stop, log)[name]
    assert isinstance(column, Flat)
    return np.asarray(column.values)


def flat_column(path: Path) -> tuple[str, np.ndarray]:
    with uproot.open(path) as file:
        tree = file["Events"]
        name = next(
            name for name in tree.iterkeys() if tree[name].interpretation.numpy_dtype.kind in "fiu"
        )
        return name, tree[name].array(library="np")


def test_a_server_that_dies_in_between_is_left_for_the_next(
    servers: tuple[HttpOrigin, HttpOrigin], zstd_path: Path, quick: None
) -> None:
    one, two = servers
    one.files["a.root"] = two.files["a.root"] = zstd_path.read_bytes()
    ref = ref_to(zstd_path, one.url("a.root"), two.url("a.root"))
    name, expected = flat_column(zstd_path)
    half, log = len(expected) // 2, ReadLog()
    assert np.array_equal(read(ref, name, 0, half, log), expected[:half])
    one.dead = True
    assert np.array_equal(read(ref, name, half, len(expected), log), expected[half:])
    first, second = (replicas.place_label(place) for place in ref.places)
    assert set(log.places) == {first, second}
    assert log.places[first].failures == 1
    assert "503" in log.places[first].reason
    assert log.places[second].failures == 0
    assert log.places[first].read_bytes + log.places[second].read_bytes == log.origin_bytes
    assert log.places[second].read_bytes > 0


def test_a_dead_server_is_asked_once_for_all_files(
    servers: tuple[HttpOrigin, HttpOrigin], zstd_path: Path, quick: None
) -> None:
    one, two = servers
    one.dead = True
    for name in ("a.root", "b.root"):
        two.files[name] = zstd_path.read_bytes()
    column, expected = flat_column(zstd_path)
    log = ReadLog()
    for name in ("a.root", "b.root"):
        ref = ref_to(zstd_path, one.url(name), two.url(name))
        ref = replace(ref, path=f"/store/{name}")
        assert np.array_equal(read(ref, column, 0, 10, log), expected[:10])
    assert log.places[replicas.place_label(one.url(""))].failures == 1
    assert replicas.resting(one.url("c.root"))


def test_a_missing_file_says_nothing_of_its_server(
    servers: tuple[HttpOrigin, HttpOrigin], zstd_path: Path
) -> None:
    one, two = servers
    two.files["a.root"] = zstd_path.read_bytes()
    ref = ref_to(zstd_path, one.url("a.root"), two.url("a.root"))
    column, expected = flat_column(zstd_path)
    assert np.array_equal(read(ref, column, 0, 10, ReadLog()), expected[:10])
    assert replicas.resting(one.url("a.root"))
    assert not replicas.resting(one.url("b.root"))


def test_another_file_is_never_used(
    servers: tuple[HttpOrigin, HttpOrigin], zstd_path: Path, tmp_path: Path, quick: None
) -> None:
    one, two = servers
    column, expected = flat_column(zstd_path)
    with uproot.recreate(tmp_path / "other.root") as file:
        file["Events"] = {column: np.zeros_like(expected)}
    one.files["a.root"] = (tmp_path / "other.root").read_bytes()
    two.files["a.root"] = zstd_path.read_bytes()
    ref = ref_to(zstd_path, one.url("a.root"), two.url("a.root"))
    log = ReadLog()
    assert np.array_equal(read(ref, column, 0, 10, log), expected[:10])
    use = log.places[replicas.place_label(one.url(""))]
    assert use.failures == 1
    assert "another file: its UUID is" in use.reason
    forget_sources()
    two.dead = True
    with pytest.raises(OriginError, match="none of its 2 places") as caught:
        read(ref, column, 0, 10, ReadLog())
    for part in (*ref.places, "another file: its UUID is", "503"):
        assert part in str(caught.value)


def test_a_copy_with_the_same_uuid_and_size_and_other_bytes_is_never_used(
    servers: tuple[HttpOrigin, HttpOrigin], zstd_path: Path
) -> None:
    one, two = servers
    data = zstd_path.read_bytes()
    with uproot.open(zstd_path) as file:
        written = file.key("Events").fDatime.to_bytes(4, "big")
    later = (int.from_bytes(written, "big") + 1).to_bytes(4, "big")
    one.files["a.root"], two.files["a.root"] = data.replace(written, later), data
    ref = ref_to(zstd_path, one.url("a.root"), two.url("a.root"))
    column, expected = flat_column(zstd_path)
    log = ReadLog()
    assert np.array_equal(read(ref, column, 0, 10, log), expected[:10])
    use = log.places[replicas.place_label(one.url(""))]
    assert use.failures == 1
    assert "another version" in use.reason


@pytest.mark.parametrize("change", [-1, -10_000, 1, 10_000, None])
def test_a_copy_of_another_length_is_never_used(
    servers: tuple[HttpOrigin, HttpOrigin], zstd_path: Path, change: int | None, quick: None
) -> None:
    one, two = servers
    data = zstd_path.read_bytes()
    two.files["a.root"] = data
    if change is None:
        one.files["a.root"] = b""
    else:
        one.files["a.root"] = data[:change] if change < 0 else data + bytes(change)
    ref = ref_to(zstd_path, one.url("a.root"), two.url("a.root"))
    column, expected = flat_column(zstd_path)
    log = ReadLog()
    assert np.array_equal(read(ref, column, 0, len(expected), log), expected)
    assert log.places[replicas.place_label(one.url(""))].failures == 1
    assert log.places[replicas.place_label(one.url(""))].read_bytes == 0
    forget_sources()
    two.dead = True
    with pytest.raises(OriginError, match="none of its 2 places"):
        read(ref, column, 0, 10, ReadLog())


def test_what_replaced_the_first_place_since_the_survey_is_never_used(
    zstd_path: Path, tmp_path: Path
) -> None:
    column, expected = flat_column(zstd_path)
    first, second = tmp_path / "first" / "a.root", tmp_path / "second" / "a.root"
    for path in (first, second):
        path.parent.mkdir()
        path.write_bytes(zstd_path.read_bytes())
    known = probe(str(first), "Events")
    ref = replace(ref_to(zstd_path, str(first), str(second)), validator=known.validator)
    # The same names, types, and number of entries; other values.
    with uproot.recreate(first) as file:
        file["Events"] = {column: np.zeros_like(expected)}
    log = ReadLog()
    assert np.array_equal(read(ref, column, 0, len(expected), log), expected)
    assert "written while it was being analysed" in log.places[str(first.parent)].reason
    assert log.places[str(second.parent)].read_bytes > 0


def test_no_place_is_given_up_for_good(
    servers: tuple[HttpOrigin, HttpOrigin], zstd_path: Path, quick: None
) -> None:
    one, two = servers
    one.files["a.root"] = two.files["a.root"] = zstd_path.read_bytes()
    ref = ref_to(zstd_path, one.url("a.root"), two.url("a.root"))
    column, expected = flat_column(zstd_path)
    one.dead = True
    read(ref, column, 0, 10, ReadLog())
    two.dead = True
    with pytest.raises(OriginError, match="none of its 2 places"):
        read(ref, column, 10, len(expected), ReadLog())
    one.dead = False
    log = ReadLog()
    assert np.array_equal(read(ref, column, 10, len(expected), log), expected[10:])


def test_mounted_and_remote_places(
    servers: tuple[HttpOrigin, HttpOrigin], zstd_path: Path
) -> None:
    server, _ = servers
    server.files["a.root"] = zstd_path.read_bytes()
    ref = ref_to(zstd_path, "/nowhere/tree.root", server.url("a.root"))
    column, expected = flat_column(zstd_path)
    log = ReadLog()
    assert np.array_equal(read(ref, column, 0, 10, log), expected[:10])
    assert "No such file" in log.places["/nowhere"].reason
    assert log.places[replicas.place_label(server.url(""))].read_bytes > 0
