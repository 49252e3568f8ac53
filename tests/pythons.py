"""Run tests on every Python of this machine, with the oldest, locked and newest versions.

``python tests/pythons.py [OPTIONS OF uv pip compile] -- TESTS`` writes what passed to
``docs/measured/versions.json``, and the table of ``docs/versions.md`` anew. Pythons are found on
the path and where pyenv keeps them; of those that are not here, the table keeps what it says.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

ROOT = Path(__file__).parents[1]
OUT = ROOT / "out/pythons"
TABLE = ROOT / "docs/measured/versions.json"
UV = Path(sys.executable).with_name("uv")
OLDEST_PYTHON = "3.11"
PYTHONS = [OLDEST_PYTHON, "3.12", "3.13", "3.14"]
SETS = ["oldest", "lock", "newest"]
SHOWN = ["coffea", "dask", "awkward", "uproot", "numpy", "numba"]


def interpreter(version: str) -> Path | None:
    """Return the path of a Python that runs; ``None`` where there is none of this version."""
    kept = sorted((Path.home() / ".pyenv/versions").glob(f"{version}.*/bin/python"))
    on_path = shutil.which(f"python{version}")
    # A shim of pyenv's is on the path for each Python that it has, and runs only the chosen one.
    for found in [*kept, *([Path(on_path)] if on_path else [])]:
        if subprocess.run([found, "-c", ""], capture_output=True, check=False).returncode == 0:
            return found
    return None


def resolved(version: str, kind: str, options: list[str]) -> str:
    """Return the list of versions of a set; for a Python without such wheels, the next ones."""
    if kind == "lock" or (kind == "oldest" and version == OLDEST_PYTHON):
        return (ROOT / f"requirements.{kind}").read_text()
    chosen = []
    if kind == "oldest":
        chosen = ["--resolution", "lowest-direct", "--only-binary", ":all:"]
        chosen += ["--constraint", str(ROOT / "tests/oldest-constraints.txt")]
    return subprocess.run(
        [UV, "pip", "compile", "--quiet", "--no-header", "--no-annotate", "--python-version",
         version, *chosen, *options, ROOT / "pyproject.toml"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip


def reached(versions: str) -> set[str]:
    """Return of a list the versions of what hepcache reaches into."""
    lines = {line.partition(";")[0].strip() for line in versions.splitlines()}
    return {line for line in lines if line.partition("==")[0] in SHOWN}


def passed(python: Path, versions: str, directory: Path, tests: list[str]) -> dict[str, Any]:
    """Return how many tests pass in a new environment, and with which versions."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    listed, results = directory / "versions.txt", directory / "results.xml"
    listed.write_text(versions)
    environment = directory / "venv"
    own = environment / "bin/python"
    install = [UV, "pip", "install", "--quiet", "--python", own]
    for command in (
        [UV, "venv", "--quiet", "--python", python, environment],
        [*install, "--only-binary", ":all:", "--no-binary", "hepcache", "--requirement", listed],
        [*install, "--no-deps", "--no-build-isolation", "--editable", ROOT, "--editable",
         ROOT / "benchmarks"],
    ):  # fmt: skip
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode:
            print(done.stderr, file=sys.stderr)
            return {"problem": "can't be installed"}
    known = json.loads(
        subprocess.run([UV, "pip", "list", "--python", own, "--format", "json"], cwd=ROOT,
                       check=True, capture_output=True, text=True).stdout
    )  # fmt: skip
    found = {package["name"]: package["version"] for package in known}
    subprocess.run(
        [own, "-m", "pytest", "-q", "-n", "2", "--dist", "loadfile", "-m", "not slow",
         "--junit-xml", results, *tests], cwd=ROOT, check=False,
    )  # fmt: skip
    if not results.exists():
        return {"problem": "the tests don't run"}
    cases = list(ET.parse(results).getroot().iter("testcase"))
    failed = sorted(
        f"{case.get('classname')}::{case.get('name')}"
        for case in cases
        if case.find("failure") is not None or case.find("error") is not None
    )
    skipped = sum(case.find("skipped") is not None for case in cases)
    return {
        "passed": len(cases) - len(failed) - skipped,
        "failed": failed,
        "versions": {name: found[name] for name in SHOWN},
    }


def main() -> None:
    """Fill the table, and end with 1 where a test failed."""
    split = sys.argv.index("--")
    options, tests = sys.argv[1:split], sys.argv[split + 1 :]
    table = json.loads(TABLE.read_text()) if TABLE.exists() else {"pythons": {}}
    for version in PYTHONS:
        python = interpreter(version)
        if python is None:
            print(f"Python {version} is not here")
            continue
        row: dict[str, Any] = table["pythons"].setdefault(version, {})
        lists = dict[str, str]()
        for kind in SETS:
            try:
                lists[kind] = resolved(version, kind, options)
            except subprocess.CalledProcessError as error:
                print(f"Python {version}, {kind}: {error.stderr}", file=sys.stderr)
                row[kind] = {"problem": "no such versions for this Python"}
                continue
            if kind == "newest" and reached(lists[kind]) == reached(lists.get("lock", "")):
                row[kind] = row["lock"]
                continue
            print(f"Python {version}, {kind}:", flush=True)
            row[kind] = passed(python, lists[kind], OUT / f"{version}-{kind}", tests)
            TABLE.write_text(json.dumps(table, indent=1) + "\n")
    subprocess.run([sys.executable, ROOT / "docs/pages.py"], cwd=ROOT, check=True)
    rows = [cell for row in table["pythons"].values() for cell in row.values()]
    sys.exit(any(cell.get("failed") or "problem" in cell for cell in rows))


if __name__ == "__main__":
    main()
