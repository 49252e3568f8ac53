"""A run over one file that lies at two places, on a cluster of this host; prints it as JSON."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict

from coffea.nanoevents import BaseSchema
from coffea.processor import IterativeExecutor, Runner

from hepcache import LocalCluster
from hepcache.api import analyse
from hepcache.bench.plan import BENCHMARK_COLUMNS
from hepcache.bench.reading import ReadColumns
from hepcache.report.render.tables import notes_text
from hepcache.report.summary import summarise


def main() -> None:
    near, far, local, chunksize = sys.argv[1:]
    processor = ReadColumns(BENCHMARK_COLUMNS)
    plain = Runner(
        IterativeExecutor(status=False), schema=BaseSchema, chunksize=int(chunksize)
    )({"sample": {"files": {local: "Events"}}}, processor)  # fmt: skip
    fileset = {"sample": {"files": {near: {"object_path": "Events", "replicas": [far]}}}}
    with LocalCluster(2) as cluster:
        output, record = analyse(
            fileset, processor, cluster=cluster, schema=BaseSchema,
            chunksize=int(chunksize), status=False,
        )  # fmt: skip
    found = {
        "plain": plain,
        "output": output,
        "wall_s": record.wall_s,
        "places": {place: asdict(use) for place, use in record.places.items()},
        "told": notes_text([record], [summarise(record)]),
    }
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
