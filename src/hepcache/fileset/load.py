"""Read filesets: coffea's dictionaries, JSON files, and plain paths."""

from __future__ import annotations

import gzip
import itertools
import json
import os
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from hepcache.errors import BadFilesetError
from hepcache.fileset.model import Fileset, FileSpec
from hepcache.fileset.replicas import replica_problem
from hepcache.fileset.urls import find_files, label_directories, split_tree
from hepcache.io.transport import path_problem

# What coffea itself puts in a chunk's metadata; a user's value would be lost.
RESERVED_METADATA = frozenset(
    {
        "clusters",
        "dataset",
        "entrystart",
        "entrystop",
        "filename",
        "fileuuid",
        "metadata",
        "numentries",
        "preload",
        "treename",
        "uuid",
    }
)
_JSON = (".json", ".json.gz")


def load_fileset(source: object, *, treename: str | None = None) -> Fileset:
    """Read a fileset in any form that coffea accepts.

    Parameters
    ----------
    source
        A mapping of dataset to a list of files, or to a mapping with
        ``files`` (a list, or a mapping of path to tree name or to a mapping
        with ``object_path`` and ``replicas``, a list of other paths and URLs of
        the same file) and perhaps ``metadata``, ``treename`` and
        ``preload``; a path of a JSON file with such a mapping (``.json`` or
        ``.json.gz``); a ROOT file, with or without ``:tree`` after it; a
        directory, searched at every depth for ``*.root``; a glob; or a list
        of paths. A :class:`Fileset` is returned as it is.
    treename
        Name of the tree in files for which the fileset gives none. A file's own
        tree comes first, then that of its dataset, then this one.

    Returns
    -------
    Fileset
        The files in the order of ``source``; those of directories and globs sorted.
        Files named by path form datasets named after their directories.

    Raises
    ------
    BadFilesetError
        The fileset can't be understood, or matches no file.

    Warns
    -----
    UserWarning
        A dataset has a file twice, so its events count twice.

    Examples
    --------
    >>> load_fileset({"tt": ["a.root", "b.root"]}, treename="Events").datasets
    ('tt',)
    >>> load_fileset("/data/DY/nano.root:Events")[0].dataset
    'DY'
    """
    if isinstance(source, Fileset):
        return source
    if hasattr(source, "model_dump"):  # coffea's own fileset classes
        source = source.model_dump()
    if isinstance(source, str | os.PathLike) and os.fspath(source).endswith(_JSON):
        source = _read_json(Path(source))
    if isinstance(source, Mapping):
        specs = [
            spec for name, entry in source.items() for spec in _dataset(name, entry, treename)
        ]
    elif isinstance(source, str | os.PathLike):
        specs = _from_paths([source], treename)
    elif isinstance(source, Iterable):
        specs = _from_paths(list(source), treename)
    else:
        raise BadFilesetError(
            "expected a mapping, a path or a list of paths, "
            f"found {type(source).__name__}: {source!r}"
        )
    if not specs:
        raise BadFilesetError("there is no file in it")
    _warn_of_repeated(specs)
    return Fileset(specs)


def _read_json(path: Path) -> Any:
    try:
        data = path.read_bytes()
        if path.suffix == ".gz":
            data = gzip.decompress(data)
        content = json.loads(data)
    except (OSError, EOFError) as error:
        raise BadFilesetError(f"can't be read: {error}", str(path)) from error
    except ValueError as error:
        raise BadFilesetError(f"is not JSON: {error}", str(path)) from error
    if not isinstance(content, Mapping):
        raise BadFilesetError(
            f"expected a mapping of datasets, found a {type(content).__name__}", str(path)
        )
    return content


