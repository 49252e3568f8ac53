"""The table of cycles for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.table import Table

from hepcache.report.record import RunRecord
from hepcache.report.summary import Summary
from hepcache.report.units import bytes_text, count_text, ratio_text, seconds_text

__all__ = ["CYCLE_HEADINGS", "cycle_row", "cycle_table", "host_table", "notes_text"]

CYCLE_HEADINGS = (
    "cycle", "wall", "speed-up", "events/s", "hits", "cache", "origin", "stolen", "tail",
)  # fmt: skip


def cycle_row(number: int, summary: Summary, first_wall_s: float) -> tuple[str, ...]:
    """Return the texts of one cycle, one per heading of :data:`CYCLE_HEADINGS`.

    Parameters
    ----------
    number
        The cycle's number, from 1.
    summary
        What it adds up to.
    first_wall_s
        Wall time of the first cycle.
    """
    speed_up = first_wall_s / summary.wall_s if summary.wall_s else 0.0
    return (
        str(number),
        seconds_text(summary.wall_s),
        f"{speed_up:.1f}x",
        count_text(summary.events_per_s),
        ratio_text(summary.hit_ratio),
        bytes_text(summary.cache_bytes),
        bytes_text(summary.origin_bytes),
        count_text(summary.stolen_chunks),
        seconds_text(summary.tail_s),
    )


def cycle_table(
    summaries: Sequence[Summary], *, title: str | None = None, caption: str | None = None
) -> Table:
    """Return the table of cycles, oldest first.

    Parameters
    ----------
    summaries
        The cycles.
    title, caption
        Shown above and below.
    """
    table = Table(
        box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True, title=title, caption=caption,
        title_justify="left", caption_justify="left",
    )  # fmt: skip
    for heading in CYCLE_HEADINGS:
        table.add_column(heading, justify="right", no_wrap=True)
    for number, summary in enumerate(summaries, start=1):
        style = "bold green" if summary.hit_ratio == 1 else None
        table.add_row(*cycle_row(number, summary, summaries[0].wall_s), style=style)
    return table


def stored_text(summaries: Sequence[Summary]) -> str | None:
    """Return what the cycles left on the SSDs, against what they read at the origin."""
    stored = sum(one.stored_bytes for one in summaries)
    if not stored:
        return None
    raw = sum(one.stored_raw_bytes for one in summaries)
    origin = sum(one.origin_bytes for one in summaries)
    requested = sum(one.requested_bytes for one in summaries)
    used = sum(one.used_bytes for one in summaries)
    # Records of before these were counted have zeros.
    detail = f" ({bytes_text(requested)} requested, {bytes_text(used)} used)" if requested else ""
    return (
        f"SSDs received {bytes_text(stored)} ({bytes_text(raw)} decoded) "
        f"for {bytes_text(origin)} read at the origin{detail}."
    )


def notes_text(records: Sequence[RunRecord], summaries: Sequence[Summary]) -> str | None:
    """Return what the table of cycles doesn't say, one sentence per line.

    Parameters
    ----------
    records, summaries
        The cycles, and what they add up to.
    """
    found = [stored_text(summaries)]
    waits = [one.first_chunk_s for one in records if one.first_chunk_s is not None]
    if waits:
        found.append(f"First chunk {seconds_text(waits[0])} after the workers were asked for.")
    mounts = [mount for use in records[-1].kernels for mount in use.mounts] if records else []
    if mounts:
        read = sum(one.application_bytes for one in mounts)
        server = sum(one.server_bytes for one in mounts)
        mode = records[-1].settings.get("cache", "columns")
        found.append(
            f"NFS in the last cycle (cache: {mode}): {bytes_text(read)} read, "
            f"{bytes_text(server)} of it from the server."
        )
    return "\n".join(one for one in found if one) or None


def host_table(summary: Summary, *, title: str | None = None) -> Table:
    """Return the table of one cycle's hosts: load against fair share, hits and bytes."""
    table = Table(
        box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True, title=title, title_justify="left"
    )
    table.add_column("host", no_wrap=True)
    headings = ("threads", "chunks", "load/fair", "hits", "cache", "origin", "stolen", "finish")
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    for host in summary.hosts:
        table.add_row(
            host.host, str(host.threads), count_text(host.chunks), f"{host.load_over_fair:.2f}",
            ratio_text(host.hit_ratio), bytes_text(host.cache_bytes),
            bytes_text(host.origin_bytes), count_text(host.stolen), seconds_text(host.finish_s),
        )  # fmt: skip
    return table
