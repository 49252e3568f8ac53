"""Real analyses: what cached columns, derived columns and stored results save of it."""

from __future__ import annotations

import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from types import ModuleType
from typing import Annotated, Any

import typer

from hepcache.bench.frame import no_file_known, progress
from hepcache.bench.result import BenchResult
from hepcache.errors import ProcessorError
from hepcache_bench.rdataframe import NOT_MEASURED, RDataFrame, root_python
from hepcache_bench.reuse import example_module

__all__ = ["bench"]

_EVENTS, _QUICK_EVENTS = 400_000, 20_000
_ROUNDS, _QUICK_ROUNDS = 5, 1
_FILES = 4
_CHUNKSIZE = 50_000
_COFFEA, _HOT, _DERIVED = "coffea", "hot columns", "derived columns"
_ROOT, _ROOT_EXAMPLE = "RDataFrame", "hh_bbll"
_CHANGED, _AGAIN = "derived columns, other bins", "nothing changed"
_RATIOS = {"hot": _HOT, "derived": _DERIVED, "changed": _CHANGED, "again": _AGAIN}
_WANTED = (
    "wanted: coffea_over_hot of at least 5, coffea_over_derived of 20, coffea_over_changed of 15, "
    "coffea_over_again of 200"
)
# The functions of the examples that are dear.
_DEAR = {"agc_ttbar": ("candidates_of", "assigned_of"), "hh_bbll": ("objects_of", "variables_of")}

Case = Callable[[], Mapping[str, Any]]


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
    example: Annotated[
        str | None, typer.Option(help="agc_ttbar or hh_bbll; without it both are run.")
    ] = None,
    directory: Annotated[
        Path | None, typer.Option(help="Where sample and caches are meanwhile.", exists=True)
    ] = None,
) -> BenchResult:
    """Run two examples by coffea alone, and with what hepcache keeps of them.

    Two hosts of one worker each, in turns: coffea with the files in the page cache; cached
    columns; the functions that take long marked with hepcache.derived; the same with other bins
    in all histograms; and results that are stored. All must come to the same. ROOT's RDataFrame
    makes the same selection as hh_bbll with two threads, where HEPCACHE_ROOT_PYTHON names an
    interpreter that has ROOT.
    """
    # Imported here and below: coffea takes seconds, and the command's --help must not.
    from hepcache.clusters import LocalCluster
    from hepcache.samples.nanoaod import write_nanoaod

    if example is not None and example not in _DEAR:
        raise typer.BadParameter(f"{example}: it is one of {', '.join(_DEAR)}")
    events = events or (_QUICK_EVENTS if quick else _EVENTS)
    rounds = rounds or (_QUICK_ROUNDS if quick else _ROUNDS)
    with ExitStack() as stack:
        scratch = tempfile.TemporaryDirectory(prefix="hepcache-analysis-", dir=directory)
        place = Path(stack.enter_context(scratch))
        stack.enter_context(no_file_known(place))
        progress.print(f"Making a sample of {events:,} events")
        paths = write_nanoaod(place / "files", events=events, files=_FILES, compression="zstd:1")
        cluster = stack.enter_context(LocalCluster(hosts=2, cache_directory=place / "caches"))
        client = stack.enter_context(cluster.client())
        medians = {
            name: {
                case: median(taken)
                for case, taken in _measured(client, map(str, paths), name, rounds).items()
            }
            for name in ([example] if example else _DEAR)
        }
    progress.print(_WANTED)
    return BenchResult(
        "analysis",
        [
            {
                "example": name,
                "case": case,
                "events": events,
                "wall_s": wall,
                "events_per_s": events / wall,
            }
            for name, walls in medians.items()
            for case, wall in walls.items()
        ]
        + [
            {"example": name, "case": _ROOT, "events": events, "note": NOT_MEASURED}
            for name, walls in medians.items()
            if name == _ROOT_EXAMPLE and _ROOT not in walls
        ],
        {
            f"{name}_coffea_over_{short}": walls[_COFFEA] / walls[case]
            for name, walls in medians.items()
            for short, case in _RATIOS.items()
        }
        | {
            f"{name}_root_over_{short}": walls[_ROOT] / walls[case]
            for name, walls in medians.items()
            if _ROOT in walls
            for short, case in _RATIOS.items()
        },
    )


