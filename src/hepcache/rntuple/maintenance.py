"""Describe, verify and remove an ntuple in a store."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from hepcache.errors import ObjectDamagedError, ObjectMissingError, ObjectStoreError
from hepcache.objectstore import Store
from hepcache.rntuple.metadata import Metadata, load_metadata
from hepcache.rntuple.naming import (
    BELOW,
    BESIDE,
    ROOT_KEYS,
    object_number,
    prefix_of,
    without_own_name,
)
from hepcache.rntuple.read import sealed_cluster
from hepcache.rntuple.root_on_daos import opened, root_keys_of
from hepcache.rntuple.transfer import JOURNALS


@dataclass(frozen=True, slots=True)
class NTupleInfo:
    """The parts of an ntuple in a store.

    Attributes
    ----------
    name, uuid
        The ntuple's name, and its UUID.
    entries, clusters, pages
        Their numbers.
    page_bytes
        Bytes of all pages.
    objects
        Objects besides the anchor.
    mapping
        How pages are distributed over objects; ``""`` if the writer doesn't say.
    template
        Template that makes an object's name from its number.
    fields
        Names of the top-level fields.
    """

    name: str
    uuid: str
    entries: int
    clusters: int
    pages: int
    page_bytes: int
    objects: int
    mapping: str
    template: str
    fields: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of :func:`verify`.

    Attributes
    ----------
    entries, pages, objects, nbytes
        Their numbers in the ntuple, and the bytes of its pages.
    problems
        Problem by name of the object.
    orphans
        Name and bytes of objects that no anchor leads to.
    unfinished
        Whether a put was interrupted.
    """

    entries: int = 0
    pages: int = 0
    objects: int = 0
    nbytes: int = 0
    problems: dict[str, str] = field(default_factory=dict)
    orphans: tuple[tuple[str, int], ...] = ()
    unfinished: bool = False


def describe(store: Store | str) -> NTupleInfo:
    """Return the parts of the ntuple in a store, or at its URI, according to its envelopes.

    Raises
    ------
    ObjectStoreError
        The store fails, or there is no ntuple that can be read.
    """
    with opened(store) as source:
        metadata = load_metadata(source)
    columns = [column for cluster in metadata.clusters for column in cluster.columns]
    return NTupleInfo(
        name=metadata.schema.name,
        uuid=metadata.uuid,
        entries=metadata.entries,
        clusters=len(metadata.clusters),
        pages=sum(len(column.elements) for column in columns),
        page_bytes=sum(int(column.nbytes.sum()) for column in columns),
        objects=len(used_objects(metadata)),
        mapping=metadata.anchor.mapping,
        template=metadata.anchor.template,
        fields=tuple(metadata.schema.names),
    )


def verify(store: Store | str, progress: Callable[[int], None] | None = None) -> Verdict:
    """Read every page of an ntuple, and look for objects that belong to none.

    Parameters
    ----------
    store
        Its store or its URI.
    progress
        Called with the number of finished entries.

    Raises
    ------
    ObjectStoreError
        The store can't be reached, or refuses access. Missing and damaged objects
        are problems in the result.
    """
    problems: dict[str, str] = {}
    pages = nbytes = 0
    with opened(store) as source:
        try:
            metadata = load_metadata(source)
        except (ObjectMissingError, ObjectDamagedError) as error:
            problems[error.name or "anchor"] = error.problem
            orphans = tuple(sorted(find_orphans(source, None)))
            return Verdict(problems=problems, orphans=orphans, unfinished=_unfinished(orphans))
        for number, cluster in enumerate(metadata.clusters):
            try:
                sealed_cluster(source, metadata, number)
            except (ObjectMissingError, ObjectDamagedError) as error:
                problems[error.name] = error.problem
            for column in cluster.columns:
                pages += len(column.elements)
                nbytes += int(column.nbytes.sum())
            if progress is not None:
                progress(cluster.entries)
        orphans = tuple(sorted(find_orphans(source, metadata)))
    return Verdict(
        entries=metadata.entries,
        pages=pages,
        objects=len(used_objects(metadata)),
        nbytes=nbytes,
        problems=problems,
        orphans=orphans,
        unfinished=_unfinished(orphans),
    )


def _unfinished(orphans: tuple[tuple[str, int], ...]) -> bool:
    return any(name.startswith(JOURNALS) for name, _ in orphans)


def remove(store: Store | str, *, orphans_only: bool = False) -> list[str]:
    """Remove the ntuple in a store, or at its URI; return the names of the removed objects.

    With ``orphans_only`` the ntuple stays, and only objects that don't belong to it are removed.

    Raises
    ------
    ObjectStoreError
        The store fails. With ``orphans_only``, a damaged ntuple keeps all its objects,
        because its orphans can't be identified.
    """
    with opened(store) as target:
        return _removed(target, orphans_only)


def _removed(store: Store, orphans_only: bool) -> list[str]:
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


def used_objects(metadata: Metadata) -> set[str]:
    """Return the names of all objects that an ntuple consists of, but the anchor's."""
    links = [metadata.anchor.header.object, metadata.anchor.footer.object]
    links += [group.locator.object for group in metadata.footer.groups]
    for cluster in metadata.clusters:
        for column in cluster.columns:
            links += set(column.objects.tolist())
    # Header and footer may be in the anchor's object.
    return {metadata.name_of(number) for number in set(links)} - {""}


def find_orphans(store: Store, metadata: Metadata | None) -> Iterator[tuple[str, int]]:
    """Yield name and bytes of objects that a killed or replaced put has left.

    Only names that a put gives are looked at: what else stands below the URI
    may be another ntuple. A put that is under way has such objects too.
    ``metadata`` is that of the ntuple that is there, if there is one.
    """
    used = used_objects(metadata) if metadata is not None else set()
    templates = {BELOW, BESIDE}
    if metadata is not None:
        templates = {without_own_name(metadata.anchor.template), BESIDE}
    if root_keys_of(store) is not None:
        templates.add(ROOT_KEYS)
    for template in sorted(templates):
        head = prefix_of(template)
        for name, size in store.list(head):
            # A directory keeps what a killed put has begun as part-...
            plain = without_own_name(name)
            begun = plain.removeprefix(head).startswith("part-")
            if (begun or object_number(template, plain) is not None) and name not in used:
                yield name, size
    yield from store.list(JOURNALS)
