"""What is said of a field that an array lacks."""

from __future__ import annotations

from typing import Any

import awkward as ak
import pytest

from hepcache.process.error_context import PROCESSING, chunk_error
from hepcache.upstream.coffea import WorkItem

ITEM = WorkItem("dy", "a.root", "Events", 0, 10, b"\xff" * 16)
MUONS = ak.zip({"pt": [[1.0], []], "tightId": [[True], []], "eta": [[0.5], []]})


def said(function: Any) -> str:
    with pytest.raises(Exception) as caught:  # noqa: PT011 - whatever awkward raises
        function()
    return chunk_error(PROCESSING, ITEM, caught.value).problem


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda: MUONS.ptt, "the array has no field 'ptt'; did you mean pt?"),
        (lambda: MUONS["ptt"], "the array has no field 'ptt'; did you mean pt?"),
        (lambda: MUONS[0].tightid, "the array has no field 'tightid'; did you mean tightId?"),
        (lambda: MUONS.Id, "the array has no field 'Id'; did you mean tightId?"),
        (lambda: MUONS.charge, "the array has no field 'charge'"),
        (lambda: MUONS[0, 0].ptt, "the array has no field 'ptt'; did you mean pt?"),
    ],
)
def test_a_missing_field_names_the_nearest(ask: Any, words: str) -> None:
    place, _, problem = said(ask).partition(": ")
    assert problem == words
    assert place.startswith(f"{__file__}:")
    assert place.endswith("in <lambda>")


def test_an_attribute_error_of_something_else_keeps_its_words() -> None:
    assert "'list' object has no attribute 'ptt'" in said(lambda: [].ptt)  # type: ignore[attr-defined]
