"""The events of a dataset as a fileset names them, where it would name a file."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote, unquote

from hepcache.errors import ConfigurationError

__all__ = ["DatasetUrl"]

_SCHEME = "events+"


@dataclass(frozen=True, slots=True)
class DatasetUrl:
    """A dataset of a store, or one run or subrun of it.

    Attributes
    ----------
    store
        The store's URL.
    dataset
        Path of the dataset.
    numbers
        Run, or run and subrun, where not all of the dataset is meant.

    Examples
    --------
    >>> DatasetUrl.parse("events+file:///ssd/nova#nova/prod5:43")
    DatasetUrl(store='file:///ssd/nova', dataset='nova/prod5', numbers=(43,))
    >>> str(DatasetUrl("file:///ssd/nova", "nova/prod5"))
    'events+file:///ssd/nova#nova/prod5'
    """

    store: str
    dataset: str
    numbers: tuple[int, ...] = ()

    @classmethod
    def parse(cls, text: str) -> DatasetUrl:
        """Return what a URL says.

        Raises
        ------
        ConfigurationError
            It is no such URL.
        """
        store, found, where = text.removeprefix(_SCHEME).partition("#")
        path, _, numbers = where.partition(":")
        parts = numbers.split("/") if numbers else []
        if (
            not (text.startswith(_SCHEME) and found and path)
            or store == "mem://"
            or len(parts) > 2
            or not all(one.isdecimal() for one in parts)
        ):
            expected = "events+file:///path#dataset, with :run or :run/subrun behind it for less"
            raise ConfigurationError("events", expected, text)
        return cls(store, unquote(path), tuple(map(int, parts)))

    def __str__(self) -> str:
        numbers = ":" + "/".join(map(str, self.numbers)) if self.numbers else ""
        return f"{_SCHEME}{self.store}#{quote(self.dataset)}{numbers}"
