"""The type of a product."""

from __future__ import annotations

import numpy as np

from hepcache.eventstore import Schema


def test_type_identity_is_golden() -> None:
    # It is stored: it may never change.
    schema = Schema.table({"b": "float32", "a": "var * ?int64"})
    assert schema.identity == Schema.table({"a": "var * ?int64", "b": np.float32}).identity
    assert schema.identity.hex() == "6e7077724a388ff656bf4bac885de1b9"
