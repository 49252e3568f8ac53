"""Every error hepcache raises, in one tree.

Each class is also the builtin a caller would expect to catch, keeps what it
knows as attributes, and says what to do next in its message.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Self, cast

from hepcache.credentials import without_credentials

__all__ = [
    "BadFileError",
    "BadFilesetError",
    "CacheDirectoryError",
    "CatalogueError",
    "ChunkError",
    "ClusterError",
    "ColumnError",
    "ConfigurationError",
    "DuplicateItemError",
    "FailedEventsError",
    "FingerprintError",
    "HepcacheError",
    "IncompleteWarning",
    "LostResultsError",
    "MissingFilterError",
    "MissingItemError",
    "ObjectAccessError",
    "ObjectConflictError",
    "ObjectDamagedError",
    "ObjectMissingError",
    "ObjectStoreError",
    "OriginError",
    "ProcessorError",
    "ProductTypeError",
    "RecompressError",
    "RecordError",
    "ResultNotStoredError",
    "RetryError",
    "StoreBatchError",
    "StoreError",
    "TableFileError",
    "TableMismatchError",
    "UnknownColumnError",
    "WorkerKilledError",
]


class HepcacheError(Exception):
    """Root of the tree: catch it to catch all that hepcache itself raises.

    No message shows the passwords and tokens of URLs.
    """

    def __init__(self, *args: object) -> None:
        super().__init__(*(without_credentials(x) if isinstance(x, str) else x for x in args))

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


class _AboutFileError(Exception):
    """Something is wrong with a file or a directory.

    Parameters
    ----------
    path
        Which.
    problem
        What is wrong, with the fix.
    """

    _what: ClassVar[str]

    def __init__(self, path: str, problem: str) -> None:
        self.path, self.problem = path, problem
        super().__init__(f"{self._what} {path}: {problem}" if path else f"{self._what}: {problem}")


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
    source
        Where: a file, an environment variable, ``set in this process``; ``""``
        for an argument or an option.
    """

    def __init__(self, name: str, expected: str, found: object, source: str = "") -> None:
        self.name, self.expected, self.found, self.source = name, expected, found, source
        where = f" ({source})" if source else ""
        super().__init__(f"{name}: expected {expected}, found {found!r}{where}")


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


class BadFileError(HepcacheError):
    """Files of a fileset can't be analysed; all of them are named at once.

    It is of the type, too, that coffea's error about the first of them has:
    ``FileNotFoundError``, another ``OSError``, ``KeyError`` for a tree that is
    not there, or what uproot makes of damaged bytes.

    Parameters
    ----------
    problems
        Path to reason, for every file concerned.
    kind
        The type that it has, too.
    datasets
        Path to the names of the datasets that the file belongs to.
    """

    _heirs: ClassVar[dict[type[Exception], Any]] = {}

    def __new__(cls, *args: Any, **_: Any) -> Self:
        """Make one that is of the other type, too."""
        kind = args[1] if len(args) > 1 else OSError
        if kind not in cls._heirs:
            try:
                cls._heirs[kind] = type("BadFileError", (BadFileError, kind), {})
            except TypeError:
                # Some exceptions keep their values in ways that have no common heir.
                cls._heirs[kind] = BadFileError
        made = cls._heirs[kind]
        return cast("Self", super(BadFileError, made).__new__(made))

    def __init__(
        self,
        problems: Mapping[str, str],
        kind: type[Exception] = OSError,
        datasets: Mapping[str, Iterable[str]] | None = None,
    ) -> None:
        self.problems, self.kind = dict(problems), kind
        self.datasets = {path: tuple(names) for path, names in (datasets or {}).items()}
        skipped = "True" if issubclass(kind, OSError) else f"(OSError, {kind.__name__})"
        hint = f"Fix or remove them, or skip them with skipbadfiles={skipped} (--skip-bad-files)."
        self.args = (without_credentials(f"{self.listing}\n{hint}"),)

    @property
    def listing(self) -> str:
        """All files with their datasets and reasons."""
        count = len(self.problems)
        lines = (f"  {self._named(path)}: {reason}" for path, reason in self.problems.items())
        noun = "file" if count == 1 else "files"
        return f"{count} {noun} can't be analysed:\n" + "\n".join(lines)

    def _named(self, path: str) -> str:
        names = self.datasets.get(path, ())
        word = "dataset" if len(names) == 1 else "datasets"
        return f"{path} ({word} {', '.join(names)})" if names else path

    def __str__(self) -> str:
        return str(self.args[0])

    def __reduce__(self) -> tuple[Any, ...]:
        return (BadFileError, (self.problems, self.kind, self.datasets), vars(self))


class CatalogueError(_AboutFileError, HepcacheError, OSError):
    """The catalogue of known files, at ``path``, can't be read or written."""

    _what = "catalogue"


class CacheDirectoryError(_AboutFileError, HepcacheError, PermissionError):
    """The cache directory ``path`` is refused, because others could read or write it."""

    _what = "cache directory"


