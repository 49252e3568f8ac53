"""Read all columns of a tree at its origin; prints what came of it as JSON."""

from __future__ import annotations

import json
import logging
import sys
import time

import awkward as ak
import xxhash

from hepcache.errors import HepcacheError
from hepcache.formats.column import to_entry
from hepcache.formats.registry import probe
from hepcache.formats.source import TreeRef
from hepcache.formats.ttree.source import UprootSource
from hepcache.io import retry
from hepcache.telemetry import ReadLog


def digest(columns: dict) -> str:
    """Return a hash of the columns' decoded content."""
    total = xxhash.xxh3_64()
    for name in sorted(columns):
        entry = to_entry(columns[name])
        total.update(name.encode() + entry.meta)
        for buffer in entry.buffers:
            total.update(buffer.tobytes())
    return total.hexdigest()


def main() -> None:
    logging.basicConfig(level=logging.INFO)
    url, options, part = sys.argv[1], json.loads(sys.argv[2]), sys.argv[3]
    if len(sys.argv) > 4:
        retry.RETRIES = int(sys.argv[4])
    try:
        record = probe(url, "Events", options=options)
        began = time.perf_counter()
        ref = TreeRef(
            url, "Events", record.uuid, record.tag, record.validator, record.clusters, options
        )
        source = UprootSource(ref)
        opening = ReadLog()
        source.account(opening)
        log = ReadLog()
        names = [str(name) for name in source.tree.keys()]  # noqa: SIM118
        if part != "all":
            names = [name for name in names if name.startswith(part)]
        columns = {}
        for start, stop in zip(record.clusters, record.clusters[1:], strict=False):
            found = source.read(names, start, stop, log)
            columns |= {f"{start}/{name}": column for name, column in found.items()}
            print("read", stop, flush=True)
        found = {
            "digest": digest(columns), "entries": record.entries, "columns": len(names),
            "requested": log.requested_bytes, "read": log.origin_bytes, "used": log.used_bytes,
            "opening": opening.origin_bytes, "seconds": time.perf_counter() - began,
        }  # fmt: skip
    except HepcacheError as error:
        found = {"error": f"{error}", "kind": type(error).__name__}
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    assert ak
    main()
