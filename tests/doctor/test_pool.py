from __future__ import annotations

from pathlib import Path

import htcondor2
import pytest

from hepcache.doctor.pool import PoolFacts, check_pool, pool_facts

SUBMIT = PoolFacts(
    configured=True, daemons=frozenset({"MASTER", "SCHEDD"}), collector="cm:9618",
    address="10.0.0.1", machines=(("w1", True),),
)  # fmt: skip
WORKER = PoolFacts(
    configured=True, daemons=frozenset({"MASTER", "STARTD"}), collector="cm:9618",
    machines=(("w1", True),), script="/libexec/cron", script_runs=True, cache="/ssd",
    cache_there=True, drain_file="/run/d",
)  # fmt: skip


def changed(facts: PoolFacts, **fields: object) -> PoolFacts:
    from dataclasses import replace

    return replace(facts, **fields)


@pytest.mark.parametrize("facts", [SUBMIT, WORKER])
def test_a_sound_machine(facts: PoolFacts) -> None:
    assert {one.status for one in check_pool(facts)} == {"good"}


def test_a_machine_without_htcondor(tmp_path: Path) -> None:
    (one,) = check_pool(pool_facts(tmp_path / "drain", tmp_path))
    assert (one.status, one.check) == ("none", "HTCondor")


@pytest.mark.parametrize(
    ("facts", "check", "status", "said"),
    [
        (changed(SUBMIT, missing_package="htcondor2"), "HTCondor", "wrong", "htcondor2"),
        (changed(SUBMIT, collector_problem="refused"), "collector cm:9618", "wrong", "refused"),
        (changed(SUBMIT, schedd_problem="no token"), "schedd", "wrong", "no token"),
        (changed(SUBMIT, missing_commands=("condor_q",)), "condor_submit", "wrong", "condor_q"),
        (changed(SUBMIT, address="127.0.1.1"), "scheduler address", "wrong", "127.0.1.1"),
        (changed(SUBMIT, machines=()), "caches of the pool", "wrong", "no machine"),
        (
            changed(SUBMIT, machines=(("w1", False), ("w2", True))),
            "caches of the pool", "warning", "1 of 2 machines",
        ),
        (changed(WORKER, script=""), "startd cron script", "warning", "none"),
        (changed(WORKER, script_runs=False), "startd cron script", "wrong", "executed"),
        (changed(WORKER, cache_there=False), "advertised cache", "wrong", "/ssd"),
        (changed(WORKER, cache=""), "advertised cache", "warning", "HEPCACHE_CACHE"),
        (changed(WORKER, draining=True), "drain file", "warning", "takes no worker"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_with_its_fix(
    facts: PoolFacts, check: str, status: str, said: str
) -> None:
    (found,) = (one for one in check_pool(facts) if one.check == check)
    assert found.status == status
    assert said in found.observation
    assert found.fix


def test_a_pool_that_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "etc/condor").mkdir(parents=True)
    (tmp_path / "etc/condor/condor_config").touch()
    (tmp_path / "drain").touch()
    htcondor2.param["COLLECTOR_HOST"] = "127.0.0.1:1"
    try:
        seen = pool_facts(tmp_path / "drain", tmp_path)
    finally:
        del htcondor2.param["COLLECTOR_HOST"]
    assert seen.collector_problem
    assert seen.schedd_problem
    assert seen.draining
    assert any(one.status == "wrong" and one.fix for one in check_pool(seen))
