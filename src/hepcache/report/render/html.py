"""Reports as HTML: pages that need no other file, and fragments for notebooks."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from hashlib import sha256
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from matplotlib.figure import Figure

from hepcache.display import bytes_text, count_text, ratio_text, seconds_text
from hepcache.report.compare import ComparisonData
from hepcache.report.cycles import CycleData
from hepcache.report.explain import ExplanationData
from hepcache.report.misses import REASONS
from hepcache.report.outcomes import lacking_text
from hepcache.report.render.figures import (
    COMPARISON_FIGURES,
    FIGURES,
    LEAST_CHUNKS,
    OF_MANY_CHUNKS,
    rendered,
)
from hepcache.report.render.style import DARK, LIGHT, SENTINEL, with_variables
from hepcache.report.render.tables import (
    derived_text,
    forecast_text,
    headline,
    places_text,
    processing_texts,
    profile_text,
)
from hepcache.report.summary import hits_text
from hepcache.telemetry import CAUSES

_DESCRIPTIONS = {
    "cycles": "Two bar charts over the cycles: runtime with the speed-up over the first cycle, "
    "and bytes read from the origin and from the hosts' caches. The table of cycles has the "
    "numbers.",
    "timeline": "For the first, the second and the last cycle: one row per busy thread, one bar "
    "per chunk, coloured by where its columns came from.",
    "time": "For every cycle, what part of the threads' time went to waiting for bytes, decoding, "
    "making events, the processor, and waiting for a chunk.",
    "distributions": "Histograms over the chunks of the first, the second and the last cycle: "
    "seconds of waiting for bytes, of decoding, and of the processor.",
    "comparison": "Two bar charts over the cycles, two bars for each: runtime of either report, "
    "with how many times faster the second is, and bytes from the origin and from the hosts' "
    "caches. The table has the numbers.",
    "comparison-time": "For every cycle two bars, one of either report: the seconds of all "
    "threads, in waiting for bytes, decoding, making events, the processor, and waiting for a "
    "chunk.",
    "loading": "One point per chunk of the first, the second and the last cycle: loading time "
    "against decoded bytes, and against entries. The legend has the correlation coefficients.",
}


def page(shown: Any) -> str:
    """Return the page of a report or a comparison, light or dark as the reader's system asks.

    It refers to no other file or host.
    """
    if isinstance(shown, ComparisonData):
        return _filled("compare-page.html.j2", **_compared(shown))
    began = time.perf_counter()
    many = max((len(record.chunks) for record in shown.records), default=0) >= LEAST_CHUNKS
    context = _context(
        shown, tuple(name for name in FIGURES if many or name not in OF_MANY_CHUNKS)
    )
    if shown.records:
        last = ExplanationData.of(shown.records, what_if=(), title=shown.title)
        context |= _explained(last)
    phases = dict(shown.phases)
    if phases:
        phases.setdefault("report", time.perf_counter() - began)
    return _filled("page.html.j2", **context, total=replace(shown, phases=phases).total_text)


def fragment(shown: Any) -> str:
    """Return a report, a comparison or an explanation for a notebook.

    Of a report it has key numbers, the figure of cycles, their table, and advice.
    """
    if isinstance(shown, ComparisonData):
        return _filled("compare.html.j2", **_compared(shown))
    if isinstance(shown, ExplanationData):
        return _filled("explain.html.j2", **_explained(shown))
    return _filled("fragment.html.j2", **_context(shown, ("cycles",)))


def _explained(explanation: ExplanationData) -> dict[str, Any]:
    return {
        "explanation": explanation,
        "headline": headline(explanation),
        "forecast": forecast_text(explanation.forecast),
        "processing": processing_texts(explanation),
        "reasons": REASONS,
    }


def _compared(comparison: ComparisonData) -> dict[str, Any]:
    figures = {
        name: _svg(name, figure(comparison, SENTINEL))
        for name, figure in COMPARISON_FIGURES.items()
    }
    return {"comparison": comparison, "figures": figures}


def _context(report: CycleData, figures: tuple[str, ...]) -> dict[str, Any]:
    return {
        "report": report,
        "cycles": report.summaries,
        "speed_ups": report.speed_ups,
        "figures": {name: _svg(name, FIGURES[name](report, SENTINEL)) for name in figures},
        "causes": CAUSES,
        "first": report.records[0] if report.records else None,
        "began": _date(report.records[0].began) if report.records else "",
    }


def _filled(template: str, **values: Any) -> str:
    return _environment().get_template(template).render(**values, light=LIGHT, dark=DARK)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("hepcache.report.render"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        bytes=bytes_text,
        count=count_text,
        percent=ratio_text,
        hits=hits_text,
        seconds=seconds_text,
        plain=_plain_text,
        variables=_variables,
        lacking=lacking_text,
        derived=derived_text,
        places=places_text,
        profile=profile_text,
    )
    return environment


def _svg(name: str, figure: Figure) -> Markup:
    """Return a figure as an SVG element whose colours are the page's variables."""
    text = with_variables(rendered(figure, "svg", salt=name).decode())
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    # Several figures share a page, and several reports a notebook: identifiers must not.
    prefix = f"hc{sha256(text.encode()).hexdigest()[:8]}-"
    text = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{prefix}", text)
    head, rest = text.split(">", 1)
    view_box = re.search(r'viewBox="[^"]*"', head)
    assert view_box, "matplotlib writes a viewBox"
    description = Markup.escape(_DESCRIPTIONS[name])
    return Markup(  # noqa: S704 - made here, of numbers; host names are drawn as paths
        f'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" '
        f'{view_box[0]} role="img" aria-label="{description}">{rest}'
    )


def _variables(theme: Any) -> Markup:
    """Return a theme as declarations of a style sheet."""
    roles = type(theme).__slots__
    return Markup("; ".join(f"--hc-{role}: {getattr(theme, role)}" for role in roles))  # noqa: S704


def _date(seconds: float) -> str:
    try:
        return datetime.fromtimestamp(seconds, tz=UTC).strftime("%Y-%m-%d %H:%M UTC")
    except (ValueError, OverflowError):
        return "at an unknown time"  # of a clock that was never set


def _plain_text(value: object, name: str = "") -> str:
    """Return a value of a record's settings or machine as words."""
    if isinstance(value, Mapping):
        return ", ".join(
            f"{key.removesuffix('_bytes')} {_plain_text(inner, key)}"
            for key, inner in value.items()
            if inner is not None
        )
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float) and name.endswith("_bytes"):
        return bytes_text(value)
    if isinstance(value, int):
        return count_text(value)
    if isinstance(value, list | tuple):
        return ", ".join(_plain_text(inner) for inner in value)
    return "none" if value is None else str(value)
