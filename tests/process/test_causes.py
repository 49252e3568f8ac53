"""Where bytes came from, as a run's record tells it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import awkward as ak
import dask.config
import pytest
import uproot
from coffea.nanoevents import BaseSchema
from coffea.processor import IterativeExecutor
from tests.columns.conftest import write_tree

from hepcache.cache.inventory import columns
from hepcache.cache.provenance import origin_of
from hepcache.process import Runner
from hepcache.process.worker import forget, worker_cache


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path) -> Iterator[None]:
    forget()
    changed = {
        "hepcache.cache.directory": str(tmp_path / "columns"),
        "hepcache.catalogue": str(tmp_path / "catalogue.sqlite"),
    }
    with dask.config.set(changed):
        yield
        forget()


def jets(events: ak.Array) -> dict[str, int]:
    return {"jets": int(ak.sum(events.nJet)), "id": int(ak.sum(events.Jet_id))}


def run(path: Path, dataset: str = "data") -> tuple[dict[str, int], Counter[str]]:
    runner = Runner(IterativeExecutor(status=False), schema=BaseSchema)
    out = runner({dataset: {"files": {str(path): "Events"}}}, jets)
    worker_cache().flush()
    causes: Counter[str] = Counter()
    for chunk in runner.run_record.chunks:
        causes.update(chunk.causes)
    return out, causes


def test_misses_hits_and_a_replaced_file(tmp_path: Path) -> None:
    path = tmp_path / "a.root"
    write_tree(path, uproot.ZSTD(1))
    first, causes = run(path)
    assert set(causes) == {"miss"}
    assert run(path) == (first, Counter(hit=sum(causes.values())))
    write_tree(tmp_path / "b.root", uproot.LZ4(1))
    (tmp_path / "b.root").replace(path)
    again, causes = run(path)
    assert again == first
    assert set(causes) == {"stale"}
    assert set(run(path)[1]) == {"hit"}


def test_the_same_content_elsewhere_hits_under_another_dataset(tmp_path: Path) -> None:
    path = write_tree(tmp_path / "a.root", uproot.ZSTD(1))
    run(path)
    copy = tmp_path / "copy.root"
    copy.write_bytes(path.read_bytes())
    assert set(run(copy, "other")[1]) == {"hit"}


def test_a_flipped_byte_is_read_again(tmp_path: Path) -> None:
    path = write_tree(tmp_path / "a.root", uproot.ZSTD(1))
    first, _ = run(path)
    stored = [one.path for one in columns(worker_cache().layout) if "Jet_id" in one.path]
    content = bytearray(Path(stored[0]).read_bytes())
    content[-70] ^= 1
    Path(stored[0]).write_bytes(content)
    again, causes = run(path)
    assert again == first
    assert (causes["corrupt"], causes["miss"]) == (1, 0)
    assert set(run(path)[1]) == {"hit"}


def test_the_cache_knows_where_its_columns_come_from(tmp_path: Path) -> None:
    path = write_tree(tmp_path / "a.root", uproot.ZSTD(1))
    run(path, "DY")
    (stored, *_) = columns(worker_cache().layout)
    assert stored.key is not None
    found = origin_of(worker_cache(), stored.key.uuid, stored.key.tag)
    assert found is not None
    assert (found.path, found.datasets) == (str(path), ("DY",))
