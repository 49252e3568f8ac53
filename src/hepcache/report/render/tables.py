"""Reports, comparisons and explanations as tables and sentences for a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import takewhile

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from hepcache.display import bytes_text, count_text, plain_table, ratio_text, seconds_text
from hepcache.report.compare import ComparisonData
from hepcache.report.explain import Cost, ExplanationData
from hepcache.report.forecast import Forecast
from hepcache.report.misses import REASONS
from hepcache.report.outcomes import lacking_text
from hepcache.report.profile import Profile
from hepcache.report.record import RunData
from hepcache.report.summary import Summary, hits_text
from hepcache.telemetry import DerivedUse, place_uses

CYCLE_HEADINGS = (
    "cycle",
    "wall",
    "speed-up",
    "events/s",
    "hits",
    "cache",
    "origin",
    "stolen",
    "tail",
)
_COST_HEADINGS = ("chunks", "columns", "decoded", "origin", "lost")
_NUMBER_BYTES = 8
_MOST_GROUPS = 8  # lines of a table of groups


def cycle_row(number: int, summary: Summary, first_wall_s: float) -> tuple[str, ...]:
    """Return the texts of one cycle, one per heading of :data:`CYCLE_HEADINGS`."""
    speed_up = first_wall_s / summary.wall_s if summary.wall_s else 0.0
    return (
        str(number),
        seconds_text(summary.wall_s),
        f"{speed_up:.1f}x",
        count_text(summary.events_per_s),
        hits_text(summary),
        bytes_text(summary.cache_bytes),
        bytes_text(summary.missed_bytes),
        count_text(summary.stolen_chunks),
        seconds_text(summary.tail_s),
    )


def cycle_table(
    summaries: Sequence[Summary], *, title: str | None = None, caption: str | None = None
) -> Table:
    """Return the table of cycles, oldest first."""
    table = plain_table(*CYCLE_HEADINGS, left=0, title=title, caption=caption)
    for number, summary in enumerate(summaries, start=1):
        style = "bold green" if summary.hit_ratio == 1 else None
        table.add_row(*cycle_row(number, summary, summaries[0].wall_s), style=style)
    return table


def _stored_text(summaries: Sequence[Summary]) -> str | None:
    """Return sentences on what came from the origin, and what the SSDs received of it."""
    stored = sum(cycle.stored_bytes for cycle in summaries)
    origin = sum(cycle.origin_bytes for cycle in summaries)
    if not (stored or origin):
        return None
    raw = sum(cycle.stored_raw_bytes for cycle in summaries)
    requested = sum(cycle.requested_bytes for cycle in summaries)
    used = sum(cycle.used_bytes for cycle in summaries)
    # Records of before these were counted have zeros.
    detail = f" ({bytes_text(requested)} requested, {bytes_text(used)} used)" if requested else ""
    return (
        f"Sizes in the table are decoded. {bytes_text(origin)} came compressed from the origin"
        f"{detail}; the SSDs received {bytes_text(stored)} ({bytes_text(raw)} decoded)."
    )


def _neighbours_text(summaries: Sequence[Summary]) -> str | None:
    """Return a sentence on what hosts got from each other."""
    decoded = sum(cycle.cause_bytes["neighbour"] for cycle in summaries)
    if not decoded:
        return None
    sent = sum(cycle.neighbour_bytes for cycle in summaries)
    return (
        f"Hosts got {bytes_text(decoded)} of columns from other hosts' caches "
        f"({bytes_text(sent)} on the network) instead of the origin."
    )


def processor_text(summary: Summary) -> str | None:
    """Return what a cycle's chunks took, how long they had a processor, and the first ones."""
    if not summary.cpu_s:
        return None
    found = (
        f"Chunks of the last cycle: {seconds_text(summary.busy_s)} over all threads, "
        f"{seconds_text(summary.cpu_s)} of it on a processor"
    )
    if summary.first_chunks:
        found += (
            f"; {count_text(summary.first_chunks)} were the first of their worker processes and "
            f"took {seconds_text(summary.first_chunks_s)}, imports included"
        )
    return f"{found}."


