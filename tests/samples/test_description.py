from __future__ import annotations

from pathlib import Path

from hepcache.samples.description import described_file
from hepcache_bench.describe_nanoaod import describe


def test_shipped_description_is_that_of_the_real_file(shared_data: Path) -> None:
    # As text, because the mean of an infinite column is no number.
    assert repr(describe(shared_data / "nanoaod/nano_tt_v15.root")) == repr(described_file())
