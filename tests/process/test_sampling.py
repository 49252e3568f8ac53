"""Where a processor's time goes, as looks at a thread tell."""

from __future__ import annotations

import gc
import time
import weakref
from pathlib import Path

import numpy as np
import uproot
from coffea.nanoevents import BaseSchema
from coffea.processor import IterativeExecutor, ProcessorABC

import hepcache
from hepcache.process.sampling import sampled


def sleeping() -> None:
    time.sleep(0.2)


class Worker:
    def process(self) -> None:
        sleeping()
        self.counting()

    def counting(self) -> None:
        sum(number for number in range(4_000_000))


def test_functions_are_charged_with_what_they_took() -> None:
    seconds: dict[str, float] = {}
    began = time.perf_counter()
    with sampled(seconds):
        Worker().process()
    took_s = time.perf_counter() - began
    assert {name.partition(" ")[0] for name in seconds} == {"sleeping", "Worker.counting"}
    assert seconds[f"sleeping (test_sampling.py:{sleeping.__code__.co_firstlineno})"] > 0.1
    assert 0.5 * took_s < sum(seconds.values()) <= took_s


class Arrays:
    pass


def test_what_a_function_held_goes_when_it_ends() -> None:
    held: list[weakref.ref[Arrays]] = []

    def holding() -> None:
        arrays = Arrays()
        held.append(weakref.ref(arrays))
        time.sleep(0.2)

    gc.collect()
    gc.disable()
    try:
        with sampled({}):
            holding()
        time.sleep(0.1)  # the last look, too, is over
        assert held[0]() is None
    finally:
        gc.enable()


def test_what_is_short_is_not_seen() -> None:
    seconds: dict[str, float] = {}
    with sampled(seconds):
        len(seconds)
    assert seconds == {}


@hepcache.derived
def derived_slowly(events: object) -> object:
    time.sleep(0.2)
    return events.x * 2  # type: ignore[attr-defined]


class Processor(ProcessorABC):  # type: ignore[misc]
    def process(self, events: object) -> dict[str, int]:
        self.filled()
        derived_slowly(events)
        return {"n": 1}

    def filled(self) -> None:
        time.sleep(0.2)

    def postprocess(self, accumulator: object) -> object:
        return accumulator


def test_explain_tells_what_is_worth_marking(tmp_path: Path) -> None:
    path = tmp_path / "x.root"
    with uproot.recreate(path) as file:
        file["Events"] = {"x": np.arange(10)}
    runner = hepcache.Runner(IterativeExecutor(status=False), schema=BaseSchema)
    records = []
    for _ in range(2):
        runner({"dy": {"files": {str(path): "Events"}}}, Processor())
        assert runner.run_record is not None
        records.append(runner.run_record)
    first, second = (record.profile for record in records)
    assert 0.15 < first.computed_s < first.process_s - 0.15
    assert second.computed_s == 0 < second.read_s
    assert "new: 1" in str(records[0].explain())
    # Of a first chunk, what Python imports and prepares takes long as well.
    assert [name.partition(" ")[0] for name in second.worth_marking] == ["Processor.filled"]
    assert 0.15 < second.rest_s <= second.process_s
    assert "Processor.filled (test_sampling.py" in str(records[1].explain())
