"""examples/hh_bbll.py in ROOT's RDataFrame, in a process of an interpreter that has ROOT."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from hepcache.errors import ProcessorError

__all__ = ["NOT_MEASURED", "RDataFrame", "root_python"]

_VARIABLE = "HEPCACHE_ROOT_PYTHON"
_CHANNELS = 3
NOT_MEASURED = f"not measured: set {_VARIABLE}"


def root_python() -> str | None:
    """Return the interpreter that the environment names for ROOT; ``None`` where it names none."""
    return os.environ.get(_VARIABLE) or None


class RDataFrame:
    """The analysis, compiled once, to be run as often as it is asked to.

    Parameters
    ----------
    python
        An interpreter that can ``import ROOT``.
    datasets
        Paths of files by dataset.
    axes
        Axes of the histograms by name, as the example's ``AXES``.
    threads
        How many threads ROOT takes.

    Raises
    ------
    ProcessorError
        The interpreter has no ROOT, or ROOT does not compile the analysis.
    """

    def __init__(
        self,
        python: str,
        datasets: Mapping[str, Iterable[str]],
        axes: Mapping[str, Any],
        threads: int,
    ) -> None:
        worker = Path(__file__).with_name("rdataframe_worker.py")
        self._axes = list(axes)
        # Nothing of our own environment, of which that interpreter has other versions.
        kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        self._process = subprocess.Popen(
            [python, "-W", "ignore", str(worker)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=kept,
        )
        task = {
            "datasets": {name: list(paths) for name, paths in datasets.items()},
            "axes": {
                name: (axis.size, float(axis.edges[0]), float(axis.edges[-1]))
                for name, axis in axes.items()
            },
            "threads": threads,
        }
        self.version = str(self._asked(json.dumps(task))["version"])

    def __call__(self) -> tuple[float, Mapping[str, Any]]:
        """Run it once; return the seconds that its pass took, and its output by dataset."""
        found = self._asked("")
        return float(found["wall_s"]), found["output"]

    def close(self) -> None:
        """End the process."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()
        self._process.wait()

    def differences(
        self, output: Mapping[str, Any], expected: Mapping[str, Mapping[str, Any]]
    ) -> list[str]:
        """Return in what an output is not that of the example's own processor.

        ROOT's and NumPy's sine and exponential differ in the last bit, so that an event at the
        edge of two bins may be in either: one, and one in ten thousand, is no difference.

        Parameters
        ----------
        output
            What a call has returned.
        expected
            What the processor returns.
        """
        found = []
        for dataset, ours in expected.items():
            theirs = output[dataset]
            counts = [ours["cutflow"][cut] for cut in ours["cutflow"] if cut != "all"]
            for name, pair in {
                "events": (theirs["events"], ours["events"]),
                "sum of weights": (theirs["sum_of_weights"], ours["sum_of_weights"]),
                "cutflow": (theirs["cutflow"], counts),
            }.items():
                if pair[0] != pair[1]:
                    found.append(f"{dataset}, {name}: {pair[0]} and {pair[1]}")
            for axis in self._axes:
                sums = _sums(ours["histograms"][axis], dataset)
                other = np.reshape(theirs["histograms"][axis], sums.shape)
                moved = _moved(other, sums)
                if moved > max(1.0, 1e-4 * sums[1].sum()):
                    found.append(f"{dataset}, {axis}: {moved:g} events away")
        return found

    def _asked(self, line: str) -> dict[str, Any]:
        """Return what the process answers to a line."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(f"{line}\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            answer = ""
        else:
            answer = self._process.stdout.readline()
        if not answer.strip():
            self.close()
            raise ProcessorError(
                f"{self._process.args!r} does not answer: is ROOT in that interpreter? "
                f"{_VARIABLE} names it"
            )
        found: dict[str, Any] = json.loads(answer)
        return found


def _moved(found: np.ndarray, expected: np.ndarray) -> float:
    """Return by how many bins events are away, added up; infinity where sums differ."""
    # All weights are 1 or -1, so that both sums of a bin count events.
    away = np.cumsum(found - expected, axis=-1)
    if away[..., -1].any():
        return np.inf
    return float(np.abs(away).sum(axis=(1, 2)).max())


def _sums(histogram: Any, dataset: str) -> np.ndarray:
    """Return sums of weights and of their squares, ``(2, channels, bins and both flows)``."""
    parts: Sequence[Any] = [
        histogram[{"dataset": dataset, "channel": number}].view(flow=True)
        for number in range(_CHANNELS)
    ]
    return np.array(
        [[part["value"] for part in parts], [part["variance"] for part in parts]], dtype=float
    )
