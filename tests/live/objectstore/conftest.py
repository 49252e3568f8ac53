"""The stores, once for all tests of this room."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.live.conftest import unable
from tests.live.objectstore.servers import Ceph, Gateway, gateway_program

# Programs for ROOT's own environment, which aren't tests and can't be imported in this one.
collect_ignore = ["root"]


@pytest.fixture(scope="session")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    gateway = Gateway(tmp_path_factory.mktemp("s3"), gateway_program())
    gateway.start()
    yield gateway
    gateway.kill()


@pytest.fixture(scope="session")
def ceph(debian: Callable[..., None]) -> Iterator[Ceph]:
    if os.geteuid() != 0:
        unable("Ceph's daemons are started as root")
    debian("ceph-mon", "ceph-osd", "ceph-common", "librados2", needs="ceph-osd")
    # Sockets have short paths only.
    with tempfile.TemporaryDirectory(prefix="hepcache-ceph-") as home:
        ceph = Ceph(Path(home))
        yield ceph
        ceph.close()
