from __future__ import annotations

import json
from pathlib import Path

import pytest
import uproot
from typer.testing import CliRunner

from hepcache.cli.app import app
from hepcache.errors import ConfigurationError, RecompressError
from hepcache.formats.ttree.codec_comparison import AS_THEY_ARE, compare_codecs
from hepcache.formats.ttree.recompress import recompress_files
from hepcache.samples.nanoaod import write_nanoaod

BRANCHES = ["Jet_pt", "Jet_eta", "PuppiMET_pt", "run", "event"]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    (path,) = write_nanoaod(
        tmp_path_factory.mktemp("source"),
        events=4000,
        cluster=1000,
        branches=BRANCHES,
        compression="none",
        jobs=1,
    )
    return path


def test_what_is_proposed_is_what_copies_have(source: Path, tmp_path: Path) -> None:
    compared = compare_codecs([source], codecs=["lz4:1", "zstd:10"])
    present, lz4, zstd, joined = compared.trials
    assert present.compression == AS_THEY_ARE
    assert zstd.stored_bytes < lz4.stored_bytes < present.stored_bytes
    assert {trial.plain_bytes for trial in compared.trials} == {present.plain_bytes}
    assert joined.cluster == 4 * present.cluster == 4000
    for trial in (lz4, zstd, joined):
        (made,) = recompress_files(
            [source],
            tmp_path / f"{trial.compression}-{trial.cluster}",
            compression=trial.compression,
            cluster=trial.cluster,
            jobs=1,
        )
        again = compare_codecs([made.copy], codecs=[])
        assert again.present.stored_bytes == trial.stored_bytes
        assert again.present.plain_bytes == trial.plain_bytes
        assert again.present.cluster == trial.cluster


def test_slow_origins_are_worth_small_files(source: Path) -> None:
    codecs = ["none", "zstd:10"]
    assert compare_codecs([source], codecs=codecs, rate=1e5).best.compression == "zstd:10"
    near = compare_codecs([source], codecs=codecs, rate=1e12).best
    assert near.compression in ("none", AS_THEY_ARE)


def test_without_out_a_table_is_shown_and_nothing_is_written(source: Path) -> None:
    before = sorted(source.parent.iterdir())
    # From so slow an origin the smallest is best, however long this machine takes to inflate.
    shown = CliRunner().invoke(app, ["recompress", str(source), "--json", "--rate", "0.1"])
    assert shown.exit_code == 0, shown.output
    found = json.loads(shown.stdout)
    assert found["trials"][0]["compression"] == AS_THEY_ARE
    assert found["best"]["size"] < 1 < found["best"]["gain"]
    shown = CliRunner().invoke(app, ["recompress", str(source), "--rate", "0.1"])
    assert f"--out DIRECTORY --compression {found['best']['compression']}" in shown.stdout
    assert sorted(source.parent.iterdir()) == before


def test_what_can_not_be_compared_is_named(source: Path, tmp_path: Path) -> None:
    text = tmp_path / "text.root"
    text.write_text("no ROOT file")
    empty = tmp_path / "empty.root"
    with uproot.recreate(empty) as file:
        file.mktree("Events", {"run": "u4"})
    for path in (text, empty):
        with pytest.raises(RecompressError, match=path.name):
            compare_codecs([path])
    with pytest.raises(ConfigurationError):
        compare_codecs([source], codecs=["snappy"])
    with pytest.raises(ConfigurationError):
        compare_codecs([source], rate=0)
