"""``hepcache run`` as a user gives it: what it checks first, and what it leaves behind."""

from __future__ import annotations

import json
import os
import re
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import hist
import pytest
import uproot
from coffea.util import load
from tests.cli.conftest import Hepcache
from tests.formats.conftest import write_mixed_tree

from hepcache.cli.options import count_of
from hepcache.cli.plots import draw
from hepcache.cli.run import _shared, processor_argument
from hepcache.clusters import LocalCluster
from hepcache.samples.nanoaod import write_nanoaod

ANALYSIS = '''
import time
from pathlib import Path

import awkward as ak
from coffea.processor import ProcessorABC


class Base(ProcessorABC):
    def postprocess(self, accumulator):
        return accumulator


class Count(Base):
    """Counts; in one file it waits as long as another file is there, and it may need a third."""

    def __init__(self, hold="nowhere", needed="."):
        self.hold, self.needed = Path(hold), Path(needed)

    def process(self, events):
        if not self.needed.exists():
            raise ValueError(f"{self.needed.name} is not there")
        while "2.root" in events.metadata["filename"] and self.hold.exists():
            self.hold.with_name("started").touch()
            time.sleep(0.01)
        return {"events": len(events), "jets": int(ak.sum(events.Jet_id))}
'''


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("data")
    for number in range(3):
        write_mixed_tree(directory / f"{number}.root", uproot.ZSTD(1))
    return directory


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(hosts=1, cache_directory=tmp_path_factory.mktemp("caches")) as made:
        yield made


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty working directory with an analysis in it."""
    directory = tmp_path / "here"
    directory.mkdir()
    (directory / "analysis.py").write_text(ANALYSIS)
    monkeypatch.chdir(directory)
    return directory


@pytest.fixture
def on(cluster: LocalCluster) -> tuple[str, ...]:
    return ("--schema", "BaseSchema", "--scheduler", cluster.scheduler_address)


@pytest.mark.parametrize(
    "command",
    [
        ["run", "nowhere.py:Processor", "nowhere"],
        ["demo"],
        ["bench", "cycles"],
        ["bench", "all"],
        ["report", "figures", "nowhere"],
        ["report", "compare", "nowhere", "nowhere"],
        ["recompress", "nowhere.root"],
    ],
    ids=" ".join,
)
def test_a_target_that_cannot_be_written_is_refused_before_anything_else(
    command: list[str], hepcache: Hepcache, here: Path
) -> None:
    (here / "taken").touch()
    for out in ("/proc/nope", here / "taken"):
        code, _, err = hepcache(*command, "--out", out)
        assert code == 2, err
        assert "--out: expected a directory that can be written to" in err
        assert str(out) in err


def test_a_sample_says_that_it_cannot_be_written_there(hepcache: Hepcache) -> None:
    code, _, err = hepcache("sample", "nanoaod", "/proc/nope")
    assert code == 2
    assert "OUT: expected a directory that can be written to" in err


def test_a_result_that_cannot_be_saved_goes_elsewhere(
    hepcache: Hepcache, here: Path, data: Path, on: tuple[str, ...]
) -> None:
    command = ("run", "analysis.py:Count", data, *on, "--out")
    code, _, _ = hepcache(*command, "out")
    assert code == 0
    expected = load(here / "out" / "out.coffea")
    assert expected["events"] == 3000
    (here / "taken" / "out.coffea").mkdir(parents=True)  # no file can take its name
    code, _, err = hepcache(*command, "taken")
    assert code == 1
    assert "taken could not be written" in err
    (other,) = here.glob("hepcache-result-*")
    assert f"the results are in {other} instead" in err
    assert load(other / "out.coffea") == expected
    assert (other / "report.html").is_file()


@pytest.mark.usefixtures("interruptible")
def test_what_is_done_before_ctrl_c_is_kept(
    hepcache: Hepcache, here: Path, data: Path, on: tuple[str, ...]
) -> None:
    hold, started = here / "hold", here / "started"
    hold.touch()

    def interrupt() -> None:
        while not started.exists():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    arguments = json.dumps({"hold": str(hold)})
    threading.Thread(target=interrupt, daemon=True).start()
    code, _, err = hepcache(
        "run", "analysis.py:Count", data, *on, "--processor-args", arguments, "--out", "out"
    )
    assert code == 130, err
    assert "hepcache run --retry out" in err
    hold.unlink()
    code, _, err = hepcache("run", "--retry", "out", *on[2:])
    assert code == 0, err
    assert load("out/out.coffea")["events"] == 3000


def test_a_run_of_which_nothing_succeeds_can_be_retried(
    hepcache: Hepcache, here: Path, data: Path, on: tuple[str, ...]
) -> None:
    needed = here / "needed"
    arguments = json.dumps({"needed": str(needed)})
    command = ("run", "analysis.py:Count", data, *on, "--processor-args", arguments)
    code, _, err = hepcache(*command, "--collect", "--out", "out")
    assert code == 1
    assert "needed is not there" in err
    assert "hepcache run --retry out" in err
    assert not Path("out/out.coffea").exists()
    needed.touch()
    code, _, err = hepcache("run", "--retry", "out", *on[2:])
    assert code == 0, err
    assert load("out/out.coffea")["events"] == 3000


TYPO = """
from coffea.processor import ProcessorABC


