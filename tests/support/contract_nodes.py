"""Nodes that one suite holds to the same contract: the real handlers on real files, and the model.

A real one answers as it does below its RPC server: arguments and results in their wire form, epochs
checked, changing calls carried out beside the caller. Its host's address commands are pretended.
"""

import abc
import asyncio
from collections.abc import Awaitable, Sequence
from pathlib import Path
from typing import Any

from ganeti.base.certificate_facts import node_identity
from ganeti.base.clock import SystemClock
from ganeti.base.errors import NotMaster
from ganeti.base.paths import Paths
from ganeti.base.process import Completed, run
from ganeti.model import wire
from ganeti.model.hooks import Phase, directory
from ganeti.model.objects import NodeUuid
from ganeti.node import application
from ganeti.node.application import NodeApplication
from ganeti.node.host_restart import TRIGGER
from ganeti.rpc.calls import Call, concerned_instance
from ganeti.rpc.procedures.commands import CommandOutput
from ganeti.rpc.procedures.files import NodeFile
from ganeti.rpc.procedures.form import Procedure
from ganeti.rpc.procedures.hooks import HookResult
from ganeti.rpc.procedures.programs import AllocatorOutput
from ganeti.simulation.nodes.model import ModelNode
from ganeti.simulation.nodes.storage import SharedDirectory
from ganeti.store.register import PromiseRequest, RegisterFile, join
from tests.support.node_certificates import Authority

CLUSTER = "00000000-0000-4000-9000-000000000001"
LOCAL = "/srv/ganeti/file-storage"
UPLOAD = "/etc/motd"
CONTRACT_AGENT = "fence_contract"
"""A file that the nodes' administrators let the master write."""
ADDRESS = "127.0.0.1"
_REAL_RUN = run


class ContractNode(abc.ABC):
    """One node; `shared` is a directory that all of them see."""

    name: str
    uuid: NodeUuid
    fingerprint: str = "0" * 64

    @abc.abstractmethod
    async def call(
        self,
        procedure: Procedure[Any, Any],
        args: Any,
        *,
        key: str = "",
        epoch: int = 1,
        master: str = "master",
    ) -> Any:
        """The result; GanetiError as the handler raises it."""

    @abc.abstractmethod
    async def restart(self) -> None:
        """Let another node daemon take over."""

    @abc.abstractmethod
    async def close(self) -> None: ...

    @abc.abstractmethod
    def add_os(self, name: str) -> None:
        """An OS definition whose `verify` refuses the parameter `bad`."""

    @abc.abstractmethod
    def fail_rename(self, name: str) -> None:
        """Let the script `rename` of an OS fail."""

    @abc.abstractmethod
    def let_scripts_stay(self, name: str) -> None:
        """Let the script `create` of an OS not end by itself."""

    @abc.abstractmethod
    def running_scripts(self) -> list[str]:
        """The keys of their calls."""

    @abc.abstractmethod
    def add_allocator(self, name: str, stdout: str) -> None: ...

    @abc.abstractmethod
    def allow_programs(self, oob_program: str, restricted: str) -> None:
        """Programs that say `[]`, and lines of shell."""

    @abc.abstractmethod
    def add_hook(self, hook: str, phase: Phase, name: str, output: str) -> None:
        """A program that says something and fails."""

    @abc.abstractmethod
    def share_file(self, path: str, content: bytes) -> None:
        """A file that the administrator lists as one for all nodes."""


class RealNode(ContractNode):
    """The handlers of `NodeApplication`, below a root of their own."""

    def __init__(self, directory: Path, name: str, shared: str, authority: Authority) -> None:
        self.name = name
        self.paths = Paths(directory / name)
        for made in (self.paths.etc, self.paths.run, self.paths.log, self.paths.below(LOCAL)):
            made.mkdir(parents=True)
        self.fingerprint = authority.equip(self.paths, name)
        self.uuid = NodeUuid(node_identity(self.paths.node_certificate.read_bytes())[0])
        self.paths.file_storage_paths.write_text(f"{LOCAL}\n{shared}\n")
        self.paths.allowed_uploads.write_text(f"{UPLOAD}\n")
        trigger = self.paths.below(TRIGGER)
        trigger.parent.mkdir()
        trigger.touch()
        request = PromiseRequest(CLUSTER, 0, NodeUuid("master"))
        RegisterFile(self.paths.register).decide(lambda old: join(old, request))
        self._application = self._started()

    def _started(self) -> NodeApplication:
        return NodeApplication(self.paths, SystemClock(), left_cluster=lambda: None)

    async def call(
        self,
        procedure: Procedure[Any, Any],
        args: Any,
        *,
        key: str = "",
        epoch: int = 1,
        master: str = "master",
    ) -> Any:
        node, call = self._application, Call(epoch, master, key)
        sent = wire.decode(wire.encode(args), procedure.arguments)
        if procedure.changes:
            if why := await node.register.check_epoch(epoch, master):
                raise NotMaster(why)
            work = _started(node.handlers[procedure.name](sent, call))
            name = concerned_instance(sent)
            result = await node.running.run(procedure.name, call, work, instance=name)
        else:
            result = await node.handlers[procedure.name](sent, call)
        return wire.convert(wire.plain(result), procedure.result)

    async def restart(self) -> None:
        await self._stop()
        self._application = self._started()

    async def close(self) -> None:
        async with asyncio.timeout(60):
            while self._application.tasks.running():  # noqa: ASYNC110 - nobody's children
                await asyncio.sleep(0.02)
        await self._stop()

    async def _stop(self) -> None:
        await self._application.running.close()
        await self._application.close()

    def add_os(self, name: str) -> None:
        directory = self.paths.os_search_path[0] / name
        directory.mkdir(parents=True)
        (directory / "ganeti_api_version").write_text("20\n")
        (directory / "parameters.list").write_text("good a parameter\nbad another\n")
        self._script(name, "verify", '[ -z "$OSP_BAD" ]')
        self._script(name, "create", "echo installed >&2")
        self._script(name, "rename", "echo renamed >&2")

    def _script(self, os: str, name: str, body: str) -> None:
        path = self.paths.os_search_path[0] / os / name
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)

    def fail_rename(self, name: str) -> None:
        self._script(name, "rename", "exit 3")

    def let_scripts_stay(self, name: str) -> None:
        self._script(name, "create", "exec sleep 600")

    def running_scripts(self) -> list[str]:
        return self._application.tasks.running()

    def add_allocator(self, name: str, stdout: str) -> None:
        path = self.paths.iallocator_search_path[0] / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\nprintf %s '{stdout}'\n")
        path.chmod(0o755)

    def allow_programs(self, oob_program: str, restricted: str) -> None:
        agent = self.paths.below(f"/usr/sbin/{CONTRACT_AGENT}")
        for path in (
            agent,
            self.paths.below(oob_program),
            self.paths.restricted_commands / restricted,
        ):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("#!/bin/sh\necho '[]'\n")
            for one in (path, path.parent, self.paths.etc):
                one.chmod(0o755)
        self.paths.shell_commands_allowed.touch(mode=0o644)

    def add_hook(self, hook: str, phase: Phase, name: str, output: str) -> None:
        path = self.paths.hooks / directory(hook, phase) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\necho '{output}'; exit 1\n")
        for one in (path, path.parent, self.paths.hooks):
            one.chmod(0o755)

    def share_file(self, path: str, content: bytes) -> None:
        self.paths.below(path).write_bytes(content)
        self.paths.distributed_files.write_text(f"{path}\n")


