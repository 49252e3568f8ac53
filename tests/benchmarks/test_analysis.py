"""The benchmark of a real analysis."""

from __future__ import annotations

import warnings

import pytest
from coffea.nanoevents import NanoAODSchema
from coffea.processor import IterativeExecutor, Runner
from tests.compat.test_examples import BRANCHES

from hepcache.errors import ProcessorError
from hepcache.samples.nanoaod import write_nanoaod
from hepcache_bench.analysis import bench
from hepcache_bench.rdataframe import NOT_MEASURED, RDataFrame, root_python
from hepcache_bench.reuse import example_module

needs_root = pytest.mark.skipif(root_python() is None, reason=NOT_MEASURED)


@needs_root
@pytest.mark.slow
def test_rdataframe_comes_to_what_coffea_comes_to(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    files = write_nanoaod(
        tmp_path_factory.mktemp("rdataframe"), events=30_000, files=2, branches=BRANCHES, jobs=1
    )
    module = example_module("hh_bbll_for_root", "hh_bbll")
    datasets = {name: [str(path)] for name, path in zip(("data", "signal"), files, strict=True)}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Missing cross-reference", RuntimeWarning)
        runner = Runner(IterativeExecutor(status=False), schema=NanoAODSchema)
        expected = runner(
            {name: {"files": dict.fromkeys(of, "Events")} for name, of in datasets.items()},
            module.Processor(),
        )
    assert expected["data"]["cutflow"]["missing momentum"] > 100
    rdataframe = RDataFrame(str(root_python()), datasets, module.AXES, threads=2)
    try:
        for _ in range(2):
            took_s, output = rdataframe()
            assert took_s > 0
            assert rdataframe.differences(output, expected) == []
        output["data"]["histograms"]["met"][100] += 1
        output["data"]["cutflow"][0] += 1
        differences = rdataframe.differences(output, expected)
        assert [text.partition(":")[0] for text in differences] == ["data, cutflow", "data, met"]
    finally:
        rdataframe.close()


def test_an_interpreter_without_root_is_named() -> None:
    with pytest.raises(ProcessorError, match="HEPCACHE_ROOT_PYTHON"):
        RDataFrame("/bin/true", {}, {}, threads=1)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_all_come_to_what_coffea_alone_comes_to(tmp_path_factory: pytest.TempPathFactory) -> None:
    found = bench(quick=True, events=4000, directory=tmp_path_factory.mktemp("analysis"))
    measured = [row for row in found.rows if row["case"] != "RDataFrame"]
    assert [row["example"] for row in measured] == ["agc_ttbar"] * 5 + ["hh_bbll"] * 5
    (root,) = [row for row in found.rows if row["case"] == "RDataFrame"]
    assert ("wall_s" in root) != (root.get("note") == NOT_MEASURED)
    assert [row["case"] for row in measured[::5]] == ["coffea", "coffea"]
    assert {ratio for ratio in found.ratios if "_root_" not in ratio} == {
        f"{example}_coffea_over_{case}"
        for example in ("agc_ttbar", "hh_bbll")
        for case in ("hot", "derived", "changed", "again")
    }
