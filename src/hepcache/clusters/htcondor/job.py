"""One worker as an HTCondor job: what is submitted for it."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import dask.config
from dask_jobqueue.htcondor import HTCondorJob as JobqueueJob
from dask_jobqueue.htcondor import quote_environment
from distributed import Worker
from distributed.core import Status
from distributed.deploy.spec import ProcessInterface
from tornado.ioloop import PeriodicCallback

from hepcache.clusters.htcondor.delegation import TOKEN, Delegation, receive_delegation
from hepcache.errors import ConfigurationError
from hepcache.settings import DEFAULTS, leaves, settings

HOST = "$$([TARGET.HepcacheHost?:TARGET.Machine])"
"""The host of the machine that a job was matched with: HTCondor fills it in when it starts.

Without blanks, at which HTCondor would cut it in pieces."""

RANK = "TARGET.HepcacheUsedMiB ?: 0"
"""Machines whose caches hold most come first, among those that are free."""


def on_machines(pattern: str) -> str:
    """Return the requirement that pins a job to machines.

    ``pattern``: a machine's name, with or without its domain, or a pattern as in a shell: ``*``
    for anything, ``?`` for one character.
    Raises ``ConfigurationError``: the pattern is empty, or has characters that no name has.

    >>> print(on_machines("big-0?"))
    regexp("^big-0.([.].*)?$", TARGET.Machine, "i")
    """
    if not re.fullmatch(r"[A-Za-z0-9.*?_-]+", pattern):
        raise ConfigurationError("hosts", "a machine's name, with * and ? as in a shell", pattern)
    # Written without backslashes, which ClassAds would want doubled.
    marks = {".": "[.]", "*": ".*", "?": "."}
    expression = "".join(marks.get(character, character) for character in pattern)
    return f'regexp("^{expression}([.].*)?$", TARGET.Machine, "i")'


def both(*requirements: str | None) -> str | None:
    """Return the requirement that all of some are met; ``None`` where there is none."""
    given = [requirement for requirement in requirements if requirement]
    if len(given) < 2:
        return given[0] if given else None
    return " && ".join(f"({requirement})" for requirement in given)


CLUSTER = "HepcacheCluster"
"""Attribute of a job: the name of the Dask cluster it is a worker of."""

# What a machine knows better than the one that submits.
_LOCAL = {"host", "catalogue"}


class HTCondorJob(JobqueueJob):
    """A job of dask-jobqueue's that knows its host, its cache and its pool.

    ``machines``: pattern of the machines it may run on; ``None`` for any.
    """

    def __init__(
        self,
        scheduler: str | None = None,
        name: str | None = None,
        *,
        machines: str | None = None,
        cluster_name: str = "",
        environment: Mapping[str, str] | None = None,
        transferred: Sequence[Path] = (),
        delegation: Delegation | None = None,
        **options: Any,
    ) -> None:
        super().__init__(scheduler, name, **options)
        given = {key.lower(): key for key in self.job_extra_directives or {}}

        def directive(key: str) -> str | None:
            return None if key not in given else str(self.job_extra_directives[given[key]])

        def choose(key: str, value: str) -> None:
            header[given.get(key, key)] = value

        header = self.job_header_dict
        delegation = delegation or Delegation()
        variables = {**_worker_environment(), **(environment or {})}
        if delegation.token is not None and not {"use_oauth_services", "use_scitokens"} & set(
            given
        ):
            variables.setdefault(TOKEN, delegation.token.name)
            transferred = [*transferred, delegation.token]
        if delegation.proxy is not None and not {"x509userproxy", "use_x509userproxy"} & set(
            given
        ):
            # HTCondor renews it in the job when it is renewed here.
            choose("x509userproxy", str(delegation.proxy))
        choose("environment", _joined(directive("environment"), variables))
        wanted = None if machines is None else on_machines(machines)
        requirements = both(directive("requirements"), wanted)
        if requirements is not None:
            choose("requirements", requirements)
        defaults = {
            "rank": RANK,
            "should_transfer_files": "YES",
            "transfer_executable": "False",
            # A worker leaves nothing behind, and its spilled data least of all.
            "transfer_output_files": '""',
            # How long a job may be out of touch before it counts as lost.
            "job_lease_duration": "60",
        }
        for key, value in defaults.items():
            if key not in given:
                choose(key, value)
        if transferred:
            more = [directive("transfer_input_files"), *map(str, transferred)]
            choose("transfer_input_files", ", ".join(filter(None, more)))
            choose("encrypt_input_files", ", ".join(path.name for path in transferred))
        header[f"MY.{CLUSTER}"] = f'"{cluster_name}"'
        header["MY.HepcacheWorker"] = f'"{name}"'
        if machines is not None:
            header["MY.HepcacheMachines"] = f'"{machines}"'
        self.problem = ""

    async def start(self) -> None:
        """Submit the job; a failure is kept in ``problem`` for the cluster to see."""
        try:
            await super().start()
        except (OSError, RuntimeError, ValueError) as error:
            self.problem = f"condor_submit failed: {_reason(error)}"
            await ProcessInterface.start(self)

    @classmethod
    async def _close_job(cls, job_id: str | None, cancel_command: str) -> None:
        if job_id:
            try:
                await cls._call([*shlex.split(cancel_command), job_id])
            except (OSError, RuntimeError):
                # The job is gone already, or the schedd is; the latter is seen by the watch.
                await asyncio.sleep(0)


def inherited(changed: Mapping[str, Any] | None = None) -> dict[str, str]:
    """Return hepcache's settings as variables, as far as they are not the defaults.

    ``changed``: settings by dotted name, such as ``cache.capacity``, that go before the configured
    ones.

    >>> inherited({"cache.capacity": "10 GiB"})["DASK_HEPCACHE__CACHE__CAPACITY"]
    '10 GiB'

    Raises ``ConfigurationError``: a setting is refused: no job would get to its work.
    """
    with dask.config.set({f"hepcache.{key}": value for key, value in (changed or {}).items()}):
        settings()
    usual = dict(leaves(DEFAULTS["hepcache"]))
    chosen = {
        key: value
        for key, value in leaves(dask.config.get("hepcache"))
        if value != usual.get(key) and key not in _LOCAL and value is not None
    }
    chosen.update(changed or {})
    prefix = "DASK_HEPCACHE__"
    return {
        prefix + key.upper().replace(".", "__"): str(value)
        for key, value in sorted(chosen.items())
    }


def _worker_environment() -> dict[str, str]:
    # A job starts with no environment at all.
    return {
        "HOME": str(Path.home()),
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "DASK_HEPCACHE__HOST": HOST,
    }


def _joined(directive: str | None, variables: Mapping[str, str]) -> str:
    """Return an environment in HTCondor's new syntax; what the user has given comes last."""
    kept = {
        # HOST is a macro of HTCondor's; in all else a dollar is a dollar.
        key: value if value == HOST else value.replace("$", "$(DOLLAR)")
        for key, value in variables.items()
    }
    ours = str(quote_environment(kept))
    if directive is None:
        return f'"{ours}"'
    text = directive.strip()
    if len(text) < 2 or not (text.startswith('"') and text.endswith('"')):
        raise ConfigurationError(
            "job_extra_directives['environment']",
            'HTCondor\'s new syntax in double quotes: "A=1 B=2"',
            directive,
        )
    return f'"{ours} {text[1:-1].strip()}"'


def _reason(error: Exception) -> str:
    """Return what a command has said, without what dask-jobqueue puts around it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    said = [line for line in lines if "ERROR" in line.upper() and "STDERR" not in line.upper()]
    return " ".join(said or lines[-1:] or [type(error).__name__])


_INTERVAL_MS = 2000


async def dask_setup(worker: Worker) -> None:
    """Look for the drain file as long as the worker lives; Dask calls it for ``--preload``."""
    receive_delegation(os.environ)
    path = settings().drain_file

    async def look() -> None:
        if worker.status not in (Status.running, Status.paused):
            clock.stop()
        elif path.exists():
            clock.stop()
            await worker.close_gracefully(reason=f"the machine is drained: {path}")

    clock = PeriodicCallback(look, _INTERVAL_MS)
    clock.start()
