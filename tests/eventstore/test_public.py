"""The names that users import from hepcache.eventstore, and that the reference has them all."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from hepcache import eventstore

REFERENCE = Path(__file__).parents[2] / "docs" / "reference-eventstore.md"


def test_public_names_are_sorted_there_and_documented() -> None:
    # Constants first, then classes, then functions.
    assert eventstore.__all__ == sorted(
        eventstore.__all__, key=lambda name: (not name.isupper(), name[0].islower(), name)
    )
    for name in eventstore.__all__:
        assert getattr(eventstore, name) is not None
    directive = re.compile(r":: hepcache\.eventstore\.(\w+)$", re.MULTILINE)
    assert sorted(directive.findall(REFERENCE.read_text())) == sorted(eventstore.__all__)


def test_verbs_are_there_whichever_module_was_imported_first() -> None:
    code = (
        "import sys, hepcache.eventstore\n"
        "assert not {'distributed', 'uproot', 'h5py'} & set(sys.modules)\n"
        "import hepcache.eventstore.ingestion.ingest, hepcache.eventstore.service.client\n"
        "from hepcache.eventstore import *\n"
        "assert all(map(callable, (connect, ingest, process, serve)))\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
