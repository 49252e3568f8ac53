"""Rewrite ROOT files with another compression, checked column by column.

The published system recompressed all its NanoAOD to Zstandard level 10. The
copy keeps trees, branches, types, counters, titles and cluster boundaries;
it appears under its name only when every column has been read back and
compared bit for bit.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import pairwise
from pathlib import Path
from typing import Any

import awkward as ak
import numpy as np
import uproot
from numpy.typing import NDArray

from hepcache.errors import RecompressError
from hepcache.formats.ttree.writer import Leaf, RootFile, parse_compression
from hepcache.io.processes import in_processes


@dataclass(frozen=True, slots=True)
class Recompressed:
    """One file that was rewritten."""

    source: Path
    copy: Path
    source_bytes: int
    copy_bytes: int
    left_out: tuple[str, ...]


def recompress_files(
    sources: Sequence[str | os.PathLike[str]],
    out: str | os.PathLike[str],
    *,
    compression: str = "zstd:10",
    columns: Sequence[str] | None = None,
    cluster: int = 0,
    jobs: int | None = None,
    overwrite: bool = False,
    done: Callable[[Recompressed], None] = lambda _: None,
) -> list[Recompressed]:
    """Rewrite files with another compression.

    ``compression``: such as ``zstd:10``.
    ``cluster``: entries that a cluster has at most, where several are joined; 0 leaves them as
    they are.
    ``columns``: names or globs of the branches to keep in ``Events``; all by default. Counters of
    what is kept come along.
    It returns in the order of the sources.
    Raises ``RecompressError``: a file can't be read or copied, or differs from its copy. Files
    that were complete before stay; no other has a name.
    """
    parse_compression(compression)
    directory = Path(out)
    paths = [Path(source) for source in sources]
    _check_names(paths, directory, overwrite)
    directory.mkdir(parents=True, exist_ok=True)
    tasks = [(path, directory / path.name, compression, columns, cluster) for path in paths]
    results = []
    for copied in in_processes(_recompress, tasks, jobs):
        done(copied)
        results.append(copied)
    return results


def _check_names(paths: Sequence[Path], directory: Path, overwrite: bool) -> None:
    names: dict[str, Path] = {}
    for path in paths:
        if path.name in names:
            raise RecompressError(str(path), f"its copy would replace that of {names[path.name]}")
        names[path.name] = path
        copy = directory / path.name
        if copy.exists() and path.exists() and copy.samefile(path):
            raise RecompressError(str(path), "the copy would replace it; choose another --out")
        if copy.exists() and not overwrite:
            raise RecompressError(str(path), f"{copy} exists; use --overwrite to replace it")


def _recompress(
    path: Path, copy: Path, compression: str, columns: Sequence[str] | None, cluster: int
) -> Recompressed:
    try:
        with uproot.open(path) as source:
            trees, left_out = trees_of(source)
            kept = {
                name: kept_leaves(path, tree, columns if name == "Events" else None)
                for name, tree in trees.items()
            }
            packed = parse_compression(compression)
            with RootFile(
                copy, packed, check=lambda made: _compare(path, made, trees, kept, cluster)
            ) as out:
                for name, tree in trees.items():
                    _copy_tree(out, name, tree, kept[name], cluster)
    except RecompressError:
        raise
    except Exception as error:
        raise RecompressError(str(path), f"{type(error).__name__}: {error}") from error
    return Recompressed(path, copy, path.stat().st_size, copy.stat().st_size, left_out)


def trees_of(source: Any) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the trees of a file by name, and the names of what else is in it."""
    classes = source.classnames(cycle=False)
    trees = {name: source[name] for name, kind in classes.items() if kind == "TTree"}
    left_out = tuple(name for name in classes if name not in trees)
    if not trees:
        found = ", ".join(f"{name} ({kind})" for name, kind in classes.items()) or "nothing"
        raise ValueError(f"there is no TTree in it, but {found}")
    return trees, left_out


