"""Where cached contents come from: for people who look at a cache, never for what it serves."""

from __future__ import annotations

import json
from dataclasses import dataclass

from hepcache.cache.store import ColumnCache

__all__ = ["Origin", "note_origin", "origin_of"]

_KIND = "origin"


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
    """Add to what is known of a content.

    Parameters
    ----------
    cache
        The cache that holds its columns.
    uuid, tag
        The content.
    origin
        Its path and dataset.
    """
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
