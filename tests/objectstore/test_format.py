"""Locators, page lists, footers and anchors: the bytes that are stored."""

import json

import numpy as np
import pytest
import uproot
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from hepcache.errors import ConfigurationError, ObjectDamagedError
from hepcache.objectstore.anchor import BELOW, BESIDE, Anchor, Link, object_name
from hepcache.objectstore.compression import compressed, decompressed, parse_compression
from hepcache.objectstore.footer import (
    EMPTY_EXTENSION,
    ClusterGroup,
    Footer,
    pack_footer,
    unpack_footer,
)
from hepcache.objectstore.frames import EnvelopeKind, opened_envelope
from hepcache.objectstore.locators import IN_FILE, Locator, pack_locator, unpack_locator
from hepcache.objectstore.pagelist import Cluster, ColumnPages, pack_page_list, unpack_page_list

numbers = st.integers(0, (1 << 32) - 1)
locators = st.one_of(
    st.builds(Locator, st.just(IN_FILE), st.integers(0, 1 << 62), st.integers(0, 1 << 40)),
    st.builds(Locator, numbers, numbers, st.integers(0, 1 << 40)),
)


@given(locators, st.booleans(), st.binary(max_size=5))
def test_locators(locator, whole, before):
    data = before + pack_locator(locator, whole=whole) + b"more"
    assert unpack_locator(data, len(before)) == (locator, len(data) - 4)


def test_locators_as_root_writes_them():
    # Type in the top byte of the negated head, the locator's size in the lower two.
    assert pack_locator(Locator(7, 0, 100), whole=True) == (
        (-(2 << 24 | 16)).to_bytes(4, "little", signed=True)
        + (100).to_bytes(4, "little") + (7).to_bytes(8, "little")
    )  # fmt: skip
    assert pack_locator(Locator(7, 9, 100)) == (
        (-(3 << 24 | 16)).to_bytes(4, "little", signed=True)
        + (100).to_bytes(4, "little") + (7).to_bytes(4, "little") + (9).to_bytes(4, "little")
    )  # fmt: skip
    with pytest.raises(ValueError, match="unknown type 126"):
        unpack_locator((-(0x7E << 24 | 16)).to_bytes(4, "little", signed=True) + bytes(12), 0)


@st.composite
def columns(draw):
    count = draw(st.integers(0, 5))
    kind = draw(st.sampled_from(["file", "objects", "mixed"]))
    places = {
        "file": st.just(IN_FILE), "objects": numbers, "mixed": st.one_of(st.just(IN_FILE), numbers)
    }[kind]  # fmt: skip

    def take(strategy):
        return draw(st.lists(strategy, min_size=count, max_size=count))

    suppressed = draw(st.booleans()) and not count
    sizes = st.integers(0, (1 << 31) - 1) if draw(st.booleans()) else st.integers(0, 1 << 34)
    return ColumnPages(
        np.array(take(st.integers(1, 1 << 30)), np.int64), np.array(take(places), np.int64),
        np.array(take(numbers), np.int64), np.array(take(sizes), np.int64),
        np.array(take(st.booleans()), np.bool_),
        0 if suppressed else draw(st.integers(0, 1 << 60)),
        None if suppressed else draw(st.integers(0, 599)),
    )  # fmt: skip


@given(st.lists(st.lists(columns(), max_size=4), max_size=3))
def test_page_lists(clusters):
    wanted = [Cluster(10 * i, 10, tuple(one)) for i, one in enumerate(clusters)]
    data = pack_page_list(77, wanted)
    checksum, found = unpack_page_list(opened_envelope(EnvelopeKind.PAGE_LIST, memoryview(data)))
    assert checksum == 77
    assert [(c.first_entry, c.entries) for c in found] == [(10 * i, 10) for i in range(len(found))]
    for one, other in zip(wanted, found, strict=True):
        for a, b in zip(one.columns, other.columns, strict=True):
            for name in ("elements", "objects", "offsets", "nbytes", "checksummed"):
                np.testing.assert_array_equal(getattr(a, name), getattr(b, name))
            assert (a.first_element, a.compression) == (b.first_element, b.compression)


