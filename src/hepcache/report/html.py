"""The report as HTML: one page that needs nothing else, and its core for notebooks."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from hepcache.report.compare_plots import COMPARISON_FIGURES
from hepcache.report.explain_table import forecast_text, headline
from hepcache.report.plots import FIGURES, rendered
from hepcache.report.reasons import REASONS
from hepcache.report.theme import DARK, LIGHT, SENTINEL, with_variables
from hepcache.report.units import bytes_text, count_text, ratio_text, seconds_text
from hepcache.telemetry import CAUSES

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from hepcache.report.compare import Comparison
    from hepcache.report.cycles import CycleReport
    from hepcache.report.explain import Explanation

__all__ = [
    "comparison_fragment",
    "comparison_page",
    "explanation_fragment",
    "fragment",
    "page",
]

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


def page(report: CycleReport) -> str:
    """Return the whole page.

    Parameters
    ----------
    report
        What to show.

    Returns
    -------
    str
        HTML without any reference to another file or host; light or dark as
        the reader's system asks.
    """
    return _environment().get_template("page.html.j2").render(_context(report, tuple(FIGURES)))


def fragment(report: CycleReport) -> str:
    """Return what a notebook shows: key numbers, the figure, cycles, advice."""
    return _environment().get_template("fragment.html.j2").render(_context(report, ("cycles",)))


def comparison_page(comparison: Comparison) -> str:
    """Return two reports side by side as a whole page, which needs nothing else."""
    return _compared("compare-page.html.j2", comparison)


def comparison_fragment(comparison: Comparison) -> str:
    """Return what a notebook shows of two reports."""
    return _compared("compare.html.j2", comparison)


def _compared(template: str, comparison: Comparison) -> str:
    figures = {
        name: _svg(name, figure(comparison, SENTINEL))
        for name, figure in COMPARISON_FIGURES.items()
    }
    return (
        _environment()
        .get_template(template)
        .render(one=comparison, figures=figures, light=LIGHT, dark=DARK)
    )


def explanation_fragment(explanation: Explanation) -> str:
    """Return what a notebook shows of an explanation."""
    return (
        _environment()
        .get_template("explain.html.j2")
        .render(
            one=explanation,
            headline=headline(explanation),
            forecast=forecast_text(explanation.forecast),
            reasons=REASONS,
            light=LIGHT,
            dark=DARK,
        )
    )


def _context(report: CycleReport, figures: tuple[str, ...]) -> dict[str, Any]:
    return {
        "report": report,
        "cycles": report.summaries,
        "speed_ups": report.speed_ups,
        "figures": {name: _svg(name, FIGURES[name](report, SENTINEL)) for name in figures},
        "causes": CAUSES,
        "light": LIGHT,
        "dark": DARK,
        "first": report.records[0] if report.records else None,
        "began": _date(report.records[0].began) if report.records else "",
    }


@lru_cache(maxsize=1)
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("hepcache.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        bytes=bytes_text, count=count_text, percent=ratio_text, seconds=seconds_text,
        plain=_plain_text, variables=_variables,
    )  # fmt: skip
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
    return datetime.fromtimestamp(seconds, tz=UTC).strftime("%Y-%m-%d %H:%M UTC")


def _plain_text(value: object, name: str = "") -> str:
    """Return a value of a record's settings or machine as words."""
    if isinstance(value, Mapping):
        return ", ".join(
            f"{key.removesuffix('_bytes')} {_plain_text(one, key)}"
            for key, one in value.items()
            if one is not None
        )
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float) and name.endswith("_bytes"):
        return bytes_text(value)
    if isinstance(value, int):
        return count_text(value)
    if isinstance(value, list | tuple):
        return ", ".join(_plain_text(one) for one in value)
    return "none" if value is None else str(value)
