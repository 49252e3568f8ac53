"""The examples give what they give under coffea, in chunks of any size, and after any edit."""

from __future__ import annotations

import ast
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dask.config
import numpy as np
import pytest
from coffea import processor as coffea
from coffea.nanoevents import NanoAODSchema
from distributed import Client
from tests.compat.conftest import equal, ordered

import hepcache
from hepcache.process.named_processor import load_processor
from hepcache.process.worker_state import worker_state
from hepcache.samples.nanoaod import write_nanoaod
from hepcache.telemetry import DerivedUse

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning:coffea")

EXAMPLES = Path(__file__).parents[2] / "examples"
EXECUTOR = coffea.IterativeExecutor(status=False, retries=0)
BRANCHES = [
    *(f"Electron_{name}" for name in ("pt", "eta", "phi", "mass", "charge", "cutBased")),
    *(f"Electron_{name}" for name in ("dxy", "dz", "pfRelIso03_all")),
    *(f"Muon_{name}" for name in ("pt", "eta", "phi", "mass", "charge", "mediumId", "tightId")),
    *(f"Muon_{name}" for name in ("dxy", "dz", "pfRelIso04_all")),
    *(f"Jet_{name}" for name in ("pt", "eta", "phi", "mass", "btagPNetB", "hadronFlavour")),
    *("PuppiMET_pt", "PuppiMET_phi", "genWeight", "event", "run", "luminosityBlock"),
]
# What a run of each example must have selected, or nothing was compared.
SELECTED: dict[str, Callable[[dict[str, Any]], int]] = {
    "agc_ttbar": lambda output: output["selected"]["nominal"],
    "hh_bbll": lambda output: output["cutflow"]["missing momentum"],
}
# One change of each function that a run calls; every one changes the output.
EDITS: dict[str, dict[str, tuple[str, str]]] = {
    "agc_ttbar": {
        "Processor.__init__": ("self.least_score = least_score", "self.least_score = 0.2"),
        "Processor.process": ("float(np.sum(signs))", "float(np.sum(signs)) + 1"),
        "Processor.fill": (">= 2", ">= 3"),
        "Processor.postprocess": (
            '"""Leave the sums as they are: scaling to a luminosity is the plotter\'s job."""',
            'accumulator["tt"]["done"] = 1',
        ),
        "empty": ("hist.storage.Weight()", "hist.storage.Double()"),
        "leptons_of": ("electrons.pt > 30", "electrons.pt > 40"),
        "vectors": ("objects[name] for", "objects[name] * 1.01 for"),
        "jets_of": ("> 0.4", "> 0.9"),
        "btag_score": ("return jets[name]", "return jets[name] - 0.4"),
        "candidates_of": (">= 4", ">= 5"),
        "corrected": ("varied.pt > 30", "varied.pt > 35"),
        "candidates_from": ("ak.sum(jets.pt, axis=1)", "ak.max(jets.pt, axis=1)"),
        "hardest_triple": ("ak.argmax", "ak.argmin"),
        "weights_of": ("* 4096) / 4096", "* 512) / 512"),
        "assigned_of": ("candidates[energies]", 'candidates["nominal"]'),
        "assigned": (">= 2", ">= 3"),
        "best_of": ("np.argmax(rated, axis=1)", "np.argmin(rated, axis=1)"),
        "momenta": ("np.sinh(eta)", "np.tanh(eta)"),
        "assignments": (
            "permutations(set(range(count)) -",
            "permutations(set(range(count - 1)) -",
        ),
        "features": ("mass_of(top),", "0.9 * mass_of(top),"),
        "mass_of": ("- pz", "- 2 * pz"),
        "cosine": ("return along /", "return -along /"),
        "corrections": ('"nominal": 1.1', '"nominal": 1.3'),
        "corrections.by_place": ("value * forward * soft", "value * forward"),
        "correction": (
            "data=data",
            'data=data if name != "tagging" else by_flavour(0.9, 0.9, 0.9)',
        ),
        "by_name": ('"value": value}', '"value": values["nominal"]}'),
        "by_flavour": ('"key": 4', '"key": 3'),
        "by_flavour.falling": ("0.00005", "0.0005"),
    },
    "hh_bbll": {
        "Processor.__init__": ("self.met_min = met_min", "self.met_min = 60.0"),
        "Processor.process": ("found.met > self.met_min", "found.met < self.met_min"),
        "Processor.postprocess": (
            '"""Leave the sums as they are: scaling to a luminosity is the plotter\'s job."""',
            'accumulator["tt"]["done"] = 1',
        ),
        "weights_of": ("np.sign(ak.to_numpy(events.genWeight))", "np.ones(len(events))"),
        "met_of": (
            "return events[name]",
            "met = events[name]\n    return ak.with_field(met, met.pt + 30, 'pt')",
        ),
        "btag_score": ("return jets[name]", "return jets[name] - 0.4"),
        "objects_of": (
            "ak.argsort(leptons.pt, axis=1, ascending=False)",
            "ak.argsort(leptons.eta)",
        ),
        "candidates": ('"pt": leptons.pt,', '"pt": leptons.pt * 1.1,'),
        "electrons_of": ("electrons.pt > 15", "electrons.pt > 30"),
        "muons_of": ("muons.pt > 15", "muons.pt > 30"),
        "clean_jets": ("near > 0.4", "near > 1.5"),
        "variables_of": ('"m_ll": spread(ll.mass', '"m_ll": spread(ll.pt'),
        "pair_of": ("pairs[:, 1]", "pairs[:, 0]"),
        "spread": ("found[chosen] = values", "found[chosen] = values + 1"),
        "fill": ("flavours == 24", "flavours == 26"),
    },
}


