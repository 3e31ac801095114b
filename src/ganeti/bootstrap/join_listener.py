"""`ganeti-node-join`: lets one caller with the token add this node to a cluster, once.

The node opens a listener with a certificate made for this purpose and prints the token. The master
calls, and both prove the token's secret. The node creates its key, which never leaves it, and
requests a certificate. The master answers with the certificate and a member's data.
"""

import argparse
import asyncio
import contextlib
import secrets
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ganeti.base import certificates, tls
from ganeti.base.addresses import own_address
from ganeti.base.clock import Clock, SystemClock
from ganeti.base.errors import ErrorCode, GanetiError, HostError, PrereqError, ProtocolError
from ganeti.base.identifiers import host_name
from ganeti.base.paths import NODED_PORT, Paths, hostname
from ganeti.base.terminal import Parser, say
from ganeti.bootstrap.daemons import MASTERD, MOND, NODED, Daemons
from ganeti.bootstrap.destroy import forget_cluster, prepared
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
from ganeti.bootstrap.membership import (
    check_admission,
    check_not_member,
    install,
    make_directories,
)
from ganeti.bootstrap.token import SECRET_BYTES, JoinToken, is_proof, proof

LIFETIME_S = 15 * 60.0
ADMISSION_TIMEOUT_S = 120.0
"""The master may ask its administrator in between."""
WRONG_PROOFS_LIMIT = 5
HANDSHAKE_TIMEOUT_S = 10.0
CALLERS_AT_ONCE = 8
LAST_WORD_S = 2.0
"""Time limit for closing a conversation once the outcome is known."""


@dataclass(frozen=True)
class NewNode:
    """The node's description of itself."""

    name: str
    address: str
    port: int


class JoinListener:
    """One join: only the first caller that proves the secret gets an answer."""

    def __init__(self, paths: Paths, node: NewNode, daemons: Daemons | None) -> None:
        self._paths = paths
        self._node = node
        self._daemons = daemons
        self._wrong = 0
        self._is_used = False
        self._outcome: asyncio.Future[Admission] = asyncio.get_running_loop().create_future()
        self._conversations: set[asyncio.Task[None]] = set()

    @contextlib.asynccontextmanager
    async def listening(self, clock: Clock, port: int = 0) -> Any:
        """Listen for as long as the block runs; yields the token."""
        key = certificates.new_key()
        certificate = certificates.self_signed(key, self._node.name, clock.time(), LIFETIME_S)
        with tempfile.TemporaryDirectory(prefix="join-", dir=self._paths.data) as directory:
            files = Path(directory) / "certificate", Path(directory) / "key"
            for path, data in zip(files, (certificate, key), strict=True):
                path.touch(mode=0o600)
                path.write_bytes(data)
            context = tls.one_shot_server_context(*files)
        secret = secrets.token_hex(SECRET_BYTES)
        server = await asyncio.start_server(
            self._called,
            self._node.address,
            port,
            ssl=context,
            ssl_handshake_timeout=HANDSHAKE_TIMEOUT_S,
            limit=MESSAGE_LIMIT,
        )
        self._token = JoinToken(
            address=self._node.address,
            port=server.sockets[0].getsockname()[1],
            fingerprint=tls.fingerprint(certificate),
            secret=secret,
        )
        try:
            yield self._token
        finally:
            server.close()
            if self._conversations:
                await asyncio.wait(self._conversations, timeout=LAST_WORD_S)
            for conversation in self._conversations:
                conversation.cancel()
            await asyncio.gather(*self._conversations, return_exceptions=True)

    async def outcome(self, timeout_s: float) -> Admission:
        """Return when the node is a member; PrereqError if the token expired or was misused."""
        try:
            async with asyncio.timeout(timeout_s):
                return await asyncio.shield(self._outcome)
        except TimeoutError:
            if self._is_used:  # a conversation is in progress, and has its own time limit
                return await self._outcome
            what = f"the token was not used within {timeout_s:g} s and is now invalid; run ganeti-node-join again"
            raise PrereqError(what, ErrorCode.WRONG_STATE) from None

    def _called(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._answer(reader, writer), name="join")
        self._conversations.add(task)
        task.add_done_callback(self._conversations.discard)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if len(self._conversations) <= CALLERS_AT_ONCE and not self._outcome.done():
                await self._converse(reader, writer)
        except ProtocolError:
            pass  # a caller without the secret: the join is unchanged
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        challenge = Challenge(nonce=secrets.token_hex(SECRET_BYTES))
        await send(writer, challenge)
        response = await receive(reader, Response)
        nonces = challenge.nonce, response.nonce
        if self._is_used:
            await send(writer, Application(error="this token has been used already"))
            return
        if not is_proof(self._token, "master", nonces, response.proof):
            self._count_wrong_proof()
            await send(
                writer, Application(error="wrong secret: use the token that was printed last")
            )
            return
        self._is_used = True
        try:
            admission = await self._join(reader, writer, nonces)
        except (GanetiError, OSError) as err:
            if not self._outcome.done():
                self._outcome.set_exception(_join_failed(err))
        else:
            self._outcome.set_result(admission)

    def _count_wrong_proof(self) -> None:
        self._wrong += 1
        if self._wrong >= WRONG_PROOFS_LIMIT and not self._outcome.done():
            what = (
                f"{self._wrong} callers had a wrong secret; the token is now invalid: run this "
                "command again"
            )
            self._outcome.set_exception(PrereqError(what, ErrorCode.WRONG_STATE))

    async def _join(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, nonces: tuple[str, str]
    ) -> Admission:
        key = certificates.new_key()
        application = Application(
            proof=proof(self._token, "node", nonces),
            name=self._node.name,
            primary_ip=self._node.address,
            port=self._node.port,
            request=certificates.signing_request(key, self._node.name).decode(),
        )
        await send(writer, application)
        admission = await receive(reader, Admission, timeout_s=ADMISSION_TIMEOUT_S)
        if admission.error:
            raise PrereqError(f"the master refused: {admission.error}", ErrorCode.WRONG_STATE)
        try:
            check_admission(admission, self._node.name, key)
            await self._become_member(admission, key)
        except GanetiError as err:
            await send(writer, Joined(error=err.message))
            raise
        try:
            await send(writer, Joined())
        except (ProtocolError, OSError) as err:
            raise _UnheardError(
                "this node has joined, but 'gnt-node add' ended on the master before it had the "
                "answer; unless 'gnt-node list' shows the node, run 'ganeti-node-join --reset' "
                "here to try again"
            ) from err
        return admission

    async def _become_member(self, admission: Admission, key: bytes) -> None:
        before = prepared(self._paths)
        await asyncio.to_thread(install, self._paths, admission, key)
        if self._daemons is None:
            return
        words = ["--bind-address", self._node.address, "--port", str(self._node.port)]
        try:
            await self._daemons.start(NODED, words)
        except GanetiError:
            forget_cluster(self._paths, keep=before)
            raise


