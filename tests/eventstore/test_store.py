"""Random operations on a store and on a nested dict must agree."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from hepcache.errors import DuplicateItemError, MissingItemError
from hepcache.eventstore import Schema, Store, SubRun, connect
from hepcache.eventstore.shard import events as event_numbers
from hepcache.eventstore.shard import products, shard

SCHEMA = Schema.table({"": "int64"}, kind="numpy")
EVENTS = st.integers(0, 30) | st.sampled_from([2**32, 2**63, 2**64 - 1])
SUBRUNS = st.sampled_from([("a", 1, 1), ("a", 1, 2), ("a/b", 1, 1)])
LABELS = st.sampled_from(["x", "xy"])
MANY = st.sets(EVENTS, min_size=1, max_size=20)


class StoreMachine(RuleBasedStateMachine):
    """A store with tiny row groups, so that they split and join all the time."""

    url = "mem://"

    @initialize()
    def open(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="hepcache-machine-"))
        self.store: Store = connect(self.url.format(self.directory))
        self.model: dict[tuple[str, int, int], dict[int, dict[str, list[int]]]] = {}

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.close()
            shutil.rmtree(self.directory)

    def subrun(self, where: tuple[str, int, int]) -> SubRun:
        path, run, number = where
        self.model.setdefault(where, {})
        found = self.store.create(path).create(run, exist_ok=True).create(number, exist_ok=True)
        assert isinstance(found, SubRun)
        return found

    @rule(where=SUBRUNS, event=EVENTS)
    def create(self, where: Any, event: int) -> None:
        subrun = self.subrun(where)
        if event in self.model[where]:
            with pytest.raises(DuplicateItemError):
                subrun.create(event)
        else:
            subrun.create(event)
            self.model[where][event] = {}

    @rule(where=SUBRUNS, event=EVENTS, label=LABELS, rows=st.integers(0, 3), over=st.booleans())
    def put(self, where: Any, event: int, label: str, rows: int, over: bool) -> None:
        one = self.subrun(where).create(event, exist_ok=True)
        known = self.model[where].setdefault(event, {})
        value = np.arange(rows) + len(known)
        if label in known and not over:
            with pytest.raises(DuplicateItemError):
                one.store(label, value)
        else:
            one.store(label, value, overwrite=over)
            known[label] = value.tolist()

    @rule(where=SUBRUNS, events=MANY, label=LABELS, rows=st.integers(0, 2), over=st.booleans())
    def ingest(self, where: Any, events: set[int], label: str, rows: int, over: bool) -> None:
        subrun = self.subrun(where)
        model = self.model[where]
        chosen = np.array(sorted(events), np.uint64)
        values = np.arange(rows * len(chosen))
        bounds = np.arange(len(chosen) + 1) * rows
        if not over and any(label in model.get(one, {}) for one in events):
            with pytest.raises(DuplicateItemError):
                subrun.ingest(label, chosen, {"": values}, bounds, schema=SCHEMA)
            return
        subrun.ingest(label, chosen, {"": values}, bounds, schema=SCHEMA, overwrite=over)
        for place, one in enumerate(chosen.tolist()):
            model.setdefault(one, {})[label] = values[place * rows : (place + 1) * rows].tolist()

    @rule(where=SUBRUNS, events=MANY, label=LABELS)
    def batch(self, where: Any, events: set[int], label: str) -> None:
        subrun = self.subrun(where)
        with self.store.batch(size=5) as batch:
            for one in events:
                subrun.create(one, batch=batch)
                subrun.at(one).store(label, np.array([one % 7]), overwrite=True, batch=batch)
        for one in events:
            self.model[where].setdefault(one, {})[label] = [one % 7]

    @rule(where=SUBRUNS, event=EVENTS, label=LABELS)
    def remove_product(self, where: Any, event: int, label: str) -> None:
        one = self.subrun(where).at(event)
        if label in self.model[where].get(event, {}):
            del one[label]
            del self.model[where][event][label]
        else:
            with pytest.raises(MissingItemError):
                del one[label]

    @rule(where=SUBRUNS, event=EVENTS)
    def remove_event(self, where: Any, event: int) -> None:
        subrun = self.subrun(where)
        if self.model[where].pop(event, None) is None:
            with pytest.raises(MissingItemError):
                del subrun[event]
        else:
            del subrun[event]

    @rule(path=st.sampled_from(["a", "a/b"]))
    def remove_dataset(self, path: str) -> None:
        if path in self.store:
            del self.store[path]
        for where in list(self.model):
            if f"{where[0]}/".startswith(f"{path}/"):
                del self.model[where]

    @rule()
    def reopen(self) -> None:
        if self.url != "mem://":
            self.store.close()
            self.store = connect(self.url.format(self.directory))

    @invariant()
    def agree(self) -> None:
        for (path, run, number), events in getattr(self, "model", {}).items():
            subrun = self.store[path][run][number]
            assert list(subrun) == sorted(events)
            assert list(reversed(subrun)) == sorted(events, reverse=True)
            for label in ("x", "xy"):
                wanted = {one: held[label] for one, held in events.items() if label in held}
                if wanted:
                    table = subrun.read(label)
                    assert dict(
                        zip(table.events.tolist(), table.array().tolist(), strict=True)
                    ) == (wanted)
                    assert table.events.tolist() == sorted(wanted)
                    for one, rows in list(wanted.items())[:3]:
                        assert subrun[one][label].tolist() == rows
                    inside = subrun.read(label, None, 5, 2**33).events.tolist()
                    assert inside == [one for one in sorted(wanted) if 5 <= one < 2**33]


class DiskMachine(StoreMachine):
    url = "file://{}/store?shards=2&sync=false"


@pytest.fixture(autouse=True)
def _tiny_row_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "_MOST_EVENTS", 8)
    monkeypatch.setattr(event_numbers, "_MOST_EVENTS", 8)
    monkeypatch.setattr(products, "_SMALL_GROUP", 4)
    monkeypatch.setattr(products, "_FEW_EVENTS", 1)
    monkeypatch.setattr(shard, "_MOST_SINGLES", 6)


SETTINGS = settings(max_examples=15, stateful_step_count=25, deadline=None)


def test_memory_agrees_with_a_nested_dict() -> None:
    from hypothesis.stateful import run_state_machine_as_test

    run_state_machine_as_test(StoreMachine, settings=SETTINGS)


def test_disk_agrees_with_a_nested_dict() -> None:
    from hypothesis.stateful import run_state_machine_as_test

    run_state_machine_as_test(DiskMachine, settings=SETTINGS)
