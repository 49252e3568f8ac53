"""The one process that writes: it takes chunks as workers make them."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any

from hepcache.hdf5.gather import require_unchanged
from hepcache.hdf5.options import TableOptions
from hepcache.hdf5.outcome import Concatenated, Progress
from hepcache.hdf5.output import Output
from hepcache.hdf5.partition import Keys
from hepcache.hdf5.plan import Plan
from hepcache.hdf5.pool import as_made
from hepcache.hdf5.tasks import tasks
from hepcache.hdf5.work import make_chunks

__all__ = ["Writer"]

_CHECKPOINT_S = 30.0


class Writer:
    """Takes chunks as they are made and writes them.

    Parameters
    ----------
    output, plan, options, keys
        What is written, and where to.
    executor, workers
        Who makes chunks.
    done, progress
        Who is told.
    resumed
        Whether chunks that are in the output are left alone, as an earlier run
        with the same inputs wrote them.
    """

    def __init__(
        self,
        output: Output,
        plan: Plan,
        options: TableOptions,
        keys: Keys | None,
        executor: Executor,
        workers: int,
        done: Concatenated,
        progress: Progress,
        *,
        resumed: bool = False,
    ) -> None:
        self._output, self._plan, self._options, self._keys = output, plan, options, keys
        self._executor, self._workers = executor, workers
        self._done, self._progress = done, progress
        self._resumed = resumed
        self._present: dict[int, set[int]] = {}

    def fill(
        self, prepare: Callable[[], None], checkpoint: Callable[[], None] | None = None
    ) -> None:
        """Write all chunks.

        Parameters
        ----------
        prepare
            Makes the datasets; called when the first chunks are under way.
        checkpoint
            Called now and then.
        """
        plan, done = self._plan, self._done
        done.raw_bytes = plan.raw_bytes
        written, due = 0, time.monotonic() + _CHECKPOINT_S

        def create() -> None:
            with done.timed("create"):
                prepare()

        work = tasks(plan, self._options, self._workers, self._key, self._is_there)
        results = as_made(
            self._executor,
            make_chunks,
            work,
            room=lambda task: 3 * task.raw_bytes,
            meanwhile=create,
            most=max(1, min(self._options.memory_bytes // 2, 2 * self._workers * (96 << 20))),
        )
        with done.timed("chunks"):
            for made in results:
                for one in made:
                    self._output.write(one)
                    column = plan.schema.columns[one.number]
                    written += one.rows * column.row_bytes
                    done.chunks += 1
                    done.copied_chunks += one.copied
                self._progress("Writing", written, done.raw_bytes)
                if checkpoint is not None and time.monotonic() > due:
                    checkpoint()
                    due = time.monotonic() + _CHECKPOINT_S
        with done.timed("strings"):
            self._output.copy_variable(lambda _: None)
        require_unchanged(plan.inputs.tables)

    def _key(self, file: int, group: int) -> Any:
        assert self._keys is not None
        return self._keys(file, group)

    def _is_there(self, number: int, chunk: int) -> bool:
        if not self._resumed:
            return False
        if number not in self._present:
            self._present[number] = self._output.present(number)
        there = chunk in self._present[number]
        self._done.resumed_chunks += there
        return there
