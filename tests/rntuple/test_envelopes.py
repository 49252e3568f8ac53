"""Locators and footers: the bytes that are stored."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hepcache.rntuple.envelopes import (
    EMPTY_EXTENSION,
    IN_FILE,
    ClusterGroup,
    EnvelopeKind,
    Footer,
    Locator,
    opened_envelope,
    pack_footer,
    pack_locator,
    unpack_footer,
    unpack_locator,
)

numbers = st.integers(0, (1 << 32) - 1)
locators = st.one_of(
    st.builds(Locator, st.just(IN_FILE), st.integers(0, 1 << 62), st.integers(0, 1 << 40)),
    st.builds(Locator, numbers, numbers, st.integers(0, 1 << 40)),
)


@given(locators, st.booleans(), st.binary(max_size=5))
def test_locators(locator, whole, before):
    data = before + pack_locator(locator, whole=whole) + b"more"
    assert unpack_locator(data, len(before)) == (locator, len(data) - 4)


def test_locators_as_root_writes_them():
    # Type in the top byte of the negated head, the locator's size in the lower two.
    assert pack_locator(Locator(7, 0, 100), whole=True) == (
        (-(2 << 24 | 16)).to_bytes(4, "little", signed=True)
        + (100).to_bytes(4, "little")
        + (7).to_bytes(8, "little")
    )
    assert pack_locator(Locator(7, 9, 100)) == (
        (-(3 << 24 | 16)).to_bytes(4, "little", signed=True)
        + (100).to_bytes(4, "little")
        + (7).to_bytes(4, "little")
        + (9).to_bytes(4, "little")
    )
    with pytest.raises(ValueError, match="unknown type 126"):
        unpack_locator((-(0x7E << 24 | 16)).to_bytes(4, "little", signed=True) + bytes(12), 0)


def test_footers():
    footer = Footer(5, EMPTY_EXTENSION, (ClusterGroup(0, 10, 2, 99, Locator(4, 0, 50)),))
    data = pack_footer(footer)
    assert unpack_footer(opened_envelope(EnvelopeKind.FOOTER, memoryview(data))) == footer
    with pytest.raises(ValueError, match="no header"):
        opened_envelope(EnvelopeKind.HEADER, memoryview(data))
    damaged = bytearray(data)
    damaged[20] ^= 1
    with pytest.raises(ValueError, match="checksum of the footer"):
        opened_envelope(EnvelopeKind.FOOTER, memoryview(damaged))
