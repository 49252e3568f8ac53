"""coffea's own tests of its processor package, with hepcache's imported in its place."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

pytestmark = pytest.mark.timeout(1500)

# The change that hepcache.compat asks of a script.
IMPORTS = {
    r"from coffea import processor$": "from hepcache import compat as processor",
    r"from coffea\.processor import": "from hepcache.compat import",
}

PLUGINS = ["-p", "selection", "-p", "no:cacheprovider"]

APART = {
    "test_local_executors.py::test_auto_dask_client_single_and_cleanup": (
        "without a client, hepcache uses the current one; coffea starts a cluster of its own"
    )
}
"""Tests of coffea that can't pass with hepcache, as expressions, and why not."""

UNABLE = {
    "test_parsl.py": "parsl is not installed",
    "test_taskvine_virtual.py": "TaskVine is not installed",
    "test_util.py::test_loadsave": "dask_histogram is not installed",
}
"""Tests of coffea that skip themselves in hepcache's environment."""


@pytest.fixture(scope="module")
def results(coffea_source: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Outcome of each of coffea's tests that use its processor package, by name."""
    home = tmp_path_factory.mktemp("coffeas-tests")
    shutil.copy(coffea_source / "pyproject.toml", home)
    shutil.copytree(coffea_source / "tests", home / "tests", symlinks=True)
    files = []
    for path in sorted((home / "tests").glob("test_*.py")):
        text = changed = path.read_text()
        for old, new in IMPORTS.items():
            changed = re.sub(old, new, changed, flags=re.MULTILINE)
        if changed != text:
            path.write_text(changed)
            files.append(f"tests/{path.name}")
    environment = {
        **os.environ,
        "PYTHONPATH": str(Path(__file__).parent),
        "DASK_HEPCACHE__CACHE__DIRECTORY": str(home / "columns"),
        "DASK_HEPCACHE__CATALOGUE": str(home / "catalogue.sqlite"),
    }
    report = home / "report.xml"
    wanted = ["-o", "junit_family=xunit1", f"--junitxml={report}", *files]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-c", "pyproject.toml", *PLUGINS, *wanted],
        cwd=home,
        env=environment,
        capture_output=True,
        text=True,
        timeout=1400,
        check=False,
    )
    assert report.is_file(), done.stdout[-4000:] + done.stderr[-4000:]
    outcomes = {}
    for case in ET.parse(report).iter("testcase"):
        file = Path(case.get("file") or f"{case.get('name', '')}.py").name
        file = file.removeprefix("tests.")
        words = [f"{kind.tag}: {kind.get('message')}" for kind in case]
        outcomes[f"{file}::{case.get('name')}"] = words[0] if words else "passed"
    return outcomes


def test_coffeas_tests_pass(results: dict[str, str]) -> None:
    failed = {name: why for name, why in results.items() if re.match("failure|error", why)}
    known = {name for name in failed if any(re.search(apart, name) for apart in APART)}
    others = "\n".join(f"{name}: {why}" for name, why in failed.items() if name not in known)
    assert not others, f"these tests of coffea fail:\n{others}"
    passing = [apart for apart in APART if not any(re.search(apart, name) for name in failed)]
    assert not passing, f"these pass, and are listed as failing: {passing}"


def test_what_was_run(results: dict[str, str]) -> None:
    skipped = {name for name, why in results.items() if why.startswith("skipped")}
    others = [name for name in skipped if not any(name.startswith(known) for known in UNABLE)]
    assert not others
    assert len(results) - len(skipped) > 80
    for file in ("accumulators", "checkpointing", "local_executors", "preloading", "processor"):
        assert any(name.startswith(f"test_{file}.py::") for name in results)
