"""What Runner and executors can be asked for means what it means in coffea."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import awkward as ak
import hist
import pytest
from coffea import processor as coffea
from coffea.nanoevents import BaseSchema, NanoAODSchema
from coffea.nanoevents.trace import trace
from tests.compat.samples import write_nano
from tests.versions import since

pytestmark = [
    pytest.mark.filterwarnings("ignore::RuntimeWarning:coffea"),
    pytest.mark.filterwarnings("ignore:Performed attempt:UserWarning"),
    pytest.mark.filterwarnings("ignore:Skipping bad file:UserWarning"),
    pytest.mark.filterwarnings("ignore::hepcache.errors.IncompleteWarning"),
]


@pytest.fixture(scope="module")
def nano(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("nano")
    write_nano(directory)
    return directory


def analysis(events: Any) -> dict[str, Any]:
    """Select, count and fill: the processor of all cases that name no other."""
    muons = events.Muon[events.Muon.pt > 10]
    pairs = ak.combinations(muons, 2, fields=["first", "second"])
    mass = hist.Hist.new.StrCat([], growth=True, name="dataset").Reg(20, 0, 200, name="mass")
    filled = mass.Int64()
    dataset = events.metadata["dataset"]
    filled.fill(dataset=dataset, mass=ak.flatten((pairs.first + pairs.second).mass))
    matched = muons.matched_jet.pt
    chunk = events.metadata["filename"].rpartition("/")[2], events.metadata["entrystart"]
    return {
        "events": {dataset: len(events)},
        "mass": filled,
        "matched": {dataset: int(ak.sum(matched > 20))},
        "chunks": {(*chunk, events.metadata["entrystop"])},
        "weight": {events.metadata.get("weight")},
    }


class Selection(coffea.ProcessorABC):
    """The analysis as a processor with something to do at the end."""

    def process(self, events: Any) -> Any:
        return analysis(events)

    def postprocess(self, accumulator: Any) -> Any:
        return {**accumulator, "total": sum(accumulator["events"].values())}


class SilentEnd(Selection):
    """A processor whose ``postprocess`` changes the output in its place."""

    def postprocess(self, accumulator: Any) -> None:
        accumulator["ended"] = True


class Callable_:  # noqa: N801
    """What can be called, and is no function."""

    def __call__(self, events: Any) -> Any:
        return analysis(events)


def flat(events: Any) -> dict[str, Any]:
    """Read what BaseSchema gives."""
    return {
        "events": len(events),
        "fields": {tuple(events.fields)},
        "items": int(ak.sum(events.nMuon)),
    }


def preloaded(events: Any) -> dict[str, Any]:
    return {"jets": int(ak.sum(events.Jet.pt > 20)), "muons": int(ak.sum(events.Muon.pt > 20))}


def nothing(events: Any) -> None:
    return None


def failing(events: Any) -> Any:
    if events.metadata["entrystart"] > 0:
        raise RuntimeError("a processor's own error")
    return {"events": len(events)}


def misspelt(events: Any) -> Any:
    return {"events": len(events.Moun)}


def two_datasets(nano: Path) -> dict[str, Any]:
    return {
        "dy": {"files": {str(nano / "dy_0.root"): "Events", str(nano / "dy_1.root"): "Events"}},
        "tt": {"files": {str(nano / "tt.root"): "Events"}},
    }


def files(*names: str, **others: Any) -> Callable[[Path], Any]:
    """Return a function that makes a fileset of one dataset."""
    return lambda nano: {
        "data": {"files": {str(nano / f"{name}.root"): "Events" for name in names}, **others}
    }


def lists(*names: str, **others: Any) -> Callable[[Path], Any]:
    """Return a function that makes a fileset of one dataset, a list of files."""
    return lambda nano: {
        "data": {"files": [str(nano / f"{name}.root") for name in names], **others}
    }


def metadata(values: Mapping[str, Any]) -> Callable[[Path], Any]:
    return files("dy_0", metadata=values)


def json_file(nano: Path) -> str:
    path = nano / "fileset.json"
    path.write_text(json.dumps(two_datasets(nano)))
    return str(path)


LOCAL = ("iterative",)
BOTH = ("iterative", "cluster")
ALL = ("iterative", "futures", "cluster")


@dataclass(frozen=True)
class Case:
    """What a script asks for.

    Attributes
    ----------
    runner, executor, arguments
        Options of ``Runner``, of the executor, and of the call.
    fileset
        Makes the fileset, of the directory of files.
    processor
        The processor.
    where
        Executors that it runs on.
    """

    runner: Mapping[str, Any] = field(default_factory=dict)
    executor: Mapping[str, Any] = field(default_factory=dict)
    arguments: Mapping[str, Any] = field(default_factory=dict)
    fileset: Callable[[Path], Any] = two_datasets
    processor: Any = analysis
    where: tuple[str, ...] = LOCAL


CASES = {
    # How files are cut.
    "chunksize 4": Case({"chunksize": 4}, fileset=files("tt")),
    "chunksize 17": Case({"chunksize": 17}, where=BOTH),
    "chunksize 59": Case({"chunksize": 59}),
    "chunksize 1000": Case({"chunksize": 1000}, where=ALL),
    "maxchunks 1": Case({"chunksize": 20, "maxchunks": 1}, where=BOTH),
    "maxchunks 4": Case({"chunksize": 20, "maxchunks": 4}),
    "maxchunks 100": Case({"chunksize": 20, "maxchunks": 100}),
    "maxchunks 0": Case({"chunksize": 20, "maxchunks": 0}),
    "maxchunks before a missing file": Case(
        {"maxchunks": 1}, {"retries": 0}, fileset=files("dy_0", "missing")
    ),
    "align_clusters 1": Case({"align_clusters": True, "chunksize": 1}, where=BOTH),
    "align_clusters 30": Case({"align_clusters": True, "chunksize": 30}),
    "align_clusters 1000": Case({"align_clusters": True, "chunksize": 1000}),
    "align_clusters maxchunks": Case({"align_clusters": True, "chunksize": 1, "maxchunks": 2}),
    "align_clusters ntuple": Case(
        {"align_clusters": True, "chunksize": 1}, fileset=files("ntuple", "empty")
    ),
    # What comes back.
    "savemetrics": Case({"savemetrics": True, "chunksize": 25}, where=BOTH),
    "use_result_type": Case({"use_result_type": True, "skipbadfiles": True}),
    # Files that can't be read.
    "skipbadfiles missing": Case(
        {"skipbadfiles": True}, {"retries": 0}, fileset=files("dy_0", "missing"), where=BOTH
    ),
    "skipbadfiles types": Case(
        {"skipbadfiles": (FileNotFoundError,)}, {"retries": 0}, fileset=files("missing", "dy_0")
    ),
    "skipbadfiles all": Case({"skipbadfiles": True}, {"retries": 0}, fileset=files("missing")),
    "skipbadfiles no file": Case({"skipbadfiles": True}),
    "missing file": Case({}, {"retries": 0}, fileset=files("dy_0", "missing"), where=BOTH),
    "missing tree": Case({}, {"retries": 0}, fileset=files("dy_0", "elsewhere"), where=BOTH),
    "a file cut short": Case({}, {"retries": 0}, fileset=files("dy_0", "short")),
    "a file of text": Case({}, {"retries": 0}, fileset=files("dy_0", "text")),
    "skipbadfiles missing tree": Case(
        {"skipbadfiles": True}, {"retries": 0}, fileset=files("dy_0", "elsewhere")
    ),
    "skipbadfiles missing tree by type": Case(
        {"skipbadfiles": (KeyError,)}, {"retries": 0}, fileset=files("dy_0", "elsewhere")
    ),
    "skipbadfiles another type": Case(
        {"skipbadfiles": (KeyError,)}, {"retries": 0}, fileset=files("dy_0", "missing")
    ),
    "skipbadfiles a file of text": Case(
        {"skipbadfiles": True}, {"retries": 0}, fileset=files("dy_0", "text")
    ),
    # What uproot is told.
    "timeout": Case(arguments={"uproot_options": {"timeout": 30}}),
    "array_cache": Case(arguments={"uproot_options": {"array_cache": None}}, where=BOTH),
    "object_cache": Case(arguments={"uproot_options": {"object_cache": 10}}),
    "object_cache as text": Case(
        {}, {"retries": 0}, {"uproot_options": {"object_cache": "10 MB"}}
    ),
    "num_workers": Case(arguments={"uproot_options": {"num_workers": 2}}),
    "uproot_options None": Case(arguments={"uproot_options": None, "iteritems_options": None}),
    "filter_name": Case(
        {"schema": BaseSchema},
        arguments={"iteritems_options": {"filter_name": ["nMuon", "Muon_*"]}},
        processor=flat,
        where=BOTH,
    ),
    "filter_name function": Case(
        {"schema": BaseSchema},
        arguments={"iteritems_options": {"filter_name": lambda name: name.startswith("nM")}},
        processor=flat,
        where=BOTH,
    ),
    "xrootdtimeout 1": Case({"xrootdtimeout": 1}),
    "xrootdtimeout None": Case({"xrootdtimeout": None}),
    # Filesets.
    "metadata": Case(fileset=metadata({"weight": 0.5, "other": ["a"]}), where=BOTH),
    "metadata None": Case(fileset=metadata(None)),
    "metadata reserved": Case(fileset=metadata({"entrystart": 1})),
    "a json file": Case(fileset=json_file),
    "lists": Case(
        arguments={"treename": "Events"},
        fileset=lambda nano: {"data": [str(nano / "dy_0.root")], "more": [str(nano / "tt.root")]},
    ),
    "tree of the dataset": Case(fileset=lists("dy_0", "tt", treename="Events")),
    "tree of the call": Case(arguments={"treename": "Events"}, fileset=lists("dy_0", "tt")),
    "tree of dataset and call": Case(
        arguments={"treename": "Nothing"}, fileset=lists("dy_0", treename="Events")
    ),
    "tree of file and call": Case(
        arguments={"treename": "Nothing"}, executor={"retries": 0}, fileset=files("dy_0")
    ),
    "tree of file and dataset": Case(fileset=files("dy_0", treename="Events")),
    "tree in a directory": Case(
        fileset=lambda nano: {"data": {"files": {str(nano / "elsewhere.root"): "some/Tree"}}},
        where=BOTH,
    ),
    "tree with a cycle": Case(
        fileset=lambda nano: {"data": {"files": {str(nano / "dy_0.root"): "Events;1"}}}
    ),
    "no tree": Case(fileset=lists("dy_0")),
    "no dataset": Case(fileset=lambda nano: {}),
    "no file": Case(fileset=lambda nano: {"data": {"files": {}}}),
    "only an empty file": Case(fileset=files("empty"), where=BOTH),
    "an empty file among others": Case({"chunksize": 25}, fileset=files("dy_0", "empty", "tt")),
    "trees and ntuples": Case(fileset=files("dy_0", "ntuple"), where=BOTH),
    "preload": Case(
        fileset=files("dy_0", "tt", preload=["nJet", "Jet_pt", "Nothing"]),
        processor=preloaded,
        where=BOTH,
    ),
    "trace": Case(arguments={"trace": trace}, processor=preloaded, where=BOTH),
    # Processors.
    "a processor": Case({"chunksize": 25}, processor=Selection(), where=ALL),
    "a processor that changes its output": Case(processor=SilentEnd(), where=BOTH),
    "a method": Case(processor=Selection().process),
    "a callable": Case(processor=Callable_(), where=BOTH),
    "a partial": Case(processor=partial(analysis), where=BOTH),
    "a lambda": Case(processor=lambda events: {"events": len(events)}, where=BOTH),
    "not callable": Case(processor="analysis"),
    "a processor that gives nothing": Case({}, {"retries": 0}, processor=nothing, where=BOTH),
    "a processor that fails": Case(
        {"chunksize": 25}, {"retries": 0}, processor=failing, where=BOTH
    ),
    "a column that is not there": Case({}, {"retries": 0}, processor=misspelt),
    "processor_compression None": Case({"processor_compression": None}, where=BOTH),
    "processor_compression 9": Case({"processor_compression": 9}),
    # Schemas and formats.
    "no schema": Case({"schema": None}, {"retries": 0}),
    "not a schema": Case({"schema": dict}, {"retries": 0}),
    "no format": Case({"format": "csv"}),
    # Executors.
    "compression None": Case({"chunksize": 25}, {"compression": None}, where=BOTH),
    "compression 0": Case({"chunksize": 25}, {"compression": 0}, where=BOTH),
    "compression 9": Case({"chunksize": 25}, {"compression": 9}),
    "a progress bar": Case({"chunksize": 25}, {"status": True, "desc": "Muons"}, where=BOTH),
    "cachestrategy": Case({"cachestrategy": dict}, where=BOTH),
    "cachestrategy of a worker": Case({"cachestrategy": "dask-worker"}, where=("cluster",)),
    "treereduction 2": Case({"chunksize": 7}, {"treereduction": 2}, where=("cluster",)),
    "priority": Case({"chunksize": 25}, {"priority": 5}, where=("cluster",)),
    "merging": Case(
        {"chunksize": 7}, {"merging": (2, 2, 3), "pool": ThreadPoolExecutor}, where=("futures",)
    ),
    "threads": Case({"chunksize": 7}, {"pool": ThreadPoolExecutor}, where=("futures",)),
    "recoverable": Case(
        {"chunksize": 25},
        {"recoverable": True, "retries": 0, "pool": ThreadPoolExecutor},
        processor=failing,
        where=("futures",),
    ),
}


def comparable(output: Any) -> Any:
    """Return what must be the same of an output: of metrics, what doesn't count seconds."""
    if isinstance(output, tuple):
        found, metrics = output
        kept = {name: metrics[name] for name in ("entries", "chunks")}
        # hepcache counts what it read from its caches, too.
        names = sorted(metrics.keys() - {"cachebytes"})
        return found, names, kept, sorted(metrics["columns"])
    if isinstance(output, coffea.Ok):
        return "Ok", output.unwrap()
    return output


