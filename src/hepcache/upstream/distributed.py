"""All that hepcache uses of distributed without its promise to keep it.

Dask steals by the average duration of all tasks of a kind and by the size of
their inputs; it knows nothing of columns on an SSD. Chunks are therefore
taken out of its hands, and moved by hepcache's own rule with Dask's own
protocol, in which the worker that has a task must confirm that it has not
begun it. ``tests/upstream/test_distributed.py`` names each part, so that an
upgrade that changes one fails there. Without one of them Dask does in its own
way what it is for.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from distributed import SpecCluster, get_worker, utils
from distributed.protocol import Serialize, Serialized, deserialize

from hepcache.upstream.names import is_there, look_up

_T = TypeVar("_T")

__all__ = [
    "LastingSpecCluster",
    "close_in_order",
    "current_task",
    "forget_topic",
    "in_flight",
    "is_ranked_by_dask",
    "keep_from_stealing",
    "keep_interrupts",
    "occupied_threads",
    "rank_waiting",
    "request_move",
    "send_to_worker",
    "sets_up",
    "skip_optional_imports",
    "stop_keeping",
    "task_annotation",
    "unpacked",
    "waiting_tasks",
]


_COST = look_up(
    "distributed.scheduler:Scheduler.get_comm_cost",
    "Dask chooses a worker for a chunk without knowing what its host would have to read",
)
_STEALABLE = look_up(
    "distributed.stealing:WorkStealing.put_key_in_stealable",
    "Dask moves chunks away from the columns that their hosts hold",
)
_MOVES = look_up(
    "distributed.stealing:WorkStealing.move_task_request",
    "chunks that wait at one host are not moved to another that has nothing to do",
)
_BROKER = look_up(
    "distributed.broker:Broker",
    "what runs have said of themselves stays in the scheduler's memory until it ends",
)
_READY = look_up(
    "distributed.worker_state_machine:WorkerState.ready",
    "workers begin the chunks that wait there in Dask's order, and read nothing ahead for them",
)
_CLOSING = look_up(
    "distributed.scheduler:Scheduler.workers_to_close",
    "of idle workers a pool that shrinks closes those with the fewest results in memory first, "
    "whatever their hosts hold",
)
_CORRECT = look_up(
    "distributed.deploy.spec:SpecCluster._correct_state",
    "workers of a pool are started and closed when it is scaled, not when one is lost",
)
_PRELOADED = "_forkserver_preload_set"
_HAS_PRELOADED = is_there(
    f"distributed.utils:{_PRELOADED}",
    utils,
    "the first local cluster of a command starts a second later",
)


def skip_optional_imports() -> None:
    """Keep Dask from importing pandas and the like before it forks its first worker.

    Whoever forks workers from a process has told that process what to import.
    """
    if _HAS_PRELOADED:
        setattr(utils, _PRELOADED, True)


def keep_from_stealing(
    scheduler: Any, *, is_ours: Callable[[Any], bool], price_s: Callable[[Any, Any], float]
) -> None:
    """Keep Dask from stealing our tasks, and let it know what a miss costs.

    ``price_s``: ``price_s(task_state, worker_state)`` returns the seconds in which a worker's host
    would read what it lacks: part of Dask's own cost of running a task on a worker, where Dask
    chooses one.
    """
    if _COST is not None:
        dasks_cost = type(scheduler).get_comm_cost.__get__(scheduler)

        def get_comm_cost(ts: Any, ws: Any) -> float:
            return float(dasks_cost(ts, ws)) + (price_s(ts, ws) if is_ours(ts.key) else 0.0)

        scheduler.get_comm_cost = get_comm_cost
    extension = scheduler.extensions.get("stealing")
    if extension is None or _STEALABLE is None:
        return
    dasks_put = type(extension).put_key_in_stealable.__get__(extension)

    def put_key_in_stealable(ts: Any) -> None:
        if not is_ours(ts.key):
            dasks_put(ts)

    extension.put_key_in_stealable = put_key_in_stealable


def close_in_order(scheduler: Any, order: Callable[[list[Any]], list[Any]]) -> bool:
    """Let a pool that shrinks close as many workers as Dask says, in another order.

    Dask asks plugins which workers may go (``valid_workers_downscaling``), and chooses among them
    by the bytes of results in their memory alone.

    ``order``: returns worker states in the order in which they should go, idle ones first.
    It returns whether the scheduler asks it.
    """
    if _CLOSING is None:
        return False
    dasks_choice = type(scheduler).workers_to_close.__get__(scheduler)

    def workers_to_close(
        memory_ratio: float | None = None,
        n: int | None = None,
        key: Any = None,
        minimum: int | None = None,
        target: int | None = None,
        attribute: str = "address",
    ) -> list[Any]:
        found: list[Any] = dasks_choice(
            memory_ratio=memory_ratio,
            n=n,
            key=key,
            minimum=minimum,
            target=target,
            attribute=attribute,
        )
        if not found or key is not None:
            return found  # groups of workers that somebody else has thought of
        able = [ws for ws in scheduler.workers.values() if not ws.long_running]
        for plugin in list(scheduler.plugins.values()):
            able = plugin.valid_workers_downscaling(scheduler, able)
        if n is None and target is None:
            able = [ws for ws in able if not ws.processing]
        return [getattr(ws, attribute) for ws in order(able)[: len(found)]]

    scheduler.workers_to_close = workers_to_close
    scheduler.handlers["workers_to_close"] = workers_to_close
    return True


def sets_up(scheduler: Any, plugin: str) -> bool:
    """Tell whether a scheduler sends each new worker a plugin, by the plugin's name."""
    return plugin in getattr(scheduler, "worker_plugins", ())


