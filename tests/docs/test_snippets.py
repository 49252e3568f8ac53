"""What README and documentation tell people to write: it is run as it stands there."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import awkward as ak
import h5py
import numpy as np
import pytest
from coffea.nanoevents import NanoAODSchema

import hepcache
from hepcache.bench.plan import BENCHMARK_COLUMNS
from hepcache.eventstore import connect
from hepcache.hdf5 import TableOptions, concatenate
from hepcache.process.named_processor import load_processor
from hepcache.samples.nanoaod import write_nanoaod

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```(python|diff)\n(.*?)^```", re.DOTALL | re.MULTILINE)
# What readers have elsewhere than this test, as it stands in the pages.
ELSEWHERE = {
    '"file:///ssd/nova"': "address",
    '"file:///ssd/cms"': "address",
    '"tcp://scheduler:8786"': "scheduler",
    '"127.0.0.1:8787"': '"127.0.0.1:0"',
    '"examples"': "examples",
    '{"all.h5": ': '{f"{here}/all.h5": ',
}
NEEDS_A_POOL = "facility.md"
Names = dict[str, Any]


def blocks(page: Path) -> list[str]:
    """Return a page's Python; of a diff, what is there after it."""
    found = []
    for kind, text in BLOCK.findall(page.read_text()):
        if kind == "diff":
            kept = [line[1:] for line in text.splitlines() if line[:1] in " +"]
            text = textwrap.dedent("\n".join(kept)) + "\n"
        found.append(text)
    return found


PAGES = [page for page in (ROOT / "README.md", *sorted(ROOT.glob("docs/*.md"))) if blocks(page)]


def jets(events: ak.Array) -> dict[str, int]:
    return {"events": len(events), "jets": int(ak.sum(ak.num(events.Jet)))}


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Names]:
    """Return what all pages take for granted: a sample, a cluster, the clone."""
    place = tmp_path_factory.mktemp("given")
    write_nanoaod(
        place / "data", events=200, files=2, compression="zstd:1", cluster=100, jobs=1,
        branches=[*BENCHMARK_COLUMNS, "run", "luminosityBlock", "event"],
    )  # fmt: skip
    local = hepcache.LocalCluster(hosts=2, cache_directory=place / "caches")
    with local as cluster, cluster.client() as client:
        yield {
            "client": client, "scheduler": cluster.scheduler_address,
            "sample": place / "data", "examples": str(ROOT / "examples"),
        }  # fmt: skip


def script(names: Names) -> None:
    names["fileset"] = {"HH": [str(path) for path in Path("data").resolve().glob("*.root")]}
    names["Processor"] = type(load_processor(f"{ROOT}/examples/hh_bbll.py:Processor"))
    names["NanoAODSchema"] = NanoAODSchema


def one_file(names: Names) -> None:
    names["path"] = "data/nano_0000.root"


def nova(names: Names) -> None:
    with connect(names["address"]) as store:
        slices = {"nhit": np.arange(30, dtype="i4")}
        subrun = store.create("nova/prod5").create(1).create(2)
        subrun.ingest("rec.slc", np.arange(10), slices, np.arange(0, 31, 3))
        kinematics = ("pt", "eta", "phi", "mass", "charge")
        part = store.create("cms/dy").create(1).create(2)
        part.ingest(
            "Jet",
            np.arange(10),
            {name: np.ones(30, dtype="f4") for name in kinematics},
            np.arange(0, 31, 3),
        )
    names["processor"] = jets


def columns(names: Names) -> None:
    names["events"] = np.arange(100, 110)
    names["offsets"] = np.arange(0, 31, 3)
    names["event_of_row"] = np.repeat(np.arange(200, 210), 3)[::-1]
    names["nhit"] = names["charge"] = np.arange(30, dtype="i4")
    names["energy"] = np.arange(30, dtype="f4")
    names["results"] = [(number, np.ones(2)) for number in range(300, 305)]


def tables(names: Names) -> None:
    paths = []
    for number in range(4):
        paths.append(f"part{number}.h5")
        with h5py.File(paths[-1], "w") as file:
            for group, column, rows in (("spill", "pot", 20), ("rec.vtx", "x", 60)):
                events = np.repeat(np.arange(20), rows // 20)
                for name, values in {
                    "run": np.full(rows, 1), "subrun": np.full(rows, number), "evt": events,
                    column: np.arange(rows, dtype="f4"),
                }.items():  # fmt: skip
                    file.create_dataset(
                        f"{group}/{name}", data=values[:, None], chunks=(16, 1), maxshape=(None, 1)
                    )
    concatenate(paths, "all.h5", TableOptions(key="evt"), jobs=1)
    names.update(files=paths[:2], more=paths[2:])


def reports(names: Names) -> None:
    script(names)
    run = hepcache.Runner(hepcache.Executor(client=names["client"]), schema=NanoAODSchema)
    run(names["fileset"], jets, treename="Events")
    record = run.run_record
    names.update(first=record, second=record, third=record)
    for where in ("before", "after"):
        Path(where).mkdir()
        hepcache.CycleReport((record,)).to_json(Path(where, "report.json"))


def named(names: Names) -> None:
    """As :func:`script`, with tree names, which coffea's Runner wants."""
    script(names)
    names["fileset"] = {"HH": {"files": dict.fromkeys(names["fileset"]["HH"], "Events")}}


PREPARED: dict[str, Callable[[Names], None]] = {
    "README.md": script, "cache-format.md": one_file, "eventprocessing.md": nova,
    "eventstore.md": columns, "hdf5.md": tables, "report.md": reports, "results.md": named,
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.timeout(600)
# Of a sample with few branches coffea has this to say.
@pytest.mark.filterwarnings("ignore:Missing cross-reference index:RuntimeWarning")
@pytest.mark.parametrize(
    "page", [page for page in PAGES if page.name != NEEDS_A_POOL], ids=lambda page: page.stem
)
def test_the_python_of_a_page_runs(
    page: Path, given: Names, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))  # what the page appends is taken away again
    Path("data").symlink_to(given["sample"])
    names = {
        **given, "address": f"file://{tmp_path}/store", "here": tmp_path, "__name__": "__main__",
    }  # fmt: skip
    PREPARED.get(page.name, lambda _: None)(names)
    before = dict(names)
    try:
        for text in blocks(page):
            for theirs, ours in ELSEWHERE.items():
                text = text.replace(theirs, ours)
            exec(compile(text, page.name, "exec"), names)
    finally:
        for name in ("store", "client", "cluster"):
            if name in names and names[name] is not before.get(name):
                names[name].close()
    if page.name == "README.md":
        assert names["output"]["HH"]["cutflow"]["all"] == 200


@pytest.mark.parametrize("page", [page for page in PAGES if page.name == NEEDS_A_POOL])
def test_what_needs_a_pool_names_what_is_there(page: Path) -> None:
    """Imports are made, and every call to what they bring takes the arguments it is given."""
    called = 0
    for text in blocks(page):
        tree, names = ast.parse(text), Names()
        for statement in tree.body:
            if isinstance(statement, ast.Import | ast.ImportFrom):
                exec(ast.unparse(statement), names)
        for call in ast.walk(tree):
            if isinstance(call, ast.Call) and getattr(call.func, "id", None) in names:
                keywords = {one.arg: None for one in call.keywords if one.arg}
                inspect.signature(names[call.func.id]).bind(*call.args, **keywords)
                called += 1
    assert called > 3
