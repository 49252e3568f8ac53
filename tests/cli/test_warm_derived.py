"""Derived columns warmed like the last run, and what the next run then computes: nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import uproot
from coffea import processor as coffea
from coffea.nanoevents import BaseSchema
from tests.cli.conftest import Hepcache

from hepcache import Executor, Runner
from hepcache.api import derived_maker, warm
from hepcache.clusters import LocalCluster
from hepcache.process.named_processor import load_processor
from hepcache.process.worker_state import forget, worker_state
from hepcache.report import RunRecord
from hepcache.telemetry import DerivedUse

PROCESSOR = """
import json
import awkward as ak
import numpy as np
from coffea.processor import ProcessorABC
from hepcache import derived

KEPT = {}
SCALES = {"data": 1.0, "mc": 1.5}

def helper(values, by):
    return values * by

@derived
def scaled(events, by):
    return helper(ak.nan_to_num(events.met), by)

@derived
def with_metadata(events):
    return events.Jet_id * events.metadata.get("factor", 2)

@derived
def from_file(events):
    return events.Jet_id + KEPT.get("offset", 0)

class Processor(ProcessorABC):
    def __init__(self, least=1, table=None, url="", **others):
        self.least, self.table, self.url = least, table, url
        self.__dict__.update(others)

    @derived
    def large(self, events):
        return ak.num(events.Jet_id[events.Jet_id >= self.least])

    def process(self, events):
        if self.table and not KEPT:
            KEPT["offset"] = json.loads(open(self.table).read())
        dataset = events.metadata["dataset"]
        found = [scaled(events, SCALES.get(dataset, 2.0)), with_metadata(events)]
        found += [from_file(events)] if self.table else [self.large(events)]
        return {dataset: [float(ak.sum(values)) for values in found]}

    def postprocess(self, accumulator):
        pass
