"""What a store needs of a shard, here or on a server."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from hepcache.eventstore.operations import Operation
from hepcache.eventstore.schema import Schema
from hepcache.eventstore.survey import Survey
from hepcache.eventstore.table import Table

__all__ = ["Shard"]


class Shard(Protocol):
    """What a store needs of a shard, here or on a server."""

    def apply(self, operations: Sequence[Operation]) -> None:
        """Write all operations, or after an error none."""

    def get(self, key: bytes) -> bytes | None:
        """Return a plain value."""

    def keys(
        self,
        low: bytes,
        high: bytes | None,
        *,
        limit: int | None = None,
        reverse: bool = False,
    ) -> list[bytes]:
        """Return plain keys with ``low <= key < high``."""

    def events(
        self,
        subrun: bytes,
        low: int = 0,
        high: int | None = None,
        *,
        limit: int | None = None,
        reverse: bool = False,
    ) -> NDArray[np.uint64]:
        """Return event numbers of a subrun."""

    def has_event(self, subrun: bytes, number: int) -> bool:
        """Return whether a subrun has an event."""

    def types(self, subrun: bytes) -> list[tuple[str, Schema]]:
        """Return labels and types of the products of a subrun's events."""

    def has(self, subrun: bytes, label: str, schema: Schema, number: int) -> bool:
        """Return whether an event has a product."""

    def load(
        self, subrun: bytes, label: str, schema: Schema, number: int
    ) -> dict[str, Any] | None:
        """Return the columns of one event's product, or None."""

    def read(
        self,
        subrun: bytes,
        label: str,
        schema: Schema,
        columns: Sequence[str],
        low: int = 0,
        high: int | None = None,
    ) -> Table:
        """Return columns of the products of ``low <= number < high``."""

    def survey(self, dataset: bytes) -> Survey:
        """Return what the shard has of a dataset."""

    def stamp(self, dataset: bytes) -> bytes:
        """Return what changes with every write to the events or products of a dataset."""

    def info(self) -> dict[str, Any]:
        """Return the engine's figures."""

    def verify(self) -> int:
        """Read everything and compare checksums; return how many values have one."""

    def close(self) -> None:
        """Give its resources back."""
