"""Runs examples/hh_bbll.py in ROOT's RDataFrame, as often as it is asked to.

The interpreter is one that has ROOT, not that of hepcache. The program reads one line of JSON:
files by dataset, axes, threads. It compiles, and then answers each further line with a line of
JSON: the seconds that a pass took, and what it came to.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import ROOT  # type: ignore[import-not-found, unused-ignore]


def main() -> None:
    """Answer lines until there are no more."""
    task = json.loads(sys.stdin.readline())
    ROOT.gROOT.SetBatch(True)
    ROOT.EnableImplicitMT(task["threads"])
    code = Path(__file__).with_name("rdataframe.cpp").read_text()
    if not ROOT.gInterpreter.Declare(f"#pragma cling optimize(3)\n{code}"):
        raise SystemExit("ROOT does not compile rdataframe.cpp")
    space = ROOT.hh_bbll
    files = ROOT.std.vector["std::vector<std::string>"]()
    for paths in task["datasets"].values():
        files.push_back(ROOT.std.vector["std::string"](paths))
    axes = ROOT.std.vector["hh_bbll::Axis"]()
    for name, (bins, low, high) in task["axes"].items():
        axes.push_back(space.Axis(name, bins, low, high))
    print(json.dumps({"version": str(ROOT.gROOT.GetVersion())}), flush=True)
    for _ in sys.stdin:
        began = time.perf_counter()
        outputs = space.process(files, axes)
        wall_s = time.perf_counter() - began
        found = {
            name: {
                "events": int(output.events),
                "sum_of_weights": float(output.sum_of_weights),
                "cutflow": [int(count) for count in output.cutflow],
                "histograms": {
                    axis: [float(value) for value in values]
                    for axis, values in zip(task["axes"], output.histograms, strict=True)
                },
            }
            for name, output in zip(task["datasets"], outputs, strict=True)
        }
        print(json.dumps({"wall_s": wall_s, "output": found}), flush=True)


if __name__ == "__main__":
    main()
