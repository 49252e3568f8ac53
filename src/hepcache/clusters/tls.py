"""Certificates for one cluster, so that its machines talk over TLS and to nobody else.

A certificate authority is made for every cluster and its key is forgotten at
once: nothing can be signed later. Scheduler, workers and clients each get a key
pair of their own. Dask takes a peer for a member if the authority has signed
its certificate, whatever its address.
"""

from __future__ import annotations

import copy
import os
import shutil
import uuid as uuids
from datetime import UTC, datetime, timedelta
from pathlib import Path

import platformdirs
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from distributed.security import Security

from hepcache.io.atomic import make_directories

_SKEW = timedelta(hours=1)  # clocks of machines differ


def make_certificates(name: str, *, valid: timedelta = timedelta(days=30)) -> Security:
    """Make an authority, sign one certificate per role, and return them as Dask's ``Security``.

    The keys are of an elliptic curve (P-256), signed with SHA-256, and held in memory only.
    """
    now = datetime.now(UTC).replace(microsecond=0)
    begin, end = now - _SKEW, now + valid
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _name(f"hepcache {name}")
    authority = (
        _builder(subject, subject, key.public_key(), begin, end)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .sign(key, hashes.SHA256())
    )

    def pair(role: str) -> tuple[str, str]:
        own = ec.generate_private_key(ec.SECP256R1())
        identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key())
        both = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        signed = (
            _builder(_name(f"{role} of {name}"), subject, own.public_key(), begin, end)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs_certificates=False), critical=True)
            .add_extension(identifier, critical=False)
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(role)]), critical=False)
            # A Dask worker is a server to other workers, and their client.
            .add_extension(x509.ExtendedKeyUsage(both), critical=False)
            .sign(key, hashes.SHA256())
        )
        return _pem(signed), _key_pem(own)

    pairs = {role: pair(role) for role in ("scheduler", "worker", "client")}
    return Security(
        require_encryption=True,
        tls_ca_file=_pem(authority),
        **{f"tls_{role}_cert": certificate for role, (certificate, _) in pairs.items()},
        **{f"tls_{role}_key": own for role, (_, own) in pairs.items()},
    )


def write_role_files(security: Security, directory: Path, role: str) -> tuple[Path, Path, Path]:
    """Write what one role of a cluster needs of a security that is held in memory.

    ``directory``: made with mode 0700 where it is missing; the files get mode 0600.
    ``role``: ``scheduler``, ``worker`` or ``client``.
    Raises ``PermissionError``: the directory belongs to somebody else, or others can enter it.
    Raises ``FileExistsError``: there are certificates already.
    """
    make_directories(directory)
    found = directory.stat()
    if found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise PermissionError(
            f"{directory} holds private keys and must be yours alone; "
            f"say 'chmod 700 {directory}' or choose another directory"
        )
    held = security.get_tls_config_for_role(role)
    names = {"ca_file": "hepcache-ca.pem", "cert": f"hepcache-{role}.pem"}
    paths = []
    for field, name in {**names, "key": f"hepcache-{role}.key"}.items():
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(directory / name, flags, 0o600), "w") as file:
            file.write(held[field])
        paths.append(directory / name)
    return paths[0], paths[1], paths[2]


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    begin: datetime,
    end: datetime,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(end)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text[:64])])


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


def _key_pem(key: ec.EllipticCurvePrivateKey) -> str:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()


class Secrets:
    """Files with a worker's key and certificates, for the life of a cluster.

    ``security``: the cluster's; ``None`` for none. What it holds in memory is written to files
    that only the user can read; paths in it are left as they are.
    ``shared``: a directory of the user's that all machines see; ``None`` to have the files carried
    to the jobs.
    Raises ``PermissionError``: the directory can be entered by others.
    """

    def __init__(self, security: Security | None, shared: str | os.PathLike[str] | None) -> None:
        self.worker, self.transferred = security, tuple[Path, ...]()
        self._directory: Path | None = None
        if security is None:
            return
        held = security.get_tls_config_for_role("worker").values()
        if not any(isinstance(text, str) and "\n" in text for text in held):
            return
        parent = platformdirs.user_state_path("hepcache") / "tls"
        if shared is not None:
            parent = Path(os.path.expandvars(shared)).expanduser()
        make_directories(parent)
        self._directory = parent / uuids.uuid4().hex
        paths = write_role_files(security, self._directory, "worker")
        names = [str(path) for path in paths]
        if shared is None:
            self.transferred, names = paths, [path.name for path in paths]
        self.worker = copy.copy(security)
        self.worker.tls_ca_file, self.worker.tls_worker_cert, self.worker.tls_worker_key = names

    def remove(self) -> None:
        """Remove the files, once the last job has them."""
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)
