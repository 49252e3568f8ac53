"""The benchmark of hot chunks, on a few events."""

from __future__ import annotations

from pathlib import Path

import pytest
from coffea.nanoevents import BaseSchema, NanoAODSchema

from hepcache.bench.plan import BENCHMARK_COLUMNS
from hepcache.errors import ProcessorError
from hepcache.samples.nanoaod import write_nanoaod
from hepcache_bench.hot import _own_cache, bench, places_of
from hepcache_bench.hot_memory import resident
from hepcache_bench.hot_readers import COFFEA, HEPCACHE, MEMORY, UPROOT, Chunks, interleaved

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning:coffea")
COLUMNS = [
    name
    for name in BENCHMARK_COLUMNS
    if name.startswith(("Jet_", "PFMET_", "run", "lumi", "event", "nJ"))
]


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("sample")
    (path,) = write_nanoaod(
        directory, events=600, cluster=250, compression="zstd:1", jobs=1, branches=COLUMNS
    )
    return path


@pytest.mark.parametrize("span", [(0, 600), (100, 550)])
def test_everybody_adds_up_the_same(sample: Path, tmp_path: Path, span: tuple[int, int]) -> None:
    with _own_cache(tmp_path):
        chunks = Chunks(sample, NanoAODSchema, places_of(COLUMNS), tmp_path)
        contenders = {
            HEPCACHE: chunks.hepcache(*span),
            COFFEA: chunks.coffea(*span),
            **chunks.coffea_cached(*span),
            UPROOT: chunks.uproot(*span),
        }
        times = interleaved(contenders, 2)
    assert set(times) == set(contenders)
    assert all(taken > 0 for taken in times.values())


def test_without_a_schema(sample: Path, tmp_path: Path) -> None:
    with _own_cache(tmp_path):
        chunks = Chunks(sample, BaseSchema, {name: (name,) for name in COLUMNS}, tmp_path)
        read = {HEPCACHE: chunks.hepcache(0, 600), MEMORY: chunks.memory(0, 600)}
        interleaved(read, 1)
        assert set(read[HEPCACHE]()) == set(COLUMNS)


def test_other_sums_are_an_error() -> None:
    with pytest.raises(ProcessorError, match="b and a add up different values of x"):
        interleaved({"a": lambda: {"x": 1.0}, "b": lambda: {"x": 2.0}}, 1)
    with pytest.raises(ProcessorError):
        interleaved({"a": lambda: {"x": 1.0}, "b": lambda: {"x": 1.0, "y": 2.0}}, 1)


def test_memory_does_not_grow_with_the_cycles(sample: Path, tmp_path: Path) -> None:
    chunks = Chunks(sample, NanoAODSchema, places_of(COLUMNS), tmp_path)
    found = resident(chunks, "hepcache", 600, 60)
    assert found.peak_bytes > 10 << 20
    assert found.growth_bytes < 2 << 20
    with pytest.raises(ProcessorError, match="died"):
        resident(chunks, "nothing", 600, 1)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_ratios(tmp_path: Path) -> None:
    result = bench(quick=True, events=10_000, runs=1, directory=tmp_path)
    assert {
        "coffea_cached", "coffea_uncached", "uproot", "narrow_coffea_uncached",
        "narrow_over_limit", "peak_rss_over_reference", "growth_bytes",
    } <= set(result.ratios)  # fmt: skip
    assert result.ratios["coffea_uncached"] > 2
    assert {row["columns"] for row in result.rows} == {114, 120}
    assert list(tmp_path.iterdir()) == []
