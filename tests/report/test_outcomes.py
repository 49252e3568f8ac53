from __future__ import annotations

from hepcache.report.outcomes import MissingChunk, OverdueChunk, missing_lines, overdue_text


def test_lines_name_entries_and_dataset_where_they_are_known():
    chunk = MissingChunk("tt", "/a.root", "Events", 0, 100, "zlib.error")
    file = MissingChunk("", "/b.root", "", None, None, "truncated")
    assert missing_lines([chunk, file]) == [
        "/a.root, entries 0 to 100 (dataset tt): zlib.error",
        "/b.root: truncated",
    ]
    assert missing_lines([chunk] * 23)[20:] == ["and 3 more"]


def test_an_overdue_chunk_of_which_nothing_was_expected():
    text = overdue_text(OverdueChunk("tt", "/a.root", "Events", 0, 9, "big", "w2", None, 45.0))
    assert text.endswith("45.0 s at big (worker w2), and no chunk of the run had ended")
