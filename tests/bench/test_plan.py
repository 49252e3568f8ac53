from __future__ import annotations

from hepcache.bench.plan import BENCHMARK_COLUMNS, present
from hepcache.samples.description import nanoaod_v15


def test_the_list_of_columns_is_the_published_one():
    names = {one.name for one in nanoaod_v15()}
    assert len(BENCHMARK_COLUMNS) == len(set(BENCHMARK_COLUMNS)) == 120
    assert set(BENCHMARK_COLUMNS) <= names


def test_present_keeps_the_order():
    assert present(["c", "a", "x"], ["a", "b", "c"]) == ["c", "a"]
