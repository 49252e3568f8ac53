"""Certificates for one cluster, so that its machines talk over TLS and to nobody else.

A certificate authority is made for every cluster and its key is forgotten at
once: nothing can be signed later. Scheduler, workers and clients each get a key
pair of their own. Dask takes a peer for a member if the authority has signed
its certificate, whatever its address.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from distributed.security import Security

__all__ = ["Certificates", "KeyPair", "make_certificates", "write_role_files"]

_SKEW = timedelta(hours=1)  # clocks of machines differ


@dataclass(frozen=True, slots=True, repr=False)
class KeyPair:
    """A certificate and its private key, both as PEM."""

    certificate: str
    key: str


@dataclass(frozen=True, slots=True, repr=False)
class Certificates:
    """What the members of one cluster need to trust each other.

    Attributes
    ----------
    authority
        Certificate of the authority, as PEM; its key is gone.
    scheduler, worker, client
        One key pair per role.
    expires
        When all of them do.
    """

    authority: str
    scheduler: KeyPair
    worker: KeyPair
    client: KeyPair
    expires: datetime

    def security(self) -> Security:
        """Return them as Dask takes them, held in memory only."""
        return Security(
            require_encryption=True,
            tls_ca_file=self.authority,
            tls_scheduler_cert=self.scheduler.certificate,
            tls_scheduler_key=self.scheduler.key,
            tls_client_cert=self.client.certificate,
            tls_client_key=self.client.key,
            tls_worker_cert=self.worker.certificate,
            tls_worker_key=self.worker.key,
        )


def make_certificates(name: str, *, valid: timedelta = timedelta(days=30)) -> Certificates:
    """Make an authority and sign one certificate per role with it.

    Parameters
    ----------
    name
        Of the cluster; it is written into the certificates for people who look
        at them.
    valid
        How long from now.

    Returns
    -------
    Certificates
        Elliptic-curve keys (P-256), signed with SHA-256.
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

    def pair(role: str) -> KeyPair:
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
        return KeyPair(_pem(signed), _key_pem(own))

    return Certificates(
        _pem(authority), pair("scheduler"), pair("worker"), pair("client"), expires=end
    )


def write_role_files(security: Security, directory: Path, role: str) -> tuple[Path, Path, Path]:
    """Write what one role of a cluster needs of a security that is held in memory.

    Parameters
    ----------
    security
        Dask's, with PEM texts for the role.
    directory
        Made with mode 0700 where it is missing; the files get mode 0600.
    role
        ``scheduler``, ``worker`` or ``client``.

    Returns
    -------
    Path, Path, Path
        The authority's certificate, the role's, and the role's key.

    Raises
    ------
    PermissionError
        The directory belongs to somebody else, or others can enter it.
    FileExistsError
        There are certificates already.
    """
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
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
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    ).decode()