def kept_leaves(path: Path, tree: Any, columns: Sequence[str] | None) -> list[Leaf]:
    """Return the branches to copy; refuse, before anything is written, what can't be."""
    by_name = {branch.name: branch for branch in tree.branches}
    wanted = {
        name
        for name in by_name
        if columns is None or any(fnmatchcase(name, pattern) for pattern in columns)
    }
    if not wanted and by_name:
        raise RecompressError(str(path), f"no branch matches {', '.join(columns or ())}")
    counters = {
        name: by_name[name].count_branch.name
        for name in wanted
        if by_name[name].count_branch is not None
    }
    wanted |= set(counters.values())
    leaves, refused = [], []
    for name, branch in by_name.items():
        if name not in wanted:
            continue
        number = branch.interpretation
        content = number.content if isinstance(number, uproot.AsJagged) else number
        plain = isinstance(content, uproot.AsDtype) and content.from_dtype.names is None
        jagged = isinstance(number, uproot.AsJagged)
        if not plain or content.inner_shape or jagged != (name in counters):
            refused.append(f"{name} ({branch.typename})")
            continue
        dtype = np.dtype(content.to_dtype)
        leaves.append(Leaf(name, dtype, counters.get(name, ""), branch.title))
    if refused:
        some = ", ".join(refused[:5]) + (f" and {len(refused) - 5} more" if refused[5:] else "")
        raise RecompressError(
            str(path),
            f"can only copy numbers and lists of them, not {some}; leave them out with --columns",
        )
    return leaves


def clusters(tree: Any, most: int = 0) -> list[tuple[int, int]]:
    """Return where the clusters of a tree begin and end.

    ``most``: entries up to which several count as one; 0 for none.
    """
    found: list[tuple[int, int]] = []
    for start, stop in pairwise(tree.common_entry_offsets()):
        if found and stop - found[-1][0] <= most:
            found[-1] = found[-1][0], stop
        else:
            found.append((start, stop))
    return found


def column_of(
    tree: Any, name: str, start: int, stop: int
) -> tuple[NDArray[Any], NDArray[Any] | None]:
    """Return the numbers of a branch, and where its lists begin and end if it has any."""
    layout = tree[name].array(entry_start=start, entry_stop=stop).layout
    if isinstance(layout, ak.contents.ListOffsetArray):
        packed = layout.to_ListOffsetArray64(True)
        offsets = packed.offsets.data
        return packed.content.data[: offsets[-1]], offsets
    return layout.data, None


def _copy_tree(out: RootFile, name: str, tree: Any, leaves: Sequence[Leaf], most: int) -> None:
    writer = out.tree(name, tree.title, leaves)
    for start, stop in clusters(tree, most):
        columns, offsets = {}, {}
        for leaf in leaves:
            columns[leaf.name], bounds = column_of(tree, leaf.name, start, stop)
            if bounds is not None:
                offsets[leaf.counter] = bounds
        writer.write(writer.encode(columns, offsets))
    writer.close()


def _compare(
    path: Path, made: Path, trees: dict[str, Any], kept: dict[str, list[Leaf]], most: int
) -> None:
    """Read the copy back, and raise where a bit differs."""
    with uproot.open(made) as copies:
        for name, tree in trees.items():
            copy = copies[name]
            ranges = clusters(tree, most)
            if clusters(copy) != ranges:
                raise RecompressError(
                    str(path), f"cluster boundaries of {name} differ in the copy"
                )
            for leaf in kept[name]:
                for start, stop in ranges:
                    ours = column_of(copy, leaf.name, start, stop)
                    theirs = column_of(tree, leaf.name, start, stop)
                    if not all(map(_same_bits, ours, theirs)):
                        where = f"{name}/{leaf.name}, entries {start} to {stop}"
                        raise RecompressError(str(path), f"{where} differ in the copy")


def _same_bits(a: NDArray[Any] | None, b: NDArray[Any] | None) -> bool:
    if a is None or b is None:
        return a is b
    return a.dtype == b.dtype and a.tobytes() == b.tobytes()
