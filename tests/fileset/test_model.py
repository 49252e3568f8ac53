from __future__ import annotations

import pickle

import pytest
from rich.console import Console

from hepcache.errors import BadFilesetError
from hepcache.fileset import FileRecord, Fileset, FileSpec

SPECS = [
    FileSpec("tt", "a.root", "Events", {"xs": 1}),
    FileSpec("tt", "b.root", "Events", {"xs": 1}),
    FileSpec("<dy>", "c.root"),
]


def record(entries: int) -> FileRecord:
    return FileRecord("/c.root", "Events", "u", entries, (0, entries), 1, "v", "t", "f")


def test_it_is_a_sequence() -> None:
    fileset = Fileset(SPECS)
    assert list(fileset) == SPECS
    assert len(fileset) == 3
    assert fileset[2] == SPECS[2]
    assert fileset[:2] == Fileset(SPECS[:2])
    assert fileset.datasets == ("tt", "<dy>")
    assert hash(fileset) == hash(Fileset(SPECS))
    assert pickle.loads(pickle.dumps(fileset)) == fileset


def test_its_table_shows_what_is_known() -> None:
    fileset = Fileset(SPECS)
    assert "Fileset: 2 datasets, 3 files" in repr(fileset)
    assert "1,234,567" not in repr(fileset)
    known = fileset.known([(SPECS[0], record(1_234_567))])
    assert "1,234,567 in 1 files" in repr(known)
    assert known == fileset
    known = known.known([(SPECS[1], record(3))])
    assert "1,234,570 │" in repr(known)
    assert "&lt;dy&gt;" in known._repr_html_()
    assert "<dy>" not in known._repr_html_()
    console = Console(width=80)
    with console.capture() as capture:
        console.print(known)
    assert "1,234,570" in capture.get()


@pytest.mark.parametrize(
    "specs",
    [
        [FileSpec("tt", "a.root", "Events"), FileSpec("tt", "a.root", "Runs")],
        [FileSpec("tt", "a.root", "Events"), FileSpec("tt", "b.root")],
        [FileSpec("tt", "a.root", "E", {"x": 1}), FileSpec("tt", "b.root", "E", {"x": 2})],
    ],
)
def test_what_coffea_has_no_form_for_is_refused(specs: list[FileSpec]) -> None:
    with pytest.raises(BadFilesetError, match="make two datasets"):
        Fileset(specs).to_coffea()
