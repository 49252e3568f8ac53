"""The example's analysis gives the same wherever its sample is."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest


@pytest.fixture(scope="module")
def example() -> ModuleType:
    path = Path(__file__).parents[2] / "examples" / "lhcb_b2hhh.py"
    spec = importlib.util.spec_from_file_location("lhcb_b2hhh", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_only_the_uri_changes(
    example: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    places = [
        str(tmp_path / "sample.root"),
        f"ntpl+file://{tmp_path}/objects",
        f"ntpl+mem://{tmp_path.name}/b2hhh",
    ]
    spectra = []
    for place in places:
        example.write(place, 20_000)
        spectra.append(example.run(place).values())
    assert "20,000 events" in capsys.readouterr().out
    assert spectra[0].sum() > 2000
    for spectrum in spectra[1:]:
        assert np.array_equal(spectrum, spectra[0])


def test_the_sample_has_26_branches_and_a_peak_at_the_b_mass(example: ModuleType) -> None:
    sample = example.generate(30_000)
    assert len(example.FIELDS) == len(sample) == 26
    masses = example.select(example.ak.Array(sample))
    near = np.abs(masses - example.B_MEV) < 60
    assert near.mean() > 0.9
    assert abs(np.median(masses[near]) - example.B_MEV) < 2
    result = example.Processor().process(example.ak.Array(sample))
    assert result["candidates"] == len(masses)
