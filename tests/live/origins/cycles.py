"""Two cycles over one file on the workers of a scheduler; prints what came of them as JSON."""

from __future__ import annotations

import json
import sys

from coffea.nanoevents import BaseSchema
from coffea.processor import IterativeExecutor, Runner
from distributed import Client

from hepcache.api import analyse
from hepcache.bench.plan import BENCHMARK_COLUMNS
from hepcache.bench.reading import ReadColumns
from hepcache.report.summary import summarise


def main() -> None:
    scheduler, url, local, chunksize, hosts = sys.argv[1:]
    processor = ReadColumns(BENCHMARK_COLUMNS)
    plain = Runner(
        IterativeExecutor(status=False), schema=BaseSchema, chunksize=int(chunksize)
    )({"sample": {"files": {local: "Events"}}}, processor)  # fmt: skip
    found = {"plain": plain, "cycles": []}
    with Client(scheduler) as client:
        client.wait_for_workers(int(hosts), timeout=120)
        for _ in range(2):
            output, record = analyse(
                {"sample": [url]}, processor, cluster=client, schema=BaseSchema,
                chunksize=int(chunksize), status=False,
            )  # fmt: skip
            summary = summarise(record)
            found["cycles"].append(
                {
                    "output": output,
                    "hit_ratio": summary.hit_ratio,
                    "wall_s": record.wall_s,
                    "read": summary.origin_bytes,
                    "used": summary.used_bytes,
                    "hosts": {one.host: [one.chunks, one.origin_bytes] for one in summary.hosts},
                }
            )
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
