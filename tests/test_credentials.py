from __future__ import annotations

import pickle
from typing import Any

import pytest

from hepcache.credentials import pickled_credentials, told_cause, url_problem, without_credentials
from hepcache.errors import BadFileError, ClusterError, ConfigurationError, UnknownColumnError

HIDDEN = {
    "https://me:pw@host/a.root": "https://me:***@host/a.root",
    "root://me:pw@host:1094//a.root": "root://me:***@host:1094//a.root",
    "https://me:pw@[::1]:80/a.root": "https://me:***@[::1]:80/a.root",
    "https://me@x.ch:pw@host/a.root": "https://me@x.ch:***@host/a.root",
    "s3://key:p/w@bucket/a.root": "s3://key:***@bucket/a.root",
    "s3://key:p@w@bucket/a.root": "s3://key:***@bucket/a.root",
    "s3://key:12/pw@bucket/a.root": "s3://key:***@bucket/a.root",
    "s3://key:pw": "s3://key:***",
    "s3://key:pw/rest": "s3://key:***",
    "s3:/key:pw@bucket/a.root": "s3:/key:***@bucket/a.root",
    "zip://a.root::https://me:pw@host/b.zip": "zip://a.root::https://me:***@host/b.zip",
    "no 's3://key:p/w@bucket/a' there": "no 's3://key:***@bucket/a' there",
    "s3://key:pw: no such bucket": "s3://key:***: no such bucket",
    "https://host/a?token=pw&x=1": "https://host/a?token=***&x=1",
}
PLAIN = [
    "root://host:1094//a.root:Events",
    "root://user@host:1094//a@b.root",
    "root://[::1]:1094//a.root",
    "https://host:443/a.root?x=me:you@there",
    "tcp://127.0.0.1:8786, tcp://127.0.0.1:8787.",
    "tcp://127.0.0.1:1->tcp://127.0.0.1:2",
    "s3://bucket/a:b@c.root",
    "s3://arn:aws:s3:us-east-1:123:accesspoint/name/a.root",
    "file:///data/a:b@c.root",
    "events+file:///ssd/nova#nova/prod5",
    "https://host: connection refused",
    "C:/a:b@c",
    "zip://a.root::https://host/b.zip",
    "",
]


@pytest.mark.parametrize("text", HIDDEN)
def test_passwords_are_hidden_however_they_are_written(text: str) -> None:
    assert without_credentials(text) == HIDDEN[text]
    assert without_credentials(HIDDEN[text]) == HIDDEN[text]
    assert without_credentials(text) != text


@pytest.mark.parametrize("text", PLAIN)
def test_all_else_stays_as_it_is(text: str) -> None:
    assert without_credentials(text) == text


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("s3://key:pw@bucket/a.root", "no key and no secret"),
        ("s3://key@bucket/a.root", "no key and no secret"),
        ("gs://key:pw", "no key and no secret"),
        ("simplecache::s3://key:p/w@bucket/a.root", "no key and no secret"),
        ("https://me:p/w@host/a.root", "%2F"),
        ("root://me:p/w@host//a.root", "%2F"),
        ("https://host:port/a.root", "no port"),
        ("https://me:pw@host:99999/a.root", "no port"),
    ],
)
def test_malformed_urls_are_refused(url: str, words: str) -> None:
    assert words in url_problem(url)


WELL_FORMED = [
    *PLAIN[:4],
    *PLAIN[6:10],
    "https://me:pw@host:443/a.root",
    "/data/a:b@c.root",
    "zip://a.root::https://me:pw@host/b.zip",
]


@pytest.mark.parametrize("url", WELL_FORMED)
def test_others_are_not(url: str) -> None:
    assert url_problem(url) == ""


def test_no_error_shows_a_password() -> None:
    url = "https://me:pw@host/a.root"
    for error in (
        BadFileError({url: f"{url} is gone"}),
        ConfigurationError("URI", "another", url),
        ClusterError(url),
        UnknownColumnError("x", url),
    ):
        assert "pw" not in str(error)
        assert "pw" not in repr(error)


def test_what_shows_a_password_is_no_cause() -> None:
    shows, hides = OSError("https://me:pw@host"), OSError("https://host")
    assert told_cause(hides) is hides
    assert told_cause(shows) is None
    hides.__cause__ = shows
    assert told_cause(hides) is None


@pytest.mark.parametrize(
    "value",
    [
        "s3://key:pw@bucket/a.root",
        b"https://host/a?token=pw",
        {"s3": {"secret_access_key": "0123"}},
        {"OIDC_TOKEN": "0123"},
        [("password", "0123")],
        '{"api-key": "0123456789"}',
        "token = 0123456789",
        "AKIA" + 16 * "X",
        "-----BEGIN RSA PRIVATE KEY-----",
        "Authorization: Bearer 0123456789",
    ],
    ids=repr,
)
def test_secrets_in_pickles_are_seen(value: Any) -> None:
    assert pickled_credentials(pickle.dumps(value))


@pytest.mark.parametrize(
    "value",
    [
        {"url": "root://host:1094//a.root", "key": "tight", "keys": ["b", "c"]},
        {"token": "", "password": None, "secret": 3},
        "/tmp/test_credentials_0/marked.py",
        ("passed", "loose"),
        bytes(range(256)),
        1 << 70,
    ],
    ids=repr,
)
def test_what_is_no_secret_is_not_taken_for_one(value: Any) -> None:
    assert not pickled_credentials(pickle.dumps((value, "scaled")))
