"""Objects in S3 and the other services that obstore knows."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import SplitResult, unquote

from hepcache.errors import (
    ConfigurationError,
    ObjectAccessError,
    ObjectDamagedError,
    ObjectMissingError,
    ObjectStoreError,
)
from hepcache.io.retry import pause_s
from hepcache.objectstore.fetch import gather_bounded, start
from hepcache.objectstore.store import Request, Store, check_prefix, check_whole, join_name

if TYPE_CHECKING:
    from obstore.store import ClientConfig, RetryConfig
    from typing_extensions import Buffer

try:
    import obstore
    from obstore import exceptions, store
except ImportError as error:
    raise ImportError(
        "objects in S3, Google's and Azure's storage need obstore: pip install 'hepcache[objects]'"
    ) from error

T = TypeVar("T")

_CONCURRENCY = 32
# Objects up to this size are sent in one request, larger ones in parts.
_WHOLE_BYTES = 64 << 20
_PART_BYTES = 16 << 20


class CloudStore(Store):
    """Objects of an HTTP service, through obstore, which retries transient failures.

    Parameters
    ----------
    uri
        The URI without credentials.
    concurrency
        Requests that one vector read has under way at most.
    """

    limit = 5 << 30

    def __init__(
        self,
        uri: str,
        service: store.ObjectStore,
        base: str,
        concurrency: int,
        hint: str,
        retries: int = 6,
        retry_seconds: float = 60,
    ) -> None:
        self.uri = uri
        self._service = service
        self._base = base
        self._concurrency = concurrency
        self._hint = hint
        self._retries = retries
        self._retry_s = retry_seconds

    def put(self, name: str, data: Buffer) -> None:
        """Store an object whole; the service shows it when it has all of it."""
        key, view = join_name(self._base, name), memoryview(data).cast("B")
        parts = view.nbytes > _WHOLE_BYTES
        self._try(
            name,
            lambda: obstore.put(
                self._service, key, view, use_multipart=parts, chunk_size=_PART_BYTES
            ),
        )

    def put_anchor_if(self, name: str, data: Buffer, expected: bytes | None) -> bool:
        """Store an object if it still has the bytes expected: by If-Match or If-None-Match.

        A service that has no conditions takes it without one, after a comparison; what is
        there afterwards tells who was the last.
        """
        key, wanted = join_name(self._base, name), bytes(memoryview(data).cast("B"))
        found: bytes | None = None
        mode: Any = "create"
        with contextlib.suppress(ObjectMissingError):
            found, tag = self._try(name, lambda: _with_tag(obstore.get(self._service, key)))
            mode = {"e_tag": tag}
        if found != expected:
            return False
        try:
            self._try(name, lambda: obstore.put(self._service, key, wanted, mode=mode))
        except ObjectStoreError as error:
            if isinstance(error.__cause__, _NO_CONDITIONS):
                self.put(name, wanted)
            elif not isinstance(error.__cause__, _NOT_AS_EXPECTED):
                raise
            # Of a request that was sent twice, the first may have been heard.
            return self.content(name) == wanted
        return True

    def get(self, name: str) -> bytes:
        """Return an object whole."""
        key = join_name(self._base, name)
        return self._try(name, lambda: obstore.get(self._service, key).bytes().to_bytes())

    def begin(self, requests: Sequence[Request], _: object = None) -> Future[list[Buffer]]:
        """Begin to read ranges, one request each: the caller has merged what is near."""
        return start(gather_bounded(self._range, requests, self._concurrency))

    async def _range(self, request: Request) -> Buffer:
        name, first, length = request
        if not length:
            return b""
        key = join_name(self._base, name)
        pauses = self._pauses()
        while True:
            try:
                data = await obstore.get_range_async(
                    self._service, key, start=first, length=length
                )
                break
            except Exception as error:
                await asyncio.sleep(self._pause_after(error, name, pauses))
        check_whole(self.uri, request, memoryview(data).nbytes)
        return data

    def list(self, prefix: str = "") -> Iterator[tuple[str, int]]:
        """Yield name and bytes of objects."""
        check_prefix(prefix)
        below = join_name(self._base, prefix.removesuffix("/")) if prefix else self._base
        root = self._base if prefix.startswith(".") else f"{self._base}/"
        if not prefix:
            with contextlib.suppress(ObjectMissingError):
                yield "", self._try("", lambda: obstore.head(self._service, self._base))["size"]
        for path, size in self._listed(below):
            yield path.removeprefix(root), size

    def _listed(self, below: str) -> Iterator[tuple[str, int]]:
        """Yield key and bytes of objects; a listing that breaks off is begun anew."""
        seen: set[str] = set()
        pauses = self._pauses()
        while True:
            try:
                # What follows a failed part is no part of this listing any more, and not every
                # service lists in an order or from a name on: what was there is left out.
                for chunk in obstore.list(self._service, below, chunk_size=1000):
                    for item in chunk:
                        if item["path"] not in seen:
                            seen.add(item["path"])
                            yield item["path"], item["size"]
            except Exception as error:
                time.sleep(self._pause_after(error, "", pauses))
            else:
                return

    def delete(self, names: Sequence[str]) -> None:
        """Remove objects, a thousand in a request."""
        for first in range(0, len(names), 1000):
            batch = names[first : first + 1000]
            try:
                self._remove("", [join_name(self._base, name) for name in batch])
            except ObjectMissingError:
                # Some services refuse a whole batch for one name that is gone.
                for name in batch:
                    with contextlib.suppress(ObjectMissingError):
                        self._remove(name, join_name(self._base, name))

    def _remove(self, name: str, keys: str | Sequence[str]) -> None:
        self._try(name, lambda: obstore.delete(self._service, keys))

    def _try(self, name: str, call: Callable[[], T]) -> T:
        pauses = self._pauses()
        while True:
            try:
                return call()
            except Exception as error:
                time.sleep(self._pause_after(error, name, pauses))

    def _pauses(self) -> Iterator[float]:
        """Yield how long to wait before each new attempt."""
        end = time.monotonic() + self._retry_s
        for attempt in range(self._retries):
            pause = pause_s(attempt)
            if time.monotonic() + pause > end:
                return
            yield pause

    def _pause_after(self, error: Exception, name: str, pauses: Iterator[float]) -> float:
        """Return how long to wait before a new attempt; raise the error if there is none."""
        pause = next(pauses, None) if passes(error) else None
        if pause is None:
            raise answer_error(error, self.uri, name, self._hint) from error
        return pause


_NOT_AS_EXPECTED = (exceptions.AlreadyExistsError, exceptions.PreconditionError)
_NO_CONDITIONS = (exceptions.NotSupportedError, NotImplementedError)


def _with_tag(found: Any) -> tuple[bytes, str | None]:
    tag = found.meta["e_tag"]
    return found.bytes().to_bytes(), tag


def open_cloud(
    uri: str,
    parts: SplitResult,
    access_key: str | None = None,
    secret_key: str | None = None,
    session_token: str | None = None,
    region: str | None = None,
    retries: int | str = 6,
    retry_seconds: float | str = 60,
    timeout_seconds: float | str = 300,
    concurrency: int | str = _CONCURRENCY,
) -> CloudStore:
    """Open ``ntpl+s3+https://host/bucket/path`` and similar URIs.

    Parameters
    ----------
    access_key, secret_key, session_token
        Credentials of S3. By default ``AWS_ACCESS_KEY_ID`` and related variables, or
        ROOT's ``S3_ACCESS_KEY`` and ``S3_SECRET_KEY``. Without credentials, a host
        that the URI names is read anonymously.
    region
        Region of S3, by default ``AWS_REGION``, ``S3_REGION`` or ``us-east-1``.
    concurrency
        Requests that one vector read has under way at most.

    Raises
    ------
    ConfigurationError
        The URI lacks a bucket or a path.
    """
    scheme = parts.scheme.lower().removeprefix("ntpl+")
    named_host = scheme.startswith("s3+")
    place = unquote(parts.path).strip("/")
    bucket, _, base = place.partition("/") if named_host else (parts.netloc, "", place)
    if not bucket or not base or not parts.netloc:
        raise ConfigurationError("URI", f"{parts.scheme}://, a bucket and a path in it", uri)
    client: ClientConfig = {
        "timeout": timedelta(seconds=float(timeout_seconds)),
        "connect_timeout": timedelta(seconds=5),
        "pool_max_idle_per_host": str(int(concurrency) * 2),
    }
    retry: RetryConfig = {
        "max_retries": int(retries),
        "retry_timeout": timedelta(seconds=float(retry_seconds)),
        "backoff": {"init_backoff": timedelta(milliseconds=100), "base": 2},
    }
    hint = "set the environment variables of the service's credentials"
    service: store.ObjectStore
    if scheme == "gs":
        service = store.GCSStore(bucket, client_options=client, retry_config=retry)
    elif scheme == "az":
        service = store.AzureStore(bucket, client_options=client, retry_config=retry)
    else:
        hint = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        config = _s3_config(os.environ, access_key, secret_key, session_token, region)
        if named_host:
            config["endpoint"] = f"{scheme.removeprefix('s3+')}://{parts.netloc}"
            config["virtual_hosted_style_request"] = False
            client["allow_http"] = scheme == "s3+http"
            config["skip_signature"] = "access_key_id" not in config
        service = store.S3Store(bucket, client_options=client, retry_config=retry, **config)
    return CloudStore(
        uri, service, base, int(concurrency), hint, int(retries), float(retry_seconds)
    )


def _s3_config(
    environment: Mapping[str, str],
    access_key: str | None,
    secret_key: str | None,
    session_token: str | None,
    region: str | None,
) -> dict[str, Any]:
    """Return credentials and region: the options', Amazon's variables, or ROOT's."""
    get = environment.get
    if not access_key and get("AWS_ACCESS_KEY_ID"):
        access_key, secret_key = get("AWS_ACCESS_KEY_ID"), get("AWS_SECRET_ACCESS_KEY")
        session_token = session_token or get("AWS_SESSION_TOKEN")
    elif not access_key and get("S3_ACCESS_KEY"):
        access_key, secret_key = get("S3_ACCESS_KEY"), get("S3_SECRET_KEY")
    region = region or get("AWS_REGION") or get("AWS_DEFAULT_REGION") or get("S3_REGION")
    found = {
        "access_key_id": access_key,
        "secret_access_key": secret_key,
        "session_token": session_token,
        "region": region or "us-east-1",
    }
    return {name: value for name, value in found.items() if value}