async def _started(answer: Awaitable[Any]) -> Any:
    return await answer


class AddressCommands:
    """Runs programs, but only pretends those that look at or change the host's addresses."""

    def __init__(self) -> None:
        self.here: set[str] = set()

    async def __call__(self, argv: Sequence[str], **options: Any) -> Completed:
        if argv[0] not in ("ip", "arping", "ping"):
            return await _REAL_RUN(argv, **options)
        said = b""
        match list(argv):
            case ["ip", "address", "add", address, *_]:
                self.here.add(address.partition("/")[0])
            case ["ip", "address", "del", address, *_]:
                self.here.remove(address.partition("/")[0])
            case ["ip", *_, address] if address in self.here:
                said = b"here"
        return Completed(tuple(argv), 0, said, b"")


class ModelContractNode(ContractNode):
    """The model of a node that tests of the master use."""

    def __init__(self, name: str, shared: SharedDirectory, directories: Sequence[str]) -> None:
        self.name = name
        self.node = ModelNode(name, CLUSTER, shared, oses={}, allocators={})
        self.uuid = self.node.own_uuid()
        self.node.directories = dict(zip(("file", "sharedfile"), directories, strict=True))
        self.node.declares_variants = False
        self.node.networked = ("kvm",)
        self.node.forbidden_files = {"/etc/passwd"}
        self._handlers = self.node.handlers()

    async def call(
        self,
        procedure: Procedure[Any, Any],
        args: Any,
        *,
        key: str = "",
        epoch: int = 1,
        master: str = "master",
    ) -> Any:
        sent = wire.decode(wire.encode(args), procedure.arguments)
        result = await self._handlers[procedure.name](sent, Call(epoch, master, key))
        return wire.convert(wire.plain(result), procedure.result)

    async def restart(self) -> None:
        self.node.restart_daemon()

    async def close(self) -> None:
        pass

    def add_os(self, name: str) -> None:
        self.node.oses[name] = "1.0"
        self.node.wrong_osparams.add(("bad", "x"))

    def fail_rename(self, name: str) -> None:
        self.node.rename_script_fails = f"{name} ended with exit status 3"

    def let_scripts_stay(self, name: str) -> None:
        self.node.scripts_stay = True

    def running_scripts(self) -> list[str]:
        return sorted(self.node.scripts)

    def add_allocator(self, name: str, stdout: str) -> None:
        self.node.allocators[name] = lambda _message: AllocatorOutput(found=True, stdout=stdout)

    def allow_programs(self, oob_program: str, restricted: str) -> None:
        said = CommandOutput(status=0, stdout="[]")
        self.node.oob_programs[oob_program] = lambda _args: said
        self.node.fence_agents[CONTRACT_AGENT] = lambda _args: said
        self.node.restricted_commands[restricted] = said
        self.node.runs_shell = True

    def add_hook(self, hook: str, phase: Phase, name: str, output: str) -> None:
        failed = HookResult(script=name, problem="exit status 1", output=output)
        self.node.hooks[hook, phase] = [failed]

    def share_file(self, path: str, content: bytes) -> None:
        self.node.shared_files.append(NodeFile(path=path, content=content, mode=0o644))


def two_nodes(kind: str, directory: Path) -> list[ContractNode]:
    """Two nodes of one kind, `real` or `model`, that see one shared directory."""
    shared = str(directory / "shared")
    if kind == "real":
        Path(shared).mkdir()
        authority = Authority()
        return [RealNode(directory, name, shared, authority) for name in ("node1", "node2")]
    space = SharedDirectory()
    nodes = [ModelContractNode(name, space, (LOCAL, shared)) for name in ("node1", "node2")]
    for one, other in (nodes, nodes[::-1]):
        one.node.peers = {ADDRESS: other.node}
        other.node.peers = {ADDRESS: one.node}
    return list(nodes)


def pretend_addresses(setattr_: Any) -> None:
    """Let real nodes change no address of this host; `setattr_` is monkeypatch's."""
    setattr_(application, "run", AddressCommands())
