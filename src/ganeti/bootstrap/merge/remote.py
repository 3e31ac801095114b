"""Connections to nodes of other clusters by ssh.

First with root's password or an agent, then with a key for the merge.

Host keys are strict: a node must be known (`known_hosts`). On request its first key is accepted,
and is then the only valid one for this merge.
"""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import asyncssh

from ganeti.base.errors import ErrorCode, PrereqError
from ganeti.base.files import write_atomically
from ganeti.base.paths import Paths
from ganeti.bootstrap.merge.agent import parse_answer
from ganeti.bootstrap.merge.journal import MergeChoices
from ganeti.bootstrap.merge.messages import Reply, Request, line_of

CONNECT_LIMIT_S = 30.0
CALL_LIMIT_S = 3600.0
TOKEN_LIMIT_S = 180.0
JOIN_END_S = 60.0
_ON_NODE = "ganeti-cluster-merge --on-node"
_JOIN = "ganeti-node-join --reset"
_NOT_FOUND = 127
"""The exit status of a shell for a missing program."""
_READ_VERSION = "cat /var/lib/ganeti/ssconf_release_version"
_VERSION = re.compile(r"[23]\.\d{1,3}[\w.~+-]{0,40}", re.ASCII)
_SYSTEM_KNOWN_HOSTS = Path("/etc/ssh/ssh_known_hosts")

Password = Callable[[str], Awaitable[str]]
"""Returns root's password of a cluster, by the name of the host; called where no key is accepted."""


class Remote(Protocol):
    """A node of another cluster."""

    @property
    def is_lost(self) -> bool:
        """Return whether a new connection is needed."""
        ...

    async def call(self, request: Request) -> Reply:
        """Return the node's answer; PrereqError with its text if it fails."""
        ...

    def joining(self) -> AbstractAsyncContextManager[str]:
        """Make it leave its cluster and wait to be joined during the block; yields the token."""
        ...

    async def close(self) -> None: ...


class Connect(Protocol):
    """Connects to a node by address."""

    async def __call__(self, address: str) -> Remote: ...


@dataclass
class SshRemote:
    """A connection to a node by ssh as root.

    One program there answers all requests in order: starting Python for each would take longer than
    most of them.
    """

    name: str
    connection: asyncssh.SSHClientConnection
    _agent: "asyncssh.SSHClientProcess[bytes] | None" = None
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def is_lost(self) -> bool:
        return self.connection.is_closed()

    async def call(self, request: Request) -> Reply:
        async with self._turn:
            try:
                async with asyncio.timeout(CALL_LIMIT_S):
                    data = await self._asked(line_of(request))
            except BaseException as err:
                # A late answer to this request would be mistaken for the answer to the next one.
                if self._agent is not None:
                    self._agent.close()
                    self._agent = None
                if isinstance(err, (asyncssh.Error, OSError, TimeoutError)):
                    raise _lost(self.name, err) from err
                raise
        answer: Reply = parse_answer(data, self.name)
        return answer

    async def _asked(self, line: bytes) -> bytes:
        """Return the program's answer; PrereqError if it has ended."""
        if self._agent is None:
            self._agent = await self.connection.create_process(_ON_NODE, encoding=None)
        agent = self._agent
        with contextlib.suppress(asyncio.IncompleteReadError, BrokenPipeError):
            agent.stdin.write(line)
            said = await agent.stdout.readline()
            if said.strip().isdigit():
                return await agent.stdout.readexactly(int(said))
            if said.strip():
                return said  # output of some other program
        why = (await agent.stderr.read()).decode(errors="replace").strip()[-1000:]
        await agent.wait_closed()
        if agent.returncode is None:
            raise ConnectionResetError("the connection was closed")
        if agent.returncode == _NOT_FOUND and (version := await self._original()):
            raise PrereqError(
                (
                    f"{self.name} is in a cluster of Ganeti {version} without this "
                    "implementation: install it on all nodes of that cluster, beside upstream "
                    "Ganeti, and run the command again"
                ),
                ErrorCode.ENVIRONMENT,
            )
        raise PrereqError(
            (
                f"{self.name}: '{_ON_NODE}' ended with status {agent.returncode} without output; "
                f"is this version installed there? {why}"
            ),
            ErrorCode.ENVIRONMENT,
        )

    async def _original(self) -> str:
        """Return the version of upstream Ganeti on the node; '' if it has none."""
        done = await self.connection.run(_READ_VERSION)
        text = done.stdout if isinstance(done.stdout, str) else ""
        return text.strip() if _VERSION.fullmatch(text.strip()) else ""

    @contextlib.asynccontextmanager
    async def joining(self) -> AsyncIterator[str]:
        try:
            process = await self.connection.create_process(_JOIN)
        except (asyncssh.Error, OSError) as err:
            raise _lost(self.name, err) from err
        async with process:
            try:
                async with asyncio.timeout(TOKEN_LIMIT_S):
                    token = (await process.stdout.readline()).strip()
            except (TimeoutError, asyncssh.Error) as err:
                raise _lost(self.name, err) from err
            if not token:
                said = (await process.stderr.read()).strip()
                raise PrereqError(
                    f"{self.name}: '{_JOIN}' printed no token: {said}", ErrorCode.ENVIRONMENT
                )
            yield token
            with contextlib.suppress(TimeoutError, asyncssh.Error):
                async with asyncio.timeout(JOIN_END_S):
                    await process.wait()

    async def close(self) -> None:
        self.connection.close()
        with contextlib.suppress(OSError, asyncssh.Error):
            await self.connection.wait_closed()


