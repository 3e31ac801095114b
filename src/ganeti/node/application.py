"""The assembly of a node: one dictionary of all handlers."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from ganeti import ssconf
from ganeti.base import tls
from ganeti.base.call_programs import run_endable
from ganeti.base.certificate_facts import node_identity, validity
from ganeti.base.clock import BootClock, Clock
from ganeti.base.errors import ConfigurationError
from ganeti.base.paths import Paths, hostname
from ganeti.base.process import run
from ganeti.bootstrap.daemons import Daemons
from ganeti.guest_os.scripts import OsScripts
from ganeti.hypervisor.interface import Hypervisor
from ganeti.hypervisor.registry import hypervisors
from ganeti.model.objects import NodeUuid
from ganeti.node import (
    agent,
    allocator,
    candidate,
    confd_copy,
    consoles,
    devices,
    disk_moves,
    export_check,
    exports,
    external,
    files,
    former_copies,
    hardware,
    identity,
    image_store,
    images,
    info,
    instance,
    master_ip,
    membership,
    networks,
    os,
    rest,
    snapshots,
    storage,
    storage_units,
    streams,
    uids,
)
from ganeti.node.backups import calls as backups
from ganeti.node.backups import drills, live, moments
from ganeti.node.carrier.keys import TransferKeys
from ganeti.node.commands import NodeCommands
from ganeti.node.export_directory import ExportDirectories
from ganeti.node.fence_agents import NodeFenceAgents
from ganeti.node.figures import Figures
from ganeti.node.grants import GrantRecords, guarded
from ganeti.node.guest_faults import GuestFaults
from ganeti.node.hooks import LocalHooks, NodeHooks
from ganeti.node.instance_locks import InstanceLocks
from ganeti.node.lease_files import LeaseFiles
from ganeti.node.memory_policy import MemoryPolicy
from ganeti.node.mirrored_disks import MirroredDisks
from ganeti.node.offline import is_marked_offline, starting_nothing
from ganeti.node.powercycle import host_powercycle
from ganeti.node.recovery import NodeRecovery
from ganeti.node.register import NodeRegister
from ganeti.node.relay import HeartbeatRelay
from ganeti.node.repeats import Repeats
from ganeti.node.tasks import TaskOrigin, Tasks
from ganeti.node.voter import VoterFacts
from ganeti.node.warm_up import look_after_guests, warm_up
from ganeti.node.watchdog_process import WatchdogProcess
from ganeti.node.work import NodeWork
from ganeti.rpc.calls import Handlers
from ganeti.rpc.meters import Meters
from ganeti.rpc.server import RunningCalls
from ganeti.storage.assemble import device
from ganeti.store.register import RegisterFile

NO_SET = -1
"""The position of the ssconf set if the node has none."""


class NodeApplication:
    """A node: `handlers` answer its calls; `left_cluster` is called when it is no longer in a cluster."""

    def __init__(
        self,
        paths: Paths,
        clock: Clock,
        *,
        left_cluster: Callable[[], None],
        scope: Sequence[str] = (),
    ) -> None:
        self.running = RunningCalls()
        self.tasks = Tasks(paths.tasks, clock, scope, self._origin_of)
        self._register_file = RegisterFile(paths.register)
        self.register = NodeRegister(
            self._register_file, self._older_calls, clock, VoterFacts(paths)
        )
        self._work = NodeWork(self.running, self.tasks, self.register.check_epoch)
        self.allowed = membership.CandidateCertificates(paths)
        self._paths, self._drivers = paths, hypervisors(paths, run)
        locks = InstanceLocks()
        self._guest_faults = GuestFaults(self._drivers, locks, clock)
        daemons, check_master = Daemons(paths), self.register.check_epoch_without_disk
        watchdog = WatchdogProcess(paths, daemons)
        records = GrantRecords(paths.disk_grants, partial(_own_uuid, paths))
        self._mirrored = MirroredDisks(records)
        self.recovery = NodeRecovery(
            LeaseFiles(paths),
            BootClock(),
            check_master,
            watchdog,
            self._guest_faults,
            requests=self._mirrored,
        )
        self._figures = Figures(paths, self._drivers, clock)
        instances = instance.handlers(
            self._drivers, partial(device, paths), locks, self._figures.may_have
        )
        own = [starting_nothing(instances, partial(is_marked_offline, paths))]
        own += _handlers(paths, clock, self.tasks, self._cluster_uuid, self._drivers, locks=locks)
        own = [self.recovery.under_lease(part) for part in own]
        own.append(self.recovery.handlers())
        self._consoles = consoles.Consoles(
            self._drivers,
            lambda: tls.one_shot_server_context(paths.node_certificate, paths.node_key),
        )
        own.append(self._consoles.handlers())
        own.append(self._figures.handlers())
        self._memory_policy = MemoryPolicy(
            paths,
            self._drivers,
            locks,
            node_name=hostname,
            free_mib=lambda: info.Host().memory()[1],
        )
        own.append(HeartbeatRelay(paths).handlers())
        own.append(self.register.handlers())
        own.append(host_powercycle(paths, check_master).handlers())
        own.append(self._work.handlers())
        self.hooks = NodeHooks(paths)
        own.append(self.hooks.handlers())
        own.append(NodeCommands(paths).handlers())
        own.append(NodeFenceAgents(paths).handlers())
        own.append(membership.handlers(paths, daemons, self._cluster_uuid, left_cluster))
        own.append(candidate.handlers(paths, daemons))
        own.append(confd_copy.handlers(paths, daemons))
        own.append(identity.handlers(paths))
        own.append(rest.handlers(daemons))
        own.append(self._mirrored.handlers())
        self.handlers = Repeats().wrap(Meters().wrap(guarded(merged(own), records)))
        self.checks = {**candidate.CHECKS, **membership.checks(self._cluster_uuid)}

    async def look_after_guests(self) -> None:
        """Warm up in the background, then supervise guests until cancelled."""
        await warm_up(self._paths, self._drivers)
        await look_after_guests(self._drivers)

    async def measure(self) -> None:
        """Sample the figures of the node and its guests until cancelled."""
        await self._figures.run()

    async def keep_memory_free(self) -> None:
        """Take memory from guests, and give it back, until cancelled."""
        await self._memory_policy.run()

    async def close(self) -> None:
        """Stop; programs of tasks continue to run."""
        await self._consoles.close()
        await self._figures.close()
        await self._guest_faults.close()
        await self._mirrored.close()
        await self.tasks.close()
        await self.recovery.close()
        await self.register.close()

    def _cluster_uuid(self) -> str:
        register = self._register_file.read()
        return register.cluster_uuid if register else ""

    def _older_calls(self, epoch: int) -> list[str]:
        return self._work.older_than(epoch)

    def _origin_of(self, key: str) -> TaskOrigin:
        one = self.running.with_key(key)
        return TaskOrigin(one.call.epoch, one.instance) if one else TaskOrigin()


def _handlers(
    paths: Paths,
    clock: Clock,
    tasks: Tasks,
    cluster_uuid: Callable[[], str],
    drivers: Mapping[str, Hypervisor],
    *,
    locks: InstanceLocks,
) -> list[Handlers]:
    disks = partial(device, paths)
    facts = info.Facts(
        cluster_uuid=cluster_uuid,
        ssconf_position=lambda: ssconf.current_position(paths) or NO_SET,
        certificate_not_after=lambda: validity(paths.node_certificate.read_bytes())[1],
        ssconf_checksum=partial(_ssconf_checksum, paths),
        authority=partial(_authority, paths),
    )
    scripts = OsScripts(paths.os_search_path, paths.log / "os", tasks, run_endable)
    exported = ExportDirectories.of_node(paths)
    keys = TransferKeys(paths.transfer_keys, clock)
    carried = streams.Streams(paths, tasks, disks, locks, scripts, keys, exported)
    return [
        info.handlers(paths, drivers, facts, clock),
        hardware.handlers(drivers, disks, locks),
        agent.handlers(drivers, locks),
        networks.handlers(drivers),
        devices.handlers(drivers, disks, locks),
        disk_moves.handlers(drivers, disks, locks),
        storage.handlers(disks, locks),
        storage_units.handlers(paths),
        external.handlers(paths),
        os.handlers(scripts, disks, locks),
        exports.handlers(exported, disks, locks),
        starting_nothing(
            snapshots.handlers(drivers, disks, locks), partial(is_marked_offline, paths)
        ),
        export_check.handlers(paths, tasks, exported),
        backups.handlers(paths, tasks),
        moments.handlers(drivers, locks),
        drills.handlers(paths, tasks, drivers),
        starting_nothing(
            live.handlers(live.LiveRestores(paths, tasks, drivers, disks, locks, keys)),
            partial(is_marked_offline, paths),
        ),
        images.handlers(paths, tasks, exported.exports),
        image_store.handlers(paths, tasks, exported.images),
        streams.handlers(carried),
        former_copies.handlers(carried),
        allocator.handlers(paths, run_endable),
        files.handlers(paths, drivers),
        master_ip.handlers(run, LocalHooks(paths), paths.master_ip_script),
        uids.handlers(),
    ]


def _own_uuid(paths: Paths) -> NodeUuid:
    return NodeUuid(node_identity(paths.node_certificate.read_bytes())[0])


def _ssconf_checksum(paths: Paths) -> str:
    try:
        return ssconf.checksum(ssconf.read_set(paths)[1])
    except (ConfigurationError, OSError, UnicodeDecodeError):
        return ""


def _authority(paths: Paths) -> tuple[str, float | None]:
    content = paths.authority_certificate.read_bytes()
    return tls.fingerprint(content), validity(content)[1]


def merged(parts: Sequence[Handlers]) -> Handlers:
    """Return all handlers in one dictionary; two handlers for one procedure are a fault of this program."""
    together: Handlers = {}
    for part in parts:
        twice = sorted(together.keys() & part.keys())
        if twice:
            raise AssertionError(f"two handlers for {', '.join(twice)}")
        together |= part
    return together
