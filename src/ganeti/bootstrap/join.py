"""The master's side of a join: prove the token's secret, sign the node's key, send a member's data.

Runs in the command on the master, as root, because the authority's key is there. The job that adds
the node to the configuration follows.
"""

import asyncio
import contextlib
import ipaddress
import secrets
import shlex
import ssl
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass

from ganeti import ssconf
from ganeti.base import certificates, tls
from ganeti.base.clock import Clock, SystemClock
from ganeti.base.errors import (
    ErrorCode,
    ExecError,
    GanetiError,
    HostError,
    InputError,
    PrereqError,
    ProtocolError,
)
from ganeti.base.identifiers import host_name
from ganeti.base.ids import IdSource, RandomIds
from ganeti.base.paths import Paths
from ganeti.bootstrap.daemons import START_LIMIT_S, STOP_LIMIT_S
from ganeti.bootstrap.join_messages import (
    MESSAGE_LIMIT,
    Admission,
    Application,
    Challenge,
    Joined,
    Response,
    receive,
    send,
)
from ganeti.bootstrap.token import SECRET_BYTES, JoinToken, decode_token, is_proof, proof
from ganeti.store.register import Register, RegisterFile

CONNECT_TIMEOUT_S = 10.0
SSH_FAILED = 255
"""The exit status of ssh where the command was not started."""
JOIN_TIMEOUT_S = START_LIMIT_S + 30.0
"""The node starts its daemon during this time."""
TOKEN_TIMEOUT_S = 60.0
END_LIMIT_S = 1.0
"""Time for ssh to end after the end of its output."""


@dataclass(frozen=True)
class JoinedNode:
    """A host that is now a member, but not yet in the configuration."""

    name: str
    primary_ip: str
    port: int
    fingerprint: str
    uuid: str


@dataclass(frozen=True)
class _Authority:
    """The master's signing key, and the data for a new member."""

    certificate: bytes
    key: bytes
    register: Register
    cluster_name: str


async def join(
    token: str,
    *,
    paths: Paths,
    expected_name: str | None = None,
    node_uuid: str | None = None,
    check: Callable[[str, str], None] = lambda _name, _address: None,
    clock: Clock | None = None,
    ids: IdSource | None = None,
) -> JoinedNode:
    """Admit the node that printed `token` to the cluster of this master.

    `expected_name` refuses any other node, `check(name, address)` may raise to refuse, `node_uuid`
    is set when a known node joins again. InputError for an invalid token, PrereqError if nothing
    was changed, ExecError if the node may have become a member.
    """
    invitation = decode_token(token)
    authority = await asyncio.to_thread(_authority, paths)
    uuid = node_uuid or (ids or RandomIds()).uuid()
    try:
        async with _connected(invitation) as (reader, writer):
            application = await _apply(invitation, reader, writer)
            try:
                _check_application(application, expected_name, check)
                admission = _admission(
                    authority, application, uuid, paths, (clock or SystemClock()).time()
                )
            except GanetiError as err:
                await send(writer, Admission(error=err.message))
                raise
            await send(writer, admission)
            await _joined(application.name, reader)
    except (ProtocolError, OSError) as err:
        what = f"the node at {invitation.address}:{invitation.port} cannot be joined: {err}"
        raise PrereqError(what, ErrorCode.ENVIRONMENT) from err
    return JoinedNode(
        name=application.name,
        primary_ip=application.primary_ip,
        port=application.port,
        fingerprint=tls.fingerprint(admission.certificate.encode()),
        uuid=uuid,
    )


