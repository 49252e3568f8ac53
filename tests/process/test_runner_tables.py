"""Processors over concatenated HDF5 files: event by event, through the cache."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import awkward as ak
import h5py
import numpy as np
from coffea.nanoevents import BaseSchema
from coffea.processor import IterativeExecutor

from hepcache.hdf5 import TableOptions, check_keys, concatenate
from hepcache.process import Runner


def slices(events: ak.Array) -> dict[str, Any]:
    x, evt, image = events["rec.slc_calE"], events["rec.slc_evt"], events["rec.slc_map"]
    same = ak.all(evt == ak.broadcast_arrays(events["spill_evt"], evt)[0])
    return {
        "events": len(events),
        "rows": int(ak.sum(ak.num(x))),
        "same": {bool(same)},
        "sum": float(ak.sum(x[image[:, :, 0] > 4])),
        "pot": float(ak.sum(events["spill_pot"])),
    }


def test_a_processor_over_tables(tmp_path: Path) -> None:
    paths, wanted = [], 0.0
    for number in range(3):
        rng = np.random.default_rng(number)
        at = np.repeat(np.arange(50), rng.poisson(3, 50))
        energy, image = rng.integers(0, 99, len(at)).astype("f4"), rng.integers(0, 9, (len(at), 8))
        wanted += float(energy[image[:, 0] > 4].sum())
        paths.append(tmp_path / f"in{number}.h5")
        with h5py.File(paths[-1], "w") as file:
            for group, rows in (("spill", np.arange(50)), ("rec.slc", at)):
                for name, values in {
                    "run": np.full(len(rows), 1), "subrun": np.full(len(rows), number),
                    "evt": rows + 1,
                }.items():  # fmt: skip
                    file[f"{group}/{name}"] = values[:, None]
            file["spill/pot"] = np.full(50, 0.5)
            file["rec.slc/calE"], file["rec.slc/map"] = energy[:, None], image.astype("u1")
    out = tmp_path / "all.h5"
    concatenate(paths, out, TableOptions(key="evt", chunk_rows=64), jobs=1)
    rows = next(one.rows for one in check_keys(out) if "slc" in one.name)

    run = Runner(IterativeExecutor(status=False), schema=BaseSchema, chunksize=40)
    files = {"nova": {"files": {str(out): "spill"}}}
    causes, bytes_read = [], []
    for _ in range(2):
        found = run(files, slices)
        assert found["events"] == 150
        assert found["rows"] == rows
        assert found["same"] == {True}
        assert found["sum"] == wanted
        assert found["pot"] == 75
        assert run.run_record is not None
        causes.append({one for chunk in run.run_record.chunks for one in chunk.causes})
        bytes_read.append(sum(chunk.origin_bytes for chunk in run.run_record.chunks))
    assert causes == [{"miss"}, {"hit"}]
    assert bytes_read[0] > bytes_read[1] == 0
