"""The stored format: what a schema version wrote stays readable, or is found again."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from hepcache.catalogue.catalogue import Catalogue, Freshness, Target
from hepcache.catalogue.database import APPLICATION_ID, SCHEMA_VERSION
from hepcache.fileset import FileRecord

GOLDEN = Path(__file__).with_name("golden") / "catalogue-v2.sql"
RECORD = FileRecord(
    path="/data/é file.root",
    tree="Events",
    uuid="6ac7019c-2941-11f1-b022-001a4abb4031",
    entries=250,
    clusters=(0, 100, 200, 250),
    size=1234,
    validator="1234-1600000000000000000",
    tag="0123456789abcdef",
    fingerprint="fedcba9876543210",
)
STATE = Freshness(1234, RECORD.validator, True)


def test_the_golden_catalogue_is_read(tmp_path: Path) -> None:
    path = tmp_path / "c.sqlite"
    connection = sqlite3.connect(path)
    connection.executescript(GOLDEN.read_text())
    connection.close()
    with Catalogue(path) as catalogue:
        assert list(catalogue.known()) == [RECORD]
        assert catalogue.blob_get("kind", "key") == b"\x00data\xff"


def test_what_checksums_did_not_cover_is_found_again(tmp_path: Path) -> None:
    path = tmp_path / "c.sqlite"
    connection = sqlite3.connect(path)
    connection.executescript(GOLDEN.with_name("catalogue-v1.sql").read_text())
    connection.close()
    with Catalogue(path) as catalogue:
        assert list(catalogue.known()) == []
        assert catalogue.blob_get("kind", "key") is None


def test_what_is_written_is_golden(catalogue: Catalogue) -> None:
    """When this fails, raise SCHEMA_VERSION and add a golden file; don't edit the old one."""
    catalogue._write({Target(RECORD.path, "Events"): (RECORD, STATE)})
    catalogue.blob_put("kind", "key", b"\x00data\xff")
    catalogue.close()
    connection = sqlite3.connect(catalogue.path)
    lines = [f"PRAGMA application_id={APPLICATION_ID};", f"PRAGMA user_version={SCHEMA_VERSION};"]
    lines += connection.iterdump()
    connection.close()
    assert "\n".join(lines) + "\n" == GOLDEN.read_text()
