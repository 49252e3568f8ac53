"""Stored results: what storing them costs, and what a run takes that finds them."""

from __future__ import annotations

import importlib.util
import tempfile
import time
import warnings
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from types import ModuleType
from typing import Annotated, Any

import typer

from hepcache.bench.frame import no_file_known, progress
from hepcache.bench.result import BenchResult
from hepcache.errors import ProcessorError

__all__ = ["bench", "example_module"]

_EXAMPLES = Path(__file__).parents[2] / "examples"
_FILES = 10
_EVENTS, _QUICK_EVENTS = 400_000, 20_000
_ROUNDS, _QUICK_ROUNDS = 5, 1
_CHUNKS, _QUICK_CHUNKS = 400, 80
_HOT, _STORE, _AGAIN = "hot", "hot, and stored", "again"
_CHANGED, _GROWN = "one constant changed", "one file of ten added"
_CASES = (_HOT, _STORE, _AGAIN, _CHANGED, _GROWN)
# What the example reads, and what NanoAODSchema wants of it.
_COLLECTIONS = ("Electron_", "Muon_", "Jet_", "PuppiMET_")
_EVENT = ("run", "luminosityBlock", "event", "genWeight", "nElectron", "nMuon", "nJet")
_WANTED = "wanted: store_over_ideal of at most 1.02, hot_over_again of at least 20"


def bench(
    *,
    quick: bool = False,
    out: Path | None = None,  # noqa: ARG001
    events: Annotated[
        int | None, typer.Option(min=4000, help="Events: 400000, with --quick 20000.")
    ] = None,
    rounds: Annotated[
        int | None, typer.Option(min=1, help="Rounds, of which medians: 5, with --quick 1.")
    ] = None,
    chunks: Annotated[
        int | None, typer.Option(min=_FILES, help="Short chunks: 400, with --quick 80.")
    ] = None,
    directory: Annotated[
        Path | None, typer.Option(help="Where sample and caches are meanwhile.", exists=True)
    ] = None,
) -> BenchResult:
    """Run examples/hh_bbll.py on cached columns, with and without stored results.

    Two hosts of one worker each; ten files of NanoAOD, once as a chunk each and once as 400
    chunks, with --quick 80. By turns: a run that stores nothing; one that stores all results;
    the same again; the same with another cut; and with nine files' results stored, all ten.
    All must come to the same, and process the chunks that they should.
    """
    # Imported here and below: coffea takes seconds, and the command's --help must not.
    from hepcache.clusters import LocalCluster

    events = events or (_QUICK_EVENTS if quick else _EVENTS)
    rounds = rounds or (_QUICK_ROUNDS if quick else _ROUNDS)
    chunks = chunks or (_QUICK_CHUNKS if quick else _CHUNKS)
    cuts = {"whole files": _FILES, "short chunks": chunks}
    with ExitStack() as stack:
        scratch = tempfile.TemporaryDirectory(prefix="hepcache-reuse-", dir=directory)
        place = Path(stack.enter_context(scratch))
        stack.enter_context(no_file_known(place))
        progress.print(f"Making a sample of {events:,} events")
        paths = _sample(place / "files", events)
        cluster = stack.enter_context(LocalCluster(hosts=2, cache_directory=place / "caches"))
        client = stack.enter_context(cluster.client())
        found = {
            cut: _Runs(client, paths, events, number).measured(cut, rounds)
            for cut, number in cuts.items()
        }
    rows = [
        {"cut": cut, "run": case, "chunks": cuts[cut], "wall_s": taken}
        for cut, times in found.items()
        for case, taken in times.items()
    ]
    whole, short = found.values()
    progress.print(_WANTED)
    return BenchResult(
        "reuse",
        rows,
        {
            "store_over_ideal": whole[_STORE] / whole[_HOT],
            "store_short_over_ideal": short[_STORE] / short[_HOT],
            "hot_over_again": short[_HOT] / short[_AGAIN],
            "hot_over_one_file_added": short[_HOT] / short[_GROWN],
            "hot_over_constant_changed": short[_HOT] / short[_CHANGED],
        },
    )


