"""What hepcache uses of distributed without its promise to keep it."""

from __future__ import annotations

import inspect

from distributed import Scheduler
from distributed.scheduler import TaskState, WorkerState
from distributed.stealing import WorkStealing


def test_work_stealing_is_an_extension_with_the_protocol_that_is_used() -> None:
    scheduler = Scheduler(dashboard=False, host="127.0.0.1", port=0)
    extension = scheduler.extensions["stealing"]
    assert isinstance(extension, WorkStealing)
    assert extension.in_flight == {}
    parameters = list(inspect.signature(WorkStealing.move_task_request).parameters)
    assert parameters == ["self", "ts", "victim", "thief"]
    source = inspect.getsource(WorkStealing.move_task_request)
    assert all(f'return "{answer}"' in source for answer in ("in-flight", "comm-closed"))
    # The override is what the extension itself calls.
    assert "self.put_key_in_stealable(ts)" in inspect.getsource(WorkStealing.transition)
    assert "self.put_key_in_stealable(ts)" in inspect.getsource(WorkStealing.move_task_confirm)


def test_the_cost_of_a_task_on_a_worker_is_asked_where_a_worker_is_chosen() -> None:
    parameters = list(inspect.signature(Scheduler.get_comm_cost).parameters)
    assert parameters == ["self", "ts", "ws"]
    assert "self.get_comm_cost(ts, ws)" in inspect.getsource(Scheduler.worker_objective)


def test_tasks_and_workers_have_what_is_read_and_set() -> None:
    for name in (
        "suspicious", "worker_restrictions", "loose_restrictions", "processing_on", "priority",
        "annotations",
    ):  # fmt: skip
        assert name in TaskState.__slots__
    for name in ("metrics", "nthreads", "host", "address"):
        assert name in WorkerState.__slots__


def test_plugins_hear_of_a_graph_before_its_tasks_move() -> None:
    source = inspect.getsource(Scheduler._create_taskstate_from_graph)
    assert source.index("plugin.update_graph(") < source.index("self.transitions(recommendations")
