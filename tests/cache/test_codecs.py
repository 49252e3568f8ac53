from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from tests.cache.entries import entries_equal

from hepcache.cache import ColumnCache, ColumnKey, Entry
from hepcache.cache.contents import stored_columns
from hepcache.cache.disk.codecs import (
    BLOSC,
    Codec,
    Trial,
    byte_cost,
    choose,
    compress,
    decompress,
    measure_volume,
    try_codecs,
)
from hepcache.cache.disk.format import Damage, ForeignFile

KEY = ColumnKey("u", "t", "Events", 0, 10, "Jet_pt")


def floats(number: int = 100_000) -> np.ndarray:
    values = np.random.default_rng(1).exponential(30, number).astype(np.float32)
    return (values.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)


@given(
    array=npst.arrays(
        st.one_of(
            npst.integer_dtypes(endianness="<"),
            npst.unsigned_integer_dtypes(endianness="<"),
            npst.floating_dtypes(endianness="<", sizes=(32, 64)),
            npst.boolean_dtypes(),
            npst.datetime64_dtypes(endianness="<"),
            npst.complex_number_dtypes(endianness="<"),
        ),
        npst.array_shapes(max_dims=2, max_side=300),
    ),
    codec=st.sampled_from(["lz4", "zstd"]),
)
def test_what_is_compressed_comes_back(array: np.ndarray, codec: Codec) -> None:
    frame = compress(array, codec)
    if frame is not None:
        assert frame.nbytes < 0.9 * array.nbytes
        assert decompress(frame, BLOSC, array.nbytes).tobytes() == array.tobytes()


def test_what_can_not_shrink_stays_raw() -> None:
    noise = np.random.default_rng(1).integers(0, 256, 10_000, dtype=np.uint8)
    assert compress(noise, "zstd") is None
    assert compress(floats(), "raw") is None
    assert compress(np.array([], np.float32), "lz4") is None


def test_a_frame_that_lies_about_its_size_is_damage() -> None:
    frame = compress(floats(), "lz4")
    assert frame is not None
    raw_bytes = floats().nbytes
    with pytest.raises(Damage):
        decompress(frame, BLOSC, raw_bytes + 1)
    with pytest.raises(Damage):
        decompress(frame[:-1], BLOSC, raw_bytes)
    with pytest.raises(Damage):
        decompress(frame[:10], BLOSC, raw_bytes)
    with pytest.raises(ForeignFile):
        decompress(frame, 7, raw_bytes)


def test_a_codec_is_chosen_where_bytes_cost_more_than_decoding() -> None:
    trials = [Trial("lz4", 0.5, 2.5e9), Trial("zstd", 0.3, 1e9)]
    assert choose(trials, 1e-10) == "raw"  # memory
    assert choose(trials, 1e-9) == "lz4"  # an SSD
    assert choose(trials, 2e-8) == "zstd"  # a full cache over a slow link
    assert choose([], 1.0) == "raw"
    rising = [byte_cost(used << 30, 100 << 30, 8 << 30, 1e9) for used in range(1, 100, 7)]
    assert rising == sorted(rising)


def test_codecs_are_tried_on_what_is_large_enough(tmp_path: Path) -> None:
    assert try_codecs([]) == []
    assert try_codecs([np.zeros(100)]) == []
    assert {one.codec for one in try_codecs([floats()])} == {"lz4", "zstd"}
    assert measure_volume(str(tmp_path)) > 1e6
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("memory_bytes", [0, 1 << 30])
def test_a_column_takes_less_room_and_is_the_same(tmp_path: Path, memory_bytes: int) -> None:
    made = Entry(b"m", (floats(), np.arange(5)))
    sizes = {}
    for codec in ("raw", "lz4", "zstd"):
        cache = ColumnCache(
            tmp_path / codec, capacity_bytes=1 << 30, codec=codec, memory_bytes=memory_bytes
        )
        cache.put(KEY, made)
        for _ in range(2):
            found, cause = cache.get(KEY)
            assert cause == "hit"
            assert found is not None
            assert entries_equal(found, made)
            assert not found.buffers[0].flags.writeable
        (stored,) = stored_columns(cache.layout)
        sizes[codec] = stored.nbytes
        assert cache.counters.filled_raw_bytes == made.nbytes
        assert stored.nbytes >= cache.counters.filled_bytes
    assert sizes["lz4"] < 0.7 * sizes["raw"]
    assert sizes["zstd"] < 0.7 * sizes["raw"]


def test_auto_keeps_raw_what_the_page_cache_holds(tmp_path: Path) -> None:
    cache = ColumnCache(tmp_path, capacity_bytes=1 << 40)
    cache.put(KEY, Entry(b"", (floats(),)))
    assert cache.counters.filled_bytes > floats().nbytes


def test_auto_packs_a_cache_that_is_nearly_full(tmp_path: Path) -> None:
    cache = ColumnCache(tmp_path, capacity_bytes=3 << 20)
    for number in range(12):
        cache.put(KEY._replace(start=number), Entry(b"", (floats(),)))
    sizes = sorted(stored.nbytes for stored in stored_columns(cache.layout))
    assert sizes[0] < 0.7 * sizes[-1]
    assert cache.blob_get("volume", "read-rate") is not None
    for number in range(12):
        found, cause = cache.get(KEY._replace(start=number))
        assert cause in ("hit", "evicted")
        assert found is None or np.array_equal(found.buffers[0], floats())


def test_a_flipped_byte_in_a_frame_is_never_decoded(tmp_path: Path) -> None:
    cache = ColumnCache(tmp_path, capacity_bytes=1 << 30, codec="lz4")
    cache.put(KEY, Entry(b"", (floats(),)))
    path = Path(cache.layout.column(KEY))
    content = bytearray(path.read_bytes())
    # One process has compared the file's checksum before, the other has not.
    for seen in (True, False):
        again = ColumnCache(tmp_path, capacity_bytes=1 << 30, memory_bytes=0)
        before = path.stat()
        if seen:
            assert again.get(KEY)[1] == "hit"
        content[5000] ^= 4
        with path.open("r+b") as file:
            file.write(content)
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        assert again.get(KEY) == (None, "corrupt"), seen
        content[5000] ^= 4
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
