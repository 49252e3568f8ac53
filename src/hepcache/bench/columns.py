"""The columns of the published benchmark: leptons, jets, generator particles, event quantities."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

__all__ = ["BENCHMARK_COLUMNS", "present"]

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