class Muons(ProcessorABC):
    def process(self, events):
        muons = events.Muon
        return {"n": len(muons[muons.ptt > 20])}

    def postprocess(self, accumulator):
        return accumulator
"""


def test_a_wrong_column_says_the_line_and_the_right_one(
    hepcache: Hepcache, here: Path, cluster: LocalCluster
) -> None:
    (here / "typo.py").write_text(TYPO)
    muons = [f"Muon_{name}" for name in ("pt", "eta", "phi", "mass", "charge")]
    write_nanoaod(
        here / "data",
        events=20,
        files=1,
        compression="zstd:1",
        cluster=20,
        jobs=1,
        branches=["run", "luminosityBlock", "event", "nMuon", *muons],
    )
    code, out, err = hepcache(
        "run", "typo.py", here / "data", "--scheduler", cluster.scheduler_address
    )
    assert code == 1, out
    first, second, *_ = err.splitlines()
    assert first == "hepcache: typo.py:8 in process: Muon has no field 'ptt'; did you mean pt?"
    assert (
        second
        == f"  dataset 'data', file {here}/data/nano_0000.root, tree Events, entries 0 to 20"
    )
    assert "\\x" not in err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["analysis.py:Cuont", "."], "no 'Cuont' there; its processors are analysis.py:Count"),
        (["two.py", "."], "two.py: its processors are two.py:Bee, two.py:Sea"),
        (["two.py:sae", "."], "its processors are two.py:Sea, two.py:Bee"),
        (["empty.py", "."], "name a function as :NAME"),
        (["analysis.py", "nowhere.root"], "no such file, though its directory exists"),
        (["analysis.py", ".", "--scheduler", "tcp://127.0.0.1:9"], "no scheduler answers at"),
        (["analysis.py", ".", "--condor", "1"], "condor_submit, which is not on the path"),
        (["analysis.py:Count", ".", "--processor-args", '{"hald": 1}'], "(hold='nowhere', "),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_what_is_wrong_is_said_before_a_cluster_starts(
    hepcache: Hepcache,
    here: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    says: str,
) -> None:
    monkeypatch.setenv("PATH", str(here))
    monkeypatch.setattr(LocalCluster, "__init__", _no_cluster)
    body = "(ProcessorABC):\n def process(s, e): ...\n def postprocess(s, a): ...\n"
    (here / "two.py").write_text(
        f"from coffea.processor import ProcessorABC\nclass Bee{body}class Sea{body}"
    )
    (here / "empty.py").touch()
    (here / "x.root").touch()
    code, _, err = hepcache("run", *arguments)
    assert code == 1
    assert says in err


def _no_cluster(*_: object, **__: object) -> None:
    raise AssertionError("a cluster was started")


def test_modules_beside_the_processor_reach_the_workers(
    hepcache: Hepcache, here: Path, data: Path, on: tuple[str, ...]
) -> None:
    (here / "cuts_of_mine.py").write_text("def passing(events):\n    return len(events) // 2\n")
    (here / "half.py").write_text(
        ANALYSIS.replace("len(events)", "passing(events)").replace(
            "import time", "import time\nfrom cuts_of_mine import passing"
        )
    )
    code, _, err = hepcache("run", "half.py", data, *on, "--out", "out")
    assert code == 0, err
    assert load("out/out.coffea")["events"] == 1500


def test_a_dry_run_says_what_is_there_and_what_is_cached(
    hepcache: Hepcache, here: Path, data: Path, on: tuple[str, ...], cluster: LocalCluster
) -> None:
    caches = cluster.cache_directory("host-0").parent
    command = ("run", "analysis.py", data, *on[:2], "--dry-run", "--cache-directory", caches)
    code, out, err = hepcache(*command)
    assert code == 0, err
    assert "datasets: 1, files: 3, chunks: 3, events: 3,000" in out
    assert "Not known: how long it takes" in out
    code, out, err = hepcache("run", "analysis.py", data, *on, "--quiet", "--arg", "hold=none")
    assert (code, out) == (0, ""), err
    code, out, err = hepcache(*command, "--json")
    assert code == 0, err
    found = json.loads(out)
    assert (found["chunks"], found["cached_chunks"], found["events"]) == (3, 3, 3000)
    assert found["seconds"] > 0


def test_datasets_are_chosen_by_pattern(hepcache: Hepcache, here: Path, data: Path) -> None:
    fileset = {"tt": [str(data / "0.root")], "dy": [str(data / "1.root"), str(data / "2.root")]}
    (here / "fileset.json").write_text(json.dumps(fileset))
    command = ("run", "analysis.py", "fileset.json", "--schema", "BaseSchema", "--dry-run")
    code, out, err = hepcache(*command, "--dataset", "t*", "--json")
    assert code == 0, err
    assert (json.loads(out)["files"], json.loads(out)["events"]) == (1, 1000)
    code, _, err = hepcache(*command, "--dataset", "w*")
    assert code == 1
    assert "no dataset matches 'w*'; there are tt, dy" in err


@pytest.mark.parametrize(
    ("text", "number"),
    [("100k", 100_000), ("1.5M", 1_500_000), ("100_000", 100_000), ("1e6", 10**6), ("7", 7)],
)
def test_numbers_as_people_write_them(text: str, number: int) -> None:
    assert count_of(text) == number


@pytest.mark.parametrize("text", ["0", "-1", "1.5", "0.1k1", "many", "", "0.0001k"])
def test_what_is_no_number_is_refused(text: str, hepcache: Hepcache) -> None:
    code, _, err = hepcache("run", "analysis.py", "data", f"--chunksize={text}")
    assert code == 2
    assert "expected a whole number from 1" in err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["x"], "expected a port, or HOST:PORT"),
        (["99999"], "expected a port, or HOST:PORT"),
        (["8787", "--scheduler", "tcp://127.0.0.1:1"], "for a cluster that the command starts"),
    ],
    ids=" ".join,
)
def test_a_dashboard_is_refused_where_there_can_be_none(
    options: list[str], said: str, hepcache: Hepcache
) -> None:
    code, _, err = hepcache("run", "analysis.py", "data", "--dashboard", *options)
    assert code == 2
    assert said in " ".join(err.split())


def test_each_dataset_has_an_output_of_its_own(
    hepcache: Hepcache, here: Path, data: Path, on: tuple[str, ...]
) -> None:
    fileset = {
        "/tt/2026": {"files": {str(data / "0.root"): "Events", str(data / "1.root"): "Events"}},
        "dy": {"files": {str(data / "2.root"): "Events"}},
    }
    (here / "fileset.json").write_text(json.dumps(fileset))
    command = ("run", "analysis.py:Count", "fileset.json", *on, "--per-dataset")
    code, _, err = hepcache(*command)
    assert (code, "--out" in err) == (2, True)
    code, out, err = hepcache(*command, "--arg", "hold=nowhere", "--out", "out", "--verbose")
    assert code == 0, err
    parts = [load(here / "out" / f"{name}.coffea") for name in ("tt_2026", "dy")]
    assert [part["events"] for part in parts] == [2000, 1000]
    whole = load(here / "out" / "out.coffea")
    assert whole == {name: sum(part[name] for part in parts) for name in whole}
    # --verbose: the hosts, and what to change.
    assert "Hosts in the last cycle" in out
    assert re.search("^[✓→!] ", out, re.MULTILINE)
    settings = json.loads((here / "out" / "report.json").read_text())["runs"][0]["settings"]
    assert settings["processor"] == "analysis.Count"
    assert settings["arguments"] == '{"hold": "nowhere"}'
    assert settings["command"].startswith("hepcache run analysis.py:Count fileset.json")
    assert "commit" not in settings  # no clone of anything
    code, out, _ = hepcache("explain", "out")
    assert 'arguments: {"hold": "nowhere"}' in out
    assert "slowest chunks" in out


@pytest.mark.parametrize(
    ("workers", "hosts", "expected"),
    [(4, 2, (2, 2)), (3, 2, (1, 3)), (1, 2, (1, 1)), (6, 4, (2, 3))],
)
def test_hosts_share_the_workers_evenly(
    workers: int, hosts: int, expected: tuple[int, int]
) -> None:
    assert _shared(workers, hosts, 1) == expected
    assert _shared(None, hosts, 5) == (hosts, 5)


def test_arguments_of_the_processor_have_types() -> None:
    given = ["btag=0.7", "name=tt", "years=[2022, 2023]", "on=true", "off=False", "a='x=y'"]
    assert dict(map(processor_argument, given)) == {
        "btag": 0.7,
        "name": "tt",
        "years": [2022, 2023],
        "on": True,
        "off": False,
        "a": "x=y",
    }


def test_plots_of_an_output(tmp_path: Path) -> None:
    leptons = hist.Hist.new.StrCat(["e", "mu"], name="lepton").StrCat(["tt"], name="dataset")
    lepton = leptons.Reg(10, 0, 1, name="pt").Double()
    lepton.fill(lepton=["e", "mu"], dataset="tt", pt=[0.5, 0.7])
    plane = hist.Hist.new.Reg(5, 0, 1).Reg(5, 0, 1).Weight()
    plane.fill([0.5], [0.2], weight=[2.0])
    output = {"tt": {"pt": lepton, "cutflow": {"all": 3}}, "m/x": plane.project(0), "xy": plane}
    drawn = draw(output, tmp_path)
    assert [path.name for path in drawn] == ["tt_pt.png", "m_x.png", "xy.png"]
    for path in drawn:
        assert path.read_bytes().startswith(b"\x89PNG")