def test_footers():
    footer = Footer(5, EMPTY_EXTENSION, (ClusterGroup(0, 10, 2, 99, Locator(4, 0, 50)),))
    data = pack_footer(footer)
    assert unpack_footer(opened_envelope(EnvelopeKind.FOOTER, memoryview(data))) == footer
    with pytest.raises(ValueError, match="no header"):
        opened_envelope(EnvelopeKind.HEADER, memoryview(data))
    damaged = bytearray(data)
    damaged[20] ^= 1
    with pytest.raises(ValueError, match="checksum of the footer"):
        opened_envelope(EnvelopeKind.FOOTER, memoryview(damaged))


ANCHOR = Anchor(Link(0, 0, 10, 20), Link(9, 0, 30, 40), BELOW, "cluster", "", (1, 0, 0, 2))


def test_anchors_are_those_of_root():
    fields = json.loads(ANCHOR.to_json())
    assert list(fields) == sorted(fields)
    checksum = fields.pop("checksum")
    # nlohmann::json::dump(-1): names in order, no spaces.
    compact = ",".join(f"{json.dumps(name)}:{json.dumps(fields[name])}" for name in sorted(fields))
    assert xxhash.xxh3_64_intdigest(f"{{{compact}}}".encode()) == checksum
    assert fields["urlTemplate"] == "${baseurl}/${objid}"
    assert (fields["headerObjId"], fields["nBytesFooter"], fields["lenFooter"]) == (0, 30, 40)


def test_anchors_come_back():
    assert Anchor.from_json(ANCHOR.to_json(), "s") == ANCHOR
    damaged = ANCHOR.to_json().replace(b'"lenFooter": 40', b'"lenFooter": 41')
    with pytest.raises(ObjectDamagedError, match="checksum"):
        Anchor.from_json(damaged, "s")
    for data in (b"", b"{}", b"[1]", b'{"anchorVersion": 0}', b"\xff\xff"):
        with pytest.raises(ObjectDamagedError, match="no anchor"):
            Anchor.from_json(data, "s")
    with pytest.raises(ObjectDamagedError, match="version 9"):
        Anchor.from_json(b'{"anchorVersion": 9}', "s")


def test_names_of_objects():
    assert object_name(BESIDE, 3) == ".pages/3"
    assert object_name("${baseurl}/x/${objid}.bin", 3) == "x/3.bin"
    for template in ("https://elsewhere/${objid}", "${baseurl}/../${objid}", "${baseurl}", ""):
        with pytest.raises(ObjectDamagedError, match="template"):
            object_name(template, 3)


@given(st.binary(max_size=3000), st.sampled_from(["zstd:1", "lz4", "lz4:9", "zlib", "lzma:1"]))
def test_blocks_are_those_of_uproot(data, how):
    data = data + bytes(500)
    packed = bytes(compressed(data, parse_compression(how)))
    assert bytes(decompressed(memoryview(packed), len(data))) == data
    chunk = uproot.source.chunk.Chunk.wrap(None, np.frombuffer(packed, np.uint8))
    cursor = uproot.source.cursor.Cursor(0)
    plain = uproot.compression.decompress(chunk, cursor, {}, len(packed), len(data))
    assert plain.raw_data.tobytes() == data


def test_what_is_not_smaller_is_not_compressed():
    noise = np.random.default_rng(1).bytes(1000)
    assert bytes(compressed(noise, parse_compression("zstd"))) == noise
    assert bytes(decompressed(memoryview(noise), 1000)) == noise
    with pytest.raises(ValueError, match="compress"):
        decompressed(memoryview(noise), 1001)
    with pytest.raises(ConfigurationError, match="compression"):
        parse_compression("zstd:77")
