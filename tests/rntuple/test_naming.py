"""Names and numbers of objects, by templates and by ROOT's keys."""

from __future__ import annotations

import pytest
from tests.rntuple import rootlayout

from hepcache.errors import ObjectDamagedError
from hepcache.rntuple.naming import (
    BESIDE,
    ROOT_KEYS,
    Key,
    first_page,
    key_name,
    key_named,
    key_of,
    list_number,
    number_of,
    object_name,
    object_number,
    page_number,
)


def test_names_of_objects() -> None:
    assert object_name(BESIDE, 3) == ".pages/3"
    assert object_name("${baseurl}/x/${objid}.bin", 3) == "x/3.bin"
    for template in ("https://elsewhere/${objid}", "${baseurl}/../${objid}", "${baseurl}", ""):
        with pytest.raises(ObjectDamagedError, match="template"):
            object_name(template, 3)


def test_numbers_stand_for_keys() -> None:
    for key in (Key(0, 0, 0), Key(3, 17, 205), Key(2**19 - 2, 2**16 - 1, 2**28 - 1)):
        number = page_number(key.attribute, key.low, key.distribution)
        assert 0 <= number < 2**63
        assert key_of(number) == key
        assert number_of(key) == number
        assert key_named(key_name(key)) == key
        assert object_number(ROOT_KEYS, object_name(ROOT_KEYS, number)) == number
    pages = Key(rootlayout.PAGE_LISTS, rootlayout.DKEY, 7)
    assert key_of(list_number(7)) == pages == key_named(".root/lists/7")
    assert key_name(pages) == ".root/lists/7"
    for page, cluster, column in ((2**28, 0, 0), (0, 2**19 - 1, 0), (0, 0, 2**16)):
        with pytest.raises(ValueError, match="there can be"):
            page_number(page, cluster, column)
    assert (first_page(0), first_page(page_number(4, 0, 0) + 1)) == (0, 5)
    for name in ("x", "1", "1/2", "1/2/3/4", "lists/1/2/3", "1/2/x", f"{2**64 - 1}/1/1", "1//2"):
        assert key_named(f".root/{name}") is None
    # Another program's keys have names, too, but no number.
    assert object_number(ROOT_KEYS, f".root/1/2/{2**40}") is None
