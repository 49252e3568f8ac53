"""What is said of a chunk that failed: where, reading what, at which line of the user's code."""

from __future__ import annotations

import pickle
import sysconfig
import traceback
from difflib import get_close_matches
from pathlib import Path
from typing import Literal

import awkward as ak
from coffea.nanoevents.methods.base import NanoEvents

from hepcache.credentials import without_credentials
from hepcache.errors import BadFileError, ChunkError
from hepcache.io.retry import error_text
from hepcache.report.outcomes import MissingChunk
from hepcache.settings import settings
from hepcache.upstream.coffea import WorkItem

# coffea's words for what failed.
OPENING = "Failed to open file"
CREATING = "Failed creating nanoevents"
PROCESSING = "Failed processing file"
ACTIONS = OPENING, CREATING, PROCESSING

_MOST_WORDS = 2000
_OWN = str(Path(__file__).parents[1])
_LIBRARIES = (_OWN, *{sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")})


def described(item: WorkItem) -> str:
    """Return a chunk in words: file, tree, entries and dataset."""
    path = without_credentials(str(item.filename))
    return (
        f"{path}, tree {item.treename}, entries {item.entrystart} to {item.entrystop}, of dataset "
        f"{item.dataset!r}"
    )


def chunk_error(
    action: str, item: WorkItem, error: BaseException, column: str | None = None
) -> ChunkError:
    """Return the error that names a chunk and what went wrong with it.

    ``column``: the column that was being read, if one was.
    """
    missing = _missing_field(error)
    if missing:
        frame = _frame(error, processing=True)
        place = f"{frame.filename}:{frame.lineno} in {frame.name}: " if frame else ""
        return _chunk_error(action, item, f"{place}{missing}")
    problem = " ".join(repr(error).replace(r"\n", " ").split())
    if len(problem) > _MOST_WORDS:
        problem = f"{problem[:_MOST_WORDS]}..."
    if column is not None and f"column {column!r}" not in problem:
        problem += f", reading column {column!r}"
    frame = _frame(error, processing=action == PROCESSING)
    if frame:
        place = f"{frame.filename}:{frame.lineno} in {frame.name}"
        problem += f", at {place}: {frame.line}" if frame.line else f", at {place}"
    return _chunk_error(action, item, problem)


def _chunk_error(action: str, item: WorkItem, problem: str) -> ChunkError:
    return ChunkError(
        action,
        item.dataset,
        without_credentials(str(item.filename)),
        item.treename,
        item.entrystart,
        item.entrystop,
        without_credentials(problem),
    )


def _frame(error: BaseException, *, processing: bool) -> traceback.FrameSummary | None:
    """Return the innermost line of the user's code that led to an exception, if there is one.

    Where there is none, it is the one that our code called if that is a
    processor in a library, and else the one that raised.
    """
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith((_OWN, "<frozen", "<__array_function__"))
    ]
    users = [frame for frame in frames if not frame.filename.startswith(_LIBRARIES)]
    if not frames:
        return None
    return users[-1] if users else frames[0 if processing else -1]


def _missing_field(error: BaseException) -> str:
    """Say which field an array lacks, and which it has instead; ``""`` for any other error."""
    array, field = _asked(error)
    if not isinstance(array, ak.Array | ak.Record) or not isinstance(field, str):
        return ""
    fields = array.fields
    if field in fields:
        return ""
    collection = array.layout.purelist_parameter("collection_name")
    subject = f"{collection} has" if isinstance(collection, str) else "events have"
    if not isinstance(collection, str) and not isinstance(array, NanoEvents):
        subject = "the array has"
    lower = {name.lower(): name for name in reversed(fields)}
    near = [lower[name] for name in get_close_matches(field.lower(), lower, n=3)]
    near += [name for name in fields if field.lower() in name.lower() and name not in near]
    hint = f"; did you mean {' or '.join(near[:3])}?" if near else ""
    return f"{subject} no field {field!r}{hint}"


def _asked(error: BaseException) -> tuple[object, object]:
    """Return an array and the field that it lacks, if an exception is about that."""
    if isinstance(error, AttributeError) and str(error).startswith("no field named"):
        return error.obj, error.name
    if isinstance(error, ak.errors.FieldNotFoundError):
        # awkward's words describe the array by its size alone.
        for frame, _ in traceback.walk_tb(error.__traceback__):
            if (
                frame.f_code.co_name == "__getitem__"
                and {"self", "where"} <= frame.f_locals.keys()
            ):
                return frame.f_locals["self"], frame.f_locals["where"]
    return None, None


def portable(error: Exception) -> Exception:
    """Return an error that reaches another process as what it is.

    Dask sends only the words of an exception if one of its causes can't be
    pickled; then it goes without them, for its message has their words.
    """
    waiting, seen = [error.__cause__, error.__context__], set[int]()
    while waiting:
        cause = waiting.pop()
        if cause is None or id(cause) in seen:
            continue
        seen.add(id(cause))
        waiting += [cause.__cause__, cause.__context__]
        try:
            pickle.loads(pickle.dumps(cause))  # noqa: S301 - made here
        except Exception:
            error.__cause__ = error.__context__ = None
    return error


_PLACE = "hepcache_place"


def note_place(error: BaseException) -> None:
    """Note in an exception where it was raised, and by what: the way to the client loses both."""
    if not hasattr(error, _PLACE):
        raised = error.__cause__ if isinstance(error, ChunkError) and error.__cause__ else error
        lines = without_credentials("".join(traceback.format_exception(error)))
        setattr(error, _PLACE, (settings().host, lines, type(raised).__name__))


def missing_chunk(
    item: WorkItem,
    error: BaseException,
    outcome: Literal["failed", "skipped"],
    *,
    attempts: int = 1,
) -> MissingChunk:
    """Return what is recorded of a chunk that was skipped or failed."""
    host, lines, kind = getattr(error, _PLACE, ("", "", type(error).__name__))
    return MissingChunk(
        dataset=item.dataset,
        path=without_credentials(str(item.filename)),
        tree=item.treename or "",
        start=item.entrystart,
        stop=item.entrystop,
        message=_message(error),
        exception=kind,
        traceback=lines,
        host=host,
        attempts=attempts,
        outcome=outcome,
    )


def _message(error: BaseException) -> str:
    if isinstance(error, ChunkError):
        return error.problem
    if isinstance(error, BadFileError):
        return next(iter(error.problems.values()))
    return without_credentials(error_text(error))