class _UnheardError(HostError):
    """This node is a member, but the master may not know it."""


def _join_failed(err: GanetiError | OSError) -> GanetiError:
    if isinstance(err, _UnheardError):
        return err
    why = err.message if isinstance(err, GanetiError) else str(err)
    return PrereqError(
        f"the node was not joined: {why}; run this command again", ErrorCode.WRONG_STATE
    )


def main(argv: Sequence[str] | None = None) -> int:
    """The command `ganeti-node-join`."""
    args = _parser().parse_args(argv)
    try:
        return asyncio.run(_main(args))
    except GanetiError as err:
        say(f"Failure: {err.message}", file=sys.stderr)
        return err.exit_code
    except KeyboardInterrupt:
        say("Interrupted: the node was not joined, and the token is invalid.", file=sys.stderr)
        return 1


async def _main(args: argparse.Namespace) -> int:
    paths = Paths.from_environment()
    daemons = Daemons(paths)
    if args.reset:
        # The node daemon first: it may be starting the others on request of a master.
        for name in (NODED, MASTERD, MOND):
            await daemons.stop(name)
        forget_cluster(paths, keep=(paths.image_store,))
    check_not_member(paths, "run 'ganeti-node-join --reset' here to leave that cluster")
    make_directories(paths, [])
    name = host_name(args.name or hostname(), "name")
    address = args.address or await asyncio.to_thread(own_address, name, "--address")
    node = NewNode(name, address, args.noded_port)
    listener = JoinListener(paths, node, None if args.no_start else daemons)
    try:
        async with listener.listening(SystemClock(), args.port) as token:
            say(token.encode(), flush=True)
            if sys.stdout.isatty():
                run = f"gnt-node add --token-stdin {name}"
                say(
                    f"Waiting. On the master, run this and paste the line above: {run}",
                    file=sys.stderr,
                )
            admission = await listener.outcome(args.lifetime)
    except OSError as err:
        raise HostError(f"cannot listen at {address}: {err.strerror}") from err
    say(f"{name} has joined cluster {admission.cluster_name}.", file=sys.stderr)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="ganeti-node-join",
        description="Print a token with which 'gnt-node add' adds this host to a cluster, and wait.",
        epilog=(
            "The token gives the same access as root's password: transfer it over a secure channel."
        ),
    )
    parser.add_argument(
        "--address", help="address of this node in the cluster (default: the address of its name)"
    )
    parser.add_argument(
        "--port", type=int, default=0, help="port of the listener (default: any free port)"
    )
    parser.add_argument(
        "--noded-port", type=int, default=NODED_PORT, help="port of the node daemon"
    )
    parser.add_argument("--name", help="name of this node (default: its full host name)")
    parser.add_argument(
        "--lifetime",
        type=float,
        default=LIFETIME_S,
        metavar="SECONDS",
        help="time to wait for the master",
    )
    parser.add_argument(
        "--no-start", action="store_true", help="do not start the node daemon after the join"
    )
    parser.add_argument(
        "--reset",
        action="store_true",
        help="leave an earlier cluster first: remove its keys and state from this node",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
