"""Files that nobody knows: how fast a cluster's workers open them, and in how much memory.

The files are copies of one with all branches of NanoAOD, each with a UUID of
its own. coffea's preprocessing opens fewer of them on the same workers: it
takes several times as long for each.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any
from uuid import uuid4

from hepcache.bench.frame import no_file_known, progress
from hepcache_bench.hot_memory import peak_bytes

__all__ = ["measure_files"]

_EVENTS = 20
_UUID_AT = 47  # in the header of a file below 2 GiB (ROOT's documentation of TFile, its header)
_WORKERS = 2
_COFFEAS = 0.1  # of the files, which coffea opens


def measure_files(files: int, scratch: Path) -> tuple[list[dict[str, Any]], dict[str, float]]:
    """Return a row for each reader, and ratios.

    Parameters
    ----------
    files
        How many to make; a file takes about a megabyte below ``scratch``.
    scratch
        A directory.

    Returns
    -------
    rows, ratios
        ``coffea_catalogue``: coffea's seconds per file over hepcache's.
        ``catalogue_memory_growth``: peak memory of the client and its largest worker together
        after all files over that after a tenth of them.
    """
    from hepcache.catalogue import Catalogue
    from hepcache.clusters import LocalCluster
    from hepcache.fileset import FileSpec
    from hepcache.process.open_files import open_on_workers
    from hepcache.settings import settings

    progress.print(f"Making {files:,} files of {_EVENTS} events")
    specs = [FileSpec("many", path, "Events") for path in _copies(files, scratch / "many")]
    few = specs[: max(int(files * _COFFEAS), 1)]
    with (
        no_file_known(scratch),
        LocalCluster(hosts=_WORKERS, cache_directory=scratch / "many-caches") as cluster,
        cluster.client() as client,
    ):
        peaks = list[int]()

        def peak() -> int:
            return peak_bytes() + int(max(client.run(peak_bytes).values()))

        open_files = partial(open_on_workers, client=client)
        with Catalogue(settings().catalogue) as catalogue:
            catalogue.survey(few, open_files=open_files, progress=False)  # what is done once
            peaks.append(peak())
            catalogue.forget()
            progress.print(f"hepcache opens {files:,} files")
            began = time.perf_counter()
            found, bad = catalogue.survey(specs, open_files=open_files, progress=False)
            ours_s = time.perf_counter() - began
            peaks.append(peak())
        if bad or len({record.uuid for _, record in found}) != files:
            raise ValueError(f"of {files} files {len(found)} were found, {len(bad)} bad")
        _coffea(client, few[:1])
        progress.print(f"coffea opens {len(few):,} of them")
        began = time.perf_counter()
        _coffea(client, few)
        coffeas_s = time.perf_counter() - began
    rows = [
        {
            "origin": "local, catalogue",
            "reader": reader,
            "files": number,
            "wall_s": wall_s,
            "files_per_s": number / wall_s,
        }
        for reader, number, wall_s in (
            ("hepcache", files, ours_s),
            ("coffea", len(few), coffeas_s),
        )
    ]
    return rows, {
        "coffea_catalogue": (coffeas_s / len(few)) / (ours_s / files),
        "catalogue_memory_growth": peaks[1] / peaks[0],
    }


def _copies(files: int, directory: Path) -> list[str]:
    """Write a file, and so many copies of it with other UUIDs."""
    from hepcache.samples.nanoaod import write_nanoaod

    (original,) = write_nanoaod(directory / "original", events=_EVENTS, files=1)
    data = bytearray(original.read_bytes())
    paths = [os.fspath(directory / f"{number}.root") for number in range(files)]
    for path in paths:
        data[_UUID_AT : _UUID_AT + 16] = uuid4().bytes
        Path(path).write_bytes(data)
    return paths


def _coffea(client: Any, specs: Sequence[Any]) -> None:
    """Let coffea find out what each file holds."""
    from coffea.nanoevents import BaseSchema
    from coffea.processor import Runner

    from hepcache_bench.contenders import StockExecutor

    executor = StockExecutor(client=client, status=False)
    runner = Runner(executor, schema=BaseSchema, metadata_cache={})
    fileset = {"many": {"files": {spec.path: spec.tree for spec in specs}}}
    chunks = runner.preprocess(fileset)
    if sum(1 for _ in islice(chunks, len(specs) + 1)) != len(specs):
        raise ValueError("coffea did not find a chunk in each file")
