"""What users import from hepcache.hdf5 is there, and documented under that name."""

from __future__ import annotations

import re
from pathlib import Path

from hepcache import hdf5

REFERENCE = Path(__file__).parents[2] / "docs" / "reference-hdf5.md"


def test_public_names_are_in_the_reference() -> None:
    assert hdf5.__all__ == sorted(hdf5.__all__)
    for name in hdf5.__all__:
        assert getattr(hdf5, name) is not None
    named = re.findall(
        r"^\.\. [\w:]+:: hepcache\.hdf5\.(\w+)$", REFERENCE.read_text(), re.MULTILINE
    )
    assert sorted(named) == hdf5.__all__
