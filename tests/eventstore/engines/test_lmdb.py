"""Files of LMDB that lost their end: an error, never SIGBUS, and never for one that is whole."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from hepcache.errors import StoreError
from hepcache.eventstore import connect
from hepcache.eventstore.engines.lmdb import LmdbEngine

READER = """
import hashlib, json, os, shutil, sys
from pathlib import Path
from hepcache.errors import StoreError
from hepcache.eventstore.engines.lmdb import LmdbEngine

def content(directory):
    engine = LmdbEngine(directory)
    try:
        with engine.read() as view:
            digest = hashlib.sha256()
            for key, value in view.scan(b"", None):
                digest.update(key + b"=" + bytes(value))
            return digest.hexdigest()
    except StoreError as error:
        return f"StoreError: {error}"
    finally:
        engine.close()

whole, scratch = Path(sys.argv[1]), Path(sys.argv[2])
for line in sys.stdin:
    shutil.rmtree(scratch, ignore_errors=True)
    shutil.copytree(whole, scratch)
    os.truncate(scratch / "data.mdb", int(line))
    try:
        found = content(scratch)
    except StoreError as error:
        found = f"StoreError: {error}"
    print(json.dumps([int(line), found]), flush=True)
"""


def filled(directory: Path) -> LmdbEngine:
    """Return an engine with values of one page and of many, some of them removed again."""
    engine, chance = LmdbEngine(directory, sync=False), random.Random(1)
    for _ in range(6):
        with engine.write() as view:
            for _ in range(20):
                key = b"%04d" % chance.randrange(200)
                view.put(key, chance.randbytes(chance.choice([10, 300, 3000, 9000])))
            for number in range(0, 200, 7):
                view.delete(b"%04d" % number)
    return engine


def test_a_file_truncated_anywhere_is_an_error_or_whole(tmp_path: Path) -> None:
    engine = filled(tmp_path / "whole")
    engine.close()
    size, chance = (tmp_path / "whole/data.mdb").stat().st_size, random.Random(2)
    pages = [page * 4096 + shift for page in range(size // 4096) for shift in (0, 4095)]
    sizes = [*range(0, 4500, 150), *pages, *(chance.randrange(size) for _ in range(50)), size]
    done = subprocess.run(
        [sys.executable, "-c", READER, tmp_path / "whole", tmp_path / "cut"],
        input="\n".join(map(str, sizes)), capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0, (done.returncode, told[-1:], done.stderr[-500:])
    assert [length for length, _ in told] == sizes
    content = told[-1][1]
    assert not content.startswith("StoreError")
    for length, found in told:
        assert found == content or (found.startswith("StoreError") and str(tmp_path) in found), (
            length, found
        )  # fmt: skip
    # All but what lost free pages only is an error.
    assert sum(found == content for _, found in told) < len(told) / 10


def test_a_file_that_loses_its_end_while_it_is_open(tmp_path: Path) -> None:
    script = (
        "import os, sys\n"
        "from pathlib import Path\n"
        "sys.path.insert(0, sys.argv[2])\n"
        "from tests.eventstore.engines.test_lmdb import filled\n"
        "from hepcache.errors import StoreError\n"
        "engine = filled(Path(sys.argv[1]))\n"
        "with engine.read() as view: print(len(list(view.scan(b'', None))))\n"
        "os.truncate(Path(sys.argv[1]) / 'data.mdb', 40960)\n"
        "for begin in (engine.read, engine.write):\n"
        "    try:\n"
        "        with begin() as view: list(view.scan(b'', None))\n"
        "    except StoreError as error: print(error)\n"
    )
    root = Path(__file__).parents[3]
    done = subprocess.run(
        [sys.executable, "-c", script, tmp_path / "store", root],
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    assert done.stdout.count("data.mdb was truncated: it has 40960 bytes of ") == 2


def test_a_file_without_pages_that_were_never_written_is_whole(tmp_path: Path) -> None:
    engine = LmdbEngine(tmp_path)
    for number in range(8):
        with engine.write() as view:
            view.put(b"kept %d" % number, b"x" * 5000)
            view.put(b"given back", b"y" * (3_000_000 + number * 500_000))
            view.delete(b"given back")
    engine.close()
    engine = LmdbEngine(tmp_path)
    try:
        assert engine.info()["size_bytes"] > (tmp_path / "data.mdb").stat().st_size
        with engine.read() as view:
            assert len(list(view.scan(b"", None))) == 8
        with engine.write() as view:
            view.put(b"more", b"z")
    finally:
        engine.close()


def test_a_store_that_was_truncated_is_named_with_what_to_do(tmp_path: Path) -> None:
    url = f"{(tmp_path / 'store').as_uri()}?sync=false"
    with connect(url) as store:
        subrun = store.create("d").create(1).create(1)
        for event in range(50):
            subrun.create(event)["x"] = np.arange(event)
    shard = tmp_path / "store/shards/0000"
    copy = tmp_path / "copy"
    shutil.copytree(tmp_path / "store", copy)
    os.truncate(shard / "data.mdb", 3 * 4096)
    with pytest.raises(StoreError, match=r"0000: data\.mdb was truncated.*restore the directory"):
        connect(url)
    os.truncate(shard / "data.mdb", 0)
    with pytest.raises(StoreError, match=r"data\.mdb is empty"):
        connect(url)
    with connect(copy) as store:
        assert len(store["d"][1][1].numbers()) == 50
