"""Every schema that coffea has for ROOT files, on coffea's own samples, against coffea itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import awkward as ak
import dask.config
import pytest
import xxhash
from coffea.nanoevents import schemas
from coffea.processor import IterativeExecutor
from coffea.processor import Runner as CoffeaRunner
from tests.live.conftest import unable

from hepcache.columns import forget_sources
from hepcache.process import Runner
from hepcache.process.forms import forget_forms
from hepcache.process.worker import forget, worker_cache

pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # coffea's own, of its samples
    pytest.mark.timeout(600),
]

# BaseSchema, and NanoAODSchema on more files, are tests/process/test_runner's part.
CASES = [
    ("nano_dy_SpecialTree.root", "NotEvents", "NanoAODSchema"),
    ("nano_dimuon_rntuple.root", "Events", "NanoAODSchema"),
    ("pfnano.root", "Events", "PFNanoAODSchema"),
    ("scouting_nano.root", "Events", "ScoutingNanoAODSchema"),
    ("treemaker_rntuple.root", "PreSelection", "TreeMakerSchema"),
    ("PHYSLITE_example.root", "CollectionTree", "PHYSLITESchema"),
    ("delphes.root", "Delphes", "DelphesSchema"),
    ("pduneana.root", "pduneana/beamana", "PDUNESchema"),
    ("test_FCC_Spring2021.root", "events", "FCCSchema"),
    ("p8_ee_WW_ecm240_edm4hep.root", "events", "FCCSchema_edm4hep1"),
    ("edm4hep_ILD_mumuH_v01-00_podio_v01-07_10ev.root", "events", "EDM4HEPSchema"),
]


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """coffea's directory tests/samples, which its source distribution has."""
    given = os.environ.get("HEPCACHE_COFFEA_SAMPLES", "")
    if given:
        return Path(given)
    directory = tmp_path_factory.mktemp("coffea")
    wanted = f"coffea=={version('coffea')}"
    done = subprocess.run(
        [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", "coffea",
         "--dest", directory, wanted],
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    archives = list(directory.glob("coffea-*.tar.gz"))
    if not archives:
        unable(f"the source distribution of {wanted} can't be had: {done.stderr[-400:]}")
    with tarfile.open(archives[0]) as archive:
        archive.extractall(directory, filter="data")
    (found,) = directory.glob("coffea-*/tests/samples")
    return found


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path) -> Iterator[None]:
    forget()
    with dask.config.set({"hepcache.cache.directory": str(tmp_path / "columns")}):
        yield
        forget()


def test_no_schema_is_forgotten() -> None:
    known = {name for name in schemas.__all__ if name.endswith("Schema")} - {"BaseSchema"}
    assert known <= {schema for _, _, schema in CASES}


# Enough of every collection; all of it takes minutes.
MOST = 12
COMMON = {"awkward.highlevel", "coffea.nanoevents.methods.vector", "builtins"}


def digest(array: Any) -> tuple[str, str]:
    form, length, buffers = ak.to_buffers(ak.to_packed(array))
    state = xxhash.xxh3_128(json.dumps([form.to_dict(), length], default=str))
    for key in sorted(buffers):
        state.update(key)
        state.update(memoryview(buffers[key]).cast("B"))
    return str(ak.type(array)), state.hexdigest()


def everything(events: Any) -> dict[str, Any]:
    """Digest every field at every depth, and every property of the behaviours."""
    out: dict[str, Any] = {".": {(tuple(events.fields), len(events), type(events).__name__)}}

    def walk(name: str, array: Any, depth: int) -> None:
        out[name] = {(type(array).__name__, tuple(array.fields), str(ak.parameters(array)))}
        for field in array.fields[:: 1 + len(array.fields) // MOST]:
            look(f"{name}.{field}", lambda field=field: array[field], depth + 1)
        if not array.fields:
            out[name] |= {digest(array)}
        elif depth == 1:
            kind = type(array)
            own = [one for one in kind.__mro__ if one.__module__ not in COMMON]
            names = {
                name
                for one in own
                for name, value in vars(one).items()
                if isinstance(value, property)
            }
            for one in sorted(names)[:MOST]:
                look(f"{name}@{one}", lambda one=one: getattr(array, one), 9)

    def look(name: str, get: Any, depth: int) -> None:
        try:
            found = get()
            if isinstance(found, ak.Array) and depth < 4:
                walk(name, found, depth)
            elif isinstance(found, ak.Array):
                out[name] = {digest(found)}
            else:
                out[name] = {repr(type(found))}
        except Exception as error:  # coffea can't do it either, then
            out[name] = {type(error).__name__}

    for field in events.fields[:: 1 + len(events.fields) // 20]:
        look(field, lambda field=field: events[field], 1)
    return out


@pytest.mark.parametrize(("name", "tree", "schema"), CASES)
def test_all_of_it_equals_coffeas(
    samples: Path, tmp_path: Path, name: str, tree: str, schema: str
) -> None:
    path = tmp_path / name
    path.write_bytes((samples / name).read_bytes())
    files = {"sample": {"files": {str(path): tree}}}
    kind, _, release = schema.partition(" ")
    chosen = getattr(schemas, kind)
    options = {"schema": chosen.version(release) if release else chosen, "chunksize": 20}
    executor = IterativeExecutor(status=False)
    expected = CoffeaRunner(executor, metadata_cache={}, maxchunks=1, **options)(files, everything)
    assert len(expected) > 5
    run = Runner(executor, maxchunks=1, **options)
    assert run(files, everything) == expected
    # Hot: as another process, and nobody can ask the origin any more.
    chunks = list(run.preprocess(files))[:1]
    worker_cache().flush()
    forget_sources()
    forget_forms()
    path.unlink()
    assert run._run_impl(chunks, everything)["out"] == expected
