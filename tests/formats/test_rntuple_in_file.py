"""RNTuples in ROOT files, read by pages: near and far, damaged and replaced."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import awkward as ak
import cramjam
import fsspec
import numpy as np
import pytest
import uproot
from tests.io.http_origin import HttpOrigin, http_origin

from hepcache.errors import OriginError
from hepcache.formats.column import Flat
from hepcache.formats.registry import forget_sources, open_source, probe
from hepcache.formats.rntuple import NTupleSource
from hepcache.formats.source import TreeRef
from hepcache.rntuple import open_in_file
from hepcache.telemetry import ReadLog

N = 2000
NAMES = ["event", "met", "Jet_pt"]


@pytest.fixture(autouse=True)
def _no_open_files() -> Iterator[None]:
    forget_sources()
    yield
    forget_sources()


@pytest.fixture
def server() -> Iterator[HttpOrigin]:
    with http_origin() as server:
        yield server
        fsspec.filesystem("http").clear_instance_cache()


def values(n: int, seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    counts = rng.poisson(2.0, n)
    return {
        "event": np.arange(n, dtype=np.uint64) + seed,
        "met": rng.normal(size=n).astype(np.float32),
        "Jet_pt": ak.unflatten(rng.normal(size=counts.sum()).astype(np.float32), counts),
    }


def write(path: Path, seed: int = 5) -> dict[str, ak.Array]:
    """Write two clusters."""
    parts = [values(N // 2, seed), values(N // 2, seed + 1)]
    with uproot.recreate(path, compression=uproot.ZSTD(1)) as file:
        ntuple = file.mkrntuple("Events", ak.Array(parts[0]))
        ntuple.extend(ak.Array(parts[1]))
    return {name: ak.concatenate([part[name] for part in parts]) for name in NAMES}


def ref_of(path: str) -> TreeRef:
    record = probe(path, "Events")
    return TreeRef(
        record.path, record.tree, record.uuid, record.tag, record.validator, record.clusters
    )


def same(found: dict[str, Any], expected: dict[str, ak.Array], start: int, stop: int) -> bool:
    arrays = {
        name: ak.Array(one.values if isinstance(one, Flat) else one.layout)
        for name, one in found.items()
    }
    return all(ak.array_equal(arrays[name], expected[name][start:stop]) for name in expected)


@pytest.mark.parametrize("faults", [[], [503, "drop"]])
@pytest.mark.parametrize("ahead", [False, True])
def test_far_ones_equal_near_ones(
    server: HttpOrigin, tmp_path: Path, faults: list[int | str], *, ahead: bool
) -> None:
    expected = write(tmp_path / "a.root")
    server.files["a.root"] = (tmp_path / "a.root").read_bytes()
    ref = ref_of(server.url("a.root"))
    assert ref.boundaries == (0, N // 2, N)
    source, opened, log = open_source(ref), ReadLog(), ReadLog()
    assert isinstance(source, NTupleSource)
    source.account(opened)
    server.faults += faults
    ranges = source.ranges(NAMES, 0, N // 2) if ahead else []
    source.expect(ranges)
    source.await_few()
    assert same(source.read(NAMES, 0, N // 2, log), expected, 0, N // 2)
    source.forget(ranges)
    assert same(source.read(NAMES, 700, 1300, ReadLog()), expected, 700, 1300)
    assert not server.faults
    assert opened.origin_bytes > 0
    # What a connection that broke had brought counts too.
    assert 0 < log.used_bytes <= log.origin_bytes <= 2 * len(server.files["a.root"])


def test_only_the_pages_of_what_is_asked_for_are_read(tmp_path: Path) -> None:
    write(tmp_path / "a.root")
    source, log = open_source(ref_of(str(tmp_path / "a.root"))), ReadLog()
    source.account(ReadLog())
    source.read(["met"], 0, N // 2, log)
    with open_in_file(str(tmp_path / "a.root"), "Events") as ntuple:
        stored = ntuple.stored_bytes(["met"], 0, N // 2)
    assert log.used_bytes == stored
    # And the checksum of its page.
    assert stored <= log.origin_bytes <= stored + 16


def test_a_flipped_bit_is_an_error_not_a_column(tmp_path: Path) -> None:
    path = tmp_path / "a.root"
    write(path)
    ref = replace(ref_of(str(path)), validator="")
    with open_in_file(str(path), "Events") as ntuple:
        schema, first = ntuple.metadata.schema, ntuple.metadata.clusters[0]
        floats = [one.number for one in schema.columns if one.dtype == np.float32]
        place = int(first.columns[floats[0]].offsets[0]) + 20
    data = bytearray(path.read_bytes())
    data[place] ^= 4
    path.write_bytes(data)
    source = open_source(ref)
    with pytest.raises(cramjam.DecompressionError) as caught:
        source.read(NAMES, 0, N // 2, ReadLog())
    assert "page at byte" in caught.value.__notes__[0]


def test_another_file_under_the_name_is_an_error(server: HttpOrigin, tmp_path: Path) -> None:
    write(tmp_path / "a.root")
    server.files["a.root"] = (tmp_path / "a.root").read_bytes()
    ref = ref_of(server.url("a.root"))
    source = open_source(ref)
    write(tmp_path / "b.root", seed=77)
    server.files["a.root"] = (tmp_path / "b.root").read_bytes()
    server.etags["a.root"] = '"2"'
    with pytest.raises(OriginError, match="replaced"):
        source.read(NAMES, 0, N // 2, ReadLog())
    forget_sources()
    with pytest.raises(OriginError, match=r"written while|replaced"):
        open_source(ref)