def _dataset(name: object, entry: object, treename: str | None) -> Iterator[FileSpec]:
    if not isinstance(name, str):
        raise BadFilesetError("names of datasets are text", repr(name))
    metadata: Mapping[str, Any] | None = None
    preload: frozenset[str] | None = None
    files = entry
    if isinstance(entry, Mapping):
        if "files" not in entry:
            raise BadFilesetError(
                "has no 'files'; write {'files': {path: tree}} or {'files': [path, ...]}", name
            )
        files = entry["files"]
        treename = _text(entry.get("treename"), name, "treename") or treename
        metadata = _metadata(entry.get("metadata"), name)
        if entry.get("preload") is not None:
            preload = _preload(entry["preload"], name)
    for path, tree, replicas in _files(files, name):
        places = _found(path, name)
        if replicas and [place for place, _ in places] != [split_tree(path)[0]]:
            raise BadFilesetError(
                f"{path!r} has replicas, and is no file but a glob or a directory: name each file",
                name,
            )
        for found, inner in places:
            yield FileSpec(name, found, tree or inner or treename, metadata, preload, replicas)


def _metadata(metadata: object, dataset: str) -> dict[str, Any] | None:
    if metadata is None:
        return None
    if not isinstance(metadata, Mapping):
        raise BadFilesetError(f"metadata is not a mapping: {metadata!r}", dataset)
    reserved = sorted(RESERVED_METADATA.intersection(metadata))
    if reserved:
        raise BadFilesetError(
            f"metadata uses reserved words: {', '.join(reserved)}; rename them", dataset
        )
    return dict(metadata)


def _preload(preload: object, dataset: str) -> frozenset[str]:
    if isinstance(preload, str) or not isinstance(preload, Iterable):
        raise BadFilesetError(f"preload is a list of columns, found {preload!r}", dataset)
    return frozenset(preload)


def _files(files: object, dataset: str) -> Iterator[tuple[str, str | None, tuple[str, ...]]]:
    if isinstance(files, str | os.PathLike):
        yield _path(files, dataset), None, ()
    elif isinstance(files, Mapping):
        for path, value in files.items():
            text = _path(path, dataset)
            yield text, _tree_of(value, dataset, path), replicas_of(value, dataset, text)
    elif isinstance(files, Sequence):
        for path in files:
            yield _path(path, dataset), None, ()
    else:
        raise BadFilesetError(
            f"expected a list of files, or a mapping with 'files', found {files!r}", dataset
        )


def _found(path: str, dataset: str) -> list[tuple[str, str | None]]:
    found = find_files(path)
    if not found:
        raise BadFilesetError(f"no *.root file under {path!r}", dataset)
    return found


def _path(path: object, dataset: str) -> str:
    if not isinstance(path, str | os.PathLike):
        raise BadFilesetError(f"expected a path, found {path!r}", dataset)
    text = str(os.fspath(path))
    problem = path_problem(text)
    if problem:
        raise BadFilesetError(f"{text!r} is no name of a file: {problem}", dataset)
    return text


def _tree_of(value: object, dataset: str, path: object) -> str | None:
    if not isinstance(value, Mapping):
        return _text(value, dataset, f"the tree of {path}")
    _refuse_steps(value, dataset, path)
    return _text(value.get("object_path"), dataset, f"object_path of {path}")


def replicas_of(value: object, dataset: str, path: str) -> tuple[str, ...]:
    """Return the replicas that a fileset's entry of a file names.

    ``value``: the entry, of which ``replicas`` is a part if it is a mapping.
    Raises ``BadFilesetError``: they are no list of paths, or the file can have none.
    """
    replicas = value.get("replicas") if isinstance(value, Mapping) else None
    if replicas is None:
        return ()
    if isinstance(replicas, str) or not isinstance(replicas, Sequence):
        raise BadFilesetError(
            f"replicas of {path!r}: expected a list of paths and URLs of the same file, "
            f"found {replicas!r}",
            dataset,
        )
    found: dict[str, None] = {}
    for replica in replicas:
        try:
            place, tree = split_tree(_path(replica, dataset))
        except BadFilesetError as error:
            raise BadFilesetError(f"replicas of {path!r}: {error.problem}", dataset) from None
        if tree is not None:
            raise BadFilesetError(
                f"replicas of {path!r}: {replica!r} names a tree; object_path does that for all",
                dataset,
            )
        found[place] = None
    for place in (split_tree(path)[0], *found) if found else ():
        if problem := replica_problem(place):
            raise BadFilesetError(f"replicas of {path!r}: {place!r} {problem}", dataset)
    return tuple(found)


