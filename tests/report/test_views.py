"""Records, reports, comparisons and explanations explain, draw and write themselves."""

from __future__ import annotations

import pytest

from hepcache.errors import ConfigurationError
from hepcache.report import Comparison, CycleReport
from hepcache.report.render.figures import FIGURES, rendered
from hepcache.report.render.html import page


def test_any_cycle_can_be_explained(messy):
    first = messy.explain(1, what_if=())
    assert list(first.by_reason) == ["cold"]
    assert first.what_if == ()
    assert messy.records[1].explain(messy.records[:1]).misses == messy.explain().misses
    for number in (0, 3):
        with pytest.raises(ConfigurationError, match="1 to 2"):
            messy.explain(number)
    with pytest.raises(ConfigurationError):
        CycleReport(()).explain()
    with pytest.raises(ConfigurationError, match="--what-if"):
        messy.explain(what_if=["more"])


def test_a_record_fits_on_a_line(make_record, make_chunk):
    assert repr(make_record(make_chunk(), name="tight")).startswith("<RunRecord 'tight': 100 ev")


def test_a_report_without_cycles_can_be_shown():
    empty = CycleReport(())
    assert "No cycle has run yet." in page(empty)
    assert "hepcache" in empty._repr_html_()
    assert repr(empty).startswith("Cycles")
    assert empty.advice == ()
    for figure in FIGURES.values():
        assert rendered(figure(empty), "png").startswith(b"\x89PNG")


def test_figures_are_written_in_every_format(tmp_path, report):
    paths = report.to_figures(tmp_path / "figures", formats=("png", "pdf", "svg"))
    assert {path.name for path in paths} == {
        f"{name}.{suffix}" for name in FIGURES for suffix in ("png", "pdf", "svg")
    }
    for path in paths:
        start = path.read_bytes()[:5]
        assert start == {".png": b"\x89PNG\r", ".pdf": b"%PDF-", ".svg": b"<?xml"}[path.suffix]


def test_figures_of_a_comparison_are_written(comparison, tmp_path):
    paths = comparison.to_figures(tmp_path / "figures", formats=["png", "pdf"])
    assert sorted(path.name for path in paths) == [
        "comparison-time.pdf", "comparison-time.png", "comparison.pdf", "comparison.png",
    ]  # fmt: skip
    assert all(path.read_bytes()[:4] in (b"\x89PNG", b"%PDF") for path in paths)


def test_reports_without_cycles_can_be_compared(tmp_path):
    empty = Comparison(CycleReport(()), CycleReport(()))
    assert empty.cycles == ()
    assert "hepcache" in empty._repr_html_()
    assert empty.to_html(tmp_path / "empty.html").exists()


def test_a_record_has_a_card(report):
    card = report.records[1]._repr_html_()
    for words in ("Run cycle", "host-1", "50.0 %", "3.00 kB decoded, 1.50 kB compressed"):
        assert words in card