def unordered(output: Any) -> Any:
    """Return an output without the order in which chunks came, where workers decide it."""
    if isinstance(output, dict):
        return {name: unordered(output[name]) for name in sorted(output)}
    if isinstance(output, tuple):
        return tuple(map(unordered, output))
    if isinstance(output, hist.Hist):
        names = sorted(output.axes[0])
        return {name: output[name, :].view(flow=True).tolist() for name in names}
    return output


# On a cluster the quick tests are these; what else there is runs with the slow ones.
QUICK = {
    (name, "cluster")
    for name in ("chunksize 17", "a processor", "filter_name function", "preload", "savemetrics")
}
# These coffea 2026.7 takes for an error.
REFUSED = {"timeout", "processor_compression None"}
RUNS = [
    pytest.param(
        name,
        executor,
        id=f"{name}-{executor}",
        marks=[
            *([] if executor == "iterative" or (name, executor) in QUICK else [pytest.mark.slow]),
            *([since("coffea", "2026.9")] if name in REFUSED else []),
        ],
    )
    for name, case in CASES.items()
    for executor in case.where
]


@pytest.mark.parametrize(("name", "executor"), RUNS)
def test_an_option(name: str, executor: str, nano: Path, compare: Callable[..., Any]) -> None:
    case = CASES[name]

    def script(processor: ModuleType, given: Any) -> Any:
        options = {"schema": NanoAODSchema, "metadata_cache": {}, **case.runner}
        run = processor.Runner(given.copy(**case.executor), **options)
        output = comparable(run(case.fileset(nano), case.processor, **case.arguments))
        return output if executor == "iterative" else unordered(output)

    compare(script, (executor,))


