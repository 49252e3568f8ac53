"""Every error hepcache raises, in one tree.

Each class is also the builtin a caller would expect to catch, keeps what it
knows as attributes, and says what to do next in its message.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

__all__ = [
    "BadFileError",
    "BadFilesetError",
    "CacheDirectoryError",
    "CatalogueError",
    "ClusterError",
    "ConfigurationError",
    "DuplicateItemError",
    "FailedEventsError",
    "HepcacheError",
    "MissingItemError",
    "ObjectAccessError",
    "ObjectDamagedError",
    "ObjectMissingError",
    "ObjectStoreError",
    "OriginError",
    "ProcessorError",
    "ProductTypeError",
    "RecompressError",
    "RecordError",
    "StoreBatchError",
    "StoreError",
    "TableFileError",
    "TableMismatchError",
    "UnknownColumnError",
]


class HepcacheError(Exception):
    """Root of the tree: catch it to catch all that hepcache itself raises."""

    def __reduce__(self) -> tuple[Any, ...]:
        # Errors cross processes; their constructors take other arguments than args.
        return (_rebuilt, (type(self), self.args, vars(self)))


def _rebuilt(
    kind: type[HepcacheError], args: tuple[Any, ...], state: dict[str, Any]
) -> HepcacheError:
    error = kind.__new__(kind)
    error.args = args
    vars(error).update(state)
    return error


class ConfigurationError(HepcacheError, ValueError):
    """A setting, an argument or an option has no meaning as given.

    Parameters
    ----------
    name
        The setting, argument or option.
    expected
        What it takes.
    found
        What was given.
    """

    def __init__(self, name: str, expected: str, found: object) -> None:
        self.name, self.expected, self.found = name, expected, found
        super().__init__(f"{name}: expected {expected}, found {found!r}")


class BadFilesetError(HepcacheError, ValueError):
    """A fileset can't be understood, or leads to no file at all.

    Parameters
    ----------
    problem
        What is wrong, with the fix.
    where
        The dataset, key or path concerned.
    """

    def __init__(self, problem: str, where: str = "") -> None:
        self.problem, self.where = problem, where
        super().__init__(f"fileset {where}: {problem}" if where else f"fileset: {problem}")


class BadFileError(HepcacheError, OSError):
    """Files of a fileset can't be analysed; all of them are named at once.

    Parameters
    ----------
    problems
        Path to reason, for every file concerned.
    """

    def __init__(self, problems: Mapping[str, str]) -> None:
        self.problems = dict(problems)
        lines = "\n".join(f"  {path}: {reason}" for path, reason in self.problems.items())
        count = len(self.problems)
        noun = "file" if count == 1 else "files"
        super().__init__(
            f"{count} {noun} can't be analysed:\n{lines}\n"
            "Mend or remove them, or skip them with skipbadfiles=True (--skip-bad-files)."
        )


class CatalogueError(HepcacheError, OSError):
    """The catalogue of known files can't be read or written.

    Parameters
    ----------
    path
        The catalogue's file.
    problem
        What went wrong, with the fix.
    """

    def __init__(self, path: str, problem: str) -> None:
        self.path, self.problem = path, problem
        super().__init__(f"catalogue {path}: {problem}")


class CacheDirectoryError(HepcacheError, PermissionError):
    """A cache directory is refused, because others could read or write it.

    Parameters
    ----------
    path
        The directory.
    problem
        Why it is refused, with the fix.
    """

    def __init__(self, path: str, problem: str) -> None:
        self.path, self.problem = path, problem
        super().__init__(f"cache directory {path}: {problem}")


class OriginError(HepcacheError, OSError):
    """The place where a file really lives refused, failed or gave too little.

    Parameters
    ----------
    path
        The file at its origin.
    problem
        The origin's own words, or what was expected and found.
    """

    def __init__(self, path: str, problem: str) -> None:
        self.path, self.problem = path, problem
        super().__init__(f"origin of {path}: {problem}")


class ObjectStoreError(HepcacheError, OSError):
    """An object store can't be reached, refuses a request, or lacks what was asked for.

    Parameters
    ----------
    store
        The store's URI.
    name
        The object's name below that URI; ``""`` for the object at the URI
        itself or the store as a whole.
    problem
        What went wrong, with the fix.
    """

    def __init__(self, store: str, name: str, problem: str) -> None:
        self.store, self.name, self.problem = store, name, problem
        where = f"object {name!r} of {store}" if name else f"object store {store}"
        super().__init__(f"{where}: {problem}")


class ObjectMissingError(ObjectStoreError, FileNotFoundError):
    """An object, or the bucket, pool or directory that should hold it, does not exist."""


class ObjectDamagedError(ObjectStoreError):
    """An object is shorter than it must be, or its checksum does not match."""


class ObjectAccessError(ObjectStoreError, PermissionError):
    """An object store refuses the credentials, or lacks them."""


class UnknownColumnError(HepcacheError, KeyError):
    """A column is not in the file.

    Parameters
    ----------
    column
        The column asked for.
    path
        The file.
    near
        Columns with similar names.
    """

    def __init__(self, column: str, path: str, near: Sequence[str] = ()) -> None:
        self.column, self.path, self.near = column, path, tuple(near)
        super().__init__(column)

    def __str__(self) -> str:
        hint = f"; near names: {', '.join(self.near)}" if self.near else ""
        return f"no column {self.column!r} in {self.path}{hint}"


class ClusterError(HepcacheError, RuntimeError):
    """A cluster can't do what was asked: no workers, no plugin, wrong versions."""


