"""Objects that are missing, too short or changed: an error that names them, never other data."""

from contextlib import suppress
from functools import cache

import awkward as ak
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hepcache.errors import ObjectDamagedError, ObjectMissingError, ObjectStoreError
from hepcache.io.ranges import ObjectRange, coalesced
from hepcache.objectstore import open_store
from hepcache.rntuple import NTuple, ReadOptions, WriteOptions, write_array
from hepcache.rntuple.read import request_groups

ARRAY = ak.Array({"x": np.arange(3000) * 0.1, "y": [[i, i + 1] for i in range(3000)]})


def written(uri, **options):
    write_array(
        uri, "Events", ARRAY, WriteOptions(page_bytes=4096, cluster_bytes=40_000, **options)
    )
    return open_store(uri)


@cache
def small():
    """Return a store, and all that is in it."""
    store = written("ntpl+mem://damage/flip")
    names = sorted(name for name, _ in store.list(".pages/"))
    return store, {name: store.get(name) for name in ("", *names)}


@given(st.data())
@settings(max_examples=100, deadline=None)
def test_no_flipped_bit_changes_what_is_read(data):
    store, objects = small()
    name = data.draw(st.sampled_from(sorted(objects)))
    place = data.draw(st.integers(0, len(objects[name]) - 1))
    changed = bytearray(objects[name])
    changed[place] ^= 1 << data.draw(st.integers(0, 7))
    store.put(name, changed)
    found = None
    with suppress(ObjectStoreError):
        found = NTuple(store).arrays()
    if found is not None:
        # What nobody reads: the name of the anchor's checksum, a block's version.
        assert found.tolist() == ARRAY.tolist()
    store.put(name, objects[name])


@pytest.mark.parametrize("mapping", ["page", "cluster"])
def test_missing_and_short_objects_are_named(mapping):
    store = written(f"ntpl+mem://damage/{mapping}", mapping=mapping)
    ntuple = NTuple(store)
    pages = ntuple.metadata.clusters[-1].columns[0]
    name = ntuple.metadata.name_of(int(pages.objects[-1]))
    whole = store.get(name)
    store.put(name, whole[:100])
    with pytest.raises(ObjectDamagedError, match="100") as short:
        ntuple.arrays(["x"])
    assert short.value.name == name
    store.delete([name])
    with pytest.raises(ObjectMissingError) as missing:
        ntuple.arrays(["x"])
    assert missing.value.name == name
    # What does not need the object is read all the same.
    assert ntuple.arrays(["x"], 0, 100).x.tolist() == ARRAY.x[:100].tolist()


def test_a_changed_page_is_named_with_its_place():
    store = written("ntpl+mem://damage/page")
    ntuple = NTuple(store)
    pages = ntuple.metadata.clusters[0].columns[1]
    name, place = ntuple.metadata.name_of(int(pages.objects[0])), int(pages.offsets[0])
    changed = bytearray(store.get(name))
    changed[place + 20] ^= 4
    store.put(name, changed)
    with pytest.raises(ObjectDamagedError, match=f"page at byte {place}: the page's checksum"):
        ntuple.arrays(["y"], 0, 10)


RANGES = st.lists(
    st.builds(ObjectRange, st.integers(0, 3), st.integers(0, 500), st.integers(1, 80)), max_size=40
)


@given(RANGES, st.integers(1, 400), st.integers(1, 5))
def test_groups_of_requests_keep_the_order(ranges, group_bytes, most):
    options = ReadOptions(10, 200, group_bytes, requests_ahead=most)
    groups = request_groups(ranges, options)
    assert [piece for group in groups for piece in group] == coalesced(ranges, 10, 200)
    for group in groups:
        assert len(group) <= most
        assert len(group) == 1 or sum(piece.length for piece in group) <= group_bytes
