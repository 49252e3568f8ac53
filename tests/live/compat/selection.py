"""A plugin for pytest in coffea's tests: leaves out cases that another one stands for."""

from __future__ import annotations

from typing import Any

import pytest

# One of each pair; coffea's test of an analysis is a product of six.
PAIRS = [(None, None), (0, 1000)]


def wanted(item: Any) -> bool:
    """Tell whether a test is run."""
    if item.originalname != "test_nanoevents_analysis":
        return True
    case = item.callspec.params
    local = case["executor"].__name__ == "IterativeExecutor"
    return (
        # The mode chooses the histograms that the processor makes, not how events are read.
        case["mode"] == "virtual"
        and (case["compression"], case["maxchunks"]) in PAIRS
        # Parquet is read by coffea itself.
        and (local or case["filetype"] == "ttree")
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[Any]) -> None:
    """Keep the wanted tests."""
    chosen = [item for item in items if wanted(item)]
    config.hook.pytest_deselected(items=[item for item in items if not wanted(item)])
    items[:] = chosen