def without_replicas(source: Any) -> tuple[Any, dict[str, tuple[str, ...]]]:
    """Separate a fileset as coffea takes it, path to tree name, and the replicas that it names.

    ``source``: a mapping, a path of a JSON file, a :class:`Fileset`, or anything else, which is
    returned as it is.
    It returns the fileset and, by path, the other places of the files that have any.
    """
    replicas: dict[str, tuple[str, ...]] = {}
    if isinstance(source, Fileset):
        for spec in source:
            if spec.replicas:
                known = replicas.get(spec.path, ())
                replicas[spec.path] = tuple(dict.fromkeys((*known, *spec.replicas)))
        return source, replicas
    content = source
    if isinstance(source, str | os.PathLike) and os.fspath(source).endswith(_JSON):
        try:
            content = _read_json(Path(source))
        except BadFilesetError:
            return source, replicas  # coffea says what is wrong, in its own words
    if not isinstance(content, Mapping):
        return source, replicas
    plain: dict[Any, Any] = {}
    detailed = False
    for name, entry in content.items():
        plain[name] = entry
        files = entry.get("files") if isinstance(entry, Mapping) else None
        if not isinstance(files, Mapping) or not any(
            isinstance(value, Mapping) for value in files.values()
        ):
            continue
        detailed = True
        trees = {}
        for path, value in files.items():
            trees[path] = _tree_of(value, name, path)
            if named := replicas_of(value, name, _path(path, name)):
                known = replicas.get(str(path), ())
                replicas[str(path)] = tuple(dict.fromkeys((*known, *named)))
        plain[name] = {**entry, "files": trees}
    return (plain if detailed else source), replicas


def _text(value: object, dataset: str, what: str) -> str | None:
    if value is None or isinstance(value, str):
        return value or None
    raise BadFilesetError(f"{what}: expected a name, found {value!r}", dataset)


def _refuse_steps(value: Mapping[str, Any], dataset: str, path: object) -> None:
    """Refuse steps that select entries: ignoring them would count too many events."""
    steps = value.get("steps")
    if not steps:
        return
    ordered = sorted(tuple(step) for step in steps)
    gaps = any(a[1] != b[0] for a, b in itertools.pairwise(ordered))
    entries = value.get("num_entries")
    if gaps or ordered[0][0] != 0 or (entries is not None and ordered[-1][1] != entries):
        raise BadFilesetError(
            f"'steps' of {path} select some of its entries, and hepcache cuts files itself: "
            "remove 'steps', and use maxchunks to process less",
            dataset,
        )


def _from_paths(sources: list[Any], treename: str | None) -> list[FileSpec]:
    found: list[tuple[str, str | None]] = []
    for source in sources:
        text = _path(source, "")
        if text.endswith(_JSON):
            raise BadFilesetError("give one JSON file alone, not in a list", text)
        files = find_files(text)
        if not files:
            raise BadFilesetError("no *.root file there; check the path or the glob", text)
        found.extend(files)
    labels = label_directories([path for path, _ in found])
    return [
        FileSpec(label, path, tree or treename)
        for (path, tree), label in zip(found, labels, strict=True)
    ]


def _warn_of_repeated(specs: list[FileSpec]) -> None:
    counts = Counter((spec.dataset, spec.path, spec.tree) for spec in specs)
    repeated = [key for key, count in counts.items() if count > 1]
    if repeated:
        dataset, path, _ = repeated[0]
        more = f" and {len(repeated) - 1} more" if len(repeated) > 1 else ""
        warnings.warn(
            f"fileset {dataset}: {path}{more} stands there more than once, "
            "and its events will count as often",
            UserWarning,
            stacklevel=3,
        )