def _sample(directory: Path, events: int) -> list[str]:
    from hepcache.samples.description import nanoaod_v15
    from hepcache.samples.nanoaod import write_nanoaod

    names = [branch.name for branch in nanoaod_v15()]
    wanted = [name for name in names if name.startswith(_COLLECTIONS) or name in _EVENT]
    paths = write_nanoaod(
        directory, events=events, files=_FILES, compression="zstd:1", branches=wanted
    )
    return [str(path) for path in paths]


@dataclass(frozen=True)
class _Runs:
    """Runs of the example over the same files, cut in so many chunks."""

    client: Any
    paths: Sequence[str]
    events: int
    chunks: int

    def measured(self, cut: str, rounds: int) -> dict[str, float]:
        """Return the median duration of every case."""
        example = example_module("hh_bbll").Processor
        usual, changed = example(), example(btag=0.6)
        progress.print(f"{cut}: {self.chunks} chunks, {rounds} rounds of {len(_CASES)} runs")
        self._forget()
        for _ in range(2):
            expected, _ = self._run(usual, "compute", done=self.chunks)
        other, _ = self._run(changed, "compute", done=self.chunks)
        added = self.chunks // _FILES
        times: dict[str, list[float]] = {case: [] for case in _CASES}
        for _ in range(rounds):
            for case, processor, results, done in (
                (_HOT, usual, "compute", self.chunks),
                (_STORE, usual, "reuse", self.chunks),
                (_AGAIN, usual, "reuse", 0),
                (_CHANGED, changed, "reuse", self.chunks),
            ):
                output, took_s = self._run(processor, results, done=done)
                self._check(output, other if case == _CHANGED else expected)
                times[case].append(took_s)
            self._forget()
            self._run(usual, "reuse", done=self.chunks - added, files=_FILES - 1)
            output, took_s = self._run(usual, "reuse", done=added)
            self._check(output, expected)
            times[_GROWN].append(took_s)
            self._forget()
        return {case: median(taken) for case, taken in times.items()}

    def _run(
        self, processor: Any, results: Any, *, done: int, files: int = _FILES
    ) -> tuple[Mapping[str, Any], float]:
        """Run; return the output and how long it took.

        ``done``: how many chunks are to be processed, all others reused.
        Raises ``ProcessorError``: it was another number.
        """
        from coffea.nanoevents import NanoAODSchema

        from hepcache.process import Executor, Runner

        runner = Runner(
            Executor(client=self.client, status=False),
            schema=NanoAODSchema,
            chunksize=-(-self.events // self.chunks),
            results=results,
        )
        halves = {"data": self.paths[:files:2], "signal": self.paths[1:files:2]}
        fileset = {
            dataset: {"files": dict.fromkeys(paths, "Events")} for dataset, paths in halves.items()
        }
        began = time.perf_counter()
        with warnings.catch_warnings():
            # Of collections that the sample lacks.
            warnings.filterwarnings("ignore", "Missing cross-reference", RuntimeWarning)
            output = runner(fileset, processor)
        took_s = time.perf_counter() - began
        record = runner.run_record
        assert record is not None
        outcomes = [chunk.outcome for chunk in record.chunks]
        reused = self.chunks * files // _FILES - done
        if (outcomes.count("done"), outcomes.count("reused")) != (done, reused):
            raise ProcessorError(
                f"{outcomes.count('done')} chunks were processed and {outcomes.count('reused')} "
                f"reused, of which {done} and {reused} should have been"
            )
        if record.not_stored:
            raise ProcessorError(f"results were not stored: {record.not_stored}")
        return output, took_s

    def _forget(self) -> None:
        """Remove the stored results of all hosts."""
        self.client.run(_clear_results)

    def _check(self, output: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
        if output != expected:
            raise ProcessorError("a run came to another output than the first one")


def _clear_results() -> None:
    from hepcache.process.worker_state import worker_state

    # What is still being added up would come back.
    worker_state().pause_compaction()
    worker_state().results.clear()


def example_module(name: str, example: str = "hh_bbll") -> ModuleType:
    """Return an example as a module of that name, which workers need not find."""
    import sys

    import cloudpickle

    spec = importlib.util.spec_from_file_location(name, _EXAMPLES / f"{example}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    cloudpickle.register_pickle_by_value(module)
    return module
