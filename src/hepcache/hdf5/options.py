"""What a user may choose about an output."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from hepcache.errors import ConfigurationError

__all__ = ["TableOptions"]


@dataclass(frozen=True, slots=True)
class TableOptions:
    """How tables are written.

    Attributes
    ----------
    compression, level
        Compression of chunks, and its level. Without a level ``effort`` decides.
    effort
        Whether speed or size matters: ``"fast"``, ``"balanced"``, ``"small"``.
    chunk_rows, wide_chunk_rows
        Rows of a chunk, for datasets of one value per row and for wider ones. A
        dataset with fewer rows gets a shorter chunk. ``None`` keeps the input's.
    contiguous
        Whether datasets are written without chunks, and so uncompressed.
    compress_from
        Datasets of fewer bytes are not compressed.
    shuffle
        Whether bytes are ordered by significance before compression; ``None``
        does what the input does.
    memory_bytes
        Bound of what all processes together hold at a time.
    key, events
        Dataset that tells events apart and the group that lists them: ``"evt"`` and
        ``"spill"`` make a dataset ``evt.seq`` in every group. No key by default.
    sort
        Datasets of the group of events by whose first values the inputs are sorted.
    attributes
        Whether inputs must have equal attributes, or the first one's are taken.
    copy_chunks
        Whether an input's compressed chunk that is a chunk of the output is
        copied as it is.

    Raises
    ------
    ConfigurationError
        A value has no meaning.
    """

    compression: Literal["gzip", "zstd", "blosc", "none"] = "gzip"
    level: int | None = None
    effort: Literal["fast", "balanced", "small"] = "balanced"
    chunk_rows: int | None = 262_144
    wide_chunk_rows: int | None = 128
    contiguous: bool = False
    compress_from: int = 0
    shuffle: bool | None = None
    memory_bytes: int = 2 << 30
    key: str | None = None
    events: str = "spill"
    sort: tuple[str, ...] = ()
    attributes: Literal["equal", "first"] = "equal"
    copy_chunks: bool = True

    def __post_init__(self) -> None:
        choices = {
            "compression": ("gzip", "zstd", "blosc", "none"),
            "effort": ("fast", "balanced", "small"),
            "attributes": ("equal", "first"),
        }
        for name, allowed in choices.items():
            if getattr(self, name) not in allowed:
                raise ConfigurationError(name, f"one of {', '.join(allowed)}", getattr(self, name))
        most = {"gzip": 9, "zstd": 22, "blosc": 9, "none": 0}[self.compression]
        if self.level is not None and not 0 <= self.level <= most:
            raise ConfigurationError("level", f"0 to {most} for {self.compression}", self.level)
        for name in ("chunk_rows", "wide_chunk_rows"):
            rows = getattr(self, name)
            if rows is not None and rows < 1:
                raise ConfigurationError(name, "1 or more", rows)
        if self.memory_bytes < 64 << 20:
            raise ConfigurationError("memory_bytes", "64 MiB or more", self.memory_bytes)
        if self.compress_from < 0:
            raise ConfigurationError("compress_from", "0 or more bytes", self.compress_from)
        if self.key is not None and (not self.key or "/" in self.key):
            raise ConfigurationError("key", "the name of a dataset, such as evt", self.key)
