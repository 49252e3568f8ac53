"""RNTuple in, the same columns out; here because uproot takes a minute for 1499 fields."""

from __future__ import annotations

from pathlib import Path

from tests.eventstore.ingestion.test_root import agrees


def test_an_rntuple_is_found_with_its_events(shared_data: Path) -> None:
    agrees(shared_data / "nanoaod" / "nano_dy_rntuple.root")
