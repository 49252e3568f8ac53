from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hepcache.telemetry import ChunkRecord, Tally


def record(host: str = "a", owner: str = "a", *, hits: int = 0, misses: int = 0) -> ChunkRecord:
    causes = {name: n for name, n in (("hit", hits), ("miss", misses)) if n}
    return ChunkRecord(
        dataset="tt", path="/a.root", uuid="u", tree="Events", start=0, stop=100, segment=0,
        host=host, worker="w", owner=owner, began=0.0, ended=1.0, open_s=0.0, read_s=0.1,
        decode_s=0.1, process_s=0.5, causes=causes,
        cause_bytes={name: 1000 * n for name, n in causes.items()},
        cache_bytes=1000 * hits, origin_bytes=500 * misses, columns=hits + misses,
    )  # fmt: skip


def tally(*records: ChunkRecord) -> Tally:
    made = Tally()
    for one in records:
        made.count(one)
    return made


def test_a_tally_counts_misses_away_from_the_owner_as_stolen():
    found = tally(record(hits=3, misses=1), record(owner="b", misses=2))
    assert found.causes == {"hit": 3, "miss": 1, "stolen": 2}
    assert found.cause_bytes == {"hit": 3000, "miss": 1000, "stolen": 2000}
    assert (found.chunks, found.events, found.cache_bytes, found.origin_bytes) == (
        2,
        200,
        3000,
        1500,
    )
    assert found.hit_ratio == 0.5
    assert Tally().hit_ratio is None
    assert Tally.from_dict(found.to_dict()) == found


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5))), st.integers(0, 10))
def test_what_grew_is_the_difference(numbers, cut):
    records = [record(hits=hits, misses=misses) for hits, misses in numbers]
    whole, first, rest = tally(*records), tally(*records[:cut]), tally(*records[cut:])
    assert (whole - first).to_dict() == {
        **rest.to_dict(),
        # A difference keeps the names of what did not grow.
        "causes": dict.fromkeys(first.causes, 0) | rest.causes,
        "cause_bytes": dict.fromkeys(first.cause_bytes, 0) | rest.cause_bytes,
    }
    assert (first + rest).to_dict() == whole.to_dict()
