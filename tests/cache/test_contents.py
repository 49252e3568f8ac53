"""What the directories say of what is stored."""

from __future__ import annotations

from pathlib import Path

from tests.cache.kinds import DerivedValues

from hepcache.cache import ColumnCache


def test_segments_of_a_file_hold_the_same_columns_also_derived_ones(tmp_path: Path) -> None:
    """Hosts report each different set of names, so sets must be few."""
    cache = ColumnCache(tmp_path / "cache", capacity_bytes=1 << 30)
    values = DerivedValues(tmp_path)
    values.ask(cache, [1, 2], 500)
    cache.flush()
    held, computed = cache.holdings()
    assert held == cache.residency()
    ((file, segments),) = held.items()
    assert file == (values.known.uuid, "Events")
    (names,) = {columns for _, columns in segments.values()}
    assert sorted(name.partition("@")[0] for name in names) == ["numbered", "numbered", "x"]
    assert computed.keys() == held.keys()
    for seconds in computed[file].values():
        assert seconds.keys() == {name for name in names if "@" in name}
        assert all(took_s > 0 for took_s in seconds.values())
    assert all(nbytes > 3 * 500 * 8 // 2 for nbytes, _ in segments.values())
