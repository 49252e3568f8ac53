"""What hepcache uses of distributed without its promise to keep it: each part by name."""

from __future__ import annotations

import asyncio
import inspect
import subprocess
import sys
from collections.abc import Iterator

import pytest
from distributed import Scheduler, SchedulerPlugin, SpecCluster
from distributed.deploy.adaptive import Adaptive
from distributed.deploy.cluster import Cluster
from distributed.protocol import Serialized, serialize, to_serialize
from distributed.scheduler import TaskState, WorkerState
from distributed.stealing import WorkStealing
from distributed.worker_state_machine import TaskState as WorkerTaskState
from distributed.worker_state_machine import WorkerState as WorkersOwnState

from hepcache.upstream.distributed import (
    current_task,
    forget_topic,
    task_annotation,
    unpacked,
    waiting_tasks,
)


@pytest.fixture
def scheduler() -> Iterator[Scheduler]:
    """Return a scheduler that is not started; since Python 3.12 it wants a loop to be there."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    scheduler = Scheduler(dashboard=False, host="127.0.0.1", port=0)
    yield scheduler
    loop.run_until_complete(scheduler.close())
    asyncio.set_event_loop(None)
    loop.close()


def test_the_scheduler_asks_one_method_for_costs() -> None:
    assert "self.get_comm_cost(ts, ws)" in inspect.getsource(Scheduler.worker_objective)
    for method in (WorkStealing.balance, WorkStealing.stealing_objective):
        assert "self.scheduler.get_comm_cost(" in inspect.getsource(method)


def test_plugin_hooks_keep_their_arguments() -> None:
    for name, expected in {
        "update_graph": {"scheduler", "keys"},
        "transition": {"key", "start", "finish"},
        "add_worker": {"scheduler", "worker"},
        "remove_worker": {"scheduler", "worker"},
        "remove_client": {"scheduler", "client"},
        "valid_workers_downscaling": {"scheduler", "workers"},
    }.items():
        assert expected <= set(inspect.signature(getattr(SchedulerPlugin, name)).parameters)


def test_work_stealing_is_an_extension_with_the_protocol_that_is_used(
    scheduler: Scheduler,
) -> None:
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


def test_one_method_says_which_workers_a_pool_closes() -> None:
    parameters = list(inspect.signature(Scheduler.workers_to_close).parameters)
    assert parameters == ["self", "memory_ratio", "n", "key", "minimum", "target", "attribute"]
    assert "self.workers_to_close(" in inspect.getsource(Scheduler.retire_workers)
    assert "self.scheduler.workers_to_close(" in inspect.getsource(Adaptive.workers_to_close)
    source = inspect.getsource(Scheduler.workers_to_close)
    assert "if not ws.long_running" in source
    assert "plugin.valid_workers_downscaling(self, valid_workers)" in source
    scheduler = Scheduler(dashboard=False, host="127.0.0.1", port=0)
    assert scheduler.handlers["workers_to_close"] == scheduler.workers_to_close
    assert scheduler.worker_plugins == {}


def test_the_cost_of_a_task_on_a_worker_is_asked_where_a_worker_is_chosen() -> None:
    parameters = list(inspect.signature(Scheduler.get_comm_cost).parameters)
    assert parameters == ["self", "ts", "ws"]
    assert "self.get_comm_cost(ts, ws)" in inspect.getsource(Scheduler.worker_objective)


def test_topics_are_forgotten_by_name(scheduler: Scheduler) -> None:
    scheduler.log_event("hepcache-client", {"run": "0a"})
    assert len(scheduler.get_events("hepcache-client")) == 1
    forget_topic(scheduler, "hepcache-client")
    assert "hepcache-client" not in scheduler.get_events()


def test_tasks_and_workers_have_what_is_read_and_set() -> None:
    for name in (
        "suspicious", "worker_restrictions", "loose_restrictions", "processing_on", "priority",
        "annotations",
    ):  # fmt: skip
        assert name in TaskState.__slots__
    for name in ("metrics", "nthreads", "host", "address"):
        assert hasattr(WorkerState, name)


def test_plugins_hear_of_a_graph_before_its_tasks_move() -> None:
    source = inspect.getsource(Scheduler._create_taskstate_from_graph)
    assert source.index("plugin.update_graph(") < source.index("self.transitions(recommendations")


def test_outside_a_worker_there_is_no_task() -> None:
    assert current_task() is None
    assert task_annotation("any", "") == ""
    assert list(waiting_tasks()) == []


def test_a_worker_has_what_is_read_of_its_tasks() -> None:
    assert {"ready", "executing", "tasks"} <= set(WorkersOwnState.__slots__)
    assert {"annotations", "priority", "run_spec"} <= set(WorkerTaskState.__dataclass_fields__)


@pytest.mark.parametrize(
    "name",
    ["_update_worker_status", "_correct_state", "_correct_state_internal", "_start", "_close"],
)
def test_a_cluster_of_specifications_has_what_is_overridden_or_called(name: str) -> None:
    assert f".{name}" in inspect.getsource(SpecCluster) + inspect.getsource(Cluster)
    assert callable(getattr(SpecCluster, name))


def test_a_cluster_of_jobs_has_what_is_overridden_or_called() -> None:
    core = pytest.importorskip("dask_jobqueue.core")
    source = inspect.getsource(core.JobQueueCluster)
    assert "self._get_worker_security(" in source
    assert "_call" in vars(core.Job)
    assert "_close_job" in vars(core.Job)
    # By default a worker's name is its number, which SpecCluster counts.
    assert "self._i" in inspect.getsource(SpecCluster.new_worker_spec)


def test_a_value_on_its_way_through_a_scheduler_is_unpacked() -> None:
    assert unpacked(Serialized(*serialize({"a": 1}))) == {"a": 1}
    assert unpacked(to_serialize({"a": 1})) == {"a": 1}
    assert unpacked("as it is") == "as it is"


@pytest.mark.slow
@pytest.mark.usefixtures("interruptible")
def test_dask_jobqueue_takes_ctrl_c_and_keep_interrupts_gives_it_back() -> None:
    pytest.importorskip("dask_jobqueue")
    program = (
        "import signal\n"
        "from hepcache.upstream.distributed import keep_interrupts\n"
        "{}\n"
        "print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)"
    )
    for code, kept in (
        ("import dask_jobqueue", "False"),
        ("with keep_interrupts():\n    import dask_jobqueue", "True"),
        ("import hepcache.clusters.htcondor", "True"),
    ):
        done = subprocess.run(
            [sys.executable, "-c", program.format(code)],
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.strip() == kept
