"""Modules import downward only: no circle among files, none of our own modules by its name."""

from __future__ import annotations

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import hepcache

ROOT = Path(hepcache.__file__).parent
# Lazy names, commands, adapters of the kinds of paths, and modules that users name.
BY_NAME = (
    "cli/*.py",
    "formats/registry.py",
    "process/named_processor.py",
    "results/callables.py",
    "upstream/names.py",  # other packages' modules
)


def module_name(path: Path) -> str:
    parts = ("hepcache", *path.relative_to(ROOT).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


PATHS = {module_name(path): path for path in sorted(ROOT.rglob("*.py"))}
TREES = {module: ast.parse(path.read_text()) for module, path in PATHS.items()}
PACKAGES = {module for module, path in PATHS.items() if path.name == "__init__.py"}


def imported(module: str, node: ast.AST) -> list[tuple[str, str]]:
    """Return the modules that a statement imports, each with the name that it takes of it."""
    if isinstance(node, ast.Import):
        return [(alias.name, "") for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        base = node.module or ""
        if node.level:
            parts = module.split(".")
            above = parts[: len(parts) - node.level + (module in PACKAGES)]
            base = ".".join([*above, *([base] if base else [])])
        return [(base, alias.name) for alias in node.names]
    # Dask imports what a cluster names as preloads.
    if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in PATHS:
        return [(node.value, "")]
    return []


def exports(package: str) -> dict[str, tuple[str, str]]:
    """Return the names that a package's top takes from modules: to module and name there."""
    return {
        alias.asname or alias.name: (node.module or "", alias.name)
        for node in TREES[package].body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


EXPORTS = {package: exports(package) for package in PACKAGES}


def home(module: str, name: str) -> str:
    """Return the file in which a name of a module stands: a package's top only passes it on."""
    while module in PACKAGES and name:
        if f"{module}.{name}" in PATHS and name not in EXPORTS[module]:
            return f"{module}.{name}"
        if name not in EXPORTS[module]:
            break
        module, name = EXPORTS[module][name]
    return module


def import_graph() -> dict[str, set[str]]:
    """Return what each file imports, in functions and under TYPE_CHECKING, too."""
    graph: dict[str, set[str]] = {}
    for module, tree in TREES.items():
        homes = {home(*found) for node in ast.walk(tree) for found in imported(module, node)}
        graph[module] = {found for found in homes & PATHS.keys() if found != module}
    return graph


def test_no_circle() -> None:
    graph = import_graph()
    # A package's top is run before its modules, and imports them: that is no circle of files.
    files = {module: found - PACKAGES for module, found in graph.items() if module not in PACKAGES}
    try:
        TopologicalSorter(files).prepare()
    except CycleError as error:
        pytest.fail(" imports ".join(reversed(error.args[1])))


def test_the_graph_sees_every_import() -> None:
    graph = import_graph()
    assert "hepcache.report.views" in graph["hepcache.process.runner"]  # through a package's top
    assert "hepcache.report.render.html" in graph["hepcache.report.views"]  # in a function
    assert "hepcache.formats.hdf5" in graph["hepcache.formats.registry"]  # by its name
    assert sum(map(len, graph.values())) > 1000


def test_own_modules_are_imported_by_statements() -> None:
    allowed = {path for pattern in BY_NAME for path in ROOT.glob(pattern)}
    found = [
        f"{module}, line {node.lineno}"
        for module, tree in TREES.items()
        if module not in PACKAGES and PATHS[module] not in allowed
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and ast.unparse(node.func).split(".")[-1] in ("import_module", "__import__")
    ]
    assert found == []
