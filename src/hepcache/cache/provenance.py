"""Where cached contents come from: for people who look at a cache, never for what it serves."""

from __future__ import annotations

import json
from dataclasses import dataclass

from hepcache.cache.disk.locks import exclusive
from hepcache.cache.store import ColumnCache

__all__ = ["Origin", "note_origin", "origin_of"]

_KIND = "origin"
_NOTING = (1 << 62) + 3  # beyond every key's number


@dataclass(frozen=True, slots=True)
class Origin:
    """What is known of one content of a file.

    Attributes
    ----------
    path
        Where it was read last.
    datasets
        Datasets to which it belongs.
    """

    path: str
    datasets: tuple[str, ...]


def note_origin(cache: ColumnCache, uuid: str, tag: str, origin: Origin) -> None:
    """Add to what is known of a content; nothing is written where that is known already.

    Parameters
    ----------
    cache
        The cache that holds its columns.
    uuid, tag
        The content.
    origin
        Its path and dataset.
    """
    if _covers(origin_of(cache, uuid, tag), origin):
        return
    # Two workers may add two datasets to one file at the same time.
    with exclusive(cache.layout.locks, _NOTING):
        known = origin_of(cache, uuid, tag)
        datasets = sorted({*origin.datasets, *(known.datasets if known else ())})
        text = json.dumps({"path": origin.path, "datasets": datasets})
        cache.blob_put(_KIND, f"{uuid}-{tag}", text.encode())


def origin_of(cache: ColumnCache, uuid: str, tag: str) -> Origin | None:
    """Return what is known of a content, or ``None``."""
    text = cache.blob_get(_KIND, f"{uuid}-{tag}")
    if text is None:
        return None
    try:
        found = json.loads(text)
        return Origin(str(found["path"]), tuple(map(str, found["datasets"])))
    except (ValueError, KeyError, TypeError):
        return None


def _covers(known: Origin | None, new: Origin) -> bool:
    return known is not None and known.path == new.path and {*new.datasets} <= {*known.datasets}
