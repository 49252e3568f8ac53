"""Which tests hold with which versions of what hepcache stands on."""

from __future__ import annotations

from importlib.metadata import version

import pytest
from packaging.version import Version


def since(distribution: str, first: str) -> pytest.MarkDecorator:
    """Skip a test with versions of a distribution before one."""
    present = version(distribution)
    return pytest.mark.skipif(
        Version(present) < Version(first), reason=f"{distribution} {present} is before {first}"
    )
