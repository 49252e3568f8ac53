"""Recipes for clusters that aren't here: they parse, and what they take from hepcache is there."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path

import distributed
import yaml

import hepcache

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/pools.md").read_text()


def test_recipes_use_what_is_there() -> None:
    found = re.findall(r"^```py\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    used = set()
    for text in found:
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "hepcache":
                assert hasattr(hepcache, node.attr)
                used.add(node.attr)
            if isinstance(node, ast.ImportFrom) and node.module == "distributed":
                assert all(hasattr(distributed, name.name) for name in node.names)
    assert len(found) >= 4
    assert used == {"attach"}
    assert "restart_workers" in inspect.signature(distributed.PipInstall).parameters


def test_the_variables_are_settings() -> None:
    known = yaml.safe_load((ROOT / "src/hepcache/hepcache.yaml").read_text())["hepcache"]
    names = set(re.findall(r"DASK_HEPCACHE__([A-Z_]+)", PAGE))
    assert len(names) >= 3
    for name in names:
        value = known
        for part in name.lower().split("__"):
            assert part in value, name
            value = value[part]


def test_the_extension_starts_a_cluster_of_ours() -> None:
    (text,) = re.findall(r"^```yaml\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    factory = yaml.safe_load(text)["labextension"]["factory"]
    made = getattr(hepcache, factory["class"])
    inspect.signature(made).bind(*factory["args"], **factory["kwargs"])
