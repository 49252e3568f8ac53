"""What URIs lead to, and what is wrong with others."""

from __future__ import annotations

import pytest

from hepcache.errors import ConfigurationError
from hepcache.objectstore import is_store_uri, open_store


@pytest.mark.parametrize(
    ("uri", "word"),
    [
        ("s3://bucket/key", "ntpl+s3"),
        ("/a/path", "rados"),
        ("ntpl+file://host/dir", "absolute path"),
        ("ntpl+file:relative", "absolute path"),
        ("ntpl+mem://name#part", "credentials"),
        ("ntpl+s3+http://key:secret@host/bucket/path", "credentials"),
        ("ntpl+mem://name?wrong=1", "wrong"),
    ],
)
def test_a_wrong_uri_says_what_is_right(uri: str, word: str) -> None:
    with pytest.raises(ConfigurationError, match=word.replace("+", r"\+")):
        open_store(uri)


def test_which_paths_are_stores() -> None:
    assert is_store_uri("NTPL+S3+HTTPS://host/bucket/path")
    assert not is_store_uri("root://host//file.root")
    assert not is_store_uri("/data/rados.root")
