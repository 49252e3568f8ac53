"""Records, reports, comparisons and explanations as users hold them, which show themselves.

Each class is one of the data classes below, with the methods that need figures, tables and pages.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from hepcache.display import bytes_text, card, count_text, ratio_text, seconds_text, text
from hepcache.errors import ConfigurationError
from hepcache.io.atomic import write_atomically
from hepcache.report.compare import ComparisonData
from hepcache.report.cycles import CycleData
from hepcache.report.explain import ExplanationData
from hepcache.report.record import RunData
from hepcache.report.summary import summarise

# What draws is imported where it is needed: a run has no use for matplotlib, jinja2 and rich.
if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult


class _Shown:
    """What shows itself in notebooks and terminals."""

    __slots__ = ()

    def __repr__(self) -> str:
        return text(self)

    def _repr_html_(self) -> str:
        from hepcache.report.render.html import fragment

        return fragment(self)


class _Drawn(_Shown):
    """What has a page and figures of its own."""

    def to_html(self, path: str | os.PathLike[str]) -> Path:
        """Write one self-contained HTML page: no network, light and dark."""
        from hepcache.report.render.html import page

        return write_atomically(path, page(self).encode())

    def to_figures(
        self, directory: str | os.PathLike[str], *, formats: Sequence[str]
    ) -> list[Path]:
        """Write the figures as files; return their paths.

        Parameters
        ----------
        directory
            Made when missing.
        formats
            Of ``"png"``, ``"pdf"`` and ``"svg"``.
        """
        from hepcache.report.render.figures import write_figures

        return write_figures(self, directory, formats)


class Explanation(_Shown, ExplanationData):
    """The reasons why one cycle read at the origin.

    Attributes
    ----------
    title
        Title of the explanation.
    cycle
        Number of the cycle, from 1.
    misses
        Columns that each chunk read at the origin, by reason.
    hit_ratio
        Fraction of all columns of chunks that came from a cache.
    busy_s
        Seconds in chunks, over all threads.
    forecast
        The next cycle.
    what_if
        The effect of changes on it.
    derived
        The cost of derived columns, and why they were computed, by function.
    profile
        How the time of ``process`` was spent, and which functions are worth marking.
    settings
        Settings of the run's record; ``started_with`` has its processor, arguments,
        command line and git commit.
    slowest
        The slowest chunks, the slowest first.

    Notes
    -----
    A notebook displays it; rich's ``print`` of it shows tables.
    """

    __slots__ = ()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from hepcache.report.render.tables import explanation_parts

        yield from explanation_parts(self)


def explain(
    records: Sequence[RunRecord], *, what_if: Iterable[str] | None = None, title: str | None = None
) -> Explanation:
    """Explain the last of consecutive cycles.

    Parameters
    ----------
    records
        Cycles over the same files, oldest first; at least one. The earlier
        ones show what was cached before, and how good forecasts are.
    what_if
        Changes, such as ``"ssd=2"``; the standard ones by default.
    title
        Title of the explanation; by default the name of the last cycle.

    Raises
    ------
    ConfigurationError
        There is no cycle, or a change is invalid.
    """
    return Explanation.of(records, what_if=what_if, title=title)


class RunRecord(RunData):
    """The record of one run.

    Attributes
    ----------
    run
        The run's id, which its task keys carry; ``""`` without a cluster.
    name
        Its name in tables and figures.
    began
        Seconds since the epoch, on the client's clock.
    wall_s
        Seconds from the call to its result, including the check of the files.
    hosts
        Threads of every available host, by host name.
    chunks
        One record per chunk counted in the result.
    settings
        The settings that are needed to interpret the numbers.
    versions, machine
        Software, and the client's machine.
    skipped
        Files and chunks whose events the result lacks, because they were bad
        and ``skipbadfiles`` allowed hepcache to skip them.
    failed
        Chunks whose events the result lacks, because they failed and
        ``failures="collect"`` kept the result of the others.
    not_stored
        Why results of chunks could not be stored for reuse: number of chunks by reason.
    uncached
        Why coffea itself read chunks without the cache: number of chunks by reason.
    overdue
        Chunks that took many times longer than expected, while their workers were alive.
    columns
        Names of the columns that were touched.
    stored_bytes, stored_raw_bytes
        Bytes that were written to the hosts' SSDs, and their decoded size.
    unkept_bytes
        Decoded bytes that were read at the origin and not written, because the
        volume was too slow for the run, or memory was short.
    first_chunk_s
        Seconds from the request for workers to the first chunk,
        by the clocks of client and worker; ``None`` if there were workers
        before, or it is unknown.
    places
        For files with several places: bytes from each place, how often
        it failed, and the last reason.
    kernels
        Bytes through NFS and FS-Cache, for each kernel of the hosts
        with mounts that contain the run's files.
    """

    __slots__ = ()

    def explain(
        self, earlier: Sequence[RunRecord] = (), *, what_if: Sequence[str] | None = None
    ) -> Explanation:
        """Explain why the run read at the origin, and how long the next one will take.

        Parameters
        ----------
        earlier
            Records of earlier runs over the same files, oldest first; they show
            what was cached before.
        what_if
            Changes, as ``hepcache explain --what-if`` takes them; by default
            twice the cache, one host more, and weights by speed.
        """
        return explain((*earlier, self), what_if=what_if)

    def _repr_html_(self) -> str:
        summary = summarise(self)
        facts = {
            "processor": self.settings.get("processor", "not known"),
            "result": "complete" if self.complete else f"lacks {len(self.missing)} parts",
            "events": f"{count_text(summary.events)} in {count_text(summary.chunks)} chunks, "
            f"{seconds_text(self.wall_s)}, {count_text(summary.events_per_s)} per second",
            "columns": f"{ratio_text(summary.hit_ratio)} from caches; "
            f"{bytes_text(summary.missed_bytes)} decoded, {bytes_text(summary.origin_bytes)} "
            "compressed, from the origin",
        }
        rows = [
            (
                host.host,
                host.threads,
                count_text(host.chunks),
                ratio_text(host.hit_ratio),
                seconds_text(host.busy_s),
            )
            for host in summary.hosts
        ]
        columns = ("host", "threads", "chunks", "hits", "busy")
        return card(f"Run {self.name}", facts, columns, rows)

    def __repr__(self) -> str:
        # The thousands of chunks are not for reading.
        summary = summarise(self)
        return (
            f"<RunRecord {self.name!r}: {count_text(summary.events)} events in "
            f"{count_text(summary.chunks)} chunks on {len(self.hosts)} hosts in "
            f"{seconds_text(self.wall_s)}, {ratio_text(summary.hit_ratio)} hits, "
            f"{bytes_text(summary.origin_bytes)} from the origin>"
        )


class CycleReport(_Drawn, CycleData, Sequence[RunRecord]):
    """Records of consecutive cycles, with their tables, figures and pages.

    Parameters
    ----------
    records
        One record per cycle, oldest first.
    title
        Heading of the report.
    phases
        Seconds of a command's phases: ``start``,
        ``cycles`` and ``report``; empty if they were not measured.

    Notes
    -----
    A notebook displays the report; :meth:`to_html` and :meth:`to_json`
    write self-contained files, and rich's ``print`` of it shows the table.
    """

    record_type: ClassVar[type[RunRecord]] = RunRecord
    records: tuple[RunRecord, ...]

    def __len__(self) -> int:
        return len(self.records)

    def __getitem__(self, index: Any) -> Any:
        return self.records[index]

    def __iter__(self) -> Iterator[RunRecord]:
        return iter(self.records)

    def explain(
        self, cycle: int | None = None, *, what_if: Sequence[str] | None = None
    ) -> Explanation:
        """Explain why a cycle read at the origin, and how long the next one will take.

        Parameters
        ----------
        cycle
            Its number, from 1; the last one by default.
        what_if
            Changes, as ``hepcache explain --what-if`` takes them; by default
            twice the cache, one host more, and weights by speed.

        Raises
        ------
        ConfigurationError
            There is no such cycle, or a change means nothing.
        """
        if not self.records:
            raise ConfigurationError("report", "at least one cycle to explain", "none")
        number = len(self) if cycle is None else cycle
        if not 1 <= number <= len(self):
            raise ConfigurationError("cycle", f"a number from 1 to {len(self)}", cycle)
        return explain(self.records[:number], what_if=what_if, title=self.title)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from hepcache.report.render.tables import cycle_table, notes_text

        yield cycle_table(
            self.summaries, title=self.title, caption=notes_text(self.records, self.summaries)
        )


class Comparison(_Drawn, ComparisonData):
    """Two reports, and everything that is shown of them side by side.

    Parameters
    ----------
    first, second
        The reports.
    names
        What to call them; by default their titles, or A and B where these are
        the same.

    Notes
    -----
    Cycles of equal number are compared, as many as the shorter report has;
    figures and pages show the others, too. In a notebook a comparison shows
    itself, and ``print`` of it with rich shows the table.
    """

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from hepcache.report.render.tables import comparison_table

        yield comparison_table(self)
        for warning in self.warnings:
            yield f"[yellow]{warning}[/yellow]"
