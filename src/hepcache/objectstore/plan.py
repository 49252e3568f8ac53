"""Which requests fetch a set of pages: neighbours in an object together. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["Piece", "Wanted", "batches", "coalesced"]


class Wanted(NamedTuple):
    """A range of one object.

    Attributes
    ----------
    object
        The object's number.
    start, length
        First byte and number of bytes.
    """

    object: int
    start: int
    length: int


class Piece(NamedTuple):
    """A range to be fetched in one request.

    Attributes
    ----------
    object
        The object's number.
    start, length
        First byte and number of bytes.
    members
        Positions of the ranges it serves, in order of their bytes.
    """

    object: int
    start: int
    length: int
    members: tuple[int, ...]


def coalesced(wanted: Sequence[Wanted], gap_bytes: int, most_bytes: int) -> list[Piece]:
    """Return the requests for some ranges.

    Parameters
    ----------
    wanted
        The ranges, in any order; equal ones are fetched once.
    gap_bytes
        Unwanted bytes that cost less to read than a request.
    most_bytes
        Bytes of one request, which only a range that is longer exceeds.

    Returns
    -------
    list of Piece
        By object and position; every range is a member of exactly one.

    Examples
    --------
    >>> coalesced([Wanted(0, 90, 10), Wanted(0, 0, 50), Wanted(0, 50, 30)], 10, 1000)
    [Piece(object=0, start=0, length=100, members=(1, 2, 0))]
    """
    pieces: list[Piece] = []
    members: list[int] = []
    number = start = end = -1
    for index in sorted(range(len(wanted)), key=wanted.__getitem__):
        one, first, length = wanted[index]
        stop = first + length
        apart = one != number or first - end > gap_bytes
        # A range that is in the piece already costs nothing more.
        if members and (apart or (stop > end and stop - start > most_bytes)):
            pieces.append(Piece(number, start, end - start, tuple(members)))
            members = []
        if not members:
            number, start, end = one, first, stop
        members.append(index)
        end = max(end, stop)
    if members:
        pieces.append(Piece(number, start, end - start, tuple(members)))
    return pieces


def batches(pieces: Sequence[Piece], most_bytes: int, most: int) -> list[list[Piece]]:
    """Return pieces in groups that are fetched and decoded together.

    Parameters
    ----------
    pieces
        The requests, in order.
    most_bytes, most
        Bytes and requests of one group, which only a single request exceeds.
    """
    groups: list[list[Piece]] = []
    total = 0
    for piece in pieces:
        full = not groups or len(groups[-1]) == most or total + piece.length > most_bytes
        if full:
            groups.append([])
            total = 0
        groups[-1].append(piece)
        total += piece.length
    return groups
