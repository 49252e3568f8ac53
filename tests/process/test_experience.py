"""What a run teaches the next one."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from hepcache.process.experience import Experience
from hepcache.telemetry import ChunkRecord


class Kept(dict[tuple[str, str], bytes]):
    def blob_get(self, kind: str, key: str) -> bytes | None:
        return self.get((kind, key))

    def blob_put(self, kind: str, key: str, data: bytes) -> None:
        self[kind, key] = data


@dataclass(frozen=True)
class Part:
    uuid: str
    segment: int


def record(
    uuid: str, segment: int, seconds: float, host: str = "a", *, read_s: float = 0.0
) -> ChunkRecord:
    return ChunkRecord(
        dataset="d", path="p", uuid=uuid, tree="Events", start=segment, stop=segment + 100,
        segment=segment, host=host, worker="w", owner=host, began=50.0, ended=50.0 + seconds,
        open_s=0, read_s=read_s, decode_s=0, process_s=seconds, causes={}, cause_bytes={},
        cache_bytes=0, origin_bytes=int(read_s > 0), columns=1,
    )  # fmt: skip


def test_nothing_is_expected_before_anything_was_seen() -> None:
    assert Experience().seconds([Part("u", 0)], [10]) is None


def test_a_chunk_is_expected_to_take_what_it_took_without_the_reading() -> None:
    known = Experience()
    known.learn([record("u", 0, 5.0, read_s=3.0), record("u", 100, 1.0)], ["Jet_pt"])
    found = known.seconds([Part("u", 0), Part("u", 100), Part("u", 100)], [100, 100, 50])
    assert found == pytest.approx([2.0, 1.0, 0.5])
    assert known.columns == ["Jet_pt"]


def test_what_was_not_seen_takes_as_long_as_its_file_or_as_any() -> None:
    known = Experience()
    known.learn([record("u", 0, 2.0), record("u", 100, 4.0), record("v", 0, 9.0)], [])
    assert known.seconds([Part("u", 500), Part("w", 0)], [100, 100]) == pytest.approx([3.0, 6.0])


def test_fast_hosts_are_told_from_short_chunks() -> None:
    known = Experience()
    for _ in range(8):
        known.learn(
            [
                record(uuid, segment, length * (2.0 if host == "slow" else 1.0), host)
                for uuid, length in (("u", 1.0), ("v", 7.0))
                for segment, host in ((0, "slow"), (100, "fast"), (200, "slow"), (300, "fast"))
            ],
            [],
        )
    assert known.speeds["fast"] / known.speeds["slow"] == pytest.approx(2.0, rel=0.1)
    short, long = known.seconds([Part("u", 0), Part("v", 0)], [100, 100]) or ()
    assert long / short == pytest.approx(7.0)


def test_noise_gives_no_host_another_speed() -> None:
    known = Experience()
    known.learn([record("u", 0, 1.0, "a"), record("u", 100, 1.06, "b")], [])
    assert known.speeds == {}


def test_it_outlives_the_process_and_distrusts_what_it_finds() -> None:
    kept, known = Kept(), Experience()
    known.learn([record("u", 0, 2.0, "a"), record("u", 100, 1.0, "b")], ["Jet_pt"])
    known.save(kept, "work")
    assert Experience.load(kept, "work") == known
    assert Experience.load(kept, "other") == Experience()
    for damaged in (b"{", b"[]", b'{"version": 9}', b'{"version": 1, "segments": 3}'):
        kept.blob_put("experience", "work", damaged)
        assert Experience.load(kept, "work") == Experience()
