"""Compressed blocks."""

import numpy as np
import pytest
import uproot
from hypothesis import given
from hypothesis import strategies as st

from hepcache.errors import ConfigurationError
from hepcache.io.root_blocks import compressed, decompressed, parse_compression


@given(st.binary(max_size=3000), st.sampled_from(["zstd:1", "lz4", "lz4:9", "zlib", "lzma:1"]))
def test_blocks_are_those_of_uproot(data, how):
    data = data + bytes(500)
    packed = bytes(compressed(data, parse_compression(how)))
    assert bytes(decompressed(memoryview(packed), len(data))) == data
    chunk = uproot.source.chunk.Chunk.wrap(None, np.frombuffer(packed, np.uint8))
    cursor = uproot.source.cursor.Cursor(0)
    plain = uproot.compression.decompress(chunk, cursor, {}, len(packed), len(data))
    assert plain.raw_data.tobytes() == data


def test_what_is_not_smaller_is_not_compressed():
    noise = np.random.default_rng(1).bytes(1000)
    assert bytes(compressed(noise, parse_compression("zstd"))) == noise
    assert bytes(decompressed(memoryview(noise), 1000)) == noise
    with pytest.raises(ValueError, match="compress"):
        decompressed(memoryview(noise), 1001)
    with pytest.raises(ConfigurationError, match="compression"):
        parse_compression("zstd:77")
