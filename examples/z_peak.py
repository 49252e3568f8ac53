"""The Z boson in pairs of electrons and of muons: a short analysis that ends with a peak.

With a sample made by ``hepcache sample nanoaod data``::

    hepcache run examples/z_peak.py data --cycles 3 --out z_peak --plots
"""

from __future__ import annotations

from typing import Any

import awkward as ak
import hist
from coffea.processor import ProcessorABC


class Processor(ProcessorABC):
    """Fill the mass of the two leading leptons of opposite charge.

    Parameters
    ----------
    pt_min
        Least transverse momentum of both in GeV.
    """

    def __init__(self, pt_min: float = 15.0) -> None:
        self.pt_min = pt_min

    def process(self, events: ak.Array) -> dict[str, Any]:
        """Return the histogram of one chunk."""
        mass = (
            hist.Hist.new.StrCat(["ee", "mumu"], name="channel")
            .Regular(60, 60, 120, name="mass", label="$m_{ll}$ [GeV]")
            .Int64()
        )
        for channel, leptons in (("ee", events.Electron), ("mumu", events.Muon)):
            hard = leptons[leptons.pt > self.pt_min]
            pairs = hard[ak.num(hard) >= 2][:, :2]
            first, second = pairs[:, 0], pairs[:, 1]
            opposite = first.charge + second.charge == 0
            mass.fill(channel=channel, mass=(first + second).mass[opposite])
        return {"mass": mass}

    def postprocess(self, accumulator: dict[str, Any]) -> dict[str, Any]:
        """Return the sum as it is."""
        return accumulator