def _lost(name: str, err: BaseException) -> PrereqError:
    return PrereqError(
        f"{name}: the connection by ssh failed: {str(err) or 'too slow'}", ErrorCode.ENVIRONMENT
    )


@dataclass
class Ssh:
    """Connects to the nodes of one other cluster."""

    paths: Paths
    choices: MergeChoices
    password: Password
    keys: list[asyncssh.SSHKey] = field(default_factory=list)
    """The key for this merge, and the cluster's own once it is fetched (S34)."""
    _password: str | None = None
    _asking: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Nodes are connected to concurrently, and have the same password."""

    async def __call__(self, address: str) -> SshRemote:
        """Return a connection; PrereqError where the node is unreachable, unknown, or refuses the login."""
        known, is_first = self._known_hosts(address)

        async def ask() -> str:
            async with self._asking:
                if self._password is None:
                    self._password = await self.password(address)
                return self._password

        class Client(asyncssh.SSHClient):
            """Sends the password once, when it is requested."""

            is_asked = False

            async def password_auth_requested(self) -> str | None:
                if self.is_asked:
                    return None
                self.is_asked = True
                return await ask()

            async def kbdint_auth_requested(self) -> str | None:
                return None

        try:
            connection = await asyncssh.connect(
                address,
                self.choices.ssh_port,
                username="root",
                config=[],
                known_hosts=known,
                client_keys=self.keys or None,
                client_factory=Client,
                connect_timeout=CONNECT_LIMIT_S,
                login_timeout=600,
                keepalive_interval=15,
            )
        except asyncssh.HostKeyNotVerifiable as err:
            raise PrereqError(
                (
                    f"the host key of {address} is not known ({err.reason}): log in once with "
                    "ssh from here and compare it, name a file with --known-hosts, or pass "
                    "--no-ssh-key-check"
                ),
                ErrorCode.ENVIRONMENT,
            ) from err
        except asyncssh.PermissionDenied as err:
            self._password = None
            raise PrereqError(
                (
                    f"{address} does not let root in: {err.reason}; check the password and "
                    "PermitRootLogin of sshd there, or add a key to an SSH agent"
                ),
                ErrorCode.ENVIRONMENT,
            ) from err
        except (asyncssh.Error, OSError, TimeoutError) as err:
            raise _lost(address, err) from err
        if is_first:
            self._remember(address, connection)
        return SshRemote(address, connection)

    def add_key(self, text: str) -> bool:
        """Use a private key as well; return False if it is unusable (it has a passphrase, or is damaged)."""
        try:
            self.keys.append(asyncssh.import_private_key(text))
        except (asyncssh.KeyImportError, asyncssh.KeyEncryptionError):
            return False
        return True

    @property
    def _pinned(self) -> Path:
        return self.paths.merge / "known_hosts"

    def _known_hosts(self, address: str) -> tuple[asyncssh.SSHKnownHosts | None, bool]:
        """Return the accepted host keys, and whether to remember the key because any is accepted."""
        text = self._pinned.read_text() if self._pinned.exists() else ""
        if any(
            line.split()[0] == _host(address, self.choices.ssh_port) for line in text.splitlines()
        ):
            return asyncssh.import_known_hosts(text), False
        if not self.choices.check_host_key:
            return None, True
        given = (
            [Path(self.choices.known_hosts)]
            if self.choices.known_hosts
            else [
                self.paths.root_ssh / "known_hosts",
                _SYSTEM_KNOWN_HOSTS,
            ]
        )
        try:
            texts = [
                path.read_text() for path in given if self.choices.known_hosts or path.exists()
            ]
            return asyncssh.import_known_hosts("\n".join(texts)), False
        except (OSError, ValueError) as err:
            raise PrereqError(f"cannot read known hosts: {err}", ErrorCode.WRONG_INPUT) from err

    def _remember(self, address: str, connection: asyncssh.SSHClientConnection) -> None:
        key = connection.get_server_host_key()
        if key is None:
            return
        old = self._pinned.read_text() if self._pinned.exists() else ""
        line = (
            f"{_host(address, self.choices.ssh_port)} {key.export_public_key().decode().strip()}\n"
        )
        self.paths.merge.mkdir(mode=0o700, exist_ok=True)
        write_atomically(self._pinned, (old + line).encode(), mode=0o600)


def _host(address: str, port: int) -> str:
    return address if port == 22 else f"[{address}]:{port}"  # noqa: PLR2004 - the port of ssh


def own_key(paths: Paths) -> Path:
    """Return the path of the private key for a merge."""
    return paths.merge / "key"


def make_key(paths: Paths) -> str:
    """Create the key of a merge; return its public half, as a line."""
    paths.merge.mkdir(mode=0o700, exist_ok=True)
    key = asyncssh.generate_private_key("ssh-ed25519")
    write_atomically(own_key(paths), key.export_private_key(), mode=0o600)
    return " ".join(key.export_public_key().decode().split()[:2])
