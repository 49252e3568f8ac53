"""What is in a store, whether it is whole, and how it goes away."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from hepcache.errors import ObjectDamagedError, ObjectMissingError, ObjectStoreError
from hepcache.objectstore.anchor import BELOW, BESIDE, object_number, place_of
from hepcache.objectstore.metadata import Metadata, load_metadata
from hepcache.objectstore.resume import JOURNAL
from hepcache.objectstore.rootkeys import KEYS
from hepcache.objectstore.sealed import sealed_cluster
from hepcache.objectstore.store import Store

__all__ = ["Verdict", "find_orphans", "remove", "used_objects", "verify"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a look at every object has found.

    Attributes
    ----------
    entries, pages, objects, nbytes
        Of the ntuple; bytes of its pages and envelopes.
    problems
        Object to what is wrong with it.
    orphans
        Name and bytes of objects that no anchor leads to.
    unfinished
        Whether a put did not end.
    """

    entries: int = 0
    pages: int = 0
    objects: int = 0
    nbytes: int = 0
    problems: dict[str, str] = field(default_factory=dict)
    orphans: tuple[tuple[str, int], ...] = ()
    unfinished: bool = False


def used_objects(metadata: Metadata) -> set[str]:
    """Return the names of all objects that an ntuple consists of, but the anchor's."""
    links = [metadata.anchor.header.object, metadata.anchor.footer.object]
    links += [group.locator.object for group in metadata.footer.groups]
    for cluster in metadata.clusters:
        for column in cluster.columns:
            links += set(column.objects.tolist())
    # Header and footer may be in the anchor's object.
    return {metadata.name_of(number) for number in set(links)} - {""}


def verify(store: Store, progress: Callable[[int], None] | None = None) -> Verdict:
    """Read every page of an ntuple, and look for objects that belong to none.

    Parameters
    ----------
    store
        Where it is.
    progress
        Called with the entries that were done.

    Raises
    ------
    ObjectStoreError
        The store can't be reached, or refuses. Missing and damaged objects
        are problems in the result.
    """
    problems: dict[str, str] = {}
    metadata = None
    try:
        metadata = load_metadata(store)
    except (ObjectMissingError, ObjectDamagedError) as error:
        problems[error.name or "anchor"] = error.problem
    pages = nbytes = 0
    for number, cluster in enumerate(metadata.clusters if metadata is not None else ()):
        assert metadata is not None
        problems |= _damage(store, metadata, number)
        for column in cluster.columns:
            pages += len(column.elements)
            nbytes += int(column.nbytes.sum())
        if progress is not None:
            progress(cluster.entries)
    orphans = tuple(sorted(find_orphans(store, metadata)))
    return Verdict(
        metadata.entries if metadata else 0, pages, len(used_objects(metadata)) if metadata else 0,
        nbytes, problems, orphans, any(name == JOURNAL for name, _ in orphans),
    )  # fmt: skip


def _damage(store: Store, metadata: Metadata, number: int) -> dict[str, str]:
    """Return what is wrong with one cluster's objects."""
    try:
        sealed_cluster(store, metadata, number)
    except (ObjectMissingError, ObjectDamagedError) as error:
        return {error.name: error.problem}
    return {}


def find_orphans(store: Store, metadata: Metadata | None) -> Iterator[tuple[str, int]]:
    """Yield name and bytes of objects that a killed or replaced put has left.

    Only names that a put gives are looked at: what else stands below the URI
    may be another ntuple. A put that is under way has such objects too.

    Parameters
    ----------
    store
        Where to look.
    metadata
        Of the ntuple that is there; ``None`` if there is none.
    """
    used = used_objects(metadata) if metadata is not None else set()
    templates = {BELOW, BESIDE} if metadata is None else {metadata.anchor.template, BESIDE}
    if hasattr(store, "root_keys"):
        templates.add(KEYS)
    for template in sorted(templates):
        head = place_of(template)
        for name, size in store.list(head):
            # A directory keeps what a killed put has begun as part-...
            begun = name.removeprefix(head).startswith("part-")
            if (begun or object_number(template, name) is not None) and name not in used:
                yield name, size
    yield from store.list(JOURNAL.rpartition("/")[0] + "/")


def remove(store: Store, *, orphans_only: bool = False) -> list[str]:
    """Remove an ntuple, or only what does not belong to it.

    Parameters
    ----------
    store
        Where it is.
    orphans_only
        Whether the ntuple itself stays.

    Returns
    -------
    list of str
        Names of the objects that were removed.

    Raises
    ------
    ObjectStoreError
        The store fails. A damaged ntuple keeps all its objects when only
        orphans are to go, since no one can say which they are.
    """
    metadata = None
    try:
        metadata = load_metadata(store)
    except ObjectMissingError as error:
        if orphans_only and error.name:
            raise
    except ObjectDamagedError as error:
        if orphans_only:
            problem = f"which objects belong to it can't be told: {error.problem}"
            raise ObjectStoreError(store.uri, error.name, problem) from error
    gone = [name for name, _ in find_orphans(store, metadata)]
    if not orphans_only:
        # First the anchor: from then on no reader finds an ntuple here.
        anchor = [""] if any(not name for name, _ in store.list()) else []
        store.delete(anchor)
        gone = [*anchor, *gone, *(used_objects(metadata) if metadata is not None else ())]
    store.delete([name for name in gone if name])
    return gone
