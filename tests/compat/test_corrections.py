"""An analysis with corrections and systematics fills plain coffea's histograms exactly."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from coffea.nanoevents import NanoAODSchema
from tests.compat.jets import Systematics, stack_of_texts, write_factors, write_texts
from tests.compat.samples import write_nano
from tests.compat.test_options import two_datasets, unordered

pytestmark = pytest.mark.filterwarnings("ignore")  # of coffea's readers, and of empty lists


@pytest.mark.parametrize(
    "executor",
    [
        "iterative",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("cluster", "futures")),
    ],
)
def test_jets_and_systematics(executor: str, tmp_path: Path, compare: Callable[..., Any]) -> None:
    write_nano(tmp_path)
    stack = stack_of_texts(write_texts(tmp_path))
    analysis = Systematics(stack, write_factors(tmp_path / "muons.json"))

    def script(processor: ModuleType, given: Any) -> Any:
        run = processor.Runner(given, schema=NanoAODSchema, chunksize=25)
        return unordered(run(two_datasets(tmp_path), analysis))

    found = compare(script, (executor,))
    output = found[executor][0].value
    assert len(output["jets"]) == 7
    assert len({str(counts) for counts in output["jets"].values()}) > 4
    assert output["events"] == 180
