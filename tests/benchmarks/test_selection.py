"""Both workflows find the same slices, and the simulator is no better than possible."""

from __future__ import annotations

import math
from collections import defaultdict
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from hepcache.eventstore import connect, ingest
from hepcache.samples.tables import write_tables
from hepcache_bench.selection.candidates import PRODUCTS
from hepcache_bench.selection.events import select_events
from hepcache_bench.selection.files import select_file
from hepcache_bench.selection.plots import draw
from hepcache_bench.selection.strong import Costs, Sample, simulate_files, simulate_store
from hepcache_bench.selection.trace import STEPS, Trace

COSTS = Costs(160e-6, 0.3, 30e-6, 3e-6, 300e-6, 1e-7)


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    out = tmp_path_factory.mktemp("slices")
    return write_tables(out, shape="slices", files=2, scale=0.2, jobs=1)


def one_by_one(path: Path) -> list[tuple[int, int, int, int]]:
    """Select with plain loops, slice by slice, as the published code does."""
    rows: dict[str, dict[tuple[int, ...], list[dict[str, Any]]]] = {}
    with h5py.File(path) as file:
        for name, columns in PRODUCTS.items():
            group = file[name]
            read = {one: group[one][()].ravel().tolist() for one in columns}
            keys = [group[one][()].ravel().tolist() for one in ("run", "subrun", "evt", "subevt")]
            rows[name] = defaultdict(list)
            for at, key in enumerate(zip(*keys, strict=True)):
                rows[name][key].append({one: values[at] for one, values in read.items()})
    found = []
    for key, [own] in rows["rec.slc"].items():
        [score] = rows["rec.sel.cvnloosepreselptp"][key]
        [energy] = rows["rec.energy.nue"][key]
        vertices = rows["rec.vtx.elastic"].get(key, [])
        prongs = rows["rec.vtx.elastic.fuzzyk.png"].get(key, [])
        if not vertices or not prongs:
            continue
        [vertex], longest = vertices, max(prongs, key=lambda one: one["len"])
        good = 30 < own["nhit"] < 150 and own["ncontplanes"] > 2
        good &= abs(vertex["vtx.x"]) < 720 and abs(vertex["vtx.y"]) < 720
        good &= 50 < vertex["vtx.z"] < 5450 and 100 < longest["len"] < 500
        good &= longest["gap"] < 100 and longest["shwlid.width"] > 1
        good &= 1 < energy["E"] < 4 and own["calE"] > np.float32(0.3)
        if good and score["nueid"] > 0.8 and score["cosmicid"] < 0.4:
            found.append(key)
    return sorted(found)


def test_both_workflows_find_what_plain_loops_find(paths: list[Path], tmp_path: Path) -> None:
    trace = Trace(0)
    ids = sorted(one for path in paths for one in select_file(str(path), trace))
    assert ids == sorted(one for path in paths for one in one_by_one(path))
    assert len(ids) > 2
    with connect("mem://?shards=2") as store:
        ingest(store, "nova", paths)
        done = select_events(store, "nova", workflow="memory", files=2, load_batch=100, workers=2)
    assert list(done.ids) == ids
    with h5py.File(paths[0]) as one, h5py.File(paths[1]) as other:
        slices = len(one["rec.slc/evt"]) + len(other["rec.slc/evt"])
    assert done.slices == slices
    assert {one.step for one in done.spans} == set(STEPS)
    assert {one.step for one in trace.spans} == set(STEPS) - {"program"}
    assert 0 < done.busy_ratio <= 1.01
    drawn = draw([done], {"ours": {16: 1.0, 128: 7.0}}, {1: 5.0}, [(3, 4.0)], tmp_path)
    assert all(one.stat().st_size > 1000 for one in drawn)


def test_the_simulated_workflows_take_as_long_as_they_must() -> None:
    sample = Sample(np.full(64, 500), 64 * 500 * 4)
    work_s = 64 * 500 * COSTS.event_s
    wall_s, busy = simulate_files(sample, COSTS, 4)
    assert math.isclose(wall_s, 64 * 500 * (COSTS.event_s + COSTS.read_s) / 4)
    assert math.isclose(busy, 1)
    for nodes in (1, 2, 8):
        wall_s, busy = simulate_store(sample, COSTS, nodes=nodes, workers_per_node=2)
        assert wall_s * nodes * 2 >= 0.95 * work_s  # batches are unlike, but not on average
        assert 0.5 < busy <= 1
    # More ranks than files: those without one idle.
    assert simulate_files(sample, COSTS, 128)[1] == pytest.approx(0.5)


def test_the_published_sample_scales() -> None:
    sample = Sample.published()
    assert int(sample.files.sum()) == pytest.approx(4_359_414, rel=1e-3)
    few, many = (
        simulate_store(sample, COSTS, nodes=nodes, workers_per_node=2)[0] for nodes in (16, 128)
    )
    assert few / many / 8 > 0.85
