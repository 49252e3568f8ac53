"""Real RNTuples by a Runner from S3 and RADOS: all columns are coffea's of the local file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import uproot
from coffea import processor as coffea
from coffea.nanoevents import BaseSchema
from tests.compat.contents import columns
from tests.live.compat.conftest import coffea_source  # noqa: F401 - for this test too
from tests.live.objectstore.servers import KEY, SECRET, Ceph, Gateway

from hepcache import compat
from hepcache.rntuple import put_files

pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # of uproot and coffea, about old files
    pytest.mark.timeout(900),
]


@pytest.fixture(autouse=True)
def _own_cache(own_cache: None) -> None:
    """Begin with nothing in the cache of this process."""


def ntuples(*directories: Path) -> list[tuple[Path, str]]:
    """Return files and the names of the ntuples in them; each file once."""
    found: dict[tuple[str, int], list[tuple[Path, str]]] = {}
    for directory in directories:
        for path in sorted(directory.rglob("*.root")):
            try:
                with uproot.open(path) as file:
                    kinds = file.classnames(cycle=False)
            except Exception:
                # Damaged ones are for other tests.
                continue
            names = [name for name, kind in kinds.items() if kind == "ROOT::RNTuple"]
            found.setdefault((path.name, path.stat().st_size), [(path, name) for name in names])
    return [pair for pairs in found.values() for pair in pairs]


def contents(processor: Any, location: str, tree: str) -> dict[str, Any]:
    """Return digests of all columns, as a Runner gives them to its processor."""
    executor = processor.IterativeExecutor(status=False, retries=0)
    run = processor.Runner(
        executor, schema=BaseSchema, chunksize=10**7, processor_compression=None
    )
    (chunk,) = run({"data": {"files": {location: tree}}}, columns)["data"].values()
    return dict(chunk)


@pytest.fixture(scope="module")
def local(
    shared_data: Path,
    coffea_source: Path,  # noqa: F811
) -> dict[tuple[Path, str], dict[str, Any]]:
    """What coffea reads of the files themselves."""
    files = ntuples(shared_data, coffea_source)
    return {(path, tree): contents(coffea, str(path), tree) for path, tree in files}


@pytest.mark.parametrize("server", ["gateway", "ceph"])
def test_every_column_is_coffeas_of_the_local_file(
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    local: dict[tuple[Path, str], dict[str, Any]],
    server: str,
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    store: Gateway | Ceph = request.getfixturevalue(server)
    assert {path.name for path, _ in local} >= {
        "nano_dy_rntuple.root",
        "nano_tree_rntuple.root",
        "pfnano_rntuple.root",
        "Run2012BC_DoubleMuParked_Muons_1000evts_rntuple_v1-0-0-0.root",
    }
    for number, ((path, tree), expected) in enumerate(local.items()):
        uri = store.uri(f"{tmp_path.name}/{number}")
        put_files(uri, [path], tree=tree)
        assert len(expected) > 5, path
        assert contents(compat, uri, tree) == expected, path
