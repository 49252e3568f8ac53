"""An RNTuple inside a ROOT file, read as if the file were an object store of one object."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import uproot
from numpy.typing import NDArray

from hepcache.errors import ObjectDamagedError, ObjectMissingError, ObjectStoreError
from hepcache.objectstore.anchor import Anchor, Link
from hepcache.objectstore.locators import IN_FILE
from hepcache.objectstore.metadata import Metadata, load_metadata
from hepcache.objectstore.ntuple import NTuple
from hepcache.objectstore.reading import Options
from hepcache.objectstore.store import Request, Store
from hepcache.objectstore.together import Deferred, read_in_threads

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["FileStore", "anchor_in_file", "file_metadata", "only_file", "open_in_file"]

_CONCURRENCY = 4


class FileStore:
    """A local file as a store that can only be read; its one object is called ``""``.

    Parameters
    ----------
    path
        The file.
    """

    limit = 0

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.uri = os.fspath(path)
        try:
            self._file = os.open(self.uri, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            raise ObjectMissingError(self.uri, "", "there is no such file") from None
        except OSError as error:
            raise ObjectStoreError(self.uri, "", f"{error.strerror or error}") from error

    def get(self, name: str) -> bytes:
        """Return the file whole."""
        return bytes(self.get_ranges(name, [0], [os.fstat(self._file).st_size])[0])

    def get_ranges(self, name: str, starts: Sequence[int], lengths: Sequence[int]) -> list[Buffer]:
        """Return ranges of the file."""
        return self._ranges(None, name, starts, lengths)

    def _ranges(
        self,
        room: NDArray[np.uint8] | None,
        name: str,
        starts: Sequence[int],
        lengths: Sequence[int],
    ) -> list[Buffer]:
        found: list[Buffer] = []
        left = np.empty(sum(lengths), np.uint8) if room is None else room
        for start, length in zip(starts, lengths, strict=True):
            into, left = left[:length].data, left[length:]
            found.append(into)
            done = 0
            while done < length:
                more = os.preadv(self._file, [into[done:]], start + done)
                if not more:
                    problem = f"it ends before byte {start + length}; copy it again"
                    raise ObjectDamagedError(self.uri, name, problem)
                done += more
        return found

    async def read(self, requests: Sequence[Request]) -> list[Buffer]:
        """Return ranges of the file."""
        return await read_in_threads(self.get_ranges, requests, _CONCURRENCY)

    def begin(
        self, requests: Sequence[Request], room: NDArray[np.uint8] | None = None
    ) -> Deferred:
        """Let the kernel read ahead, and return what will read."""
        for _, start, length in requests:
            with suppress(OSError):
                os.posix_fadvise(self._file, start, length, os.POSIX_FADV_WILLNEED)
        return Deferred(partial(self._ranges, room), requests)

    def list(self, prefix: str = "") -> Iterator[tuple[str, int]]:
        """Yield the file itself."""
        if not prefix:
            yield "", os.fstat(self._file).st_size

    def put(self, name: str, data: Buffer) -> None:  # noqa: ARG002
        """Refuse."""
        raise ObjectStoreError(self.uri, name, "a ROOT file is only read; put into another store")

    put_anchor = put

    def delete(self, names: Sequence[str]) -> None:
        """Refuse."""
        raise ObjectStoreError(self.uri, ", ".join(names), "a ROOT file is only read")

    def close(self) -> None:
        """Close the file."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def anchor_in_file(ntuple: Any) -> Anchor:
    """Return the anchor of an RNTuple that uproot has opened.

    Parameters
    ----------
    ntuple
        uproot's ``RNTuple``; its envelopes need not have been read.
    """
    found = {name: int(ntuple.member(name)) for name in _MEMBERS}
    version = tuple(found[f"fVersion{part}"] for part in ("Epoch", "Major", "Minor", "Patch"))
    header, footer = (
        Link(IN_FILE, found[f"fSeek{one}"], found[f"fNBytes{one}"], found[f"fLen{one}"])
        for one in ("Header", "Footer")
    )
    return Anchor(header, footer, version=version)


def file_metadata(store: Store, path: str, tree: str) -> Metadata:
    """Read the envelopes of an RNTuple in a file.

    Parameters
    ----------
    store
        Reads the file.
    path
        The file, for uproot, which finds the anchor.
    tree
        The ntuple's name.
    """
    with uproot.open(path) as directory:
        anchor = anchor_in_file(directory[tree])
    return load_metadata(store, anchor, only_file)


def open_in_file(path: str, tree: str, options: Options | None = None) -> NTuple:
    """Open an RNTuple in a local file.

    Parameters
    ----------
    path, tree
        The file, and the ntuple's name in it.
    options
        How pages are fetched.

    Raises
    ------
    ObjectStoreError
        The file is missing or damaged.
    """
    store = FileStore(Path(path))
    try:
        return NTuple(store, file_metadata(store, path, tree), options)
    except BaseException:
        store.close()
        raise


def only_file(number: int) -> str:
    """Return the name of the only object there is, if that is what is meant."""
    if number != IN_FILE:
        raise ValueError(f"locator of object {number} in a file")
    return ""


_MEMBERS = (
    "fVersionEpoch", "fVersionMajor", "fVersionMinor", "fVersionPatch",
    "fSeekHeader", "fNBytesHeader", "fLenHeader", "fSeekFooter", "fNBytesFooter", "fLenFooter",
)  # fmt: skip
