"""The page /hepcache in a real Chromium, while a real run is on."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import dask.config
import pytest
from tests.live.dashboard.browser import BokehPage, chromium

from hepcache.api import analyse
from hepcache.clusters import LocalCluster
from hepcache.process.named_processor import load_processor
from hepcache.report import RunRecord
from hepcache.samples.nanoaod import write_nanoaod

HH = Path(__file__).parents[3] / "examples" / "hh_bbll.py"
FILES, EVENTS = 16, 4800
PICTURES = os.environ.get("HEPCACHE_PICTURES")
"""Where to put the documentation's screenshot; ``make pictures`` sets it."""


@pytest.fixture(scope="module")
def driver(debian: Callable[..., None]) -> str:
    debian("chromium", "chromium-driver", needs="chromedriver")
    return str(shutil.which("chromedriver"))


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    directory = tmp_path_factory.mktemp("sample")
    made = write_nanoaod(directory, events=EVENTS, files=FILES, cluster=EVENTS // FILES)
    return [str(path) for path in made]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    with (
        dask.config.set({"hepcache.catalogue": str(tmp_path / "catalogue.sqlite")}),
        LocalCluster(
            hosts=3, cache_directory=tmp_path / "caches", origin_bandwidth="600 kB/s",
            dashboard_address="127.0.0.1:0",
        ) as cluster,
    ):  # fmt: skip
        yield cluster


class Cycle(threading.Thread):
    """A run in a thread of its own, so that the page can be read meanwhile."""

    def __init__(self, files: list[str], cluster: LocalCluster) -> None:
        super().__init__()
        self._files, self._cluster = files, cluster
        self.record: RunRecord | None = None

    def run(self) -> None:
        processor = load_processor(f"{HH}:Processor", {})
        _, self.record = analyse(
            self._files, processor, cluster=self._cluster, chunksize=EVENTS, status=False
        )

    def ended(self) -> RunRecord:
        self.join(120)
        assert self.record is not None, "the run failed, or takes too long"
        return self.record


def number(name: str) -> str:
    return f"Bokeh.documents[0].get_model_by_name('hepcache-numbers').data.{name}[0]"


def dataset(chunks: int) -> str:
    """Return the question whether the bar of the dataset says that all chunks are done."""
    source = "Bokeh.documents[0].get_model_by_name('hepcache-datasets-source')"
    return f"{source}.data.text[0] == '{chunks} of {chunks} chunks'"


@pytest.mark.timeout(400)
def test_values_are_read_off_the_page_while_a_run_is_on(
    driver: str, cluster: LocalCluster, files: list[str], tmp_path: Path
) -> None:
    url = cluster.dashboard_link.replace("/status", "/hepcache")
    with chromium(tmp_path / "profile", driver=driver, size=(1400, 1160)) as browser:
        page = BokehPage(browser, url)
        assert "hepcache" in page.links()
        page.wait_for("no run yet")

        # The first run reads half of the files: everything is a miss.
        cold = Cycle(files[: FILES // 2], cluster)
        cold.start()
        page.wait(f"return {number('chunks_done')} >= 2")
        assert cold.is_alive()
        seen = page.data("hepcache-numbers")
        assert seen["chunks"] == [FILES // 2]
        assert seen["is_over"] == [False]
        # The browser has an image's pixels one after the other.
        assert {8, 9, 10} & set(page.data("hepcache-residency-source")["cells"][0])
        record = cold.ended()
        page.wait(f"return {number('is_over')} && {number('events')} == {EVENTS // 2}")
        agrees(page, record)
        assert page.data("hepcache-numbers")["hit_ratio"] == [0]

        # The second one has the other half to read.
        mixed = Cycle(files, cluster)
        mixed.start()
        page.wait(
            f"return {number('chunks')} == {FILES} && {number('chunks_done')} >= {FILES - 4}"
        )
        if PICTURES:
            page.screenshot(Path(PICTURES) / "dashboard.png")
        page.wait_for(f"/ {FILES}")
        record = mixed.ended()
        page.wait(f"return {number('is_over')} && {number('events')} == {EVENTS}")
        agrees(page, record)
        assert 0 < page.data("hepcache-numbers")["hit_ratio"][0] < 1

        # Then all is there.
        record = (hot := Cycle(files, cluster)).start() or hot.ended()
        page.wait(f"return {number('run')} == '{record.run}' && {number('events')} == {EVENTS}")
        agrees(page, record)
        assert page.data("hepcache-numbers")["origin_bytes"] == [0]
        page.wait_for("100 %")
        page.wait(f"return {dataset(FILES)}")
        # The first run can be looked at again.
        page.choose("hepcache-select", cold.ended().run)
        page.wait(f"return {dataset(FILES // 2)}")
        page.choose("hepcache-select", "")
        page.wait(f"return {dataset(FILES)}")
        # In a narrow window the plots stand below each other, none wider than it.
        browser.set_window_size(600, 980)
        page.wait("return document.documentElement.scrollWidth <= window.innerWidth")
        if PICTURES:
            page.screenshot(tmp_path / "narrow.png")
        assert page.complaints() == []


def agrees(page: BokehPage, record: RunRecord) -> None:
    """Check that the page says what the run's record says."""
    seen = {name: column[0] for name, column in page.data("hepcache-numbers").items()}
    assert seen["run"] == record.run
    assert seen["chunks_done"] == seen["chunks"] == len(record.chunks)
    assert seen["cache_bytes"] == sum(one.cache_bytes for one in record.chunks)
    assert seen["origin_bytes"] == sum(one.origin_bytes for one in record.chunks)
    assert seen["stolen"] == sum(one.owner != one.host for one in record.chunks)
    assert 0 <= seen["tail_s"] < record.wall_s
    assert 0 <= seen["cost"] < 0.05
    causes = page.data("hepcache-causes-source")
    for cause, columns in zip(causes["name"], causes["columns"], strict=True):
        assert columns == sum(one.causes.get(cause, 0) for one in record.chunks)
    load = page.data("hepcache-load-source")
    assert load["name"] == sorted(record.hosts)
    chunks = [sum(one.host == host for one in record.chunks) for host in load["name"]]
    assert load["chunks"] == chunks
    assert load["both"] == load["done"]
    residency = page.data("hepcache-residency-source")
    held, width = residency["held"][0], residency["width"][0]
    assert (len(held), residency["rows"]) == (3 * width, [3])
    assert all(max(held[column::width]) == 1 for column in range(width))
