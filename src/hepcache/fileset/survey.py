"""Look at many files, and open many files, at the same time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor, as_completed
from typing import Any, NamedTuple

from hepcache.errors import BadFileError
from hepcache.fileset.freshness import Freshness, look, storage_options
from hepcache.fileset.model import FileRecord
from hepcache.fileset.paths import is_url

__all__ = ["Target", "look_at", "open_all"]

# Looking only waits for a server, so it takes many threads to keep one busy.
_LOOKERS = 32
# Opening a file is nine tenths Python, so threads only hide the waiting: two
# for a file server, more for a server far away. Processes would share the
# work, but take longer to start than a hundred NanoAOD files take to open.
_OPENERS_LOCAL, _OPENERS_REMOTE = 2, 16


class Target(NamedTuple):
    """One tree of one file.

    Attributes
    ----------
    path
        The absolute path or URL.
    tree
        The tree's name as asked for; empty if not given.
    """

    path: str
    tree: str


def look_at(
    paths: Sequence[str], options: Mapping[str, Any]
) -> Iterator[tuple[str, Freshness | str]]:
    """Ask for the state of files, many at a time.

    Parameters
    ----------
    paths
        Absolute paths or URLs, each once.
    options
        Options for ``uproot.open``, some of which concern the connection.

    Yields
    ------
    tuple
        Path, and its state or the reason why it can't be had; in order.
    """
    passed = storage_options(options)

    def one(path: str) -> Freshness | str:
        try:
            return look(path, passed)
        except BadFileError as error:
            return next(iter(error.problems.values()))

    with ThreadPoolExecutor(_LOOKERS, "hepcache-look") as pool:
        yield from zip(paths, pool.map(one, paths), strict=True)


def open_all(
    targets: Sequence[Target],
    options: Mapping[str, Any],
    *,
    jobs: int | None = None,
    executor: Executor | None = None,
) -> Iterator[tuple[Target, tuple[FileRecord, Freshness] | str]]:
    """Open files, several at a time.

    Parameters
    ----------
    targets
        The trees, each once.
    options
        Options for ``uproot.open``.
    jobs
        How many at a time; two, or sixteen at remote servers, if not given.
    executor
        Opens them elsewhere.

    Yields
    ------
    tuple
        Target, and its record with the file's state, or the reason why there
        is none; as they are ready.
    """
    own = None
    if executor is None:
        remote = any(is_url(target.path) for target in targets)
        own = ThreadPoolExecutor(jobs or (_OPENERS_REMOTE if remote else _OPENERS_LOCAL))
    pool = own or executor
    assert pool is not None
    futures: dict[Future[tuple[FileRecord, Freshness] | str], Target] = {
        pool.submit(open_one, target, dict(options)): target for target in targets
    }
    try:
        for future in as_completed(futures):
            yield futures[future], future.result()
    finally:
        if own is not None:
            own.shutdown(cancel_futures=True)


def open_one(target: Target, options: Mapping[str, Any]) -> tuple[FileRecord, Freshness] | str:
    """Return a target's record, or the reason why there is none."""
    from hepcache.fileset.probe import examine  # uproot takes a second to import

    try:
        return examine(target.path, target.tree or None, options)
    except BadFileError as error:
        return next(iter(error.problems.values()))