class ResultNotStoredError(HepcacheError, RuntimeError):
    """A partial result is not kept; the run goes on, and a later one computes it again.

    Parameters
    ----------
    reason
        Why: what can't be pickled, how large it is, or what the volume said.
    """

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"this result is not stored: {reason}")


class LostResultsError(HepcacheError, LookupError):
    """Stored results can't be used any more; compute these chunks again.

    Parameters
    ----------
    lost
        The results.
    reasons
        Why, for each of them, in the same order.
    """

    def __init__(self, lost: Sequence[Any], reasons: Sequence[str]) -> None:
        self.lost, self.reasons = tuple(lost), tuple(reasons)
        count = len(self.lost)
        kinds = "; ".join(dict.fromkeys(self.reasons))
        noun = "stored result is" if count == 1 else "stored results are"
        super().__init__(f"{count} {noun} lost and must be computed again: {kinds}")


class OriginError(HepcacheError, OSError):
    """The place where a file really lives refused, failed or gave too little.

    Parameters
    ----------
    path
        The file at its origin.
    problem
        The origin's own words, or what was expected and found.
    column
        The column that was wanted, with its entries, where it was one.
    """

    def __init__(self, path: str, problem: str, column: str = "") -> None:
        self.path, self.problem, self.column = path, problem, column
        super().__init__(f"origin of {path}: {f'{column}: ' if column else ''}{problem}")


class ColumnError(HepcacheError, ValueError):
    """What a file holds of a column contradicts itself.

    Parameters
    ----------
    path
        The file.
    column
        The column.
    problem
        What was expected and found.
    """

    def __init__(self, path: str, column: str, problem: str) -> None:
        self.path, self.column, self.problem = path, column, problem
        super().__init__(f"column {column!r} of {path}: {problem}")


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


class ObjectConflictError(ObjectStoreError):
    """Another put has published meanwhile at the same URI; this one left nothing behind."""


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
        return without_credentials(f"no column {self.column!r} in {self.path}{hint}")


class ClusterError(HepcacheError, RuntimeError):
    """A cluster can't do what was asked: no workers, no plugin, wrong versions."""


class ProcessorError(HepcacheError):
    """A processor can't be loaded, or failed.

    It is no builtin but ``Exception``, as what coffea raises: ``skipbadfiles``
    looks at what caused it.
    """


class ChunkError(ProcessorError):
    """A chunk could not be processed; the cause is what was raised.

    Parameters
    ----------
    action
        What failed, in coffea's words, such as ``"Failed processing file"``.
    dataset, path, tree, start, stop
        The chunk.
    problem
        What was raised, with the column and the line of the processor where
        these are known.
    """

    def __init__(
        self, action: str, dataset: str, path: str, tree: str, start: int, stop: int, problem: str
    ) -> None:
        self.action, self.problem = action, problem
        self.dataset, self.path, self.tree = dataset, path, tree
        self.start, self.stop = start, stop
        super().__init__(
            f"{action}: {path}, tree {tree}, entries {start} to {stop}, of dataset {dataset!r}. "
            f"The error was: {problem}"
        )


class WorkerKilledError(ProcessorError, RuntimeError):
    """Chunks killed the workers that processed them; all others are done."""


class RetryError(ProcessorError, ValueError):
    """A run can't be completed by processing what it lacks."""


class FailedEventsError(ProcessorError, RuntimeError):
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


class FingerprintError(HepcacheError, TypeError):
    """What decides the results of user code can't be seen, so they can't be kept.

    Parameters
    ----------
    where
        What can't be seen into, by the attributes and names that lead there, such as
        ``Processor.model.session``.
    problem
        Why, with the fix.
    """

    def __init__(self, where: str, problem: str) -> None:
        self.where, self.problem = where, problem
        super().__init__(f"no fingerprint of {where}: {problem}")


class RecompressError(_AboutFileError, HepcacheError, OSError):
    """A recompressed copy is not equal to its input ``path``, or could not be written."""

    _what = "recompress"


class RecordError(_AboutFileError, HepcacheError, ValueError):
    """The file ``path`` (``""`` for none) that should hold a record or a report can't be read."""

    _what = "record"


class TableFileError(_AboutFileError, HepcacheError, OSError):
    """The file ``path`` of HDF5 tables can't be read or written."""

    _what = "HDF5 file"


class MissingFilterError(TableFileError):
    """Chunks of a file are compressed by a filter that is not installed.

    Parameters
    ----------
    path, dataset
        The file, and the dataset in it.
    number
        The filter's number at the HDF Group.
    fix
        Its name, where it is known, and what to install.
    """

    def __init__(self, path: str, dataset: str, number: int, fix: str) -> None:
        self.dataset, self.number = dataset, number
        super().__init__(path, f"{dataset} is compressed by HDF5's filter {number}, {fix}")


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
        return without_credentials(f"no {self.item} in {self.parent}{hint}")


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
        return without_credentials(
            f"{self.item} is in {self.parent} already; overwrite=True replaces products"
        )


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


class IncompleteWarning(UserWarning):
    """The result of a run lacks events, because files or chunks were skipped or failed."""
