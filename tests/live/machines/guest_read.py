"""Runs on the worker: reads some columns of a file, and says what the kernel did for it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from coffea.nanoevents import BaseSchema
from coffea.processor import IterativeExecutor

from hepcache import Runner
from hepcache.bench.reading import ReadColumns
from hepcache.cache.fscache import difference, snapshot
from hepcache.process.worker import worker_cache


def main() -> None:
    path, passes, *columns = sys.argv[1:]
    found = []
    for _ in range(int(passes)):
        runner = Runner(IterativeExecutor(status=False), schema=BaseSchema)
        subprocess.run(["sync"], check=True)
        Path("/proc/sys/vm/drop_caches").write_text("3\n")
        before = snapshot()
        output = runner({"data": {"files": {path: "Events"}}}, ReadColumns(columns))
        change = difference(before, snapshot())
        (mount,) = (one for one in change.mounts if "/store" in one.mount_points)
        (kernel,) = runner.run_record.kernels
        found.append(
            {
                "output": str(output),
                "server_bytes": mount.server_bytes,
                "application_bytes": mount.application_bytes,
                "fsc": mount.fsc,
                "cache": runner.run_record.settings["cache"],
                "reported": sum(one.server_bytes for one in kernel.mounts),
                "held": len(worker_cache().residency()),
            }
        )
    print(json.dumps(found))


if __name__ == "__main__":
    main()