@pytest.fixture(autouse=True)
def short_segments() -> Iterator[None]:
    with dask.config.set({"hepcache.segment.entries": 300}):
        yield


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Write two files of 700 events."""
    directory = tmp_path_factory.mktemp("examples")
    return write_nanoaod(directory, events=1400, files=2, cluster=100, branches=BRANCHES, jobs=1)


def loaded(path: Path) -> Any:
    """Return the processor of an example, its dear parts marked."""
    processor = load_processor(f"{path}:Processor")
    if path.stem == "hh_bbll":  # it knows nothing of hepcache
        module = sys.modules["hh_bbll"]
        for part in ("objects_of", "variables_of"):
            setattr(module, part, hepcache.derived(getattr(module, part)))
    return processor


def run(
    processor: Any,
    sample: list[Path],
    runner: Any = hepcache.Runner,
    executor: Any = EXECUTOR,
    chunksize: int = 700,
) -> tuple[Any, Any]:
    """Return output and derived columns' uses, ``None`` under plain coffea."""
    made = runner(executor, schema=NanoAODSchema, chunksize=chunksize, savemetrics=False)
    output = made({"tt": {"files": {str(path): "Events" for path in sample}}}, processor)
    if runner is coffea.Runner:
        return ordered(output), None
    worker_state().flush()
    return ordered(output), sum(made.run_record.derived.values(), DerivedUse())


def functions(tree: ast.AST, within: str = "") -> dict[str, ast.FunctionDef]:
    """Return all functions of a program, by their qualified names."""
    found = {}
    for node in ast.iter_child_nodes(tree):
        name = f"{within}{node.name}" if isinstance(node, ast.FunctionDef | ast.ClassDef) else ""
        if isinstance(node, ast.FunctionDef):
            found[name] = node
        found |= functions(node, f"{name}." if name else within)
    return found


def edited(text: str, function: str, edit: tuple[str, str]) -> str:
    """Return a program with one function edited."""
    node = functions(ast.parse(text))[function]
    lines = text.splitlines(keepends=True)
    first, last = node.lineno - 1, node.end_lineno
    body = "".join(lines[first:last])
    assert body.count(edit[0]) >= 1, f"{function} has no {edit[0]} any more"
    return "".join([*lines[:first], body.replace(*edit), *lines[last:]])


