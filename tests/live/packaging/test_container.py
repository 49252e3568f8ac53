"""The container image's instructions, carried out in a new environment instead of an image."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SOURCE = "/usr/src/hepcache"


def instructions() -> list[tuple[str, str]]:
    """Return the instructions of the file, each with what follows it on its lines."""
    text = (ROOT / "deploy/Containerfile").read_text()
    lines = re.sub(r"\\\n", " ", re.sub(r"^#.*\n", "", text, flags=re.MULTILINE)).splitlines()
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in lines) if word]


@pytest.mark.timeout(900)
def test_what_the_image_installs_is_there_and_its_commands_run(tmp_path: Path) -> None:
    uv = Path(sys.executable).with_name("uv")
    subprocess.run(
        [uv, "venv", "--quiet", "--seed", "--python", sys.executable, tmp_path / "venv"],
        check=True,
        timeout=300,
    )
    place = str(tmp_path / "source")
    environment = {**os.environ, "PATH": f"{tmp_path}/venv/bin:{os.environ['PATH']}"}
    environment.pop("PYTHONPATH", None)
    seen = []
    for word, rest in instructions():
        seen.append(word)
        if word == "COPY":
            *names, target = rest.split()
            assert target.startswith(SOURCE), "the test changes this place for its own"
            for name in names:
                copy = Path(target.replace(SOURCE, place))
                if (ROOT / name).is_dir():
                    shutil.copytree(ROOT / name, copy)
                else:
                    copy.mkdir(parents=True, exist_ok=True)
                    shutil.copy(ROOT / name, copy)
        elif word == "ENV":
            name, _, value = rest.partition("=")
            environment[name] = value.replace("/cache", str(tmp_path / "cache"))
        elif word in ("RUN", "CMD"):
            command = rest.replace(SOURCE, place).replace("pip install", f"{uv} pip install")
            if word == "CMD":
                command = " ".join(json.loads(rest))
            environment["VIRTUAL_ENV"] = str(tmp_path / "venv")
            done = subprocess.run(
                ["sh", "-ec", command], env=environment, cwd=tmp_path, capture_output=True,
                text=True, check=False, timeout=600,
            )  # fmt: skip
            assert done.returncode == 0, done.stdout + done.stderr
    assert seen == ["FROM", "COPY", "COPY", "RUN", "RUN", "ENV", "VOLUME", "CMD"]
    # The directory of its caches is the mounted one.
    done = subprocess.run(
        [tmp_path / "venv/bin/python", "-c",
         "from hepcache.settings import settings; print(settings().cache_directory)"],
        env=environment, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=120,
    )  # fmt: skip
    assert done.stdout.startswith(str(tmp_path / "cache"))
