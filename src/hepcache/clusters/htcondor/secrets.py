"""How the workers of a cluster get their certificates."""

from __future__ import annotations

import copy
import os
import shutil
import uuid as uuids
from pathlib import Path

import platformdirs
from distributed.security import Security

from hepcache.clusters.certificates import write_role_files

__all__ = ["Secrets"]


class Secrets:
    """Files with a worker's key and certificates, for the life of a cluster.

    Parameters
    ----------
    security
        The cluster's; ``None`` for none. What it holds in memory is written to
        files that only the user can read; paths in it are left as they are.
    shared
        A directory of the user's that all machines see; ``None`` to have the
        files carried to the jobs.

    Attributes
    ----------
    worker
        The security as workers are told of it.
    transferred
        Files that have to be carried to every job.

    Raises
    ------
    PermissionError
        The directory can be entered by others.
    """

    def __init__(self, security: Security | None, shared: str | os.PathLike[str] | None) -> None:
        self.worker, self.transferred = security, tuple[Path, ...]()
        self._directory: Path | None = None
        if security is None:
            return
        held = security.get_tls_config_for_role("worker").values()
        if not any(isinstance(text, str) and "\n" in text for text in held):
            return
        parent = platformdirs.user_state_path("hepcache") / "tls"
        if shared is not None:
            parent = Path(os.path.expandvars(shared)).expanduser()
        parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._directory = parent / uuids.uuid4().hex
        paths = write_role_files(security, self._directory, "worker")
        names = [str(path) for path in paths]
        if shared is None:
            self.transferred, names = paths, [path.name for path in paths]
        self.worker = copy.copy(security)
        self.worker.tls_ca_file, self.worker.tls_worker_cert, self.worker.tls_worker_key = names

    def remove(self) -> None:
        """Remove the files, once the last job has them."""
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)
