"""Values on the disk, with their checksums."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hepcache.errors import StoreError
from hepcache.eventstore import connect


def test_a_damaged_value_is_an_error(tmp_path: Path) -> None:
    with connect(tmp_path / "s") as store:
        store.create("nova/prod5").create(43).create(56).ingest(
            "v", np.arange(1000), {"a": np.full(1000, 0x5A5A5A5A)}
        )
    path = next(tmp_path.rglob("data.mdb"))
    data = path.read_bytes()
    needle = (0x5A5A5A5A).to_bytes(8, "little") * 100
    assert needle in data
    path.write_bytes(data.replace(needle, b"\x01" + needle[1:], 1))
    with connect(tmp_path / "s") as store:
        with pytest.raises(StoreError, match=r"'v' of nova/prod5/43/56.*damaged"):
            store["nova/prod5"][43][56].read("v")
        with pytest.raises(StoreError, match="damaged"):
            store["nova/prod5"][43][56][5]["v"]
        with pytest.raises(StoreError, match=r"'v' of nova/prod5/43/56.*damaged"):
            store.verify()
