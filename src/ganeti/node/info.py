"""Answers calls about the node itself: version, resources, self-examination."""

import asyncio
import contextlib
import os
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from ganeti import __version__
from ganeti.base import permissions
from ganeti.base.clock import Clock
from ganeti.base.errors import ConfigurationError, HypervisorError, StorageError
from ganeti.base.paths import Paths, hostname
from ganeti.base.roles import DAEMONS, held_files
from ganeti.base.users import ServiceUsers
from ganeti.bootstrap.daemons import Daemons
from ganeti.doctor.gather import host_facts, of_node
from ganeti.hypervisor.interface import Hypervisor
from ganeti.model.disk_templates import StorageUnit
from ganeti.model.host_facts import HostFacts, HostQuestion
from ganeti.node.files import checksums_of
from ganeti.node.lease_record import boot_id
from ganeti.rpc.calls import Call, Handlers
from ganeti.rpc.procedures.disks import STORED_DISKS, StorageUnits, StoredDisk
from ganeti.rpc.procedures.form import PROTOCOL_VERSION, Nothing
from ganeti.rpc.procedures.host import (
    HOST_FACTS,
    NODE_INFO,
    NODE_VERIFY,
    VERSION,
    NodeInfo,
    NodeInfoArgs,
    NodeVersion,
    StorageSpace,
    VerifyArgs,
    VerifyReport,
)
from ganeti.storage.drbd.driver import Kernel
from ganeti.storage.kinds import sharing_problems, storage_kind, storage_problems
from ganeti.store.preserved_states import preserved_states, read_preserved

CPUS_OF_THE_HOST = 1
"""Processors reserved for the host."""

VERSION_LIFETIME_S = 300.0
"""Time for which a hypervisor's version is cached."""

CONNECT_TIMEOUT_S = 5.0
CONNECTIONS_AT_ONCE = 30

Connect = Callable[[str, int], Awaitable[None]]
"""Reaches a TCP port, or raises OSError."""


async def connect(address: str, port: int) -> None:
    """Open a connection and close it again."""
    _, writer = await asyncio.open_connection(address, port)
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


@dataclass(frozen=True)
class Facts:
    """Facts from other parts of the node daemon."""

    cluster_uuid: Callable[[], str]
    """'' before a join."""
    ssconf_position: Callable[[], int]
    """-1 without a set."""
    certificate_not_after: Callable[[], float]
    """Seconds since the epoch."""
    ssconf_checksum: Callable[[], str] = str
    """'' without a set."""
    authority: Callable[[], tuple[str, float | None]] = lambda: ("", None)
    """Fingerprint and end of the cluster's authority."""


@dataclass(frozen=True)
class Host:
    """Sources of the kernel's facts about this machine."""

    proc: Path = Path("/proc")
    sys: Path = Path("/sys")

    @cached_property
    def cpus(self) -> tuple[int, int, int]:
        """Return processors, NUMA nodes and sockets; read once, because the kernel is slow to list them."""
        total, sockets = parse_cpuinfo((self.proc / "cpuinfo").read_text("utf-8", "replace"))
        numa = sum(1 for _ in (self.sys / "devices/system/node").glob("node[0-9]*"))
        return total or os.cpu_count() or 1, numa or 1, sockets

    def memory(self) -> tuple[int, int]:
        """Return total and free MiB; the page cache counts as free."""
        return parse_meminfo((self.proc / "meminfo").read_text("ascii"))


def handlers(
    paths: Paths,
    hypervisors: Mapping[str, Hypervisor],
    facts: Facts,
    clock: Clock,
    *,
    host: Host | None = None,
    connect: Connect = connect,
) -> Handlers:
    """Return the handlers of all calls about the node itself."""
    node = _Node(paths, hypervisors, facts, clock, host or Host(), connect)
    return {
        VERSION.name: node.version,
        NODE_INFO.name: node.info,
        NODE_VERIFY.name: node.verify,
        STORED_DISKS.name: node.stored_disks,
        HOST_FACTS.name: node.host_facts,
    }


