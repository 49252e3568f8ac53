"""Options without meaning are refused."""

from __future__ import annotations

from typing import Any

import pytest

from hepcache.errors import ConfigurationError
from hepcache.hdf5 import TableOptions


@pytest.mark.parametrize(
    "options",
    [
        {"compression": "lzma"},
        {"level": 10},
        {"compression": "none", "level": 3},
        {"chunk_rows": 0},
        {"memory_bytes": 1},
        {"key": "spill/"},
        {"attributes": "some"},
        {"compress_from": -1},
        {"effort": "great"},
    ],
    ids=str,
)
def test_options_without_meaning(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        TableOptions(**options)
