"""A run that goes on while its user does something else."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError, Future
from typing import TYPE_CHECKING, Any

from coffea.processor import accumulate

from hepcache.display import card
from hepcache.errors import RetryError
from hepcache.process.progress import RunProgress

if TYPE_CHECKING:
    from hepcache.process.dispatch import Dispatch
    from hepcache.process.executor import Executor
    from hepcache.report import RunRecord


class RunHandle:
    """A run that was submitted; :meth:`hepcache.Runner.submit` makes it.

    Any thread may use it. In a notebook it shows how far the run is.
    """

    def __init__(self, runner: Any, run: Callable[[], Any]) -> None:
        self._runner = runner
        self._dispatch: Dispatch | None = None
        self._cancelled = False
        self._result: Future[Any] = Future()
        executor: Executor = runner.executor
        executor.watch = self._begin
        thread = threading.Thread(
            target=self._follow, args=(run,), name="hepcache-run", daemon=True
        )
        thread.start()

    def _follow(self, run: Callable[[], Any]) -> None:
        try:
            self._result.set_result(run())
        except BaseException as error:
            self._result.set_exception(error)

    def _begin(self, dispatch: Dispatch) -> None:
        self._dispatch = dispatch
        if self._cancelled:
            dispatch.cancel()

    @property
    def done(self) -> bool:
        """Whether the run has ended, in whatever way."""
        return self._result.done()

    @property
    def progress(self) -> RunProgress:
        """How much is done, by dataset; nothing while files are looked at."""
        return RunProgress() if self._dispatch is None else self._dispatch.progress

    @property
    def record(self) -> RunRecord | None:
        """What the run did; ``None`` until it has ended."""
        record: RunRecord | None = self._runner.run_record
        return record

    def partial(self, dataset: str | None = None) -> Any:
        """Return what the chunks that are done add up to, before ``postprocess``.

        Parameters
        ----------
        dataset
            Only of this dataset: of one in ``progress.complete`` that is all.

        Returns
        -------
        output
            ``None`` where no chunk is done, or the run has failed. Once the run has ended, with
            ``dataset=None``, its result. Of a run that :meth:`retry` has begun: what its own
            chunks add up to, until it has ended.
        """
        if self._dispatch is None:
            return None
        if self._state() == "done" and dataset is None:
            return self.result()
        found: Mapping[str, Any] = self._dispatch.partial() or {}
        chosen = found if dataset is None else {dataset} & found.keys()
        return accumulate(found[name]["out"] for name in chosen if "out" in found[name])

    def cancel(self) -> None:
        """End the run; :meth:`result` then raises.

        What is stored and cached stays, and so does what is done: :meth:`partial` returns it, and
        :meth:`retry` processes the rest.
        """
        self._cancelled = True
        if self._dispatch is not None and not self.done:
            self._dispatch.cancel()

    def result(self, timeout_s: float | None = None) -> Any:
        """Wait for the run, and return what a call of the Runner returns, or raise what it raises.

        Parameters
        ----------
        timeout_s
            Seconds to wait at most; ``None`` for ever.

        Raises
        ------
        TimeoutError
            It has not ended in time; it goes on.
        concurrent.futures.CancelledError
            It was cancelled.
        """
        return self._result.result(timeout_s)

    def retry(self) -> RunHandle:
        """Begin to process what this run lacks, and nothing else, and complete its result.

        It lacks what failed or was skipped, and all that was not done when it was cancelled.

        Returns
        -------
        RunHandle
            Its result, and its record, are those of both together.

        Raises
        ------
        RetryError
            The run goes on, or lacks nothing; or it ended with an error at the first failure, as
            runs do unless ``failures="collect"``.
        """
        if not self.done:
            raise RetryError("the run goes on: wait for it, or cancel it")
        if self._runner.partial_run is None:
            raise RetryError(
                'nothing is kept of a run that ends at its first failure: failures="collect" '
                "keeps what the other chunks come to"
                if self._state() == "failed"
                else "the run lacks no events"
            )
        return RunHandle(self._runner, self._runner.retry)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self._state()}, {self.progress}>"

    def _state(self) -> str:
        if not self.done:
            return "cancelling" if self._cancelled else "running"
        error = self._result.exception()
        if isinstance(error, CancelledError):
            return "cancelled"
        return "failed" if error is not None else "done"

    def _repr_html_(self) -> str:
        rows = [
            (
                name,
                f"{dataset.done_chunks} of {dataset.chunks}",
                f"{dataset.done_events:,} of {dataset.events:,}",
                str(dataset.failed_chunks or ""),
            )
            for name, dataset in self.progress.datasets.items()
        ]
        facts = {"state": self._state(), "progress": str(self.progress)}
        return card("Run", facts, ("dataset", "chunks", "events", "failed"), rows)
