"""Which datasets tell events apart, and so what partition keys are made of and called."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from hepcache.errors import ConfigurationError

USUAL_COLUMNS = ("run", "subrun", "cycle", "batch")
"""What tells events of the same number apart, where groups and the list of events have it."""


@dataclass(frozen=True, slots=True)
class EventKey:
    """Datasets of the group that lists the events.

    Attributes
    ----------
    group
        Full name of the group, without slashes around it.
    columns
        Names of datasets in it.
    exact
        Whether these alone tell events apart. Otherwise :data:`USUAL_COLUMNS` do so together
        with them, as far as groups have these.
    """

    group: str
    columns: tuple[str, ...]
    exact: bool

    @classmethod
    def parse(cls, key: str, events: str) -> EventKey:
        """Return what a text means: a name, or names or full names with commas between them.

        >>> EventKey.parse("evt", "spill").exact
        False
        >>> EventKey.parse("/event_table/event_id", "spill").group
        'event_table'
        >>> EventKey.parse("run,subrun,evt", "spill").columns
        ('run', 'subrun', 'evt')

        Raises
        ------
        ConfigurationError
            A name is empty, or the datasets are not all of one group.
        """
        parts = [part.strip() for part in key.split(",")]
        groups = {part.rpartition("/")[0].strip("/") for part in parts if "/" in part}
        columns = tuple(part.rpartition("/")[2] for part in parts)
        if not all(columns) or len(set(columns)) < len(columns) or len(groups) > 1:
            raise ConfigurationError(
                "key", "datasets of one group, such as evt or /spill/run,/spill/evt", key
            )
        group = groups.pop() if groups else events.strip("/")
        if not group:
            raise ConfigurationError("key", "datasets of a group, such as /spill/evt", key)
        return cls(group, columns, "/" in key or "," in key)

    @property
    def name(self) -> str:
        """Name of the last dataset, after which keys are called."""
        return self.columns[-1]

    @property
    def sequence(self) -> str:
        """Name of the dataset that numbers the event of every row."""
        return f"{self.name}.seq"

    @property
    def identity(self) -> tuple[str, ...]:
        """Datasets that tell events apart, as far as they are there."""
        return self.columns if self.exact else (*USUAL_COLUMNS, self.name)

    @property
    def required(self) -> tuple[str, ...]:
        """Datasets that every group with keys must have."""
        return self.columns if self.exact else (self.name,)

    def is_there(self, columns: Collection[str]) -> bool:
        """Tell whether a group of these datasets can have keys."""
        return all(name in columns for name in self.required)
