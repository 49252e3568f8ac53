"""Anchors in JSON, as ROOT has them for S3; those in DAOS are in test_root_on_daos.py."""

import json

import pytest
import xxhash

from hepcache.errors import ObjectDamagedError
from hepcache.rntuple.anchor import Anchor, Link
from hepcache.rntuple.naming import BELOW

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
