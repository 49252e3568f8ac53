"""Encodings of pages, those included that we read and do not write."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hepcache.io.root_blocks import parse_compression
from hepcache.rntuple.arrays import ColumnSpec
from hepcache.rntuple.pages import decode, payload, rebase_offsets, seal
from hepcache.rntuple.schema import ColumnInfo


def info(kind="plain", dtype="f4", bits=32, result=None, **more):
    fields = {"split": False, "zigzag": False, "delta": False, "index": False, **more}
    wide = np.dtype(result or dtype)
    return ColumnInfo(
        0,
        kind,
        np.dtype(dtype),
        wide,
        bits,
        first_element=0,
        low=fields.pop("low", 0.0),
        high=fields.pop("high", 0.0),
        alternatives=(0,),
        **fields,
    )


@pytest.mark.parametrize("width", [10, 12, 16, 17, 24, 31])
def test_truncated_floats(width):
    values = np.array([1.0, -2.5, 3.14159, 0.0, 1e10, -1e-10, 7.0], np.float32)
    short = values.view(np.uint32) >> (32 - width)
    bits = ((short[:, None] >> np.arange(width, dtype=np.uint32)) & 1).astype(np.uint8)
    page = np.packbits(bits.ravel(), bitorder="little").tobytes()
    out = np.empty(len(values), np.float32)
    decode(memoryview(page), info("truncated", bits=width), out)
    np.testing.assert_array_equal(out.view(np.uint32), short << (32 - width))


@pytest.mark.parametrize("width", [1, 7, 8, 20, 32])
def test_quantized_floats(width):
    top = (1 << width) - 1
    steps = np.array([0, top, top // 2, top // 3, 1], np.uint64)
    bits = ((steps[:, None] >> np.arange(width, dtype=np.uint64)) & 1).astype(np.uint8)
    page = np.packbits(bits.ravel(), bitorder="little").tobytes()
    out = np.empty(len(steps), np.float32)
    decode(memoryview(page), info("quantized", bits=width, low=-2.0, high=6.0), out)
    np.testing.assert_array_equal(out, (-2 + steps * 8.0 / top).astype(np.float32))


def test_quantized_doubles_are_not_rounded_to_floats():
    steps = np.arange(1 << 10, dtype=np.uint32)
    bits = (steps[:, None] >> np.arange(10, dtype=np.uint32)) & 1
    page = np.packbits(bits.astype(np.uint8), bitorder="little").tobytes()
    out = np.empty(len(steps), np.float64)
    decode(memoryview(page), info("quantized", "f8", bits=10, low=-9.0, high=9.0), out)
    # The formula and its order are ROOT's.
    assert out.tolist() == [step * (18.0 / 1023) + -9.0 for step in range(1 << 10)]


def test_a_narrower_representation_is_widened():
    values = np.array([1.5, -2.25], np.float16)
    out = np.empty(2, np.float32)
    column = info(dtype="f2", bits=16, result="f4")
    decode(memoryview(values.tobytes()), column, out)
    assert out.tolist() == [1.5, -2.25]


SPECS = {
    "i2": (0x11, {"split": True, "zigzag": True}),
    "u2": (0x12, {"split": True}),
    "i4": (0x13, {"split": True, "zigzag": True}),
    "u4": (0x14, {"split": True}),
    "i8": (0x15, {"split": True, "zigzag": True}),
    "u8": (0x16, {"split": True}),
    "f2": (0x17, {"split": True}),
    "f4": (0x18, {"split": True}),
    "f8": (0x19, {"split": True}),
}


@given(
    st.sampled_from(sorted(SPECS)),
    st.binary(max_size=400),
    st.booleans(),
    st.sampled_from(["none", "zstd"]),
)
def test_what_is_sealed_is_decoded(kind, data, checksum, how):
    dtype = np.dtype(kind)
    values = np.frombuffer(data[: len(data) // dtype.itemsize * dtype.itemsize], dtype)
    number, encoding = SPECS[kind]
    bits = 8 * dtype.itemsize
    if not len(values):
        return
    column = ColumnSpec(number, bits, 0, **encoding)
    page = seal(values, column, parse_compression(how), checksum=checksum)
    out = np.empty_like(values)
    assert page.checksummed is checksum
    stored = payload(memoryview(page.data), page.checksummed)
    decode(stored, info(dtype=kind, bits=bits, **encoding), out)
    assert out.tobytes() == values.tobytes()


@given(st.lists(st.integers(0, 1 << 40), max_size=50))
def test_offsets_are_stored_as_differences(values):
    array = np.cumsum(np.array([3, *values], np.int64))
    page = seal(array, ColumnSpec(0x1B, 64, 0, split=True, delta=True), parse_compression("zstd"))
    out = np.empty_like(array)
    column = info(dtype="i8", bits=64, split=True, delta=True, index=True)
    decode(payload(memoryview(page.data), True), column, out)
    assert out.tolist() == array.tolist()


@given(st.lists(st.lists(st.integers(0, 9), max_size=5), max_size=6), st.integers(0, 3))
def test_offsets_of_clusters_follow_each_other(clusters, before):
    parts = [np.cumsum(np.array(counts, np.int64)) for counts in clusters]
    starts = list(np.cumsum([before + 1, *map(len, parts)])[:-1])
    values = np.concatenate([np.zeros(before + 1, np.int64), *parts])
    rebase_offsets(values, [int(start) for start in starts])
    counts = [count for cluster in clusters for count in cluster]
    assert values[before + 1 :].tolist() == np.cumsum(np.array(counts, np.int64)).tolist()
