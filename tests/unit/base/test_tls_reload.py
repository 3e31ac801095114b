"""Contexts that use the files as they are now."""

import asyncio
import ssl
from pathlib import Path

import pytest

from ganeti.base import certificates, tls

NOW = 1_700_000_000.0


class Files:
    """Key, certificate and authority of one end."""

    def __init__(self, directory: Path) -> None:
        self.key, self.certificate = directory / "key", directory / "certificate"
        self.authority = directory / "authority"
        self.authority_key = certificates.new_key()
        self.authority.write_bytes(certificates.new_authority(self.authority_key, "c", "u", NOW))
        self.renew()

    def renew(self) -> str:
        key = certificates.new_key()
        certificate = certificates.sign_node(
            self.authority.read_bytes(),
            self.authority_key,
            certificates.signing_request(key, "n.example.com"),
            node_uuid="u",
            node_name="n.example.com",
            now=NOW,
        )
        self.key.write_bytes(key)
        self.certificate.write_bytes(certificate)
        return tls.fingerprint(certificate)


def _contexts(files: Files) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    three = files.certificate, files.key, files.authority
    return tls.server_context(*three), tls.client_context(*three)


async def _shown(
    server_context: ssl.SSLContext, client_context: ssl.SSLContext
) -> tuple[str | None, str | None]:
    caller: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()

    async def serve(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        caller.set_result(tls.peer_fingerprint(writer.transport))
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=server_context)
    port = server.sockets[0].getsockname()[1]
    _, writer = await asyncio.open_connection(
        "127.0.0.1",
        port,
        ssl=client_context,
        server_hostname="",
    )
    callee = tls.peer_fingerprint(writer.transport)
    found = await caller
    writer.close()
    server.close()
    return found, callee


@pytest.mark.requirement("F39")
async def test_new_connections_show_the_new_certificate(tmp_path: Path) -> None:
    files = Files(tmp_path)
    server, client = _contexts(files)
    old = tls.fingerprint(files.certificate.read_bytes())
    assert await _shown(server, client) == (old, old)
    new = files.renew()
    assert tls.reload_changed()
    assert not tls.reload_changed()
    assert await _shown(server, client) == (new, new)
    assert tls.generation(client) == 1


@pytest.mark.requirement("F39")
async def test_connection_begins_with_the_files_of_that_moment(tmp_path: Path) -> None:
    files = Files(tmp_path)
    server, client = _contexts(files)
    new = files.renew()
    assert await _shown(server, client) == (new, new)
    assert tls.generation(client) == 1


@pytest.mark.requirement("F39")
async def test_kept_connections_are_of_an_earlier_generation_after_a_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = Files(tmp_path)
    _, client = _contexts(files)
    files.renew()
    assert tls.generation(client) == 0
    monkeypatch.setattr(tls, "LOOK_AGAIN_S", 0.0)
    assert tls.generation(client) == 1


@pytest.mark.requirement("F39")
async def test_files_that_do_not_fit_are_left_for_later(tmp_path: Path) -> None:
    files = Files(tmp_path)
    server, client = _contexts(files)
    old = tls.fingerprint(files.certificate.read_bytes())
    key = files.key.read_bytes()
    files.key.write_bytes(certificates.new_key())
    assert not tls.reload_changed()
    files.key.write_bytes(key)
    tls.reload_changed()
    assert await _shown(server, client) == (old, old)