def stop_keeping(scheduler: Any) -> None:
    """Give the scheduler its own ways back."""
    vars(scheduler).pop("get_comm_cost", None)
    if vars(scheduler).pop("workers_to_close", None) is not None:
        scheduler.handlers["workers_to_close"] = scheduler.workers_to_close
    extension = scheduler.extensions.get("stealing")
    if extension is not None:
        vars(extension).pop("put_key_in_stealable", None)


@contextmanager
def keep_interrupts() -> Iterator[None]:
    """Let Ctrl-C do what it did, whatever is imported meanwhile.

    dask_jobqueue lets it end the process from its import on; a run that Ctrl-C ends keeps what
    is done.
    """
    handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGINT) is not handler:
            signal.signal(signal.SIGINT, handler)


def request_move(scheduler: Any, ts: Any, thief: Any) -> bool:
    """Ask the worker that has a task to give it up for another one.

    It returns whether it was asked; its answer shows in ``ts.processing_on`` once the task is no
    longer :func:`in_flight`.
    """
    extension = scheduler.extensions.get("stealing")
    if extension is None or _MOVES is None:
        return False
    if ts.processing_on is None or ts.processing_on is thief:
        return False
    answer: str = extension.move_task_request(ts, ts.processing_on, thief)
    return answer not in ("in-flight", "comm-closed")


def in_flight(scheduler: Any, ts: Any) -> bool:
    """Tell whether a worker has still to say whether it gives a task up."""
    extension = scheduler.extensions.get("stealing")
    return extension is not None and ts in extension.in_flight


def is_ranked_by_dask(ts: Any) -> bool:
    """Tell whether a task's priority is still what Dask has made it."""
    # The user's priority, the generation of the graph, the order in it.
    return ts.priority is not None and len(ts.priority) == 3


def send_to_worker(scheduler: Any, address: str, operation: str, **message: Any) -> None:
    """Send a worker a message for which it has a handler; any other worker would hang up."""
    scheduler.worker_send(address, {"op": operation, **message})


def rank_waiting(worker: Any, ranks: Iterable[tuple[Any, Sequence[float]]]) -> None:
    """Let a worker begin the tasks that wait there in another order.

    What is not there any more, or was begun meanwhile, is left alone.
    """
    if _READY is None:
        return
    state, moved = worker.state, []
    for key, rank in ranks:
        ts = state.tasks.get(key)
        if ts is None or ts.state not in ("ready", "waiting") or not ts.priority:
            continue
        # The last number is the worker's own, and keeps two tasks from being equal.
        ts.priority = (*rank, ts.priority[-1])
        if ts in state.ready:
            moved.append(ts)
    if moved:
        # A heap, which must not see its members change.
        ready = [*state.ready]
        state.ready.clear()
        for ts in ready:
            state.ready.add(ts)


def forget_topic(scheduler: Any, topic: str) -> None:
    """Forget a topic and what was said under it, which Dask keeps for ever."""
    if _BROKER is not None:
        scheduler._broker._topics.pop(topic, None)  # noqa: SLF001 - nothing public forgets one


def occupied_threads(ws: Any) -> int:
    """Return how many threads of a worker work on tasks that were cancelled meanwhile."""
    return int(ws.metrics.get("task_counts", {}).get("cancelled", 0))


def current_task() -> Any:
    """Return the key of the task that this thread runs; ``None`` outside a worker."""
    try:
        return get_worker().get_current_task()
    except ValueError:
        return None


def task_annotation(name: str, default: _T) -> _T:
    """Return an annotation of the task that this thread runs, or else the default."""
    try:
        worker = get_worker()
        task = worker.state.tasks[worker.get_current_task()]
    except (KeyError, ValueError):
        return default
    found: _T = (task.annotations or {}).get(name, default)
    return found


def waiting_tasks() -> Iterator[tuple[Any, tuple[Any, ...]]]:
    """Yield the tasks that wait on this thread's worker, in order, with their arguments."""
    if _READY is None:
        return
    try:
        waiting = sorted(get_worker().state.ready, key=lambda task: task.priority)
    except (RuntimeError, ValueError):
        # The event loop changed it meanwhile, and hints may be missed; or there is no worker.
        return
    for task in waiting:
        yield task.key, tuple(getattr(task.run_spec, "args", ()))


class LastingSpecCluster(SpecCluster):
    """A cluster that keeps the specification of a worker that is away for a while."""

    def _update_worker_status(self, op: str, msg: Any) -> None:
        # SpecCluster closes what runs a worker that is away for 15 s, also while it is starting
        # the worker again, and starts no other.
        super(SpecCluster, self)._update_worker_status(op, msg)

    def correct(self) -> None:
        """Start the workers that are wanted and close the others, soon."""
        if _CORRECT is None:
            self.scale(len(self.worker_spec))
        else:
            self.loop.add_callback(self._correct_state)


def unpacked(value: Any) -> Any:
    """Return what a worker sent a scheduler, which passes on such values as they came."""
    if isinstance(value, Serialize):
        return value.data  # of a worker in the same process
    return deserialize(value.header, value.frames) if isinstance(value, Serialized) else value