def notes_text(records: Sequence[RunData], summaries: Sequence[Summary]) -> str | None:
    """Return what the table of cycles doesn't say, one sentence per line."""
    found = [
        lacking_text(records[-1].missing) if records else None,
        _stored_text(summaries),
        _neighbours_text(summaries),
    ]
    if summaries:
        found.append(processor_text(summaries[-1]))
    if records:
        found.append(places_text(records))
        found += [_unkept_text(records[-1]), *_reuse_texts(records[-1], summaries[-1])]
        found += [derived_text(name, use) for name, use in records[-1].derived.items()]
        if records[-1].derived:
            found.append(profile_text(records[-1].profile))
    waits = [record.first_chunk_s for record in records if record.first_chunk_s is not None]
    if waits:
        found.append(f"First chunk {seconds_text(waits[0])} after the workers were asked for.")
    mounts = [mount for use in records[-1].kernels for mount in use.mounts] if records else []
    if mounts:
        read = sum(mount.application_bytes for mount in mounts)
        server = sum(mount.server_bytes for mount in mounts)
        mode = records[-1].settings.get("cache", "columns")
        found.append(
            f"NFS in the last cycle (cache: {mode}): {bytes_text(read)} read, "
            f"{bytes_text(server)} of it from the server."
        )
    return "\n".join(filter(None, found)) or None


def _unkept_text(record: RunData) -> str | None:
    """Return a sentence on what was read and is not in the caches."""
    if not record.unkept_bytes:
        return None
    return (
        f"{bytes_text(record.unkept_bytes)} were read and not kept: the cache's volume was too "
        "slow for the run, or memory short. The next run reads them again; "
        "'hepcache cache warm' waits for the volume."
    )


def places_text(records: Sequence[RunData]) -> str | None:
    """Return which places of files failed how often and why, and what each gave."""
    uses = place_uses(*(record.places for record in records))
    if not any(use.failures for use in uses.values()):
        return None
    parts = []
    for place, use in sorted(uses.items(), key=lambda item: -item[1].failures):
        gave = f"gave {bytes_text(use.read_bytes)}" if use.read_bytes else "gave nothing"
        if use.failures:
            times = "once" if use.failures == 1 else f"{count_text(use.failures)} times"
            gave = f"failed {times} ({use.reason}) and {gave}"
        parts.append(f"{place} {gave}")
    return f"Files have several places: {'; '.join(parts)}."


def _reuse_texts(record: RunData, summary: Summary) -> list[str]:
    """Return what the last run took from stored results, and what it could not store or cache."""
    found = []
    if summary.reused_chunks:
        found.append(
            f"{count_text(summary.reused_chunks)} of {count_text(summary.chunks)} chunks were "
            "reused: an earlier run had stored their results."
        )
    for reason, chunks in record.not_stored.items():
        noun = "chunk" if chunks == 1 else "chunks"
        found.append(f"The results of {count_text(chunks)} {noun} were not stored: {reason}.")
    for reason, chunks in record.uncached.items():
        verb = "chunk was" if chunks == 1 else "chunks were"
        found.append(f"{count_text(chunks)} {verb} read by coffea, past the cache: {reason}.")
    return found


def derived_text(function: str, use: DerivedUse) -> str:
    """Return what a derived column took in a run."""
    parts = []
    if use.read:
        size = f"{bytes_text(use.nbytes)}, {seconds_text(use.read_s)}"
        parts.append(f"read in {count_text(use.read)} calls ({size})")
    if use.computed:
        causes = ", ".join(f"{cause}: {count}" for cause, count in use.causes.items())
        why = f"; {causes}" if causes else ""
        if use.stored_bytes:
            why += f"; {bytes_text(use.stored_bytes)} stored"
        parts.append(f"computed in {count_text(use.computed)} ({seconds_text(use.seconds)}{why})")
    reason = f"; not stored: {use.reason}" if use.reason else ""
    return f"Derived column {function}: {', '.join(parts) or 'failed'}{reason}."


def profile_text(profile: Profile) -> str:
    """Return where the time of a cycle's processing went, as one sentence."""
    return (
        f"process() took {seconds_text(profile.process_s)} over all threads: "
        f"columns {seconds_text(profile.loading_s)}, "
        f"computing derived columns {seconds_text(profile.computed_s)}, "
        f"reading them {seconds_text(profile.read_s)}, "
        f"the rest {seconds_text(profile.rest_s)}."
    )


