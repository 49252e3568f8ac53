"""Cases as in coffea's own test-suite of executors, through hepcache's Runner."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask.config
import pytest
from coffea import processor as coffea
from coffea.nanoevents import NanoAODSchema
from coffea.processor.test_items import NanoEventsProcessor
from distributed import Client, LocalCluster

from hepcache import compat
from hepcache.placement.calls import NAME
from hepcache.process.worker import forget

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning:coffea")


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


@pytest.fixture
def nano(shared_data: Path) -> Path:
    return shared_data / "nanoaod"


def fileset(nano: Path, suffix: str) -> dict[str, Any]:
    return {
        "DummyBadMissingFile": {
            "treename": "Events", "files": [str(nano / f"non_existent{suffix}")],
        },
        "ZJetsBadMissingTree": {
            "treename": "NotEvents", "files": [str(nano / f"nano_dy{suffix}")],
        },
        "ZJets": {
            "treename": "Events", "files": [str(nano / f"nano_dy{suffix}")],
            "metadata": {"checkusermeta": True, "someusermeta": "hello"},
        },
        "Data": {
            "treename": "Events", "files": [str(nano / "nano_tt_v15.root")],
            "metadata": {"checkusermeta": True, "someusermeta2": "world"},
        },
    }  # fmt: skip


GOOD = ("ZJets", "Data")


def good(nano: Path) -> dict[str, Any]:
    return {name: fileset(nano, ".root")[name] for name in GOOD}


def expected(nano: Path, kind: str) -> dict[str, Any]:
    run = coffea.Runner(
        coffea.IterativeExecutor(status=False), schema=NanoAODSchema, metadata_cache={}
    )
    cutflow: dict[str, Any] = run(good(nano), made(kind))["cutflow"]
    return cutflow


def made(kind: str) -> Any:
    one = NanoEventsProcessor(mode="virtual", check_filehandle=True)
    return one if kind == "ProcessorABC" else one.process


@pytest.mark.parametrize("executor", ["IterativeExecutor", "FuturesExecutor"])
@pytest.mark.parametrize("compression", [None, 0])
@pytest.mark.parametrize("maxchunks", [None, 1000])
@pytest.mark.parametrize("kind", ["ProcessorABC", "Callable"])
def test_an_analysis_with_bad_files(
    nano: Path, executor: str, compression: int | None, maxchunks: int | None, kind: str
) -> None:
    chosen = getattr(compat, executor)(compression=compression, status=False)
    options = {"schema": NanoAODSchema, "maxchunks": maxchunks}
    with pytest.raises(OSError, match="non_existent"):
        compat.Runner(chosen, **options)(fileset(nano, ".root"), made(kind), treename="Events")
    run = compat.Runner(chosen, skipbadfiles=True, **options)
    found = run(fileset(nano, ".root"), made(kind), treename="Events")
    assert found["cutflow"] == expected(nano, kind)
    assert found["cutflow"]["ZJets_pt"] == 18
    assert found["cutflow"]["ZJets_mass"] == 6
    assert run.run_record is not None
    assert len(run.run_record.problems) == 2


@pytest.mark.parametrize("align_clusters", [False, True])
def test_preprocessing(nano: Path, align_clusters: bool) -> None:
    files = {
        "only_empty": ["nano_dy_empty"],
        "nonempty_and_empty": ["nano_dy", "nano_dy_empty"],
        "empty_and_nonempty": ["nano_dy_empty", "nano_dy"],
        "only_nonempty": ["nano_dy"],
    }
    asked = {
        name: {"files": {str(nano / f"{one}.root"): "Events" for one in ones}}
        for name, ones in files.items()
    }
    run = compat.Runner(
        compat.IterativeExecutor(status=False), schema=NanoAODSchema, chunksize=7,
        align_clusters=align_clusters,
    )  # fmt: skip
    chunks = list(run.preprocess(asked))
    assert len(chunks) == (6 if align_clusters else 21)
    for name, ones in files.items():
        for one in ones:
            ranges = sorted(
                (chunk.entrystart, chunk.entrystop)
                for chunk in chunks
                if chunk.dataset == name and chunk.filename.endswith(f"/{one}.root")
            )
            if one == "nano_dy_empty":
                assert ranges == [(0, 0)]
            elif align_clusters:
                assert ranges == [(0, 40)]
            else:
                assert [start for start, _ in ranges] == [
                    stop for _, stop in [(0, 0), *ranges[:-1]]
                ]
                assert ranges[-1][1] == 40

    def count(events: Any) -> dict[str, int]:
        assert events.attrs["@events_factory"].access_log == []
        return {events.metadata["dataset"]: len(events)}

    assert run(chunks, count) == {
        "only_empty": 0, "nonempty_and_empty": 40, "empty_and_nonempty": 40, "only_nonempty": 40,
    }  # fmt: skip


@pytest.mark.parametrize("executor", ["IterativeExecutor", "FuturesExecutor"])
def test_results_as_values(nano: Path, executor: str) -> None:
    options = {"schema": NanoAODSchema, "use_result_type": True, "skipbadfiles": True}
    run = compat.Runner(getattr(compat, executor)(status=False), **options)
    work = {"ZJets": good(nano)["ZJets"]}, made("ProcessorABC")
    found = run(*work, treename="Events"), run.run(*work, treename="Events")
    assert all(isinstance(one, compat.Ok) for one in found)
    # As in coffea, run() says more than the output.
    for out in (found[0].unwrap(), found[1].unwrap()["out"]):
        assert "cutflow" in out


def test_a_script_for_dask_needs_only_another_import(nano: Path) -> None:
    with (
        LocalCluster(
            n_workers=1, threads_per_worker=2, processes=False, dashboard_address=None,
            protocol="tcp", host="127.0.0.1",
        ) as cluster,
        Client(cluster) as client,
    ):  # fmt: skip
        outputs = []
        for processor in (coffea, compat):
            run = processor.Runner(
                executor=processor.DaskExecutor(client=client, status=False),
                schema=NanoAODSchema,
                skipbadfiles=True,
                savemetrics=True,
            )
            out, metrics = run(good(nano), made("ProcessorABC"), treename="Events")
            outputs.append((out["cutflow"], metrics["entries"], metrics["chunks"]))
        assert outputs[0] == outputs[1]
        assert NAME in cluster.scheduler.plugins


def test_all_other_names_are_coffeas() -> None:
    for name in coffea.__all__:
        assert getattr(compat, name) is not None
        assert (getattr(compat, name) is getattr(coffea, name)) == (
            name not in ("DaskExecutor", "Runner")
        )
    with pytest.raises(AttributeError):
        compat.nonsense  # noqa: B018
