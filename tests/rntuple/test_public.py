"""What users import of the two packages, and that the reference has all of it."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType

import pytest

import hepcache.objectstore
import hepcache.rntuple

REFERENCE = Path(__file__).parents[2] / "docs" / "reference-objects.md"


@pytest.mark.parametrize("package", [hepcache.objectstore, hepcache.rntuple])
def test_public_names_are_sorted_there_and_documented(package: ModuleType) -> None:
    assert package.__all__ == sorted(package.__all__)
    directive = re.compile(rf":: {package.__name__}\.(\w+)$", re.MULTILINE)
    assert set(package.__all__) == set(directive.findall(REFERENCE.read_text()))
    for name in package.__all__:
        assert getattr(package, name) is not None
