"""What hepcache uses of coffea without its promise to keep it: each part by name."""

from __future__ import annotations

import dataclasses
import inspect

import numpy as np
import pytest
from coffea.processor import DaskExecutor
from tests.versions import since

from hepcache.process import Executor, Runner
from hepcache.upstream.coffea import (
    FileMeta,
    UprootMissTreeError,
    WorkItem,
    buffer_key,
    coffea_work,
    compress,
    decompress,
    exception_chain,
    key_to_tuple,
)
from hepcache.upstream.coffea import Runner as CoffeaRunner


def test_coffeas_work_function_takes_what_ours_takes() -> None:
    """What coffea does with dataframes and parquet is called with these, by position."""
    assert list(inspect.signature(coffea_work).parameters) == [
        "format", "xrootdtimeout", "schema", "use_dataframes", "savemetrics", "item",
        "processor_instance", "uproot_options", "iteritems_options", "checkpointer",
        "cache_function",
    ]  # fmt: skip
    attempts = inspect.signature(CoffeaRunner.automatic_retries).parameters
    assert list(attempts)[:3] == ["retries", "skipbadfiles", "func"]


@pytest.mark.parametrize(
    ("name", "caller"),
    [
        ("_preprocess_fileset_root", "preprocess"),
        ("_chunk_generator", "preprocess"),
        pytest.param("_auto_dask_client", "preprocess", marks=since("coffea", "2026.9")),
        ("_preprocess_fileset_parquet", "preprocess"),
        ("_filter_badfiles", "preprocess"),
        pytest.param("_limit_preprocess_files", "preprocess", marks=since("coffea", "2026.9")),
        ("_run", "run"),
    ],
)
def test_the_runners_hooks_are_still_called(name: str, caller: str) -> None:
    assert name in vars(CoffeaRunner)
    assert name in vars(Runner)
    assert f"self.{name}(" in inspect.getsource(vars(CoffeaRunner)[caller])


def test_causes_are_what_coffea_looks_at_to_skip() -> None:
    cause = OSError("disk gone")
    error = ValueError("wrapped")
    error.__cause__ = cause
    assert exception_chain(error) == [error, cause]
    assert exception_chain(0) == []
    assert issubclass(UprootMissTreeError, KeyError)
    assert "UprootMissTreeError" in inspect.getsource(CoffeaRunner.metadata_fetcher_root)


def test_runner_and_executor_take_all_of_coffeas_options() -> None:
    for ours, theirs in ((Runner, CoffeaRunner), (Executor, DaskExecutor)):
        assert {f.name for f in dataclasses.fields(theirs)} <= {
            f.name for f in dataclasses.fields(ours)
        }


def test_work_items_have_the_fields_we_copy() -> None:
    assert [field.name for field in dataclasses.fields(WorkItem)] == [
        "dataset", "filename", "treename", "entrystart", "entrystop", "fileuuid", "usermeta",
        "preload",
    ]  # fmt: skip
    assert FileMeta.__slots__ == ["dataset", "filename", "treename", "metadata", "preload"]


def test_results_are_compressed_as_in_coffea() -> None:
    value = {"out": np.arange(5).tolist()}
    assert decompress(compress(value, 1)) == value
    assert compress(value, None) is value


def test_buffer_keys_have_their_parts_where_we_look() -> None:
    make = buffer_key(("uuid", "Events", "0-10"))
    key = make(form_key="Jet_pt%2C%21load%2C%21content", attribute="data", form=None)
    assert key_to_tuple(key) == ("uuid", "Events", "0-10", "data", "Jet_pt,!load,!content")
    offsets = make(form_key="nJet%2C%21load", attribute="offsets", form=None)
    assert key_to_tuple(offsets)[-1] == "nJet,!load,!offsets"