def _measured(client: Any, paths: Iterable[str], name: str, rounds: int) -> dict[str, list[float]]:
    """Return what every case took, round by round.

    Raises ``ProcessorError``: two cases that should come to the same do not.
    """
    files = list(paths)
    plain, marked = _example(name, marked=False), _example(name, marked=True)
    changed = _example(name, marked=True, bins=2)

    def ours(module: ModuleType, results: Any = "compute") -> Case:
        return lambda: _run(client, files, module.Processor(), results)

    cases: dict[str, Case] = {
        _COFFEA: lambda: _run_coffea(client, files, plain.Processor()),
        _HOT: ours(plain),
        _DERIVED: ours(marked),
        _CHANGED: ours(changed),
        _AGAIN: ours(marked, "reuse"),
    }
    expected = {case: run() for case, run in cases.items()}  # fills what is kept
    other = _run_coffea(client, files, _example(name, marked=False, bins=2).Processor())
    with ExitStack() as stack:
        rdataframe = _rdataframe(stack, name, files, expected[_COFFEA])
        return _taken(name, cases, expected, other, rdataframe, rounds)


def _rdataframe(
    stack: ExitStack, name: str, files: Sequence[str], expected: Mapping[str, Any]
) -> RDataFrame | None:
    """Return the example in RDataFrame, where it is written and there is a ROOT.

    Raises ``ProcessorError``: its output is not coffea's.
    """
    python = root_python()
    if name != _ROOT_EXAMPLE or python is None:
        if name == _ROOT_EXAMPLE:
            progress.print(f"{name}, {_ROOT}: {NOT_MEASURED}")
        return None
    axes = example_module(f"{name}_axes", name).AXES
    made = RDataFrame(python, _datasets(files), axes, threads=2)
    stack.callback(made.close)
    _, output = made()
    differences = made.differences(output, expected)
    if differences:
        raise ProcessorError(f"{name}, {_ROOT}: {'; '.join(differences)}")
    return made


def _taken(
    name: str,
    cases: Mapping[str, Case],
    expected: Mapping[str, Mapping[str, Any]],
    other: Mapping[str, Any],
    rdataframe: RDataFrame | None,
    rounds: int,
) -> dict[str, list[float]]:
    """Return what every case took, round by round."""
    for case, output in expected.items():
        if output != (other if case == _CHANGED else expected[_COFFEA]):
            raise ProcessorError(f"{name}, {case}: the output is not coffea's")
    walls: dict[str, list[float]] = {case: [] for case in cases}
    if rdataframe is not None:
        walls[_ROOT] = []
    for number in range(rounds):
        progress.print(f"{name}, round {number + 1}")
        for case, run in cases.items():
            began = time.perf_counter()
            output = run()
            walls[case].append(time.perf_counter() - began)
            if output != expected[case]:
                raise ProcessorError(f"{name}, {case}: the output has changed")
        if rdataframe is not None:
            took_s, _ = rdataframe()
            walls[_ROOT].append(took_s)
    return walls


def _example(name: str, *, marked: bool, bins: int = 1) -> ModuleType:
    """Return an example whose dear parts are marked or not, with so many times as many bins."""
    import hist

    from hepcache import derived

    kind = "marked" if marked else "plain"
    module = example_module(f"{name}_{kind}_{bins}", name)
    for part in _DEAR[name]:
        function = getattr(module, part)
        function = getattr(function, "function", function)  # as the example has it, or bare
        setattr(module, part, derived(function) if marked else function)
    axes = {
        key: hist.axis.Regular(bins * axis.size, axis.edges[0], axis.edges[-1], name=axis.name)
        for key, axis in module.AXES.items()
    }
    module.AXES = axes  # type: ignore[attr-defined]
    return module


def _run(client: Any, paths: Sequence[str], processor: Any, results: Any) -> Mapping[str, Any]:
    from coffea.nanoevents import NanoAODSchema

    from hepcache.process import Executor, Runner

    executor = Executor(client=client, status=False)
    runner = Runner(executor, schema=NanoAODSchema, chunksize=_CHUNKSIZE, results=results)
    return _output(runner, paths, processor)


def _run_coffea(client: Any, paths: Sequence[str], processor: Any) -> Mapping[str, Any]:
    from coffea.nanoevents import NanoAODSchema
    from coffea.processor import DaskExecutor, Runner

    executor = DaskExecutor(client=client, status=False)
    return _output(Runner(executor, schema=NanoAODSchema, chunksize=_CHUNKSIZE), paths, processor)


def _datasets(paths: Sequence[str]) -> dict[str, Sequence[str]]:
    return {"data": paths[::2], "signal": paths[1::2]}


def _output(runner: Any, paths: Sequence[str], processor: Any) -> Mapping[str, Any]:
    fileset = {
        name: {"files": dict.fromkeys(files, "Events")} for name, files in _datasets(paths).items()
    }
    with warnings.catch_warnings():
        # Of collections that the sample lacks.
        warnings.filterwarnings("ignore", "Missing cross-reference", RuntimeWarning)
        output: Mapping[str, Any] = runner(fileset, processor)
    return output