@pytest.mark.parametrize("example", sorted(EDITS))
def test_chunks_of_any_size_give_coffeas_histograms(example: str, sample: list[Path]) -> None:
    processor = loaded(EXAMPLES / f"{example}.py")
    expected, _ = run(processor, sample[:1], coffea.Runner)
    assert SELECTED[example](expected["tt"]) > 10
    for chunksize in (210, 350, 10_000):
        for hot in (False, True):
            found, uses = run(processor, sample[:1], chunksize=chunksize)
            assert equal(found, expected)
            assert not uses.reason
            assert not (hot and uses.computed)
            assert uses.read or not hot


@pytest.mark.slow
@pytest.mark.parametrize("example", sorted(EDITS))
def test_after_an_edit_of_any_function_it_is_the_edited_result(
    example: str, sample: list[Path], tmp_path: Path
) -> None:
    text = (EXAMPLES / f"{example}.py").read_text()
    unused = {"derived", "main"}
    assert set(EDITS[example]) == set(functions(ast.parse(text))) - unused
    for model in EXAMPLES.glob("*.json"):
        shutil.copy(model, tmp_path)
    place = tmp_path / f"{example}.py"
    place.write_text(text)
    original, _ = run(loaded(place), sample[:1])
    for function, edit in EDITS[example].items():
        place.write_text(edited(text, function, edit))
        processor = loaded(place)
        expected, _ = run(processor, sample[:1], coffea.Runner)
        assert not equal(expected, original), f"the edit of {function} changes nothing"
        for _ in range(2):
            found, _ = run(processor, sample[:1])
            assert equal(found, expected), function
    place.write_text(text)
    found, uses = run(loaded(place), sample[:1])
    assert equal(found, original)
    assert (uses.computed, uses.read > 0) == (0, True)


def test_an_edit_deep_within_computes_again(sample: list[Path], tmp_path: Path) -> None:
    shutil.copy(EXAMPLES / "agc_model.json", tmp_path)
    place = tmp_path / "agc_ttbar.py"
    text = (EXAMPLES / "agc_ttbar.py").read_text()
    place.write_text(text)
    run(loaded(place), sample[:1])
    place.write_text(edited(text, "cosine", EDITS["agc_ttbar"]["cosine"]))
    found, uses = run(processor := loaded(place), sample[:1])
    # The candidates are what they were; what the model makes of them is not.
    assert (uses.read, uses.computed) == (1, 1)
    assert equal(found, run(processor, sample[:1], coffea.Runner)[0])


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("example", sorted(EDITS))
def test_large_chunks_on_two_hosts_give_coffeas_histograms(
    example: str, hepcache_client: Client, tmp_path: Path
) -> None:
    files = write_nanoaod(
        tmp_path, events=120_000, files=1, branches=BRANCHES, compression="zstd:1"
    )
    processor = loaded(EXAMPLES / f"{example}.py")
    executor = hepcache.Executor(client=hepcache_client, status=False)
    read = 0
    with dask.config.set({"hepcache.segment.entries": 100_000}):
        for chunksize in (7_001, 50_000, 100_000, 10**6):
            expected, _ = run(processor, files, coffea.Runner, chunksize=chunksize)
            for _ in range(2):
                found, uses = run(processor, files, executor=executor, chunksize=chunksize)
                assert equal(found, expected)
                assert not uses.reason
                read += uses.read
                time.sleep(1)  # the scheduler hears with a heartbeat where columns are
    assert read > 0


def test_the_model_is_what_the_script_trains(sample: list[Path]) -> None:
    script = load_processor(f"{EXAMPLES / 'train_agc_model.py'}:train")
    jets, scores, leptons, labels = sys.modules["train_agc_model"].make_events(
        np.random.default_rng(2), 2000
    )
    seen = sys.modules["agc_ttbar"].features(jets, scores, leptons)
    stored = loaded(EXAMPLES / "agc_ttbar.py").model
    first, second = script(events=300, rounds=3), script(events=300, rounds=3)
    assert first.save_raw() == second.save_raw()
    rated = stored.inplace_predict(seen.reshape(-1, seen.shape[-1])).reshape(labels.shape)
    best = np.take_along_axis(labels, rated.argmax(axis=1)[:, np.newaxis], axis=1)
    # One of 60 assignments is right; chance finds it in 1.7 % of events.
    assert best.mean() > 0.3