# What S3 says in the body of an answer that is no success.
_ANSWER = re.compile(r"<Code>(?P<code>[^<]*)</Code>\s*<Message>(?P<message>[^<]*)</Message>")

_REFUSED = {"InvalidAccessKeyId", "SignatureDoesNotMatch", "XAdminUserNotFound", "AccessDenied"}


def answer_error(error: Exception, uri: str, name: str, hint: str) -> Exception:
    """Return the error that says what a service has answered to a request for an object.

    ``hint`` says what to do when credentials are refused.
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


_PASSING = {
    "RequestTimeout",
    "RequestTimeTooSkewed",
    "OperationAborted",
    "ConditionalRequestConflict",
    "SlowDown",
    "InternalError",
    "ServiceUnavailable",
}
"""Codes of S3 that ask for another attempt."""


def passes(error: Exception) -> bool:
    """Tell whether a request failed for a reason that passes, and obstore did not retry it.

    It retries most, but not connections that end under a conditional put or a removal of many
    objects, no answer that ends in its middle, and no code of S3 that comes with status 400 or
    409. A gateway that fails while it lists sends half of a document, whole as it were.
    """
    said = str(error).partition("\n\nDebug source")[0]
    if not isinstance(error, exceptions.BaseError) or "retries, max_retries" in said:
        return False
    answer = _ANSWER.search(said)
    if answer:
        return answer["code"] in _PASSING
    broken = ("body error", "invalid list response", "error sending request", "DeleteObjects")
    return any(words in said for words in broken)