@pytest.mark.parametrize(
    "executor", ["iterative", pytest.param("cluster", marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("given", ["generator", "list", "some", "coffea's"])
def test_chunks_given_back(
    executor: str, given: str, nano: Path, compare: Callable[..., Any]
) -> None:
    def script(processor: ModuleType, run_on: Any) -> Any:
        cut = coffea if given == "coffea's" else processor
        options = {"schema": NanoAODSchema, "metadata_cache": {}, "chunksize": 25}
        if cut is not processor:
            maker = cut.Runner(coffea.IterativeExecutor(status=False), **options)
        run = processor.Runner(run_on, **options)
        chunks = (run if cut is processor else maker).preprocess(two_datasets(nano))
        if given != "generator":
            chunks = list(chunks)
        if given == "some":
            chunks = chunks[1::2]
        output = run.run(chunks, Selection())
        processed = sorted(
            (item.dataset, item.filename, item.entrystart, item.entrystop)
            for item in output.pop("processed")
        )
        return unordered(output["out"]), output["exception"], sorted(output), processed

    compare(script, (executor,))


@pytest.mark.parametrize(
    "executor", ["iterative", pytest.param("cluster", marks=pytest.mark.slow)]
)
def test_checkpoints(
    executor: str, nano: Path, tmp_path: Path, compare: Callable[..., Any]
) -> None:
    def script(processor: ModuleType, run_on: Any) -> Any:
        home = Path(tempfile.mkdtemp(dir=tmp_path))
        options = {"schema": NanoAODSchema, "metadata_cache": {}, "chunksize": 25}
        checkpointer = processor.SimpleCheckpointer(str(home), verbose=False)
        run = processor.Runner(run_on.copy(retries=0), checkpointer=checkpointer, **options)
        with pytest.raises(Exception, match="own error"):
            run(two_datasets(nano), failing)
        began = len([path for path in home.rglob("*") if path.is_file()])
        # What is saved is not computed again: nothing would come of it.
        first = run(two_datasets(nano), counting)
        again = run(two_datasets(nano), failing)
        saved = sorted(path.name for path in home.rglob("*") if path.is_file())
        return unordered(first), unordered(again), began > 0, saved

    compare(script, (executor,))


def counting(events: Any) -> Any:
    return {"events": len(events)}
