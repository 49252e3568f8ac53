"""Tokens and proxies on their way into jobs: what is submitted, and what a job makes of it."""

from __future__ import annotations

import os
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import htcondor2
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from hepcache.clusters.htcondor import HTCondorCluster
from hepcache.clusters.htcondor.delegation import Delegation, find_delegation, receive_delegation


@pytest.fixture(autouse=True)
def user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for name in ("BEARER_TOKEN_FILE", "X509_USER_PROXY", "XDG_RUNTIME_DIR"):
        monkeypatch.delenv(name, raising=False)


def write_proxy(path: Path, lifetime: timedelta) -> Path:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "alice")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=2))
        .not_valid_after(now + lifetime)
        .sign(key, hashes.SHA256())
    )
    path.write_bytes(
        certificate.public_bytes(serialization.Encoding.PEM)
        + key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return path


def usual_names(directory: Path) -> tuple[Path, Path]:
    return directory / f"bt_u{os.geteuid()}", directory / f"x509up_u{os.geteuid()}"


def test_variables_go_before_the_usual_places(tmp_path: Path) -> None:
    token, proxy = usual_names(tmp_path)
    assert find_delegation({}, tmp_path) == Delegation()
    token.write_text("usual")
    write_proxy(proxy, timedelta(hours=1))
    assert find_delegation({}, tmp_path) == Delegation(token=token, proxy=proxy)
    runtime = tmp_path / "run"
    runtime.mkdir()
    (runtime / token.name).write_text("of this session")
    found = find_delegation({"XDG_RUNTIME_DIR": str(runtime)}, tmp_path)
    assert found.token == runtime / token.name
    named = tmp_path / "named"
    named.write_text("named")
    other = write_proxy(tmp_path / "proxy", timedelta(hours=1))
    environ = {"BEARER_TOKEN_FILE": str(named), "X509_USER_PROXY": str(other)}
    assert find_delegation(environ, tmp_path) == Delegation(token=named, proxy=other)


def test_what_can_not_serve_is_left_behind_with_a_word(tmp_path: Path) -> None:
    proxy = write_proxy(tmp_path / "proxy", -timedelta(hours=1))
    with pytest.warns(UserWarning, match="expired on .*voms-proxy-init"):
        assert find_delegation({"X509_USER_PROXY": str(proxy)}, tmp_path).proxy is None
    proxy.write_text("no certificate")
    with pytest.warns(UserWarning, match="can't be read as a certificate"):
        assert find_delegation({"X509_USER_PROXY": str(proxy)}, tmp_path).proxy is None
    with pytest.warns(UserWarning, match="BEARER_TOKEN_FILE names: /none"):
        assert find_delegation({"BEARER_TOKEN_FILE": "/none"}, tmp_path).token is None


def directives(**options: object) -> tuple[dict[str, str], str]:
    """Return what HTCondor's bindings read in what is submitted, and the text itself."""
    with HTCondorCluster(scheduler_options={"host": "127.0.0.1"}, **options) as cluster:  # type: ignore[arg-type]
        script = cluster.job_script()
    return dict(htcondor2.Submit(script.split("\n", 1)[1])), script


def test_jobs_get_token_and_proxy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    token = tmp_path / "bt_u1234"
    token.write_text("eyJhbGciOi.eyJzdWIi.c2VjcmV0")
    proxy = write_proxy(tmp_path / "x509up_u1234", timedelta(hours=1))
    monkeypatch.setenv("BEARER_TOKEN_FILE", str(token))
    monkeypatch.setenv("X509_USER_PROXY", str(proxy))
    found, script = directives()
    assert str(token) in re.split(", *", found["transfer_input_files"])
    assert token.name in re.split(", *", found["encrypt_input_files"])
    assert "BEARER_TOKEN_FILE=bt_u1234" in found["environment"]
    assert found["x509userproxy"] == str(proxy)
    assert "eyJ" not in script  # everybody can read jobs' descriptions

    found, _ = directives(delegation=False)
    assert "bt_u1234" not in str(found)
    assert "x509userproxy" not in found

    more = {"use_oauth_services": "scitokens", "x509userproxy": "/other"}
    found, _ = directives(job_extra_directives=more, security=False)
    assert "transfer_input_files" not in found
    assert "BEARER_TOKEN_FILE" not in found["environment"]
    assert found["x509userproxy"] == "/other"


def test_a_job_finds_its_token_from_any_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    environ = {"BEARER_TOKEN_FILE": "bt_u1234"}
    receive_delegation(environ)
    assert environ == {"BEARER_TOKEN_FILE": str(tmp_path / "bt_u1234")}

    (tmp_path / "scitokens.use").write_text("token")
    environ = {"_CONDOR_CREDS": str(tmp_path)}
    receive_delegation(environ)
    assert environ["BEARER_TOKEN_FILE"] == str(tmp_path / "scitokens.use")

    (tmp_path / "box.use").write_text("which of the two?")
    environ = {"_CONDOR_CREDS": str(tmp_path)}
    receive_delegation(environ)
    assert "BEARER_TOKEN_FILE" not in environ
