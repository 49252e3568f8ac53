"""The stored format: what version 1 wrote must stay readable, and what is written stays.

When :func:`test_what_is_written_is_golden` fails, raise ``FORMAT_VERSION`` and
add golden files; don't edit the old ones.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.cache.entries import entries_equal

from hepcache.cache import Entry
from hepcache.cache.disk.codecs import Codec
from hepcache.cache.disk.files import encode, read_column, verify_payloads
from hepcache.cache.disk.format import FORMAT_VERSION, ForeignFile
from hepcache.cache.disk.layout import Layout
from hepcache.cache.model import ColumnKey, key_digest
from hepcache.cache.read import Lookup

GOLDEN = Path(__file__).with_name("golden")
KEY = ColumnKey("6ac7019c-2941-11f1-b022-001a4abb4031", "0123456789abcdef", "Events", 0, 3, "é")
ENTRY = Entry(
    b'{"kind":"counted"}',
    (
        np.arange(4096, dtype=np.float32) / 8,
        np.array([[1, -2], [3, 4]], dtype=np.int16),
        np.array([], dtype=np.uint8),
        np.array([True, False, True]),
    ),
)
CODECS: tuple[Codec, ...] = ("raw", "lz4", "zstd")


@pytest.mark.parametrize("codec", CODECS)
def test_what_is_written_is_golden(codec: Codec) -> None:
    nbytes, pieces = encode(key_digest(KEY), ENTRY, codec)
    written = b"".join(bytes(piece) for piece in pieces)
    assert len(written) == nbytes
    golden = (GOLDEN / f"column-v{FORMAT_VERSION}-{codec}.col").read_bytes()
    if codec == "raw":
        assert written == golden
    else:
        # Another release of a codec may pack tighter; the table must not move.
        assert written[:12] == golden[:12]
        assert abs(len(written) - len(golden)) < 4096


@pytest.mark.parametrize("codec", CODECS)
def test_golden_files_are_read(codec: Codec, tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    path = Path(layout.column(KEY))
    path.parent.mkdir(parents=True)
    path.write_bytes((GOLDEN / f"column-v1-{codec}.col").read_bytes())
    header, data, _ = read_column(str(path), key_digest(KEY))
    verify_payloads(header, data)
    assert any(record.codec for record in header.buffers) == (codec != "raw")
    found, cause = Lookup(layout, 0, lambda *_: None).find(KEY, key_digest(KEY))
    assert cause == "hit"
    assert found is not None
    assert entries_equal(found, ENTRY)
    assert not any(buffer.flags.writeable for buffer in found.buffers)


def test_a_later_version_is_foreign(tmp_path: Path) -> None:
    content = bytearray((GOLDEN / "column-v1-raw.col").read_bytes())
    content[8] = FORMAT_VERSION + 1
    path = tmp_path / "x.col"
    path.write_bytes(content)
    with pytest.raises(ForeignFile, match=f"version {FORMAT_VERSION + 1}"):
        read_column(str(path), None)
