"""Select candidate slices of NOvA-like files, in both workflows.

The selection is the published study's: products are read, a record is built of
them for every slice, every slice is tested, and the numbers of those accepted
are reduced to one list. It lives in ``hepcache_bench.selection.candidates``;
here it runs, instrumented with the published steps.

Make some files, and select from them as it was done, a process per file::

    hepcache hdf5 sample data --shape slices --files 4
    python examples/selection/select_slices.py files data/*.h5 --workers 4

Ingest them into an event store, and select from that, with small batches of
events for whoever is free::

    hepcache store ingest file:///tmp/nova nova data/*.h5
    python examples/selection/select_slices.py store file:///tmp/nova nova --workers 4

Both print the same candidates.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from hepcache.eventstore import connect
from hepcache_bench.selection.events import select_events
from hepcache_bench.selection.files import select_files
from hepcache_bench.selection.outcome import Selected
from hepcache_bench.selection.trace import STEPS


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one workflow; candidates go to standard output, times to standard error."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    commands = parser.add_subparsers(required=True, dest="workflow")
    for name in ("files", "store"):
        command = commands.add_parser(name)
        if name == "files":
            command.add_argument("files", nargs="+")
        else:
            command.add_argument("url")
            command.add_argument("dataset")
        command.add_argument("--workers", type=int, default=2)
        command.add_argument("--work-batch", type=int, default=64, help="events at a time")
    given = parser.parse_args(arguments)
    if given.workflow == "files":
        done = select_files(given.files, workers=given.workers, work_batch=given.work_batch)
    else:
        with connect(given.url) as store:
            done = select_events(
                store, given.dataset, workflow="persistent", files=0, processes=given.workers,
                work_batch=given.work_batch,
            )  # fmt: skip
    for one in done.ids:
        print(*one)
    report(done)


def report(done: Selected) -> None:
    """Say how fast it was, and where the time went."""
    print(
        f"{len(done.ids)} candidates of {done.slices} slices in {done.events} events; "
        f"{done.events / done.wall_s:.0f} events/s, {done.slices / done.wall_s:.0f} slices/s, "
        f"workers {done.busy_ratio:.0%} busy",
        file=sys.stderr,
    )
    for step in STEPS:
        spans = done.steps(step)
        total = sum(one.took_s for one in spans)
        print(f"{step:10}{len(spans):8} times {total:10.3f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
