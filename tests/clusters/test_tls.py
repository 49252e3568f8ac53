from __future__ import annotations

import asyncio
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from distributed.comm import connect, listen

from hepcache.clusters.tls import make_certificates, write_role_files


def test_a_role_is_signed_by_the_authority() -> None:
    made = make_certificates("test", valid=timedelta(days=2))
    authority = x509.load_pem_x509_certificate(made.tls_ca_file.encode())
    roles = [made.get_tls_config_for_role(role) for role in ("scheduler", "worker", "client")]
    for role in roles:
        one = x509.load_pem_x509_certificate(role["cert"].encode())
        one.verify_directly_issued_by(authority)
        assert one.not_valid_after_utc == authority.not_valid_after_utc
        assert timedelta(days=1) < one.not_valid_after_utc - datetime.now(UTC) <= timedelta(days=2)
        assert "PRIVATE KEY" not in role["cert"]
    assert len({role["key"] for role in roles}) == 3
    assert not any(role["key"] in repr(made) for role in roles)


async def _talk(server: object, client: object) -> str:
    async def answer(comm: object) -> None:
        await comm.write(await comm.read())

    listener = await listen("tls://127.0.0.1:0", answer, **server.get_listen_args("scheduler"))
    try:
        comm = await connect(
            listener.contact_address, timeout=5, **client.get_connection_args("worker")
        )
        await comm.write("hello")
        said = await comm.read()
        await comm.close()
        return said
    finally:
        listener.stop()


def test_members_talk_and_strangers_do_not() -> None:
    ours, theirs = (make_certificates(name) for name in ("ours", "theirs"))
    assert asyncio.run(_talk(ours, ours)) == "hello"
    with pytest.raises((OSError, ssl.SSLError)):
        asyncio.run(_talk(ours, theirs))


def test_a_workers_files_are_its_owners_alone(tmp_path: Path) -> None:
    security = make_certificates("test")
    paths = write_role_files(security, tmp_path / "tls", "worker")
    assert [path.stat().st_mode & 0o777 for path in paths] == [0o600] * 3
    assert paths[2].read_text() == security.tls_worker_key
    assert all(security.tls_scheduler_key not in path.read_text() for path in paths)
    with pytest.raises(FileExistsError):
        write_role_files(security, tmp_path / "tls", "worker")


def test_a_directory_that_others_enter_is_refused(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir(mode=0o755)
    with pytest.raises(PermissionError, match="chmod 700"):
        write_role_files(make_certificates("test"), tmp_path / "open", "worker")