@dataclass(frozen=True)
class _Node:
    paths: Paths
    hypervisors: Mapping[str, Hypervisor]
    facts: Facts
    clock: Clock
    host: Host
    connect: Connect
    versions: dict[str, tuple[float, str]] = field(default_factory=dict)

    async def version(self, _args: Nothing, _call: Call) -> NodeVersion:
        return NodeVersion(
            software=__version__,
            protocol=PROTOCOL_VERSION,
            node_name=hostname(),
            cluster_uuid=self.facts.cluster_uuid(),
        )

    async def info(self, args: NodeInfoArgs, _call: Call) -> NodeInfo:
        memory_total, memory_free = self.host.memory()
        cpu_total, cpu_nodes, cpu_sockets = self.host.cpus
        return NodeInfo(
            memory_total=memory_total,
            memory_free=memory_free,
            memory_node=memory_total - memory_free,
            cpu_total=cpu_total,
            cpu_nodes=cpu_nodes,
            cpu_sockets=cpu_sockets,
            cpu_node=CPUS_OF_THE_HOST,
            boot_id=boot_id(self.paths),
            time=self.clock.time(),
            storage=await self._spaces(args.storage),
            hypervisor_versions={
                name: await self._hypervisor_version(name) for name in args.hypervisors
            },
        )

    async def host_facts(self, args: HostQuestion, _call: Call) -> HostFacts:
        return await host_facts(of_node(args, self.paths))

    async def verify(self, args: VerifyArgs, _call: Call) -> VerifyReport:
        authority, authority_not_after = self.facts.authority()
        mirror_version, mirror_helper = await asyncio.to_thread(Kernel().module)
        return VerifyReport(
            software=__version__,
            protocol=PROTOCOL_VERSION,
            time=self.clock.time(),
            hypervisor_problems={
                name: await self._hypervisor_problems(name) for name in args.hypervisors
            },
            storage_problems=await storage_problems(self.paths, args.storage),
            sharing_problems=await sharing_problems(self.paths, args.storage)
            if args.exclusive
            else [],
            connection_problems=await self._connection_problems(args.nodes),
            certificate_not_after=self.facts.certificate_not_after(),
            ssconf_position=self.facts.ssconf_position(),
            writable_problems=await asyncio.to_thread(self._writable_problems),
            permission_problems=await asyncio.to_thread(self._permission_problems),
            ssconf_checksum=await asyncio.to_thread(self.facts.ssconf_checksum),
            file_checksums=await asyncio.to_thread(checksums_of, self.paths, args.files),
            authority=authority,
            authority_not_after=authority_not_after,
            preserved_states=[str(path) for path in preserved_states(self.paths.state)],
            preserved_contents=await asyncio.to_thread(self._preserved_contents),
            role_files=[self.paths.named(path) for path in held_files(self.paths)],
            role_daemons=[name for name in DAEMONS if Daemons(self.paths).status(name).is_alive],
            mirror_version=mirror_version,
            mirror_helper=mirror_helper,
        )

    async def stored_disks(self, args: StorageUnits, _call: Call) -> list[StoredDisk]:
        return [
            disk for unit in args.units for disk in await storage_kind(unit).disks(self.paths, unit)
        ]

    def _preserved_contents(self) -> dict[str, str]:
        state, archive = self.paths.state, self.paths.job_archive
        found = [read_preserved(path, state, archive) for path in preserved_states(state)]
        return {str(one.path): one.summary() for one in found if one is not None}

    async def _spaces(self, wanted: list[StorageUnit]) -> list[StorageSpace]:
        """Return the usable storage; `verify` reports why other storage is unusable."""
        spaces = []
        for unit in wanted:
            with contextlib.suppress(StorageError):
                spaces.append(await storage_kind(unit).space(self.paths, unit))
        return spaces

    async def _hypervisor_version(self, name: str) -> str:
        """Return the version, '' if it is unknown; cached, because asking may start a program."""
        now = self.clock.monotonic()
        believed_until, text = self.versions.get(name, (now, ""))
        if now < believed_until:
            return text
        hypervisor = self.hypervisors.get(name)
        text = ""
        if hypervisor is not None:
            with contextlib.suppress(HypervisorError):
                text = await hypervisor.version()
        self.versions[name] = (now + VERSION_LIFETIME_S, text)
        return text

    async def _hypervisor_problems(self, name: str) -> list[str]:
        hypervisor = self.hypervisors.get(name)
        if hypervisor is None:
            return [f"this node has no hypervisor {name}"]
        try:
            return await hypervisor.verify()
        except HypervisorError as err:
            return [err.message]

    async def _connection_problems(self, nodes: list[tuple[str, str, int]]) -> dict[str, str]:
        """Connect to each node's address once, a few at a time; return the failures."""
        slots = asyncio.Semaphore(CONNECTIONS_AT_ONCE)

        async def problem(name: str, address: str, port: int) -> tuple[str, str]:
            try:
                async with slots, asyncio.timeout(CONNECT_TIMEOUT_S):
                    await self.connect(address, port)
            except TimeoutError:
                return name, f"{address}:{port} does not answer within {CONNECT_TIMEOUT_S:g} s"
            except OSError as err:
                return name, f"{address}:{port} cannot be reached: {err.strerror or err}"
            return name, ""

        answers = await asyncio.gather(*(problem(*node) for node in nodes))
        return {name: why for name, why in answers if why}

    def _permission_problems(self) -> list[str]:
        try:
            return permissions.problems(self.paths, ServiceUsers.of_node(self.paths))
        except ConfigurationError as err:
            return [err.message]

    def _writable_problems(self) -> list[str]:
        problems = []
        for directory in (self.paths.data, self.paths.log, self.paths.run):
            try:
                with tempfile.TemporaryFile(dir=directory):
                    pass
            except OSError as err:
                problems.append(f"{directory} cannot be written: {err.strerror}")
        return problems


def parse_meminfo(text: str) -> tuple[int, int]:
    """Return total and available MiB of a `/proc/meminfo`."""
    fields = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    return _kib(fields["MemTotal"]) // 1024, _kib(fields["MemAvailable"]) // 1024


def _kib(text: str) -> int:
    return int(text.removesuffix("kB"))


def parse_cpuinfo(text: str) -> tuple[int, int]:
    """Return processors and sockets of a `/proc/cpuinfo`; one socket if it names none."""
    lines = [line.partition(":") for line in text.splitlines()]
    processors = sum(name.strip() == "processor" for name, _, _ in lines)
    sockets = {value.strip() for name, _, value in lines if name.strip() == "physical id"}
    return processors, len(sockets) or 1
