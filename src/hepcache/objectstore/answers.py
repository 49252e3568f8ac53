"""What the answers of an HTTP object service mean."""

from __future__ import annotations

import re

from obstore import exceptions

from hepcache.errors import (
    ObjectAccessError,
    ObjectDamagedError,
    ObjectMissingError,
    ObjectStoreError,
)

__all__ = ["answer_error", "broke_off"]

_ANSWER = re.compile(r"<Code>(?P<code>[^<]*)</Code>\s*<Message>(?P<message>[^<]*)</Message>")
"""What S3 says in the body of an answer that is no success."""

_REFUSED = {"InvalidAccessKeyId", "SignatureDoesNotMatch", "XAdminUserNotFound", "AccessDenied"}


def answer_error(error: Exception, uri: str, name: str, hint: str) -> Exception:
    """Return the error that says what a service has answered.

    Parameters
    ----------
    error
        obstore's.
    uri, name
        Store and object.
    hint
        What to do when credentials are refused.
    """
    # obstore adds the structures of its own insides below the first lines.
    words = " ".join(str(error).partition("\n\nDebug source")[0].split())
    answer = _ANSWER.search(words)
    code = answer["code"] if answer else ""
    said = f"{code}: {answer['message']}" if answer else words
    if isinstance(error, exceptions.PermissionDeniedError) or code in _REFUSED:
        return ObjectAccessError(uri, name, f"access refused; {hint} ({said})")
    if isinstance(error, exceptions.UnauthenticatedError):
        return ObjectAccessError(uri, name, f"credentials needed; {hint} ({said})")
    if code == "NoSuchBucket":
        return ObjectMissingError(uri, name, f"the bucket does not exist ({said})")
    if isinstance(error, FileNotFoundError):
        return ObjectMissingError(uri, name, f"there is no such object ({said})")
    if code == "InvalidRange" or "416 Range" in words or "Invalid range" in words:
        return ObjectDamagedError(uri, name, f"it ends before the range asked ({said})")
    if "error sending request" in words:
        said = f"the service can't be reached ({words})"
    if isinstance(error, exceptions.BaseError | OSError | ValueError):
        return ObjectStoreError(uri, name, said)
    return error


def broke_off(error: Exception) -> bool:
    """Tell whether a connection ended in the middle of an answer, which obstore does not retry."""
    return isinstance(error, exceptions.GenericError) and "body error" in str(error)
