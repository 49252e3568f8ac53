"""An explanation for a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import takewhile
from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from hepcache.report.reasons import REASONS
from hepcache.report.units import bytes_text, count_text, ratio_text, seconds_text

if TYPE_CHECKING:
    from hepcache.report.explain import Cost, Explanation
    from hepcache.report.forecast import Forecast

__all__ = ["forecast_text", "headline", "shown"]

_TOP = 8  # lines of a table of groups
_COSTS = ("chunks", "columns", "decoded", "origin", "lost")


def shown(one: Explanation, *, worst: int = 10) -> Iterator[RenderableType]:
    """Yield an explanation's tables and sentences, in the order in which they are read."""
    yield Text(f"{one.title}, cycle {one.cycle}: {headline(one)}")
    if one.misses:
        yield _reasons(one)
        groups: tuple[tuple[str, Mapping[str, Cost]], ...] = (
            ("dataset", one.by_dataset), ("host", one.by_host), ("file", one.by_file),
            ("stolen: owner → taken by", {" → ".join(key): c for key, c in one.thefts.items()}),
        )  # fmt: skip
        below = _below(one.by_file)
        if below:
            yield Text(f"Files are in {below}")
        yield Group(*(_costs(what, costs, below) for what, costs in groups if costs))
        if worst:
            yield _worst(one, worst, below)
    yield Text(forecast_text(one.forecast))
    if one.what_if:
        yield _what_if(one)
        yield from (Text(f"{found.change}: {found.note}") for found in one.what_if if found.note)


def headline(one: Explanation) -> str:
    """Return what a cycle's misses come to, as one sentence."""
    total = one.total
    if not one.misses:
        return "nothing was read at the origin."
    part = ratio_text(total.lost_s / one.busy_s if one.busy_s else 0)
    return (
        f"{ratio_text(one.hit_ratio)} hits; {count_text(total.columns)} columns in "
        f"{count_text(total.chunks)} chunks were read at the origin "
        f"({bytes_text(total.nbytes)} decoded), which cost {seconds_text(total.lost_s)} "
        f"of the threads' time, {part} of it."
    )


def forecast_text(found: Forecast) -> str:
    """Return a forecast as sentences."""
    text = (
        f"Next cycle: {seconds_text(found.wall_s)} "
        f"({seconds_text(found.low_s)} to {seconds_text(found.high_s)}), "
        f"{ratio_text(found.hit_ratio)} of the bytes from caches. "
    )
    if found.reread_bytes:
        text += f"{bytes_text(found.reread_bytes)} will be read again. "
    if found.busiest:
        text += (
            f"{found.busiest} ends last; evenly divided, the work is "
            f"{seconds_text(found.ideal_s)}. "
        )
    if not found.checks:
        return text + "No earlier forecast could be checked against a cycle, so the range is wide."
    said = ", ".join(
        f"cycle {one.cycle} {seconds_text(one.forecast_s)}, it took {seconds_text(one.actual_s)}"
        for one in found.checks
    )
    return f"{text}The range comes from earlier forecasts: for {said}."


def _table(*headings: str, left: int = 1) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    for number, heading in enumerate(headings):
        if number < left:
            table.add_column(heading, overflow="fold")
        else:
            table.add_column(heading, justify="right", no_wrap=True)
    return table


def _numbers(cost: Cost) -> tuple[str, ...]:
    return (
        count_text(cost.chunks), count_text(cost.columns), bytes_text(cost.nbytes),
        bytes_text(cost.origin_bytes), seconds_text(cost.lost_s),
    )  # fmt: skip


def _reasons(one: Explanation) -> Table:
    table = _table("reason", *_COSTS)
    table.add_column("that is", overflow="fold", min_width=24)
    for reason, cost in one.by_reason.items():
        table.add_row(Text(reason, style="bold"), *_numbers(cost), REASONS[reason])
    return table


def _costs(what: str, costs: Mapping[str, Cost], below: str) -> Table:
    if what == "file":
        costs = {path.removeprefix(below): cost for path, cost in costs.items()}
    table = _table(what, *_COSTS)
    table.add_column("why", overflow="fold", min_width=12)
    for name, cost in list(costs.items())[:_TOP]:
        table.add_row(Text(name), *_numbers(cost), ", ".join(cost.reasons))
    if len(costs) > _TOP:
        table.add_row(f"and {len(costs) - _TOP} more; all with --json")
    return table


def _worst(one: Explanation, count: int, below: str) -> Table:
    table = _table("worst chunks", "entries", "reason", "host", left=4)
    for heading in ("decoded", "took", "lost"):
        table.add_column(heading, justify="right", no_wrap=True)
    for miss in one.worst(count):
        chunk = miss.chunk
        host = f"{chunk.owner} → {chunk.host}" if miss.reason == "stolen" else chunk.host
        table.add_row(
            Text(chunk.path.removeprefix(below)), f"{chunk.start}-{chunk.stop}", miss.reason,
            Text(host), bytes_text(miss.nbytes),
            seconds_text(chunk.ended - chunk.began), seconds_text(miss.lost_s),
        )  # fmt: skip
    return table


def _what_if(one: Explanation) -> Table:
    table = _table("what if", "next cycle", "reading", "settled", "hits", "to be read once")
    table.columns[0].no_wrap = True
    for found in one.what_if:
        table.add_row(
            Text(found.change), seconds_text(found.wall_s), bytes_text(found.reread_bytes),
            seconds_text(found.settled_s), ratio_text(found.settled_hit_ratio),
            bytes_text(found.settled_bytes),
        )  # fmt: skip
    return table


def _below(paths: Iterable[str]) -> str:
    """Return the directory in which all paths are, with a slash at its end, or nothing."""
    parts = zip(*(path.split("/")[:-1] for path in paths), strict=False)
    common = [one[0] for one in takewhile(lambda each: len(set(each)) == 1, parts)]
    return "/".join([*common, ""]) if any(common) else ""