async def _apply(
    token: JoinToken, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> Application:
    """Prove the secret on both sides; return the node's description of itself."""
    challenge = await receive(reader, Challenge)
    nonces = challenge.nonce, secrets.token_hex(SECRET_BYTES)
    await send(writer, Response(nonce=nonces[1], proof=proof(token, "master", nonces)))
    application = await receive(reader, Application)
    if application.error:
        raise PrereqError(f"the node refuses: {application.error}", ErrorCode.WRONG_INPUT)
    if not is_proof(token, "node", nonces, application.proof):
        what = (
            "the process that answers there does not know the secret of the token; no data was "
            "sent to it"
        )
        raise PrereqError(what, ErrorCode.WRONG_INPUT)
    return application


def _check_application(
    application: Application, expected_name: str | None, check: Callable[[str, str], None]
) -> None:
    name = host_name(application.name, "name")
    if name != application.name or (expected_name is not None and name != expected_name):
        what = f"the token is of node {application.name!r:.100}, not of {expected_name}"
        raise InputError(what, "node_name")
    try:
        ipaddress.ip_address(application.primary_ip)
    except ValueError as err:
        raise InputError(str(err), "primary_ip") from err
    if not 0 < application.port < 1 << 16:
        raise InputError(f"{application.port} is not a port number", "port")
    check(name, application.primary_ip)


def _admission(
    authority: _Authority, application: Application, uuid: str, paths: Paths, now: float
) -> Admission:
    certificate = certificates.sign_node(
        authority.certificate,
        authority.key,
        application.request.encode(),
        node_uuid=uuid,
        node_name=application.name,
        now=now,
    )
    position, values = ssconf.read_set(paths)
    directories = (values.get("file_storage_dir", ""), values.get("shared_file_storage_dir", ""))
    return Admission(
        cluster_uuid=authority.register.cluster_uuid,
        cluster_name=authority.cluster_name,
        node_uuid=uuid,
        certificate=certificate.decode(),
        authority=authority.certificate.decode(),
        epoch=authority.register.promised.epoch,
        master_uuid=authority.register.promised.candidate,
        ssconf_position=position,
        ssconf=values,
        file_storage_paths=[one.strip() for one in directories if one.strip()],
    )


async def _joined(name: str, reader: asyncio.StreamReader) -> None:
    """Return the node's final message; from now on a silence leaves the outcome unknown."""
    try:
        answer = await receive(reader, Joined, timeout_s=JOIN_TIMEOUT_S)
    except ProtocolError as err:
        what = f"node {name} did not report whether it has joined ({err.message})"
        advice = (
            "if its ganeti-node-join succeeded, run it again with --reset before the next attempt"
        )
        raise ExecError(f"{what}: {advice}") from err
    if answer.error:
        raise PrereqError(f"node {name} could not join: {answer.error}", ErrorCode.ENVIRONMENT)


def _authority(paths: Paths) -> _Authority:
    try:
        certificate = paths.authority_certificate.read_bytes()
        key = paths.authority_key.read_bytes()
    except OSError as err:
        what = f"nodes are added on the master, as root: cannot read {err.filename}: {err.strerror}"
        raise PrereqError(what, ErrorCode.ENVIRONMENT) from err
    register = RegisterFile(paths.register).read()
    if register is None or register.promised.epoch <= 0:
        raise PrereqError(
            "this node has no master's epoch; run the command on the master", ErrorCode.ENVIRONMENT
        )
    return _Authority(certificate, key, register, ssconf.SimpleStore(paths).GetClusterName())


@contextlib.asynccontextmanager
async def _connected(
    token: JoinToken,
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Return a connection to the listener that created the token, checked by the token's certificate."""
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            reader, writer = await asyncio.open_connection(
                token.address,
                token.port,
                ssl=tls.pinned_client_context(),
                server_hostname="",
                limit=MESSAGE_LIMIT,
            )
    except TimeoutError:
        raise ProtocolError(f"no connection within {CONNECT_TIMEOUT_S:g} s") from None
    except (OSError, ssl.SSLError) as err:
        raise ProtocolError(
            f"{err.strerror or err}; is ganeti-node-join still waiting there?"
        ) from err
    try:
        if tls.peer_fingerprint(writer.transport) != token.fingerprint:
            raise ProtocolError(
                "another process answers there: its certificate is not the one in the token"
            )
        yield reader, writer
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


def ssh_words(
    host: str, command: Sequence[str], *, port: int = 22, check_host_key: bool = True
) -> list[str]:
    """Return the words of the system's ssh that runs `command` on a host as root without prompts."""
    options = ["BatchMode=yes", "ConnectTimeout=10", "ClearAllForwardings=yes"]
    if not check_host_key:
        options += ["StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null", "LogLevel=ERROR"]
    words = ["ssh", "-T", "-p", str(port), "-l", "root"]
    words += [word for option in options for word in ("-o", option)]
    return [*words, "--", host, shlex.join(command)]


@contextlib.asynccontextmanager
async def ssh_token(
    host: str,
    *,
    port: int = 22,
    check_host_key: bool = True,
    arguments: Sequence[str] = (),
    words: Sequence[str] | None = None,
) -> AsyncIterator[str]:
    """Run `ganeti-node-join` on a host by ssh, yield its token, and wait for its end.

    The secret is only on its standard output. `arguments` are those of ganeti-node-join; `words`
    replaces ssh.
    """
    name = host_name(host, "node_name")
    command = ["ganeti-node-join", *arguments]
    argv = words or ssh_words(name, command, port=port, check_host_key=check_host_key)
    try:
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
    except OSError as err:
        raise HostError(f"{argv[0]} cannot be started: {err.strerror}") from err
    assert process.stdout is not None  # noqa: S101 - asked for above
    assert process.stderr is not None  # noqa: S101 - asked for above
    said = asyncio.create_task(process.stderr.read(64 * 1024))
    try:
        try:
            async with asyncio.timeout(TOKEN_TIMEOUT_S):
                line = await process.stdout.readline()
        except TimeoutError:
            line = b""
        if not line.strip():
            raise PrereqError(await _why_no_token(name, process, said), ErrorCode.ENVIRONMENT)
        yield line.decode("ascii", "replace").strip()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STOP_LIMIT_S):
                await process.wait()
    finally:
        # A process that is killed while it ends makes asyncio print "Unknown child process".
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(END_LIMIT_S):
                await process.wait()
        if process.returncode is None:
            process.kill()
        await process.wait()
        await said


async def _why_no_token(
    name: str, process: asyncio.subprocess.Process, said: "asyncio.Task[bytes]"
) -> str:
    assert process.stdout is not None  # noqa: S101 - asked for by the caller
    if not process.stdout.at_eof():
        return f"{name}: ganeti-node-join printed no token within {TOKEN_TIMEOUT_S:g} s"
    text = (await said).decode(errors="replace").strip()
    if await process.wait() == SSH_FAILED:
        return f"{name} cannot be reached by ssh: {text}"
    return f"{name}: ganeti-node-join printed no token: {text.removeprefix('Failure: ')}"
