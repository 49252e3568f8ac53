"""What a machine's caches have counted, in Prometheus' text format.

Format: "Exposition formats", Prometheus documentation. Any user's cache may be
read by an administrator, so nothing in it is trusted but to be numbers.
"""

from __future__ import annotations

import pwd
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from glob import glob
from pathlib import Path

from hepcache.cache.access_log import Totals, read_totals
from hepcache.cache.admin import caches_below
from hepcache.cache.disk.layout import Layout


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric, its values by labels: pairs of name and value."""

    name: str
    kind: str
    help: str
    values: Mapping[tuple[tuple[str, str], ...], int]


def metrics_of(directories: Iterable[str]) -> list[Metric]:
    """Return the metrics of caches; one that can't be read is left out.

    Parameters
    ----------
    directories
        Caches, directories of caches, or globs of them.
    """
    totals: defaultdict[str, Totals] = defaultdict(Totals)
    used: Counter[str] = Counter()
    for path in _caches(directories):
        with suppress(OSError, ValueError):
            owner = user_name(path.stat().st_uid)
            found, shares = read_totals(Layout(path).access_log)
            totals[owner] += found
            used.update({user_name(uid): nbytes for uid, nbytes in shares.items()})
    return list(_metrics(totals, used))


def prometheus_text(metrics: Iterable[Metric]) -> str:
    """Return metrics in Prometheus' text format."""
    return "".join(_lines(metrics))


def _caches(directories: Iterable[str]) -> list[Path]:
    roots = [Path(found) for directory in directories for found in sorted(glob(directory))]  # noqa: PTH207 - an absolute pattern
    return list(dict.fromkeys(cache.resolve() for root in roots for cache in caches_below(root)))


def user_name(uid: int) -> str:
    """Return a user's name, or its number where the host knows none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _metrics(totals: Mapping[str, Totals], used: Mapping[str, int]) -> Iterator[Metric]:
    def by_user(field: str) -> dict[tuple[tuple[str, str], ...], int]:
        return {(("user", user),): getattr(total, field) for user, total in totals.items()}

    def split(label: str, fields: Mapping[str, str]) -> dict[tuple[tuple[str, str], ...], int]:
        return {
            (("user", user), (label, value)): getattr(total, field)
            for user, total in totals.items()
            for value, field in fields.items()
        }

    outcomes = ("done", "reused", "failed", "skipped")
    yield Metric(
        "hepcache_chunks_total",
        "counter",
        "Chunks that ended on this machine, by outcome.",
        split("outcome", {outcome: outcome for outcome in outcomes}),
    )
    yield Metric(
        "hepcache_columns_total",
        "counter",
        "Columns that chunks touched, by whether the cache had them.",
        split("cause", {"hit": "hits", "miss": "misses"}),
    )
    yield Metric(
        "hepcache_column_bytes_total",
        "counter",
        "Decoded bytes of the columns that chunks touched, by whether the cache had them.",
        split("cause", {"hit": "hit_bytes", "miss": "miss_bytes"}),
    )
    yield Metric(
        "hepcache_origin_bytes_total",
        "counter",
        "Bytes that came from origins.",
        by_user("origin_bytes"),
    )
    yield Metric(
        "hepcache_neighbour_bytes_total",
        "counter",
        "Bytes that came from other hosts' caches.",
        by_user("neighbour_bytes"),
    )
    yield Metric(
        "hepcache_evicted_columns_total",
        "counter",
        "Columns that were evicted.",
        by_user("evicted"),
    )
    yield Metric(
        "hepcache_evicted_bytes_total",
        "counter",
        "Bytes on the volume that evicted columns occupied.",
        by_user("evicted_bytes"),
    )
    yield Metric(
        "hepcache_damaged_columns_total",
        "counter",
        "Stored columns that were found damaged, and set aside.",
        by_user("damaged"),
    )
    yield Metric(
        "hepcache_user_bytes",
        "gauge",
        "Bytes on the volume that a user's columns occupy.",
        {(("user", user),): nbytes for user, nbytes in used.items()},
    )


def _lines(metrics: Iterable[Metric]) -> Iterator[str]:
    for metric in metrics:
        yield f"# HELP {metric.name} {metric.help}\n# TYPE {metric.name} {metric.kind}\n"
        for labels, value in sorted(metric.values.items()):
            text = ",".join(f'{name}="{_quoted(label)}"' for name, label in labels)
            yield f"{metric.name}{{{text}}} {value}\n"


def _quoted(label: str) -> str:
    return label.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
