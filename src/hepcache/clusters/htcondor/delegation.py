"""Tokens and proxies by which a user's jobs are let in at origins."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509

TOKEN, PROXY = "BEARER_TOKEN_FILE", "X509_USER_PROXY"
# Where programs of the grid leave both, under the user's number.
_USUAL = Path("/tmp")  # noqa: S108 - files of other users are left alone


@dataclass(frozen=True, slots=True, kw_only=True)
class Delegation:
    """What a user has on this machine; ``None`` where there is none.

    Attributes
    ----------
    token
        File with a bearer token: a SciToken, or one of WLCG's profile.
    proxy
        File with an X.509 proxy.
    """

    token: Path | None = None
    proxy: Path | None = None


def find_delegation(environ: Mapping[str, str], directory: Path = _USUAL) -> Delegation:
    """Return the user's token and proxy, found as other programs find them.

    Parameters
    ----------
    environ
        Variables: ``BEARER_TOKEN_FILE`` and ``X509_USER_PROXY`` name files. Without them
        ``bt_uUID`` is looked for in ``XDG_RUNTIME_DIR`` and in ``directory``, ``x509up_uUID`` in
        ``directory`` (https://doi.org/10.5281/zenodo.3937438 for tokens).
        ``BEARER_TOKEN``, a token itself, is not looked at: jobs' variables can be read by others.
    directory
        Where programs leave both by default.

    Warns
    -----
    UserWarning
        A variable names a file that can't be read, or the proxy has expired; jobs go without.
    """
    user = os.geteuid()
    runtime = environ.get("XDG_RUNTIME_DIR")
    usual = [Path(place) / f"bt_u{user}" for place in (runtime, directory) if place]
    token = next(_files(environ, TOKEN, usual), None)
    proxy = next(_files(environ, PROXY, [directory / f"x509up_u{user}"]), None)
    if proxy is not None and (problem := _proxy_problem(proxy)):
        _warn(f"jobs go without the proxy {proxy}: {problem}")
        proxy = None
    return Delegation(token=token, proxy=proxy)


def _files(environ: Mapping[str, str], variable: str, usual: list[Path]) -> Iterator[Path]:
    named = environ.get(variable)
    if not named:
        yield from (path for path in usual if os.access(path, os.R_OK) and _is_own(path))
    elif os.access(named, os.R_OK):
        yield Path(named).absolute()
    else:
        _warn(f"jobs go without what {variable} names: {named} can't be read")


def _is_own(path: Path) -> bool:
    # Anybody can write a file of that name into /tmp.
    return path.stat().st_uid == os.geteuid()


def _proxy_problem(path: Path) -> str:
    try:
        certificate = x509.load_pem_x509_certificate(path.read_bytes())
    except (OSError, ValueError) as error:
        return f"it can't be read as a certificate ({error})"
    end = certificate.not_valid_after_utc
    if end <= datetime.now(UTC):
        return f"it expired on {end:%Y-%m-%d at %H:%M} UTC; say: voms-proxy-init"
    return ""


def _warn(message: str) -> None:
    warnings.warn(message, stacklevel=4)


def receive_delegation(environ: MutableMapping[str, str]) -> None:
    """Let this job's programs find the token that HTCondor has brought, wherever they run.

    ``environ``: variables of the job, which are changed. A token that was transferred has a name
    without a directory; one that the pool keeps fresh (``use_oauth_services``) lies below
    ``_CONDOR_CREDS``. Proxies need nothing: HTCondor sets ``X509_USER_PROXY``.
    """
    named = environ.get(TOKEN)
    if named:
        environ[TOKEN] = str(Path(named).absolute())
        return
    credentials = environ.get("_CONDOR_CREDS")
    kept = sorted(Path(credentials).glob("*.use")) if credentials else []
    if len(kept) == 1:
        environ[TOKEN] = str(kept[0])