class ProcessorError(HepcacheError, RuntimeError):
    """A processor can't be loaded, or failed on a chunk.

    Parameters
    ----------
    problem
        What went wrong, with the fix.
    """


class FailedEventsError(ProcessorError):
    """A function raised on some events of an event store; all others are complete.

    Parameters
    ----------
    problems
        Event, in words, to what was raised.
    result
        What the others came to; its ``failures`` hold numbers and tracebacks.
    """

    def __init__(self, problems: Mapping[str, str], result: Any = None) -> None:
        self.problems, self.result = dict(problems), result
        lines = [f"  {event}: {reason}" for event, reason in self.problems.items()]
        count, shown = len(lines), 10
        more = [f"  and {count - shown} more"] if count > shown else []
        super().__init__(
            f"the function raised on {count} {'event' if count == 1 else 'events'}:\n"
            + "\n".join(lines[:shown] + more)
        )


class RecompressError(HepcacheError, OSError):
    """A recompressed copy is not equal to its input, or could not be written.

    Parameters
    ----------
    path
        The input.
    problem
        What differs or failed.
    """

    def __init__(self, path: str, problem: str) -> None:
        self.path, self.problem = path, problem
        super().__init__(f"recompress {path}: {problem}")


class RecordError(HepcacheError, ValueError):
    """A file that should hold a run's record or a report can't be read.

    Parameters
    ----------
    path
        The file, or ``""`` for values that came from no file.
    problem
        What was expected and found, with the fix.
    """

    def __init__(self, path: str, problem: str) -> None:
        self.path, self.problem = path, problem
        super().__init__(f"record {path}: {problem}" if path else f"record: {problem}")


class TableFileError(HepcacheError, OSError):
    """A file of HDF5 tables can't be read or written.

    Parameters
    ----------
    path
        The file.
    problem
        What went wrong, with the fix.
    """

    def __init__(self, path: str, problem: str) -> None:
        self.path, self.problem = path, problem
        super().__init__(f"HDF5 file {path}: {problem}")


class TableMismatchError(HepcacheError, ValueError):
    """HDF5 tables do not fit together; every place where is named at once.

    Parameters
    ----------
    problems
        File, or file and dataset, to what is wrong there.
    """

    def __init__(self, problems: Mapping[str, str]) -> None:
        self.problems = dict(problems)
        lines = "\n".join(f"  {where}: {reason}" for where, reason in self.problems.items())
        count = len(self.problems)
        super().__init__(f"{count} {'problem' if count == 1 else 'problems'}:\n{lines}")


class StoreError(HepcacheError, OSError):
    """An event store can't be opened, read or written, or what it keeps is damaged.

    Parameters
    ----------
    where
        The store's directory, or the shard or server concerned.
    problem
        What went wrong, with the fix.
    """

    def __init__(self, where: str, problem: str) -> None:
        self.where, self.problem = where, problem
        super().__init__(f"event store {where}: {problem}")


class StoreBatchError(StoreError):
    """Writes of a batch failed; the others are done.

    Parameters
    ----------
    failures
        What was to be written, by its address, to the reason why it is not.
    """

    def __init__(self, failures: Mapping[str, str]) -> None:
        self.failures = dict(failures)
        lines = "\n".join(f"  {what}: {reason}" for what, reason in self.failures.items())
        count = len(self.failures)
        noun = "write was" if count == 1 else "writes were"
        super().__init__("batch", f"{count} {noun} not done:\n{lines}")


class MissingItemError(HepcacheError, KeyError):
    """A dataset, run, subrun, event or product is not in the store.

    Parameters
    ----------
    item
        What was asked for.
    parent
        Where it was looked for.
    near
        What is there instead, nearest first.
    """

    def __init__(self, item: str, parent: str, near: Sequence[object] = ()) -> None:
        self.item, self.parent, self.near = item, parent, tuple(near)
        super().__init__(item)

    def __str__(self) -> str:
        hint = f"; nearest: {', '.join(map(str, self.near))}" if self.near else ""
        return f"no {self.item} in {self.parent}{hint}"


class DuplicateItemError(HepcacheError, KeyError):
    """A run, subrun, event or product is in the store already.

    Parameters
    ----------
    item
        What was to be stored.
    parent
        Where it is already.
    """

    def __init__(self, item: str, parent: str) -> None:
        self.item, self.parent = item, parent
        super().__init__(item)

    def __str__(self) -> str:
        return f"{self.item} is in {self.parent} already; overwrite=True replaces products"


class ProductTypeError(HepcacheError, TypeError):
    """A product is of another type than the one asked for, or of none that can be stored.

    Parameters
    ----------
    expected, found
        The types.
    """

    def __init__(self, expected: str, found: str) -> None:
        self.expected, self.found = expected, found
        super().__init__(f"expected a product of type {expected}, found {found}")
