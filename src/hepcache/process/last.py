"""The columns of the last run, so that the next one's caches can be warmed like it."""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass

from hepcache.errors import CatalogueError
from hepcache.fileset import Catalogue
from hepcache.report.record import RunRecord
from hepcache.settings import settings

__all__ = ["LastRun", "last_run", "note_run"]

_BLOB = "last-run", "columns"


@dataclass(frozen=True, slots=True)
class LastRun:
    """What is remembered of a run.

    Attributes
    ----------
    name
        Its name.
    began
        Seconds since the epoch.
    columns
        Names of the columns that it touched.
    """

    name: str
    began: float
    columns: tuple[str, ...]


def note_run(record: RunRecord) -> None:
    """Remember a run in the user's catalogue; one that touched no column is none to repeat."""
    if not record.columns:
        return
    text = json.dumps(
        {"name": record.name, "began": record.began, "columns": list(record.columns)}
    )
    # A run that is done must not fail for its note.
    with (
        contextlib.suppress(CatalogueError, OSError),
        Catalogue(settings().catalogue) as catalogue,
    ):
        catalogue.blob_put(*_BLOB, text.encode())


def last_run() -> LastRun | None:
    """Return what the user's last run touched, or ``None`` where none is remembered.

    Raises
    ------
    CatalogueError
        The catalogue can't be read.
    """
    with Catalogue(settings().catalogue) as catalogue:
        text = catalogue.blob_get(*_BLOB)
    if text is None:
        return None
    try:
        found = json.loads(text)
        columns = tuple(map(str, found["columns"]))
        return LastRun(str(found["name"]), float(found["began"]), columns)
    except (ValueError, KeyError, TypeError):
        return None  # a later version's
