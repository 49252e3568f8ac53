"""Where bytes came from, as a run's record tells it."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import awkward as ak
import numpy as np
import pytest
import uproot
from coffea.nanoevents import BaseSchema, NanoAODSchema
from coffea.processor import IterativeExecutor
from tests.formats.conftest import write_mixed_tree

from hepcache.cache.admin import Provenance, provenance_of
from hepcache.cache.contents import stored_columns
from hepcache.process import Runner
from hepcache.process.worker_state import worker_state

# The file below has few of the branches that coffea crosses with one another.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning:coffea")


def jets(events: ak.Array) -> dict[str, int]:
    return {"jets": int(ak.sum(events.nJet)), "id": int(ak.sum(events.Jet_id))}


def run(
    path: Path,
    dataset: str = "data",
    processor: Callable[[ak.Array], dict[str, int]] = jets,
    schema: type = BaseSchema,
    chunksize: int = 100_000,
) -> tuple[dict[str, int], Counter[str]]:
    runner = Runner(IterativeExecutor(status=False), schema=schema, chunksize=chunksize)
    out = runner({dataset: {"files": {str(path): "Events"}}}, processor)
    worker_state().cache.flush()
    causes: Counter[str] = Counter()
    for chunk in runner.run_record.chunks:
        causes.update(chunk.causes)
    return out, causes


def test_misses_hits_and_a_replaced_file(tmp_path: Path) -> None:
    path = tmp_path / "a.root"
    write_mixed_tree(path, uproot.ZSTD(1))
    first, causes = run(path)
    assert set(causes) == {"miss"}
    assert run(path) == (first, Counter(hit=sum(causes.values())))
    write_mixed_tree(tmp_path / "b.root", uproot.LZ4(1))
    (tmp_path / "b.root").replace(path)
    again, causes = run(path)
    assert again == first
    assert set(causes) == {"stale"}
    assert set(run(path)[1]) == {"hit"}


def test_the_same_content_elsewhere_hits_under_another_dataset(tmp_path: Path) -> None:
    path = write_mixed_tree(tmp_path / "a.root", uproot.ZSTD(1))
    run(path)
    copy = tmp_path / "copy.root"
    copy.write_bytes(path.read_bytes())
    assert set(run(copy, "other")[1]) == {"hit"}


def test_a_flipped_byte_is_read_again(tmp_path: Path) -> None:
    path = write_mixed_tree(tmp_path / "a.root", uproot.ZSTD(1))
    first, _ = run(path)
    stored = [
        one.path for one in stored_columns(worker_state().cache.layout) if "Jet_id" in one.path
    ]
    content = bytearray(Path(stored[0]).read_bytes())
    content[-70] ^= 1
    Path(stored[0]).write_bytes(content)
    again, causes = run(path)
    assert again == first
    assert (causes["corrupt"], causes["miss"]) == (1, 0)
    assert set(run(path)[1]) == {"hit"}


def test_the_cache_knows_where_its_columns_come_from(tmp_path: Path) -> None:
    path = write_mixed_tree(tmp_path / "a.root", uproot.ZSTD(1))
    run(path, "DY")
    (stored, *_) = stored_columns(worker_state().cache.layout)
    assert stored.key is not None
    content = stored.key.uuid, stored.key.tag
    assert provenance_of(worker_state().cache, *content) == Provenance(str(path), ("DY",))
    _, causes = run(path, "all")  # hits only, and yet a dataset more
    assert set(causes) == {"hit"}
    assert provenance_of(worker_state().cache, *content) == Provenance(str(path), ("DY", "all"))
    # Somebody else clears the cache while this process goes on.
    shutil.rmtree(worker_state().cache.layout.columns)
    shutil.rmtree(worker_state().cache.layout.blobs)
    _, causes = run(path, "DY")
    assert "hit" not in causes
    assert provenance_of(worker_state().cache, *content) == Provenance(str(path), ("DY",))


@pytest.fixture
def nanoaod(tmp_path: Path) -> Path:
    """Return a file in which a collection's length and a branch's counter are two branches."""
    path = tmp_path / "nano.root"
    counts = np.arange(900) % 4
    scalars = {name: np.arange(900, dtype="u4") for name in ("run", "luminosityBlock", "event")}
    jets = ak.unflatten(np.arange(counts.sum(), dtype="f4"), counts)
    branches = {f"Jet_{name}": jets for name in ("pt", "eta", "phi", "mass")}
    content = {**scalars, "nJet": counts.astype("i4"), **branches}
    with uproot.recreate(path) as file:
        file.mktree("Events", {name: ak.type(one).content for name, one in content.items()})
        file["Events"].extend(content)
    return path


def test_parts_of_a_segment_hit_after_a_chunk_of_all_of_it(nanoaod: Path) -> None:
    # Only parts need to know from the counter where an entry's items begin.
    def pt(events: ak.Array) -> dict[str, int]:
        return {"pt": int(ak.sum(events.Jet.pt))}

    first, causes = run(nanoaod, processor=pt, schema=NanoAODSchema)
    assert causes == Counter(miss=2)
    for chunksize in (300, 177):
        again, causes = run(nanoaod, processor=pt, schema=NanoAODSchema, chunksize=chunksize)
        assert again == first
        assert set(causes) == {"hit"}


def test_a_counter_that_was_read_besides_is_a_miss_of_its_chunk(nanoaod: Path) -> None:
    def pt(events: ak.Array) -> dict[str, int]:
        return {"pt": int(ak.sum(events.Jet_pt))}

    # Its list needs the counter, right after the column that brought it along.
    assert run(nanoaod, processor=pt)[1] == Counter(miss=2)
    assert run(nanoaod, processor=pt)[1] == Counter(hit=2)
