"""All errors that hepcache raises.

Each class is also of the builtin type that a caller would expect, has its
details as attributes, and says in its message what to do.
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
    """Base class of all errors that hepcache itself raises.

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
    """A setting, an argument or an option is invalid.

    Parameters
    ----------
    name
        The setting, argument or option.
    expected
        The expected value.
    found
        The actual value.
    source
        Where it was set: a file, an environment variable, ``set in this process``;
        ``""`` for an argument or an option.
    """

    def __init__(self, name: str, expected: str, found: object, source: str = "") -> None:
        self.name, self.expected, self.found, self.source = name, expected, found, source
        where = f" ({source})" if source else ""
        super().__init__(f"{name}: expected {expected}, found {found!r}{where}")


class BadFilesetError(HepcacheError, ValueError):
    """A fileset can't be understood, or matches no file.

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
    """Files of a fileset can't be analysed; the error names all of them at once.

    It also has the type of coffea's error for the first of them:
    ``FileNotFoundError``, another ``OSError``, ``KeyError`` for a missing tree,
    or uproot's exception for damaged bytes.

    Parameters
    ----------
    problems
        Path to reason, for every file concerned.
    kind
        Its second type.
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
    """A partial result is not stored; the run continues, and a later one computes it again.

    Parameters
    ----------
    reason
        The object that can't be pickled, the size, or the volume's error.
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
        The reason for each of them, in the same order.
    """

    def __init__(self, lost: Sequence[Any], reasons: Sequence[str]) -> None:
        self.lost, self.reasons = tuple(lost), tuple(reasons)
        count = len(self.lost)
        kinds = "; ".join(dict.fromkeys(self.reasons))
        noun = "stored result is" if count == 1 else "stored results are"
        super().__init__(f"{count} {noun} lost and must be computed again: {kinds}")


class OriginError(HepcacheError, OSError):
    """The place where a file is permanently stored refused, failed or returned too few bytes.

    Parameters
    ----------
    path
        The file at its origin.
    problem
        The origin's own words, or what was expected and found.
    column
        The requested column, with its entries, if a column was read.
    """

    def __init__(self, path: str, problem: str, column: str = "") -> None:
        self.path, self.problem, self.column = path, problem, column
        super().__init__(f"origin of {path}: {f'{column}: ' if column else ''}{problem}")


class ColumnError(HepcacheError, ValueError):
    """A file's data of a column is inconsistent.

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
    """An object store can't be reached, refuses a request, or lacks the requested object.

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
    """Another put has published at the same URI meanwhile; this put left nothing behind."""


class ObjectDamagedError(ObjectStoreError):
    """An object is shorter than it must be, or its checksum does not match."""


class ObjectAccessError(ObjectStoreError, PermissionError):
    """An object store refuses the credentials, or got none."""


class UnknownColumnError(HepcacheError, KeyError):
    """A column is not in the file.

    Parameters
    ----------
    column
        The requested column.
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
    """A cluster can't do what was requested: no workers, no plugin, wrong versions."""


class ProcessorError(HepcacheError):
    """A processor can't be loaded, or failed.

    Its only builtin type is ``Exception``, as in coffea: ``skipbadfiles``
    compares the type of its cause.
    """


class ChunkError(ProcessorError):
    """A chunk could not be processed; the original exception is the cause.

    Parameters
    ----------
    action
        The failed action, in coffea's words, such as ``"Failed processing file"``.
    dataset, path, tree, start, stop
        The chunk.
    problem
        The original exception, with the column and the line of the processor if
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
    """A run can't be completed by processing its missing chunks."""


class FailedEventsError(ProcessorError, RuntimeError):
    """A function raised on some events of an event store; all others are complete.

    Parameters
    ----------
    problems
        Exception by event, in words.
    result
        The result of the other events; its ``failures`` have numbers and tracebacks.
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
    """Results of user code depend on something that can't be inspected, so they can't be stored.

    Parameters
    ----------
    where
        The object that can't be inspected, by the attributes and names that lead to it, such as
        ``Processor.model.session``.
    problem
        The reason, with the fix.
    """

    def __init__(self, where: str, problem: str) -> None:
        self.where, self.problem = where, problem
        super().__init__(f"no fingerprint of {where}: {problem}")


class RecompressError(_AboutFileError, HepcacheError, OSError):
    """A recompressed copy differs from its input ``path``, or could not be written."""

    _what = "recompress"


class RecordError(_AboutFileError, HepcacheError, ValueError):
    """The file ``path`` (``""`` for none) is no readable record or report."""

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
        Its name, if known, and the package to install.
    """

    def __init__(self, path: str, dataset: str, number: int, fix: str) -> None:
        self.dataset, self.number = dataset, number
        super().__init__(path, f"{dataset} is compressed by HDF5's filter {number}, {fix}")


class TableMismatchError(HepcacheError, ValueError):
    """HDF5 tables do not fit together; the error names every place at once.

    Parameters
    ----------
    problems
        Problem by file, or by file and dataset.
    """

    def __init__(self, problems: Mapping[str, str]) -> None:
        self.problems = dict(problems)
        lines = "\n".join(f"  {where}: {reason}" for where, reason in self.problems.items())
        count = len(self.problems)
        super().__init__(f"{count} {'problem' if count == 1 else 'problems'}:\n{lines}")


class StoreError(HepcacheError, OSError):
    """An event store can't be opened, read or written, or its data is damaged.

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
        Reason by the address of the write that failed.
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
        The requested item.
    parent
        The container in which it is missing.
    near
        Existing items, nearest first.
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
        The item to be stored.
    parent
        The container that has it already.
    """

    def __init__(self, item: str, parent: str) -> None:
        self.item, self.parent = item, parent
        super().__init__(item)

    def __str__(self) -> str:
        return without_credentials(
            f"{self.item} is in {self.parent} already; overwrite=True replaces products"
        )


class ProductTypeError(HepcacheError, TypeError):
    """A product has another type than the requested one, or a type that can't be stored.

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
