"""The plan of the cycles benchmark: files, columns, cycles and hosts."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hepcache.errors import BadFileError, ConfigurationError
from hepcache.fileset import Fileset, load_fileset

_FIELDS = {
    "Electron": (
        "pt eta phi mass charge pdgId dxy dz cutBased convVeto deltaEtaSC hoe r9 sieie sip3d "
        "pfRelIso03_all miniPFRelIso_all mvaIso mvaIso_WP90 tightCharge jetIdx genPartIdx"
    ),
    "Muon": (
        "pt eta phi mass charge pdgId dxy dz sip3d pfRelIso04_all miniPFRelIso_all tightId "
        "mediumId looseId highPtId isGlobal isTracker nStations jetIdx genPartIdx"
    ),
    "Jet": (
        "pt eta phi mass area rawFactor btagDeepFlavB btagPNetB btagUParTAK4B btagPNetCvL chHEF "
        "neHEF chEmEF neEmEF muEF nConstituents hadronFlavour partonFlavour genJetIdx "
        "electronIdx1 muonIdx1"
    ),
    "Tau": "pt eta phi mass charge decayMode dxy dz",
    "GenPart": "pt eta phi mass pdgId status statusFlags genPartIdxMother",
    "GenJet": "pt eta phi mass partonFlavour hadronFlavour",
    "LHEPart": "pt eta phi mass pdgId status",
    "PFMET": "pt phi significance sumEt covXX covXY covYY",
    "PuppiMET": "pt phi significance sumEt",
    "Pileup": "nTrueInt nPU",
    "PV": "npvs npvsGood x y z",
}
_EVENT = ("run", "luminosityBlock", "event", "genWeight", "bunchCrossing")
_COUNTERS = ("nElectron", "nMuon", "nJet", "nTau", "nGenPart", "nGenJet")

BENCHMARK_COLUMNS: tuple[str, ...] = (
    *_EVENT,
    *_COUNTERS,
    *(f"{name}_{field}" for name, fields in _FIELDS.items() for field in fields.split()),
)
"""Names of 120 branches of NanoAOD v15; older versions have most of them."""


def present(columns: Sequence[str], branches: Iterable[str]) -> list[str]:
    """Return those of the columns that a file has, in order."""
    there = set(branches)
    return [column for column in columns if column in there]


@dataclass(frozen=True, slots=True)
class SamplePlan:
    """The sample that is made where no files are given.

    ``compression``: as :func:`hepcache.samples.nanoaod.write_nanoaod` takes it.
    ``cluster_entries``: Events per cluster of the files; segments are as long, because a small
    sample has to have enough of them for all hosts.
    """

    events: int = 100_000
    files: int = 4
    compression: str = "zstd:5"
    cluster_entries: int = 12_500


@dataclass(frozen=True, slots=True)
class CyclesPlan:
    """The files, columns, cycles and hosts of the benchmark.

    ``files``: what :func:`hepcache.fileset.load_fileset` reads; ``None`` for a sample.
    ``chunksize``: entries per chunk; ``None`` for 100 000, or a cluster of the sample.
    ``origin_bandwidth``: bytes/s of an emulated link between all workers and the files, such as
    ``"20 MB/s"``; ``None`` for none.
    """

    files: Any = None
    sample: SamplePlan = field(default_factory=SamplePlan)
    cycles: int = 10
    hosts: int = 2
    workers_per_host: int = 1
    chunksize: int | None = None
    columns: Sequence[str] | None = None
    origin_bandwidth: str | None = None
    directory: Path | None = None

    @property
    def entries_per_chunk(self) -> int:
        """The chunk size in force."""
        if self.chunksize is not None:
            return self.chunksize
        return 100_000 if self.files is not None else self.sample.cluster_entries

    def fileset(self, scratch: Path, note: Callable[[str], None]) -> Fileset:
        """Return the fileset to read; a sample is made in ``scratch``."""
        if self.files is not None:
            # A fileset's JSON is one thing, not a list of paths.
            single = isinstance(self.files, list) and len(self.files) == 1
            return load_fileset(self.files[0] if single else self.files, treename="Events")
        from hepcache.samples.nanoaod import write_nanoaod

        sample = self.sample
        note(f"Making a sample of {sample.events:,} events in {sample.files} files")
        paths = write_nanoaod(
            scratch / "sample",
            events=sample.events,
            files=sample.files,
            compression=sample.compression,
            cluster=sample.cluster_entries,
        )
        return load_fileset({"sample": [os.fspath(path) for path in paths]}, treename="Events")

    def columns_of(self, fileset: Fileset) -> list[str]:
        """Return the columns to read; each dataset has to have all that the plan names."""
        import uproot

        wanted = list(self.columns or BENCHMARK_COLUMNS)
        found: set[str] = set()
        for dataset in fileset.datasets:
            path, tree = next(
                (file.path, file.tree) for file in fileset if file.dataset == dataset
            )
            try:
                with uproot.open({path: tree}) as events:
                    there = set(present(wanted, events.keys()))
            except (OSError, ValueError, KeyError) as error:
                raise BadFileError({path: str(error)}, type(error)) from error
            missing = [name for name in wanted if name not in there]
            if missing and self.columns:
                raise ConfigurationError("columns", f"branches of {path}", ", ".join(missing))
            found |= there
        if not found:
            raise ConfigurationError("files", "NanoAOD, or --columns", ", ".join(fileset.datasets))
        return present(wanted, found)


QUICK = CyclesPlan(
    sample=SamplePlan(events=12_000, files=2, compression="zstd:1", cluster_entries=3_000),
    cycles=3,
    origin_bandwidth="4 MB/s",
)
"""Small enough for two cores and well under a minute, sample included."""