def processing_texts(explanation: ExplanationData) -> list[str]:
    """Return where the time of a cycle's processing went, and what is worth marking."""
    profile = explanation.profile
    found = [derived_text(name, use) for name, use in explanation.derived.items()]
    if profile.process_s:
        found.append(profile_text(profile))
    if profile.worth_marking:
        parts = (
            f"{function} takes {ratio_text(took_s / profile.process_s)} of process() "
            f"({seconds_text(took_s / profile.chunks)} per chunk)"
            for function, took_s in profile.worth_marking.items()
        )
        # What a function returns nobody sees from outside, without stopping it at every call.
        found.append(
            f"{'; '.join(parts)}. Each includes the functions that it calls. If one of them "
            "returns an entry for each event that it gets, mark it with @hepcache.derived: the "
            "next cycle stores what it returns, later cycles read that, and save its time. For "
            "each number that it returns per event, this stores "
            f"{bytes_text(profile.events * _NUMBER_BYTES)}."
        )
    return found


def host_table(summary: Summary, *, title: str | None = None) -> Table:
    """Return the table of one cycle's hosts: load against fair share, hits and bytes."""
    headings = ("threads", "chunks", "load/fair", "hits", "cache", "origin", "stolen", "finish")
    table = plain_table("host", *headings, title=title)
    table.columns[0].no_wrap = True
    for host in summary.hosts:
        table.add_row(
            host.host,
            str(host.threads),
            count_text(host.chunks),
            f"{host.load_over_fair:.2f}",
            hits_text(host),
            bytes_text(host.cache_bytes),
            bytes_text(host.missed_bytes),
            count_text(host.stolen),
            seconds_text(host.finish_s),
        )
    return table


def comparison_table(comparison: ComparisonData) -> Table:
    """Return the table of two reports' cycles side by side."""
    title = escape(" → ".join(comparison.names))
    table = plain_table("cycle", "wall", "faster", "hits", "origin", left=0, title=title)
    rows = [(str(cycle.cycle), cycle) for cycle in comparison.cycles]
    if comparison.last:
        rows.append(("last", comparison.last))
    for label, cycle in rows:
        first, second = cycle.first, cycle.second
        table.add_row(
            label,
            f"{seconds_text(first.wall_s)} → {seconds_text(second.wall_s)}",
            f"{cycle.wall_ratio:.2f}x",
            f"{ratio_text(first.hit_ratio)} → {ratio_text(second.hit_ratio)}",
            f"{bytes_text(first.missed_bytes)} → {bytes_text(second.missed_bytes)}",
        )
    return table


def explanation_parts(
    explanation: ExplanationData, *, worst: int = 10
) -> Iterator[RenderableType]:
    """Yield an explanation's tables and sentences, in the order in which they are read."""
    yield Text(f"{explanation.title}, cycle {explanation.cycle}: {headline(explanation)}")
    for name, value in explanation.started_with.items():
        yield Text(f"{name}: {value}")
    if explanation.misses:
        yield _reason_table(explanation)
        groups: dict[str, Mapping[str, Cost]] = {
            "dataset": explanation.by_dataset,
            "host": explanation.by_host,
            "file": explanation.by_file,
            "stolen: owner → taken by": {
                " → ".join(hosts): cost for hosts, cost in explanation.thefts.items()
            },
        }
        directory = _common_directory(explanation.by_file)
        if directory:
            yield Text(f"Files are in {directory}")
        tables = (_cost_table(what, costs, directory) for what, costs in groups.items() if costs)
        yield Group(*tables)
        if worst:
            yield _worst_table(explanation, worst, directory)
    if worst and explanation.slowest:
        yield _slowest_table(explanation, worst)
    yield from map(Text, processing_texts(explanation))
    yield Text(forecast_text(explanation.forecast))
    if explanation.what_if:
        yield _what_if_table(explanation)
        for scenario in explanation.what_if:
            if scenario.note:
                yield Text(f"{scenario.change}: {scenario.note}")


def headline(explanation: ExplanationData) -> str:
    """Return what a cycle's misses come to, as one sentence."""
    total = explanation.total
    if not explanation.misses:
        return "nothing was read at the origin."
    part = ratio_text(total.lost_s / explanation.busy_s if explanation.busy_s else 0)
    return (
        f"{ratio_text(explanation.hit_ratio)} of the columns came from caches. The others, "
        f"{count_text(total.columns)} columns in {count_text(total.chunks)} chunks "
        f"({bytes_text(total.nbytes)} decoded), were read at the origin. That took "
        f"{seconds_text(total.lost_s)} of the threads' time, {part} of it."
    )


