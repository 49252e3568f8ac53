"""Every schema that coffea has for ROOT files, on coffea's own samples, against coffea itself."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import awkward as ak
import pytest
from coffea import processor as coffea
from coffea.nanoevents import schemas
from tests.compat.contents import digest, forget_what_is_known

from hepcache import compat

pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # coffea's own, of its samples
    pytest.mark.timeout(600),
]

# BaseSchema is tests/compat/test_columns' part, and the old NanoAOD tests/process/test_runner's.
CASES = [
    ("nano_dy_SpecialTree.root", "NotEvents", "NanoAODSchema"),
    ("nano_dimuon.root", "Events", "NanoAODSchema"),
    ("nano_dimuon_rntuple.root", "Events", "NanoAODSchema"),
    ("nano_tt_v12.root", "Events", "NanoAODSchema"),
    ("pfnano.root", "Events", "PFNanoAODSchema"),
    ("scouting_nano.root", "Events", "ScoutingNanoAODSchema"),
    ("treemaker.root", "PreSelection", "TreeMakerSchema"),
    ("treemaker_rntuple.root", "PreSelection", "TreeMakerSchema"),
    ("PHYSLITE_example.root", "CollectionTree", "PHYSLITESchema"),
    ("delphes.root", "Delphes", "DelphesSchema"),
    ("pduneana.root", "pduneana/beamana", "PDUNESchema"),
    ("test_FCC_Spring2021.root", "events", "FCCSchema"),
    ("test_FCC_Winter2023.root", "events", "FCCSchema"),
    ("p8_ee_WW_ecm240_edm4hep.root", "events", "FCCSchema_edm4hep1"),
    ("edm4hep.root", "events", "EDM4HEPSchema 00.99.01"),
    ("edm4hep_example_v00-99-02_podio_v01-03.root", "events", "EDM4HEPSchema 00.99.02"),
    ("edm4hep_example_v00-99-04_podio_v01-06.root", "events", "EDM4HEPSchema 00.99.04"),
    ("edm4hep_example_v01-01_podio_v01-07.root", "events", "EDM4HEPSchema 01.01"),
    ("edm4hep_ILD_mumuH_v01-00_podio_v01-07_10ev.root", "events", "EDM4HEPSchema"),
]


# Branches that these schemas can't take; coffea's own tests leave them out, too.
PODIO = {"iteritems_options": {"filter_name": "/^(?!.*(PARAMETERS|_.*Map))/"}}


def test_no_schema_is_forgotten() -> None:
    known = {name for name in schemas.__all__ if name.endswith("Schema")} - {"BaseSchema"}
    assert known <= {schema.partition(" ")[0] for _, _, schema in CASES}


# Enough of every collection; all of it takes minutes.
MOST = 12
COMMON = {"awkward.highlevel", "coffea.nanoevents.methods.vector", "builtins"}


def everything(events: Any) -> dict[str, Any]:
    """Digest fields at every depth, and properties of the behaviours: a processor."""
    out: dict[str, Any] = {".": (tuple(events.fields), len(events), type(events).__name__)}

    def walk(name: str, array: Any, depth: int) -> None:
        out[name] = type(array).__name__, tuple(array.fields), str(ak.parameters(array))
        for field in array.fields[:: 1 + len(array.fields) // MOST]:
            look(f"{name}.{field}", lambda field=field: array[field], depth + 1)
        if not array.fields:
            out[f"{name}!"] = digest(array)
        elif depth == 1:
            names = {
                name
                for kind in type(array).__mro__
                if kind.__module__ not in COMMON
                for name, value in vars(kind).items()
                if isinstance(value, property)
            }
            for attribute in sorted(names)[:MOST]:
                look(f"{name}@{attribute}", lambda name=attribute: getattr(array, name), 9)

    def look(name: str, get: Any, depth: int) -> None:
        try:
            found = get()
            if isinstance(found, ak.Array) and not (found.fields and depth < 4):
                found = ak.materialize(found)
        except Exception as error:  # coffea can't do it either, then
            out[name] = type(error).__name__
            return
        if not isinstance(found, ak.Array):
            out[name] = repr(type(found))
        elif depth < 4:
            walk(name, found, depth)
        else:
            out[name] = digest(found)

    for field in events.fields[:: 1 + len(events.fields) // 20]:
        look(field, lambda field=field: events[field], 1)
    return {str(events.metadata["entrystart"]): out}


@pytest.mark.parametrize(("name", "tree", "schema"), CASES)
def test_all_of_it_equals_coffeas(
    coffea_source: Path, tmp_path: Path, name: str, tree: str, schema: str
) -> None:
    path = tmp_path / name
    path.write_bytes((coffea_source / "tests" / "samples" / name).read_bytes())
    files = {"sample": {"files": {str(path): tree}}}
    kind, _, release = schema.partition(" ")
    chosen = getattr(schemas, kind)
    chosen = chosen.version(release) if release else chosen

    def runner(processor: ModuleType) -> Any:
        executor = processor.IterativeExecutor(status=False, retries=0)
        # Its second chunk has references to events that don't begin with entry 0.
        return processor.Runner(executor, schema=chosen, chunksize=15, maxchunks=2)

    options = PODIO if kind.startswith(("FCC", "EDM4HEP")) else {}
    expected = runner(coffea)(files, everything, **options)
    first, *_ = expected.values()
    values = [value for value in first.values() if isinstance(value, tuple)]
    assert len(values) > 20
    run = runner(compat)
    for _ in range(2):
        assert run(files, everything, **options) == expected
    # Hot: as another process, and nobody can ask the origin any more.
    chunks = list(run.preprocess(files))
    forget_what_is_known()
    path.unlink()
    assert run.run(chunks, everything, **options)["out"] == expected
