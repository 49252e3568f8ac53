"""What to change, derived from the numbers of consecutive cycles; pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from hepcache.report.summary import Summary
from hepcache.report.units import bytes_text, count_text, ratio_text, seconds_text

__all__ = ["Advice", "advise"]

_NOTABLE = 0.01  # part of the columns from which a cause is worth a line
_UNEVEN = 1.10  # load over fair share from which a host is worth a line
_LONG_TAIL = 0.15  # part of the wall time
_SHORT_CHUNK_S = 0.2


@dataclass(frozen=True, slots=True)
class Advice:
    """One observation and what to do about it.

    Attributes
    ----------
    kind
        ``"good"``: nothing to do; ``"hint"``: time can be saved;
        ``"warning"``: something is wrong or missing.
    observation
        What the numbers say.
    action
        What to change; ``""`` where nothing.
    """

    kind: Literal["good", "hint", "warning"]
    observation: str
    action: str = ""


def advise(
    cycles: Sequence[Summary], problems: Mapping[str, str] | None = None
) -> tuple[Advice, ...]:
    """Say what to change before the next cycle.

    Parameters
    ----------
    cycles
        Summaries of consecutive cycles over the same fileset, oldest first.
    problems
        Files that were skipped, with the reason.

    Returns
    -------
    tuple of Advice
        Warnings first; never empty when there is a cycle.
    """
    if not cycles:
        return ()
    found = [*_about_files(problems or {}), *_about_integrity(cycles[-1])]
    if len(cycles) == 1:
        found += _about_first(cycles[0])
    else:
        found += [*_about_misses(cycles), *_about_speed(cycles)]
    found += _about_balance(cycles[-1])
    if all(one.kind == "good" for one in found):
        found.append(Advice("good", "Nothing to change: the last cycle shows no avoidable cost."))
    order = {"warning": 0, "hint": 1, "good": 2}
    return tuple(sorted(found, key=lambda one: order[one.kind]))


def _about_files(problems: Mapping[str, str]) -> Iterator[Advice]:
    if problems:
        noun = "file was" if len(problems) == 1 else "files were"
        yield Advice(
            "warning",
            f"{len(problems)} {noun} skipped: {', '.join(list(problems)[:3])}"
            f"{' and more' if len(problems) > 3 else ''}.",
            "Mend or remove them; the results don't contain their events.",
        )


def _about_integrity(last: Summary) -> Iterator[Advice]:
    if last.causes["corrupt"]:
        yield Advice(
            "warning",
            f"{count_text(last.causes['corrupt'])} cached columns were damaged on disk. "
            "They were read from the origin again, so results are right.",
            "Look at the health of the cache volume (smartctl, dmesg) of the hosts with misses.",
        )
    if last.causes["stale"]:
        yield Advice(
            "warning",
            f"{count_text(last.causes['stale'])} columns were stale: their files at the origin "
            "changed since they were cached. The new content was read.",
            "Nothing, if the files were meant to change; else find out who replaced them.",
        )


def _about_first(only: Summary) -> Iterator[Advice]:
    if only.causes["miss"] > 0:
        yield Advice(
            "hint",
            f"This was a first pass: {bytes_text(only.origin_bytes)} came from the origin, and "
            f"hosts now hold {bytes_text(only.decoded_bytes)} of columns.",
            "Run it again on the same hosts: the next cycle reads from their caches.",
        )


def _about_misses(cycles: Sequence[Summary]) -> Iterator[Advice]:
    last = cycles[-1]
    total = sum(last.causes.values())
    if not total:
        return
    if last.causes["hit"] == total:
        yield Advice(
            "good",
            f"Every column of the last cycle came from the hosts' caches "
            f"({bytes_text(last.origin_bytes)} from the origin).",
        )
    if last.causes["evicted"] / total >= _NOTABLE:
        hosts = max(len(last.hosts), 1)
        yield Advice(
            "hint",
            f"{ratio_text(last.causes['evicted'] / total)} of the columns had been evicted: "
            "the caches are too small for this fileset.",
            f"Give each host at least {bytes_text(1.15 * last.decoded_bytes / hosts)} "
            "(hepcache.cache.capacity), add hosts, or read fewer columns.",
        )
    if last.causes["stolen"] / total >= _NOTABLE:
        yield Advice(
            "hint",
            f"{ratio_text(last.causes['stolen'] / total)} of the columns were read again because "
            f"{count_text(last.stolen_chunks)} chunks ran on a host that does not own them.",
            "Expected after hosts came or went; if it persists, use smaller chunks or give slow "
            "hosts fewer threads, so that no host has to help another.",
        )
    if last.causes["miss"] / total >= _NOTABLE:
        yield Advice(
            "hint",
            f"{ratio_text(last.causes['miss'] / total)} of the columns were read for the first "
            "time by their hosts in the last cycle.",
            "Expected when the processor touches new columns or hosts are new; else look whether "
            "the cache volumes are full or read-only.",
        )


def _about_speed(cycles: Sequence[Summary]) -> Iterator[Advice]:
    first, last = cycles[0], cycles[-1]
    if last.wall_s > 0 and first.wall_s / last.wall_s > 1.2:
        yield Advice(
            "good",
            f"The last cycle took {seconds_text(last.wall_s)}, the first "
            f"{seconds_text(first.wall_s)}: {first.wall_s / last.wall_s:.1f} times faster.",
        )
    worked = last.open_s + last.read_s + last.decode_s + last.compute_s
    hot = last.causes["hit"] == sum(last.causes.values()) > 0
    if hot and worked and last.compute_s / worked > 0.7:
        yield Advice(
            "good",
            f"{ratio_text(last.compute_s / worked)} of the last cycle's time in chunks is the "
            "processor's own: more cores or a faster processor help now, more cache doesn't.",
        )
    if last.wall_s > 0 and last.threads and last.chunks > 2 * last.threads:
        idle = 1 - last.busy_s / (last.wall_s * last.threads)
        if idle > 0.4 and last.median_chunk_s < _SHORT_CHUNK_S:
            yield Advice(
                "hint",
                f"Chunks are short ({seconds_text(last.median_chunk_s)}) and threads waited "
                f"{ratio_text(idle)} of the last cycle, mostly for their next task.",
                "Raise chunksize; cached segments stay valid with any chunksize.",
            )


def _about_balance(last: Summary) -> Iterator[Advice]:
    idle = [host.host for host in last.hosts if not host.chunks]
    if idle and last.chunks >= len(last.hosts):
        yield Advice(
            "hint",
            f"No chunk went to {', '.join(idle)}.",
            "Expected with few segments or a host that joined late; else look at its workers.",
        )
    elif last.max_over_fair > _UNEVEN and last.chunks >= 4 * last.threads:
        worst = max(last.hosts, key=lambda host: host.load_over_fair)
        yield Advice(
            "hint",
            f"{worst.host} processed {worst.load_over_fair:.2f} times its fair share of events.",
            "Lower hepcache.placement.epsilon, or use smaller chunks that divide more evenly.",
        )
    if last.wall_s > 1 and last.tail_s / last.wall_s > _LONG_TAIL:
        yield Advice(
            "hint",
            f"The last worker finished {seconds_text(last.tail_s)} after the mean "
            f"({ratio_text(last.tail_s / last.wall_s)} of the cycle).",
            "Use smaller chunks, so that the last ones end together.",
        )
