"""Runs on the worker: reads some columns of a file, and says what the kernel did for it."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import dask.config
from coffea.nanoevents import BaseSchema
from coffea.processor import IterativeExecutor

from hepcache import Runner
from hepcache.bench.reading import ReadColumns
from hepcache.cli import main as hepcache
from hepcache.fscache import difference, snapshot
from hepcache.process.worker_state import forget, worker_state


def read(path: str, columns: list[str], mode: str) -> dict[str, Any]:
    """Read the columns in a mode of the cache; return what came of it."""
    dask.config.set({"hepcache.cache.mode": mode})
    runner = Runner(IterativeExecutor(status=False), schema=BaseSchema)
    before = snapshot()
    output = runner({"data": {"files": {path: "Events"}}}, ReadColumns(columns))
    uses = difference(before, snapshot()).mounts
    record = runner.run_record
    assert record is not None
    worker_state().cache.flush()
    held = worker_state().cache.residency().values()
    return {
        "output": str(output),
        "cache": record.settings["cache"],
        "reported": sum(one.server_bytes for kernel in record.kernels for one in kernel.mounts),
        "held": sorted({name for file in held for _, some in file.values() for name in some}),
        "mounts": {
            point: [use.fsc, use.application_bytes, use.server_bytes]
            for use in uses for point in use.mount_points
        },
    }  # fmt: skip


def main() -> None:
    path, modes, *columns = sys.argv[1:]
    found = []
    for mode in modes.split(","):
        if found:
            # Nothing is left but what is on disk: no open file, no page.
            forget()
            subprocess.run(["sync"], check=True)
            Path("/proc/sys/vm/drop_caches").write_text("3\n")
        found.append(read(path, columns, mode))
    # A command that the machine will run itself: it gets what was imported here.
    sys.argv = ["hepcache", "cache", "metrics"]
    with suppress(SystemExit):
        hepcache()
    files = {str(one.__file__) for one in sys.modules.values() if getattr(one, "__file__", None)}
    print(json.dumps({"passes": found, "imported": sorted(files)}))


if __name__ == "__main__":
    main()
