"""Passwords, keys and tokens in URLs: hidden in whatever is said, and refused where they break."""

from __future__ import annotations

import pickletools
import re
from collections.abc import Iterator
from urllib.parse import urlsplit

# Chained URLs of fsspec are joined by two colons.
_URL = re.compile(
    r"(?i)(?P<scheme>\b[a-z][a-z0-9+.-]*):(?P<slashes>//?)(?P<rest>(?:(?!::)[^\s'\"<>`])+)"
)
# With one slash only these are taken for URLs; of others that is a path after a colon.
_USUAL = re.compile(r"(?i)(?:https?|davs?|x?roots?|ftps?|s3a?|gcs|gs|abfss?|az)$")
# Their names have no user, no password and no port: whatever looks like one is a mistake.
_BUCKETS = re.compile(r"(?i)(?:ntpl\+)?(?:s3a?|gcs|gs)$")
_ARN = re.compile(r"(?i)arn:")
# What may follow a URL in a sentence.
_STOPS = ".,;:)]}!-"
_PORT = re.compile(rf"\d*[{re.escape(_STOPS)}]*$")
_SECRET = re.compile(
    r"(?i)([?&][^=&\s]*(?:auth|cred|key|pass|policy|secret|sig|token)[^=&\s]*)=[^&\s'\"]+"
)
_BEARER = re.compile(r"(?i)(\bbearer(?:\s|%20)+|authorization\W+basic\s+)[\w.~+/=%-]{8,}")

# Names under which programs keep secrets, and what some secrets themselves look like.
_SECRET_NAME = re.compile(
    r"(?i)(?:[\w-]{0,40}[_-])?"
    r"(?:pass(?:word|wd|phrase)|secret|token|credentials?|(?:api|access|private)_?key)"
    r"(?:[_-][\w-]{0,40})?"
)
_NAMED = re.compile(
    r"(?i)(?:pass(?:word|wd|phrase)|secret|token|credential|(?:api|access|private)[_-]?key)\w*"
    r"[\"']?\s*[:=]\s*[\"']?[^\s\"',}]{4}"
)
_KNOWN = re.compile(
    r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b|\beyJ[\w-]{8,}\.eyJ[\w-]{8,}\.|\bgh[pousr]_\w{30,}"
    r"|\bglpat-[\w-]{20,}|-----BEGIN [A-Z ]*PRIVATE KEY"
)
_LONGEST = 1 << 20  # larger texts are data


def without_credentials(text: str) -> str:
    """Return a text in which passwords, signatures and tokens of URLs are hidden.

    ``text``: a URL, or a message that has some in it. They may be malformed: of a password with a
    slash or an ``@`` in it, all is hidden.

    >>> without_credentials("https://me:secret@host/a.root?X-Amz-Signature=12ab&part=1")
    'https://me:***@host/a.root?X-Amz-Signature=***&part=1'
    >>> without_credentials("s3://key:se/cr@et@bucket/a.root")
    's3://key:***@bucket/a.root'
    >>> without_credentials("root://host:1094//a.root")
    'root://host:1094//a.root'
    """
    text = _URL.sub(_hidden, text)
    return _BEARER.sub(r"\1***", _SECRET.sub(r"\1=***", text))


def _hidden(url: re.Match[str]) -> str:
    scheme, rest = url["scheme"], url["rest"]
    name, colon, secret = rest.partition(":")
    if not _is_url(url) or not colon or "/" in name or "?" in name or _is_arn(scheme, rest):
        return url[0]
    path, question, query = secret.partition("?")
    authority = path.partition("/")[0]
    if "@" not in authority and _PORT.match(authority) and not _in_bucket(scheme, authority):
        return url[0]
    _, at, place = path.rpartition("@")
    # Without a host behind it the secret's end is unknown.
    end = f"@{place}{question}{query}" if at else rest[len(rest.rstrip(_STOPS)) :]
    return f"{scheme}:{url['slashes']}{name}:***{end}"


def _is_url(url: re.Match[str]) -> bool:
    return url["slashes"] == "//" or _USUAL.match(url["scheme"]) is not None


def _is_arn(scheme: str, rest: str) -> bool:
    return bool(_BUCKETS.match(scheme) and _ARN.match(rest))


def _in_bucket(scheme: str, port: str) -> bool:
    """Tell whether what looks like a port is no port, because buckets have none."""
    return bool(_BUCKETS.match(scheme) and port.strip(_STOPS))


def pickled_credentials(data: bytes) -> bool:
    """Tell whether what is pickled seems to hold a password, a key or a token.

    ``data``: a pickle, which is not loaded. A text is taken for a secret if it is a URL with one,
    looks like a known kind of key, or stands under a name such as ``token`` or ``access_key``.

    >>> import pickle
    >>> pickled_credentials(pickle.dumps({"url": "s3://key:secret@bucket/a.root"}))
    True
    >>> pickled_credentials(pickle.dumps({"token": "0123456789"}))
    True
    >>> pickled_credentials(pickle.dumps({"url": "root://host//a.root", "key": "tight"}))
    False
    """
    named = False
    for text in _texts(data):
        if (named and text.strip()) or _is_secret(text):
            return True
        named = _SECRET_NAME.fullmatch(text) is not None
    return False


def _texts(data: bytes) -> Iterator[str]:
    """Yield what a pickle has of text, and of short bytes; "" stands for anything else."""
    for operation, value, _ in pickletools.genops(data):
        if operation.name in ("MEMOIZE", "BINPUT", "LONG_BINPUT", "PUT"):
            continue
        if isinstance(value, bytes | bytearray):
            value = value.decode("latin-1")
        yield value if isinstance(value, str) and len(value) <= _LONGEST else ""


def _is_secret(text: str) -> bool:
    return without_credentials(text) != text or bool(_KNOWN.search(text) or _NAMED.search(text))


def told_cause(error: BaseException) -> BaseException | None:
    """Return what an error may be raised from: itself, unless its chain shows credentials."""
    shown = any(without_credentials(text := str(link)) != text for link in _chain(error))
    return None if shown else error


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen = set[int]()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        current = current.__cause__ or current.__context__


def url_problem(url: str) -> str:
    """Return why a URL is refused before any library sees it; ``""`` if it is not.

    Libraries take the parts of a malformed one for something else, and say so: the
    secret for a bucket or a port.

    >>> url_problem("https://me:secret@host/a.root")
    ''
    >>> url_problem("https://me:sec/ret@host/a.root")
    "malformed: in a password '/' is written %2F, and '@' %40"
    """
    return next(filter(None, map(_problem, _URL.finditer(url))), "")


def _problem(url: re.Match[str]) -> str:
    scheme, rest = url["scheme"], url["rest"]
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
    if not _is_url(url) or _is_arn(scheme, rest):
        return ""
    if _BUCKETS.match(scheme):
        if ":" in authority or "@" in authority:
            return (
                f"{scheme} URLs take no key and no secret: have them in the environment, in "
                "a file such as ~/.aws/credentials, or in options"
            )
        return ""
    _, colon, port = authority.partition(":")
    if "@" not in authority and colon and not _PORT.match(port) and "@" in rest.partition("?")[0]:
        return "malformed: in a password '/' is written %2F, and '@' %40"
    if authority.endswith("["):
        return ""  # the beginning of an IPv6 address
    try:
        urlsplit(f"{scheme}://{authority.rpartition('@')[2]}").port  # noqa: B018 - to be tried
    except ValueError:
        return "malformed: what stands behind the host's colon is no port"
    return ""