"""


@pytest.fixture
def fileset(data: Path, tmp_path: Path) -> Path:
    files = sorted(map(str, data.glob("*.root")))
    place = tmp_path / "fileset.json"
    halves = {"data": files[:2], "mc": files[2:]}
    place.write_text(
        json.dumps({name: {"files": dict.fromkeys(of, "Events")} for name, of in halves.items()})
    )
    return place


@pytest.fixture(scope="module")
def shared_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    # Of two hosts, a busy one would be helped by the other, which computes.
    with LocalCluster(hosts=1, cache_directory=tmp_path_factory.mktemp("caches")) as made:
        yield made


@pytest.fixture
def program(tmp_path: Path) -> Path:
    place = tmp_path / "marked.py"
    place.write_text(PROCESSOR)
    return place


def cycle(fileset: Path, processor: Any, cluster: LocalCluster) -> tuple[Any, RunRecord]:
    with cluster.client() as client:
        runner = Runner(Executor(client=client, status=False), schema=BaseSchema)
        output = runner(json.loads(fileset.read_text()), processor)
    assert runner.run_record is not None
    return output, runner.run_record


def computed(record: RunRecord) -> dict[str, int]:
    return {name.split(".")[-1]: use.computed for name, use in record.derived.items()}


def test_the_next_run_computes_nothing(
    cluster: LocalCluster, fileset: Path, program: Path, hepcache: Hepcache
) -> None:
    processor = load_processor(f"{program}:Processor", {"least": 3})
    expected, record = cycle(fileset, processor, cluster)
    assert computed(record) == {"scaled": 4, "with_metadata": 4, "large": 4}
    # What is warmed like a cycle that computed nothing is the same.
    _, record = cycle(fileset, processor, cluster)
    assert computed(record) == {"scaled": 0, "with_metadata": 0, "large": 0}
    for _ in range(2):
        cluster.clear_caches()
        code, out, err = hepcache(
            "cache", "warm", fileset, "--like", "last",
            "--scheduler", cluster.scheduler_address, "--json",
        )  # fmt: skip
        assert code == 0
        assert "derived columns: Processor.large, scaled, with_metadata" in err
        made = json.loads(out)["derived"]
        # Each of the files is of one dataset, which asks for one scale.
        assert [made[name]["computed"] for name in sorted(made)] == [4, 4, 4]
        assert {use["reason"] for use in made.values()} == {""}
        output, record = cycle(fileset, processor, cluster)
        assert output == expected
        assert computed(record) == {"scaled": 0, "with_metadata": 0, "large": 0}
        assert not sum(record.derived.values(), DerivedUse()).reason
    code, out, _ = hepcache(
        "cache", "warm", fileset, "--like", "last", "--scheduler", cluster.scheduler_address
    )
    assert code == 0
    assert "Derived column scaled: read in 4 calls" in out


def test_other_metadata_and_chunks_are_warmed_as_they_are_asked_for(
    cluster: LocalCluster, fileset: Path, program: Path
) -> None:
    processor = load_processor(f"{program}:Processor")
    cycle(fileset, processor, cluster)
    changed = json.loads(fileset.read_text())
    changed["mc"]["metadata"] = {"factor": 7}
    changed["other"] = changed.pop("data")
    fileset.write_text(json.dumps(changed))
    cluster.clear_caches()
    record = warm(
        changed, [], cluster=cluster, chunksize=300, status=False, derived=derived_maker()
    )
    assert not sum(record.derived.values(), DerivedUse()).reason
    output, record = cycle(fileset, processor, cluster)
    # A dataset that the run had not asks for a scale that nobody knew.
    assert computed(record) == {"scaled": 2, "with_metadata": 0, "large": 0}
    plain = coffea.Runner(coffea.IterativeExecutor(status=False), schema=BaseSchema)
    assert output == plain(changed, processor)


def test_what_the_processor_read_of_a_file_before_is_not_guessed(
    cluster: LocalCluster, fileset: Path, program: Path, tmp_path: Path, hepcache: Hepcache
) -> None:
    table = tmp_path / "offset.json"
    table.write_text("5")
    processor = load_processor(f"{program}:Processor", {"table": str(table)})
    expected, record = cycle(fileset, processor, cluster)
    assert computed(record)["from_file"] == 4
    cluster.clear_caches()
    with cluster.client() as client:
        client.restart()
    code, out, _ = hepcache(
        "cache", "warm", fileset, "--like", "last",
        "--scheduler", cluster.scheduler_address, "--json",
    )  # fmt: skip
    assert code == 0
    assert "offset.json" in json.loads(out)["derived"]["from_file"]["reason"]
    assert cycle(fileset, processor, cluster)[0] == expected


def test_a_function_that_fails_leaves_the_others(
    cluster: LocalCluster, fileset: Path, program: Path, tmp_path: Path, hepcache: Hepcache
) -> None:
    cycle(fileset, load_processor(f"{program}:Processor"), cluster)
    with uproot.recreate(tmp_path / "lacking.root") as file:
        file["Events"] = {"met": [1.0, 2.0]}
    code, out, _ = hepcache(
        "cache", "warm", tmp_path / "lacking.root", "--like", "last",
        "--scheduler", cluster.scheduler_address, "--json",
    )  # fmt: skip
    assert code == 0
    made = json.loads(out)["derived"]
    assert "Jet_id" in made["Processor.large"]["reason"]
    assert made["scaled"]["reason"] == ""
    assert made["scaled"]["computed"] > 0


@pytest.mark.parametrize(
    "secret",
    [
        {"url": "s3://id:hunter2hunter2@bucket/tables"},
        {"url": "https://host/table.json?X-Amz-Signature=hunter2hunter2"},
        {"token": "hunter2hunter2"},
        {"options": {"s3_access_key": "hunter2hunter2"}},
        {"options": ["Authorization: Bearer hunter2hunter2"]},
    ],
    ids=str,
)
def test_credentials_of_a_processor_are_not_kept(
    secret: dict[str, Any], fileset: Path, program: Path, tmp_path: Path, hepcache: Hepcache
) -> None:
    forget()
    processor = load_processor(f"{program}:Processor", secret)
    runner = Runner(coffea.IterativeExecutor(status=False), schema=BaseSchema)
    runner(json.loads(fileset.read_text()), processor)
    assert runner.run_record is not None
    runner.run_record.write(tmp_path / "report.json")
    worker_state().flush()
    places = [tmp_path, worker_state().cache.directory]
    kept = [file for place in places for file in place.rglob("*") if file.is_file()]
    assert {"c.sqlite", "report.json"} <= {file.name for file in kept}
    assert not [str(file) for file in kept if b"hunter2" in file.read_bytes()]
    # What was given nothing secret is made all the same.
    maker = derived_maker()
    assert maker is not None
    assert maker.lost == ["Processor.large"]
    assert maker.functions == ["scaled", "with_metadata"]
    code, _, err = hepcache(
        "cache", "warm", fileset, "--like", "last", "--hosts", "1",
        "--cache-directory", tmp_path / "caches", "--json",
    )  # fmt: skip
    assert code == 0, err
    assert "not made, because their calls are not kept: Processor.large" in err


def test_what_is_planted_is_not_run(
    fileset: Path, program: Path, tmp_path: Path, hepcache: Hepcache
) -> None:
    forget()
    runner = Runner(coffea.IterativeExecutor(status=False), schema=BaseSchema)
    runner(json.loads(fileset.read_text()), load_processor(f"{program}:Processor"))
    (file,) = (tmp_path / "c-calls").glob("*/*.result")
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    maker = derived_maker()
    assert maker is not None
    assert not maker.calls
    assert maker.lost == ["Processor.large", "scaled", "with_metadata"]
    # The next run keeps them again.
    runner(json.loads(fileset.read_text()), load_processor(f"{program}:Processor"))
    maker = derived_maker()
    assert maker is not None
    assert maker.functions == ["Processor.large", "scaled", "with_metadata"]
