"""Base forms: made once for a branch list, kept for the host."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from coffea.nanoevents import BaseSchema, NanoAODSchema

from hepcache.bench.samples.nanoaod import write_nanoaod
from hepcache.cache import ColumnCache
from hepcache.columns import TreeRef, forget_sources
from hepcache.columns.uproot_source import UprootSource
from hepcache.fileset.probe import probe
from hepcache.process import upstream
from hepcache.process.forms import SchemaForm, forget_forms, schema_form
from hepcache.telemetry import ReadLog

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning:coffea")
BRANCHES = ["run", "luminosityBlock", "event", "Jet_pt", "nJet"]


@pytest.fixture(autouse=True)
def _nothing_known() -> Iterator[None]:
    forget_forms()
    forget_sources()
    yield
    forget_forms()
    forget_sources()


@pytest.fixture
def cache(tmp_path: Path) -> ColumnCache:
    return ColumnCache(tmp_path / "cache", capacity_bytes=1 << 26)


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    directory = tmp_path_factory.mktemp("sample")
    return write_nanoaod(directory, events=40, files=2, branches=BRANCHES, jobs=1)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The trees of which coffea's form is made."""
    seen: list[Any] = []
    original = upstream.base_form

    def noting(tree: Any, *rest: Any) -> Any:
        seen.append(tree)
        return original(tree, *rest)

    monkeypatch.setattr(upstream, "base_form", noting)
    return seen


def ref_of(path: Path, cache: ColumnCache | None) -> TreeRef:
    record = probe(str(path), "Events")
    boundaries = (0, record.entries)
    return TreeRef(
        record.path, "Events", record.uuid, record.tag, record.validator, boundaries, store=cache
    )


def form_of(path: Path, cache: ColumnCache | None, schema: type = BaseSchema) -> SchemaForm:
    return schema_form(ref_of(path, cache), schema, cache, {}, ReadLog())


def test_a_new_file_of_known_branches_needs_no_new_form(
    paths: list[Path], cache: ColumnCache, made: list[Any]
) -> None:
    first = form_of(paths[0], cache)
    assert form_of(paths[1], cache) is first
    assert form_of(paths[0], cache, NanoAODSchema).form != first.form
    assert len(made) == 1


def test_another_process_finds_form_and_table(
    paths: list[Path], cache: ColumnCache, made: list[Any]
) -> None:
    first = form_of(paths[0], cache)
    forget_forms()
    forget_sources()
    assert form_of(paths[1], cache).form == first.form
    forget_forms()
    # A file that was read here before: it isn't even looked at.
    gone = ref_of(paths[0], cache)
    paths[0].rename(paths[0].with_suffix(".gone"))
    try:
        assert schema_form(gone, BaseSchema, cache, {}, ReadLog()).form == first.form
    finally:
        paths[0].with_suffix(".gone").rename(paths[0])
    assert len(made) == 1


def test_a_damaged_form_is_made_again(
    paths: list[Path], cache: ColumnCache, made: list[Any]
) -> None:
    first = form_of(paths[0], cache)
    for path in (cache.directory / "blobs-v1").rglob("*"):
        if path.is_file():
            path.write_bytes(path.read_bytes()[:-1] + b"?")
    forget_forms()
    forget_sources()
    assert form_of(paths[0], cache).form == first.form
    assert len(made) == 2


def test_uproot_parses_no_tree_of_plain_numbers(
    paths: list[Path], cache: ColumnCache, made: list[Any]
) -> None:
    form_of(paths[0], cache)
    source = UprootSource(ref_of(paths[0], cache))
    assert source.read(["Jet_pt", "run"], 0, 20, ReadLog())
    assert "whole_tree" not in vars(source)
    source.close()


def test_options_of_iteritems_are_uproots(
    paths: list[Path], cache: ColumnCache, made: list[Any]
) -> None:
    found = schema_form(
        ref_of(paths[0], cache), BaseSchema, cache, {"filter_name": "Jet*"}, ReadLog()
    )
    assert found.form["fields"] == ["Jet_pt"]
    assert type(made[0]).__name__.startswith("Model_TTree")
