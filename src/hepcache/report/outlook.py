"""The next cycle as long as nothing changes; pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hepcache.errors import ConfigurationError
from hepcache.report.model import CycleModel, model_of
from hepcache.report.reasons import Miss, misses_of
from hepcache.report.record import RunRecord
from hepcache.report.schedule import Schedule

__all__ = ["Outlook", "outlook_of"]


@dataclass(frozen=True, slots=True)
class Outlook:
    """What is known of the next cycle as long as nothing changes.

    Attributes
    ----------
    records
        Consecutive cycles, oldest first.
    misses
        Why the last one read what it read at the origin.
    model
        What they tell of the next one.
    owners
        Host of every chunk.
    schedule
        Who will do what, and when.
    missing
        Positions of the chunks that will be read in full.
    """

    records: Sequence[RunRecord]
    misses: tuple[Miss, ...]
    model: CycleModel
    owners: tuple[str, ...]
    schedule: Schedule
    missing: list[int]

    @property
    def wall_s(self) -> float:
        """Seconds that the next cycle is expected to take."""
        return self.model.overhead_s + self.schedule.makespan_s

    @property
    def reread_bytes(self) -> float:
        """Decoded bytes that it is expected to read at the origin."""
        return self.model.read_bytes(self.missing)


def outlook_of(records: Sequence[RunRecord], *, pessimistic: bool = False) -> Outlook:
    """Return what cycles tell of the next one as long as nothing changes.

    Parameters
    ----------
    records
        Consecutive cycles, oldest first.
    pessimistic
        As for :func:`model_of`.

    Raises
    ------
    ConfigurationError
        There is no cycle to learn from.
    """
    if not records:
        raise ConfigurationError("records", "at least one cycle", len(records))
    misses = misses_of(records)
    model = model_of(records, misses, pessimistic=pessimistic)
    owners = model.owners()
    done, missing = model.run(owners)
    return Outlook(records, misses, model, owners, done, missing)
