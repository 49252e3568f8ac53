"""Columns that other hosts give a reader, before the origin or where it fails."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from hepcache.cache import ColumnCache, ColumnKey, Entry
from hepcache.errors import OriginError
from hepcache.formats.reader import Reader
from hepcache.formats.registry import forget_sources, open_source, probe
from hepcache.formats.source import TreeRef
from hepcache.io import retry
from hepcache.telemetry import ReadLog

LISTS = "Jet_pt"


@dataclass
class Holder:
    """Another host, whose cache is read here."""

    cache: ColumnCache
    first: bool
    asked: list[tuple[str, bool]] = field(default_factory=list)

    def fetch(
        self, keys: Collection[ColumnKey], *, last_resort: bool = False
    ) -> dict[ColumnKey, Entry]:
        """Return what it holds."""
        self.asked += [(key.column, last_resort) for key in keys]
        if not (self.first or last_resort):
            return {}
        found = {}
        for key in keys:
            data = self.cache.stored(key, 1 << 30)
            entry = None if data is None else self.cache.received(key, data)
            if entry is not None:
                found[key] = entry
        return found


@pytest.fixture
def caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[ColumnCache]]:
    monkeypatch.setattr(retry, "pause_s", lambda _: 0.0)
    made = [ColumnCache(tmp_path / name) for name in ("held", "lacking")]
    yield made
    for cache in made:
        cache.close()
    forget_sources()


@pytest.fixture
def ref(zstd_path: Path, tmp_path: Path) -> TreeRef:
    path = tmp_path / "origin.root"
    path.write_bytes(zstd_path.read_bytes())
    known = probe(str(path), "Events")
    return TreeRef(
        path=str(path),
        tree=known.tree,
        uuid=known.uuid,
        tag=known.tag,
        validator=known.validator,
        boundaries=(0, known.entries),
    )


def lists_of(ref: TreeRef, cache: ColumnCache, others: Holder | None = None) -> list[list[float]]:
    reader = Reader(ref, cache, open_source, ReadLog(), others=others)
    values: list[list[float]] = reader.array(LISTS, 0, ref.boundaries[-1] // 2).to_list()
    cache.flush()
    return values


def test_an_origin_that_dies_while_a_column_is_read(
    ref: TreeRef, caches: list[ColumnCache]
) -> None:
    held, lacking = caches
    expected = lists_of(ref, held)
    # It is open already, so that the failure comes when the column's bytes are asked for.
    forget_sources()
    open_source(ref)
    Path(ref.path).write_bytes(b"")
    holder = Holder(held, first=False)
    assert lists_of(ref, lacking, holder) == expected
    assert (LISTS, True) in holder.asked
    # It stays.
    assert lists_of(ref, lacking) == expected


def test_what_nobody_gives_fails_as_the_origin_does(
    ref: TreeRef, caches: list[ColumnCache]
) -> None:
    held, lacking = caches
    Path(ref.path).write_bytes(b"")
    with pytest.raises(OriginError):
        lists_of(ref, lacking, Holder(held, first=True))


def test_what_others_lack_comes_from_the_origin(ref: TreeRef, caches: list[ColumnCache]) -> None:
    held, lacking = caches
    holder = Holder(held, first=True)
    expected = lists_of(ref, lacking, holder)
    assert expected == lists_of(ref, held)
    assert not any(last_resort for _, last_resort in holder.asked)
