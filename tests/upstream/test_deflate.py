from __future__ import annotations

import zlib

import numpy as np
from tests.versions import since

from hepcache.upstream.deflate import inflate_loop


@since("deflate", "0.9")  # before, zlib does it, stream by stream
def test_libdeflate_is_found_in_the_package() -> None:
    loop = inflate_loop()
    assert loop is not None
    stored = np.frombuffer(zlib.compress(b"physics" * 9), np.uint8)
    out = np.zeros(63, np.uint8)
    offset, size, target, raw = (np.array([number]) for number in (0, len(stored), 0, 63))
    assert loop(stored, offset, size, out, target, raw) == 1
    assert out.tobytes() == b"physics" * 9
    assert loop(stored, offset, size - 1, out, target, raw) == 0
