"""Random lives of a cache against a plain dict, with crashes and damage in between.

The cache may forget, and it may never serve anything but what was last put.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from tests.cache.entries import entries_equal

from hepcache.cache import ColumnCache, ColumnKey, Entry, Limits
from hepcache.cache.contents import stored_columns
from hepcache.telemetry import CAUSES

KEYS = st.builds(
    ColumnKey,
    st.just("6ac7019c"),
    st.sampled_from(["tag", "other"]),
    st.sampled_from(["Events", "dir/Runs"]),
    st.sampled_from([0, 100]),
    st.just(200),
    st.sampled_from(["nJet", "..", "x" * 300, "é/%-"]),
)
VIEWS = st.integers(0, 2)


def entry(seed: int, size: int) -> Entry:
    random = np.random.default_rng(seed)
    return Entry(
        b"meta%d" % seed,
        (
            random.integers(0, 9, size, dtype=np.int32),
            random.normal(size=size // 7).astype(np.float32),
        ),
    )


class Life(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="hepcache-life-"))
        self.tampered = False
        self.model: dict[ColumnKey, Entry] = {}
        self.intact: set[ColumnKey] = set()  # what must be there: put, and then left alone
        self.views = [self.opened(codec) for codec in ("raw", "lz4", "auto")]

    def opened(self, codec: str) -> ColumnCache:
        limits = Limits(capacity_bytes=200_000, cull=0.0)
        return ColumnCache(self.root / "cache", limits=limits, codec=codec, memory_bytes=50_000)

    def served(self, key: ColumnKey, found: Entry | None, cause: str) -> None:
        assert cause in CAUSES
        assert (found is None) == (cause != "hit")
        if found is not None:
            assert key in self.model, "what was never put was served"
            assert entries_equal(found, self.model[key])
        else:
            assert key not in self.intact, cause

    def file(self, which: int) -> Path | None:
        """Return one of the stored files, which from now on may be missed."""
        files = sorted((self.root / "cache").rglob("*.col"))
        self.intact.clear()
        self.tampered = True
        return files[which % len(files)] if files else None

    @rule(view=VIEWS, key=KEYS, seed=st.integers(0, 99), size=st.sampled_from([0, 10, 3000, 9000]))
    def put(self, view: int, key: ColumnKey, seed: int, size: int) -> None:
        before = {one.path for one in stored_columns(self.views[view].layout)}
        made = entry(seed, size)
        stored = self.views[view].put(key, made)
        after = {one.path for one in stored_columns(self.views[view].layout)}
        if before - after:
            self.intact.clear()  # something was evicted
        if stored:
            self.model[key] = made
            self.intact.add(key)

    @rule(view=VIEWS, key=KEYS)
    def get(self, view: int, key: ColumnKey) -> None:
        self.served(key, *self.views[view].get(key))

    @rule(view=VIEWS, keys=st.lists(KEYS, min_size=1, max_size=4))
    def fetch(self, view: int, keys: list[ColumnKey]) -> None:
        # Contents never change under a key, so the origin gives what the model has.
        asked: list[ColumnKey] = []

        def produce(missing: list[ColumnKey]) -> dict[ColumnKey, Entry]:
            asked.extend(missing)
            return {key: self.model.setdefault(key, entry(hash(key) % 99, 50)) for key in missing}

        found = self.views[view].fetch(keys, produce)
        self.views[view].flush()
        assert set(found) == set(keys)
        assert not self.intact & set(asked)
        for key, (got, cause) in found.items():
            assert entries_equal(got, self.model[key])
            assert (cause == "hit") == (key not in asked)
        self.intact.clear()  # what was stored may have evicted others

    @rule(view=VIEWS)
    def reopen(self, view: int) -> None:
        self.views[view].close()
        self.views[view] = self.opened(("raw", "lz4", "auto")[view])

    @rule(which=st.integers(0, 1000), where=st.floats(0, 0.999), bit=st.integers(0, 7))
    def flip(self, which: int, where: float, bit: int) -> None:
        path = self.file(which)
        content = bytearray(path.read_bytes() if path else b"")
        if path and content:
            content[int(where * len(content))] ^= 1 << bit
            path.write_bytes(content)

    @rule(which=st.integers(0, 1000), length=st.integers(-5000, 5000))
    def resize(self, which: int, length: int) -> None:
        path = self.file(which)
        if path:
            os.truncate(path, max(0, path.stat().st_size + length))

    @rule(one=st.integers(0, 1000), other=st.integers(0, 1000))
    def swap(self, one: int, other: int) -> None:
        first, second = self.file(one), self.file(other)
        if first and second:
            content = first.read_bytes()
            first.write_bytes(second.read_bytes())
            second.write_bytes(content)

    @rule(
        which=st.integers(0, 1000), content=st.sampled_from([b"", b"foreign", b"\x89HCCOL\r\n\2"])
    )
    def replace(self, which: int, content: bytes) -> None:
        path = self.file(which)
        if path:
            path.write_bytes(content)

    @rule(key=KEYS)
    def die_while_writing(self, key: ColumnKey) -> None:
        child = os.fork()
        if child == 0:
            try:
                cache = self.opened("raw")
                cache.fetch([key], lambda keys: {key: entry(1, 9000) for key in keys})
            finally:
                os._exit(9)  # the writer has not been waited for
        os.waitpid(child, 0)
        if key not in self.model:
            # It may have got through; then it is the content from now on.
            found, _ = self.opened("raw").get(key)
            if found is not None:
                assert entries_equal(found, entry(1, 9000))
                self.model[key] = found
        self.intact.clear()

    @rule()
    def vanish(self) -> None:
        shutil.rmtree(self.root / "cache", ignore_errors=True)
        self.intact.clear()

    @rule(content=st.binary(max_size=200))
    def leave_garbage(self, content: bytes) -> None:
        torn = self.root / "cache" / "tmp"
        if torn.is_dir():
            (torn / "torn").write_bytes(content)

    @invariant()
    def residency_is_what_lies_there(self) -> None:
        if self.tampered:
            return  # sizes that change in place are not looked for
        held = self.views[0].residency()
        there = {
            (one.key.uuid, one.key.tree) for one in stored_columns(self.views[0].layout) if one.key
        }
        assert there <= set(held)  # a name too long for a file name has no key there

    def teardown(self) -> None:
        for view in self.views:
            view.close()
        shutil.rmtree(self.root)


TestLife = Life.TestCase
TestLife.settings = settings(
    max_examples=60,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
