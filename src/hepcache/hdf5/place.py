"""Names of an output under way: hidden until it is complete, held by one process only."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from hepcache.errors import TableFileError
from hepcache.hdf5.journal import recover, sync_directory

__all__ = ["OutputPlace"]


@dataclass(frozen=True, slots=True)
class OutputPlace:
    """Where an output appears, and what lies beside it until then.

    Attributes
    ----------
    path
        The output.
    """

    path: Path

    def _beside(self, suffix: str) -> Path:
        return self.path.with_name(f".{self.path.name}.{suffix}")

    @property
    def part(self) -> Path:
        """The output under way."""
        return self._beside("part")

    @property
    def journal(self) -> Path:
        """A commit under way."""
        return self._beside("journal")

    @property
    def job(self) -> Path:
        """What the output under way is made of; there once a part of it is durable."""
        return self._beside("job")

    @contextmanager
    def claimed(self, *, overwrite: bool = True) -> Iterator[None]:
        """Keep other processes from writing this output meanwhile.

        What a run left that was killed when its output had its name is removed.

        Parameters
        ----------
        overwrite
            Whether there may be a file of that name already.

        Raises
        ------
        TableFileError
            Another process is writing it, its directory can't be written, or it exists.
        """
        lock = self._beside("lock")
        try:
            descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as error:
            reason = f"can't be written: {error.strerror} ({lock})"
            raise TableFileError(str(self.path), reason) from error
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                # Whoever held it before removed its name; then this is no lock any more.
                if not lock.samefile(f"/proc/self/fd/{descriptor}"):
                    raise BlockingIOError
            except OSError as error:
                raise TableFileError(
                    str(self.path), f"another process is writing it ({lock} is locked)"
                ) from error
            try:
                self._tidy()
                if self.path.exists() and not overwrite:
                    raise TableFileError(str(self.path), "exists; use --overwrite to replace it")
                yield
            finally:
                lock.unlink(missing_ok=True)
        finally:
            os.close(descriptor)

    def _tidy(self) -> None:
        there = self.part.exists()
        if not there or (self.path.exists() and self.part.samefile(self.path)):
            self.discard()

    def recover(self) -> None:
        """Finish an append to this file that was cut off while it became visible."""
        recover(self.path, self.journal)

    def resumable(self, job: str) -> bool:
        """Tell whether the output under way is durable in parts, and made of the same.

        Raises
        ------
        TableFileError
            It is made of something else.
        """
        if not self.part.exists() or not self.job.exists():
            return False
        try:
            found = json.loads(self.job.read_text())["job"]
        except (ValueError, KeyError):
            return False
        if found != job:
            raise TableFileError(
                str(self.path),
                f"{self.part} is left of a run with other inputs or options; "
                "repeat that run to finish it, or discard it with --restart",
            )
        recover(self.part, self._beside("part-journal"))
        return True

    @property
    def part_journal(self) -> Path:
        """A commit to the output under way."""
        return self._beside("part-journal")

    def remember(self, job: str) -> None:
        """Note that the output under way can be resumed."""
        beside = self._beside("job.part")
        with beside.open("w") as file:
            file.write(json.dumps({"job": job}))
            file.flush()
            os.fsync(file.fileno())
        beside.replace(self.job)
        sync_directory(self.path.parent)

    def discard(self) -> None:
        """Remove what is left of an output under way."""
        for suffix in ("part", "job", "job.part", "part-journal", "part-journal.part"):
            self._beside(suffix).unlink(missing_ok=True)

    def publish(self, *, overwrite: bool) -> None:
        """Give the complete, durable output its name.

        Raises
        ------
        TableFileError
            There is a file of that name by now, and it must not be replaced.
        """
        try:
            self._give_name(overwrite=overwrite)
        except BaseException:
            if not self.job.exists():
                self.discard()
            raise
        sync_directory(self.path.parent)
        self.discard()

    def _give_name(self, *, overwrite: bool) -> None:
        if overwrite:
            self.part.replace(self.path)
        else:
            try:
                self.path.hardlink_to(self.part)
            except FileExistsError as error:
                raise TableFileError(
                    str(self.path), "exists by now; nothing replaced it"
                ) from error
            except OSError:  # a file system without hard links
                self.part.rename(self.path)
            self.part.unlink(missing_ok=True)
