"""Base forms: made once for a branch list, kept for the host."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from coffea.nanoevents import BaseSchema, NanoAODSchema

from hepcache.cache import ColumnCache
from hepcache.formats.registry import forget_sources, probe
from hepcache.formats.source import TreeRef
from hepcache.formats.ttree.source import UprootSource
from hepcache.process.forms import FormCache, SchemaForm
from hepcache.samples.nanoaod import write_nanoaod
from hepcache.telemetry import ReadLog
from hepcache.upstream import coffea as upstream

FORMS = FormCache()
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning:coffea")
BRANCHES = ["run", "luminosityBlock", "event", "Jet_pt", "nJet"]


@pytest.fixture(autouse=True)
def _nothing_known() -> Iterator[None]:
    FORMS.forget()
    forget_sources()
    yield
    FORMS.forget()
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
    return FORMS.form(ref_of(path, cache), schema, cache, {}, ReadLog())


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
    FORMS.forget()
    forget_sources()
    assert form_of(paths[1], cache).form == first.form
    FORMS.forget()
    # A file that was read here before: it isn't even looked at.
    gone = ref_of(paths[0], cache)
    paths[0].rename(paths[0].with_suffix(".gone"))
    try:
        assert FORMS.form(gone, BaseSchema, cache, {}, ReadLog()).form == first.form
    finally:
        paths[0].with_suffix(".gone").rename(paths[0])
    assert len(made) == 1


def test_forms_of_some_branches_are_kept_if_a_name_says_which(
    paths: list[Path], cache: ColumnCache, made: list[Any]
) -> None:
    def form(**options: Any) -> SchemaForm:
        FORMS.forget()
        return FORMS.form(ref_of(paths[0], cache), BaseSchema, cache, options, ReadLog())

    whole = form()
    for _ in range(2):
        assert form(filter_name="Jet_*").columns == {"Jet_pt"}
        assert form(filter_name=["Jet_*", "run"]).columns == {"Jet_pt", "run"}
        assert form().columns == whole.columns
    assert len(made) == 3
    for _ in range(2):
        assert form(filter_name=lambda name: name == "run").columns == {"run"}
    assert len(made) == 5


def test_a_damaged_form_is_made_again(
    paths: list[Path], cache: ColumnCache, made: list[Any]
) -> None:
    first = form_of(paths[0], cache)
    for path in (cache.directory / "blobs-v1").rglob("*"):
        if path.is_file():
            path.write_bytes(path.read_bytes()[:-1] + b"?")
    FORMS.forget()
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
    found = FORMS.form(
        ref_of(paths[0], cache), BaseSchema, cache, {"filter_name": "Jet*"}, ReadLog()
    )
    assert found.form["fields"] == ["Jet_pt"]
    assert type(made[0]).__name__.startswith("Model_TTree")
