"""What the tests of this room share."""

from __future__ import annotations

from pathlib import Path

import pytest
import uproot
from tests.rntuple.samples import events


@pytest.fixture
def journal_at_each_object(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a put write down how far it is after each object."""
    monkeypatch.setattr("hepcache.rntuple.transfer._ResumedStore.__init__.__defaults__", (1,))


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two files of one schema, with three clusters each."""
    place = tmp_path_factory.mktemp("ntuples")
    found = []
    for number in range(2):
        path = place / f"{number}.root"
        with uproot.recreate(path) as file:
            data = events(number)
            ntuple = file.mkrntuple("Events", data[:1000])
            for start in (1000, 2000):
                ntuple.extend(data[start : start + 1000])
        found.append(path)
    return found
