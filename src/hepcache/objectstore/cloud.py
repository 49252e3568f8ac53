"""Objects in S3 and the other services that obstore knows."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import SplitResult, unquote

from hepcache.errors import ConfigurationError, ObjectDamagedError, ObjectMissingError
from hepcache.objectstore.store import Request, check_prefix, join_name
from hepcache.objectstore.together import together

try:
    import obstore
    from obstore import store

    from hepcache.objectstore.answers import answer_error, broke_off
except ImportError as error:
    raise ImportError(
        "objects in S3, Google's and Azure's storage need obstore: pip install 'hepcache[objects]'"
    ) from error

if TYPE_CHECKING:
    from obstore.store import ClientConfig, RetryConfig
    from typing_extensions import Buffer

__all__ = ["CloudStore", "open_uri"]

T = TypeVar("T")

_CONCURRENCY = 32
_WHOLE_BYTES = 64 << 20
"""Objects up to this size are sent in one request, larger ones in parts."""


class CloudStore:
    """Objects behind an HTTP service, by obstore, which retries what is transient.

    Parameters
    ----------
    uri
        The URI without credentials.
    service
        obstore's store of the bucket.
    base
        Key of the URI in the bucket.
    concurrency
        Requests that one vector read has under way at most.
    hint
        What to do when credentials are refused.
    retries, retry_seconds
        How often, and how long, an answer that breaks off is fetched again:
        obstore retries what fails before.
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
        self.uri, self._service, self._base = uri, service, base
        self._concurrency, self._hint = concurrency, hint
        self._retries, self._retry_seconds = retries, retry_seconds

    def put(self, name: str, data: Buffer) -> None:
        """Store an object whole; the service shows it when it has all of it."""
        key, view = join_name(self._base, name), memoryview(data).cast("B")
        parts = view.nbytes > _WHOLE_BYTES
        self._try(
            name,
            lambda: obstore.put(
                self._service, key, view, use_multipart=parts, chunk_size=_WHOLE_BYTES // 4
            ),
        )

    put_anchor = put

    def get(self, name: str) -> bytes:
        """Return an object whole."""
        key = join_name(self._base, name)
        return self._try(name, lambda: obstore.get(self._service, key).bytes().to_bytes())

    def get_ranges(self, name: str, starts: Sequence[int], lengths: Sequence[int]) -> list[Buffer]:
        """Return ranges of one object, one request each: who asks has merged what is near."""
        key = join_name(self._base, name)
        asked = [(start, length) for start, length in zip(starts, lengths, strict=True) if length]
        some = self._try(
            name,
            lambda: obstore.get_ranges(
                self._service,
                key,
                starts=[start for start, _ in asked],
                lengths=[length for _, length in asked],
                coalesce=0,
            ),
        )
        for (start, length), data in zip(asked, some, strict=True):
            self._check(name, start, length, data)
        left = iter(some)
        return [next(left) if length else b"" for length in lengths]

    async def read(self, requests: Sequence[Request]) -> list[Buffer]:
        """Return ranges of many objects, one request each."""

        async def one(request: Request) -> Buffer:
            name, start, length = request
            if not length:
                return b""
            key = join_name(self._base, name)
            pauses = self._pauses()
            while True:
                try:
                    data = await obstore.get_range_async(
                        self._service, key, start=start, length=length
                    )
                    break
                except Exception as error:
                    pause = next(pauses, None) if broke_off(error) else None
                    if pause is None:
                        raise answer_error(error, self.uri, name, self._hint) from error
                    await asyncio.sleep(pause)
            self._check(name, start, length, data)
            return data

        return await together(one, requests, self._concurrency)

    def list(self, prefix: str = "") -> Iterator[tuple[str, int]]:
        """Yield name and bytes of objects."""
        check_prefix(prefix)
        below = join_name(self._base, prefix.removesuffix("/")) if prefix else self._base
        root = self._base if prefix.startswith(".") else f"{self._base}/"
        if not prefix:
            with contextlib.suppress(ObjectMissingError):
                yield "", self._try("", lambda: obstore.head(self._service, self._base))["size"]
        chunks = obstore.list(self._service, below, chunk_size=1000)
        # Not tried again here: what follows a failed part of a listing may be its end.
        while chunk := self._try("", lambda: next(chunks, None), again=False):
            for one in chunk:
                yield one["path"].removeprefix(root), one["size"]

    def delete(self, names: Sequence[str]) -> None:
        """Remove objects, a thousand in a request."""
        keys = [join_name(self._base, name) for name in names]
        for start in range(0, len(keys), 1000):
            some = keys[start : start + 1000]
            try:
                self._try("", lambda some=some: obstore.delete(self._service, some))  # type: ignore[misc]
            except ObjectMissingError:
                # Some services refuse a whole batch for one name that is gone.
                for name in names[start : start + 1000]:
                    self._forget(name)

    def close(self) -> None:
        """Do nothing: connections end with the object."""

    def _forget(self, name: str) -> None:
        key = join_name(self._base, name)
        with contextlib.suppress(ObjectMissingError):
            self._try(name, lambda: obstore.delete(self._service, key))

    def _check(self, name: str, start: int, length: int, data: Buffer) -> None:
        found = memoryview(data).nbytes
        if found != length:
            problem = f"it ends at byte {start + found}, before byte {start + length}"
            raise ObjectDamagedError(self.uri, name, problem)

    def _try(self, name: str, call: Callable[[], T], *, again: bool = True) -> T:
        pauses = self._pauses() if again else iter(())
        while True:
            try:
                return call()
            except Exception as error:
                pause = next(pauses, None) if broke_off(error) else None
                if pause is None:
                    raise answer_error(error, self.uri, name, self._hint) from error
                time.sleep(pause)

    def _pauses(self) -> Iterator[float]:
        """Yield how long to wait before each new attempt."""
        end = time.monotonic() + self._retry_seconds
        for attempt in range(self._retries):
            # Many clients that failed together shall not come back together.
            pause = 0.1 * 2**attempt * random.uniform(0.5, 1.5)  # noqa: S311 - no secret
            if time.monotonic() + pause > end:
                return
            yield pause


def open_uri(
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
    """Open ``ntpl+s3+https://host/bucket/path`` and its like.

    Parameters
    ----------
    uri, parts
        The URI, plain and in its parts.
    access_key, secret_key, session_token
        Credentials of S3. By default ``AWS_ACCESS_KEY_ID`` and its like, or
        ``S3_ACCESS_KEY`` and ``S3_SECRET_KEY`` as ROOT has them; where there
        are none, a host that is named is read without.
    region
        Region of S3, by default ``AWS_REGION``, ``S3_REGION`` or ``us-east-1``.
    retries, retry_seconds
        Attempts after a transient failure, and the time after which none is made.
    timeout_seconds
        Limit for one request.
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
        config = _s3(os.environ, access_key, secret_key, session_token, region)
        if named_host:
            config["endpoint"] = f"{scheme.removeprefix('s3+')}://{parts.netloc}"
            config["virtual_hosted_style_request"] = False
            client["allow_http"] = scheme == "s3+http"
            config["skip_signature"] = "access_key_id" not in config
        service = store.S3Store(bucket, client_options=client, retry_config=retry, **config)
    return CloudStore(
        uri, service, base, int(concurrency), hint, int(retries), float(retry_seconds)
    )


def _s3(
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
