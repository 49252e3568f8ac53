"""What hepcache uses of uproot without its promise to keep it.

A test that fails here after an upgrade names the thing that has changed.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import awkward as ak
import numpy as np
import pytest
import uproot
from tests.versions import since
from uproot.models.RNTuple import Model_ROOT_3a3a_RNTuple
from uproot.models.TLeaf import Model_TLeafS_v1

from hepcache.rntuple import NTuple, open_in_file
from hepcache.upstream.uproot import (
    FileRNTuple,
    RawStreamerInfo,
    cascading_of,
    column_type,
    datetime_code,
    has_registered_interpretations,
    is_index,
)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("uproot") / "small.root"
    array = ak.Array({"x": np.arange(4.0), "jet": [{"pt": [1.5], "tag": [1, 2]}] * 4})
    with uproot.recreate(path) as file:
        file.mkrntuple("Events", array)
    return path


@pytest.fixture
def ours(path: Path) -> Iterator[NTuple]:
    with open_in_file(str(path), "Events") as ntuple:
        yield ntuple


@pytest.fixture
def theirs(path: Path) -> Iterator[Any]:
    with uproot.open(path) as file:
        ntuple = file["Events"]
        ntuple.arrays()
        yield ntuple


def test_a_model_without_a_file_has_what_one_with_a_file_has(ours: NTuple, theirs: Any) -> None:
    model = ours.metadata.schema.model
    assert isinstance(model, Model_ROOT_3a3a_RNTuple)
    assert len(model.all_fields) == len(theirs.all_fields)
    loaded = {name for name in vars(theirs) if name.endswith(("_chunk", "_cursor"))}
    assert set(vars(theirs)) - set(vars(model)) - loaded == set()
    own = {"_schema_header", "_schema_footer", "_envelopes", "_clusters"}
    assert set(vars(model)) - set(vars(theirs)) == own


@pytest.mark.parametrize("name", ["header", "footer", "page_list_envelopes", "cluster_summaries"])
def test_what_our_model_has_in_place_of_a_file_is_a_property(name: str) -> None:
    assert isinstance(getattr(Model_ROOT_3a3a_RNTuple, name), property)


def test_the_model_keeps_its_fields_in_all_fields(theirs: Any) -> None:
    theirs._all_fields = None
    assert theirs.all_fields is theirs._all_fields


def test_the_model_finds_children_of_fields_in_related_ids(theirs: Any) -> None:
    parents = {
        number: record.parent_field_id for number, record in enumerate(theirs.field_records)
    }
    children = {
        number: [child for child, parent in parents.items() if parent == number != child]
        for number in parents
    }
    assert {number: theirs._related_ids.get(number, []) for number in parents} == children


def test_fields_keep_their_children_in_fields(ours: NTuple, theirs: Any) -> None:
    for model in (ours.metadata.schema.model, theirs):
        for field in model.all_fields:
            assert field.fields is field._fields
    for found, expected in zip(
        ours.metadata.schema.model.all_fields, theirs.all_fields, strict=True
    ):
        assert [field.path for field in found.fields] == [field.path for field in expected.fields]


def test_columns_have_types(theirs: Any) -> None:
    assert column_type(theirs.column_records[0]) == "float64"
    indexes = [record.field_id for record in theirs.column_records if is_index(record)]
    assert [theirs.field_records[number].field_name for number in indexes] == ["pt", "tag"]


@pytest.mark.parametrize(
    "name", ["add_rblob", pytest.param("sync", marks=since("uproot", "5.7.7")), "_anchor"]
)
def test_a_file_that_is_written_has_an_ntuple_in_cascading(name: str, tmp_path: Path) -> None:
    with uproot.recreate(tmp_path / "new.root") as file:
        ntuple = file.mkrntuple("Events", {"x": "int32"})
        assert hasattr(ntuple._cascading, name)


@pytest.mark.parametrize(
    "name",
    [
        "version_epoch", "version_major", "version_minor", "version_patch", "seek_header",
        "nbytes_header", "len_header", "seek_footer", "nbytes_footer", "len_footer", "location",
        "serialize",
    ],
)  # fmt: skip
def test_the_anchor_that_is_written_has(name: str, tmp_path: Path) -> None:
    with uproot.recreate(tmp_path / "new.root") as file:
        anchor = file.mkrntuple("Events", {"x": "int32"})._cascading._anchor
        assert hasattr(anchor, name)


def test_an_anchor_is_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "filled.root"
    with uproot.recreate(path) as file:
        target = FileRNTuple(file, "Events")
        position = target.add(b"sealed", 6)
        target.finish((1, 0, 0, 2), (position, 6, 7), (position + 1, 5, 8))
    with uproot.open(path) as file:
        ntuple = file["Events"]
        header = [ntuple.member(f"f{part}Header") for part in ("Seek", "NBytes", "Len")]
        footer = [ntuple.member(f"f{part}Footer") for part in ("Seek", "NBytes", "Len")]
        parts = ("Epoch", "Major", "Minor", "Patch")
        assert [ntuple.member(f"fVersion{part}") for part in parts] == [1, 0, 0, 2]
    assert (header, footer) == ([position, 6, 7], [position + 1, 5, 8])
    assert path.read_bytes()[position : position + 6] == b"sealed"


@pytest.mark.parametrize("name", ["add_object", "freesegments", "key"])
def test_a_file_that_is_written_has_in_cascading(name: str, tmp_path: Path) -> None:
    with uproot.recreate(tmp_path / "new.root") as file:
        assert hasattr(cascading_of(file), name)


def test_streamers_are_written_from_their_raw_form(tmp_path: Path) -> None:
    raw = Model_TLeafS_v1.class_rawstreamers[-1]
    with uproot.recreate(tmp_path / "new.root") as file:
        file.file.update_streamers([RawStreamerInfo(*raw)])
    with uproot.open(tmp_path / "new.root") as file:
        assert raw[-2] in file.file.streamers


def test_a_moment_is_coded_as_root_does() -> None:
    # (year - 1995) << 26 | month << 22 | day << 17 | hour << 12 | minute << 6 | second
    code = 31 << 26 | 11 << 22 | 22 << 17 | 16 << 12 | 5 << 6 | 9
    assert datetime_code(datetime(2026, 11, 22, 16, 5, 9)) == code


def test_interpretations_of_others_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not has_registered_interpretations()
    monkeypatch.setattr("hepcache.upstream.uproot._REGISTERED", {object()})
    assert has_registered_interpretations()