def forecast_text(forecast: Forecast) -> str:
    """Return a forecast as sentences."""
    text = (
        f"Next cycle: {seconds_text(forecast.wall_s)} "
        f"({seconds_text(forecast.low_s)} to {seconds_text(forecast.high_s)}), "
        f"{ratio_text(forecast.hit_ratio)} of the bytes from caches. "
    )
    if forecast.reread_bytes:
        text += f"{bytes_text(forecast.reread_bytes)} will be read again. "
    if forecast.busiest:
        text += (
            f"{forecast.busiest} will end last; if all hosts ended together, the cycle would take "
            f"{seconds_text(forecast.ideal_s)}. "
        )
    if not forecast.checks:
        return text + "No earlier forecast could be checked against a cycle, so the range is wide."
    checks = "; ".join(
        f"{seconds_text(check.forecast_s)} for cycle {check.cycle}, "
        f"which took {seconds_text(check.actual_s)}"
        for check in forecast.checks
    )
    return f"{text}The range comes from earlier forecasts: {checks}."


def _cost_texts(cost: Cost) -> tuple[str, ...]:
    return (
        count_text(cost.chunks),
        count_text(cost.columns),
        bytes_text(cost.nbytes),
        bytes_text(cost.origin_bytes),
        seconds_text(cost.lost_s),
    )


def _reason_table(explanation: ExplanationData) -> Table:
    table = plain_table("reason", *_COST_HEADINGS)
    table.add_column("that is", overflow="fold", min_width=24)
    for reason, cost in explanation.by_reason.items():
        table.add_row(Text(reason, style="bold"), *_cost_texts(cost), REASONS[reason])
    return table


def _cost_table(what: str, costs: Mapping[str, Cost], directory: str) -> Table:
    if what == "file":
        costs = {path.removeprefix(directory): cost for path, cost in costs.items()}
    table = plain_table(what, *_COST_HEADINGS)
    table.add_column("why", overflow="fold", min_width=12)
    for name, cost in list(costs.items())[:_MOST_GROUPS]:
        table.add_row(Text(name), *_cost_texts(cost), ", ".join(cost.reasons))
    if len(costs) > _MOST_GROUPS:
        table.add_row(f"and {len(costs) - _MOST_GROUPS} more; all with --json")
    return table


def _worst_table(explanation: ExplanationData, count: int, directory: str) -> Table:
    headings = ("worst chunks", "entries", "reason", "host", "decoded", "took", "lost")
    table = plain_table(*headings, left=4)
    for miss in explanation.worst(count):
        chunk = miss.chunk
        host = f"{chunk.owner} → {chunk.host}" if miss.reason == "stolen" else chunk.host
        table.add_row(
            Text(chunk.path.removeprefix(directory)),
            f"{chunk.start}-{chunk.stop}",
            miss.reason,
            Text(host),
            bytes_text(miss.nbytes),
            seconds_text(chunk.took_s),
            seconds_text(miss.lost_s),
        )
    return table


def _slowest_table(explanation: ExplanationData, count: int) -> Table:
    directory = _common_directory(chunk.path for chunk in explanation.slowest)
    headings = ("slowest chunks", "entries", "dataset", "host", "took", "processor", "loading")
    table = plain_table(*headings, left=4)
    for chunk in explanation.slowest[:count]:
        table.add_row(
            Text(chunk.path.removeprefix(directory)),
            f"{chunk.start}-{chunk.stop}",
            Text(chunk.dataset),
            Text(chunk.host),
            seconds_text(chunk.took_s) + (" (first)" if chunk.first else ""),
            seconds_text(chunk.cpu_s) if chunk.cpu_s else "not counted",
            seconds_text(chunk.loading_s),
        )
    return table


def _what_if_table(explanation: ExplanationData) -> Table:
    table = plain_table("what if", "next cycle", "reading", "settled", "hits", "to be read once")
    table.columns[0].no_wrap = True
    for scenario in explanation.what_if:
        table.add_row(
            Text(scenario.change),
            seconds_text(scenario.wall_s),
            bytes_text(scenario.reread_bytes),
            seconds_text(scenario.settled_s),
            ratio_text(scenario.settled_hit_ratio),
            bytes_text(scenario.settled_bytes),
        )
    return table


def _common_directory(paths: Iterable[str]) -> str:
    """Return the directory in which all paths are, with a slash at its end, or nothing."""
    levels = zip(*(path.split("/")[:-1] for path in paths), strict=False)
    common = [names[0] for names in takewhile(lambda names: len(set(names)) == 1, levels)]
    return "/".join([*common, ""]) if any(common) else ""
