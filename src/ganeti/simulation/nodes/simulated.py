"""A simulated node in time: its power, its lease, and how long its work takes."""

import asyncio
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from ganeti.base.errors import GanetiError, HostError, InputError, PrereqError
from ganeti.model import wire
from ganeti.model.fencing import STATUS_OFF, STATUS_ON, AgentAction
from ganeti.model.instance_spec import DiskSpec
from ganeti.model.objects import NodeUuid
from ganeti.model.outofband import OobCommand
from ganeti.model.recovery import GuestFault
from ganeti.node.guest_faults import MISSING_S
from ganeti.node.lease_record import LeaseRecord
from ganeti.node.recovery import NodeRecovery
from ganeti.recovery.lease import Guard, GuardAction
from ganeti.rpc.calls import Call, Handlers, concerned_instance
from ganeti.rpc.headers import EPOCH_HEADER, EPOCH_REFUSED, KEY_HEADER, MASTER_HEADER
from ganeti.rpc.procedures import PROCEDURES
from ganeti.rpc.procedures.commands import (
    FENCE_AGENT_RUN,
    OOB_RUN,
    CommandOutput,
    FenceAgentArgs,
    FenceAgentsArgs,
    OobArgs,
    ProgramsArgs,
)
from ganeti.rpc.procedures.disks import (
    BLOCKDEV_CREATE,
    BLOCKDEV_GROW,
    COPY_JOINS,
    DISK_GRANTED,
    DiskArgs,
)
from ganeti.rpc.procedures.files import SsconfArgs
from ganeti.rpc.procedures.form import Procedure
from ganeti.rpc.procedures.instances import (
    INSTANCE_REBOOT,
    INSTANCE_SHUTDOWN,
    INSTANCE_START,
    RebootArgs,
    ShutdownArgs,
    StartArgs,
)
from ganeti.rpc.procedures.mastership import RegisterAnswer
from ganeti.rpc.procedures.migration import (
    MIGRATION_RUN,
    FinishMigrationArgs,
    MigrateArgs,
)
from ganeti.rpc.procedures.programs import OS_CREATE, OS_RENAME
from ganeti.rpc.procedures.recovery import HEARTBEAT, RELAY_HEARTBEAT, HeartbeatResult, RelayArgs
from ganeti.rpc.procedures.stale_work import EndWorkArgs, EndWorkResult, UnfinishedWork
from ganeti.rpc.transport import Answer
from ganeti.simulation.nodes.mirrored import MirroredCalls
from ganeti.simulation.nodes.mirrors import is_mirrored
from ganeti.simulation.nodes.model import ModelNode
from ganeti.simulation.nodes.state import Guest
from ganeti.simulation.nodes.storage import SharedDirectory, path_of
from ganeti.simulation.nodes.world import World
from ganeti.simulation.trace import Kind
from ganeti.ssconf import checksum
from ganeti.store.election import Vote, Voter
from ganeti.store.register import check_epoch

OK, CONFLICT, FAILED = 200, 409, 500
GUARD_START_S, GUARD_LEAST_S = 2.0, 0.001
"""Until the watchdog process first looks at the lease, and between two looks; less might not advance the clock."""


@dataclass
class Work:
    """A changing call that is being carried out."""

    what: str
    call: Call
    instance: str


class _Killed:
    """A guest that the node can end."""

    def __init__(self, node: "SimulatedNode", guest: Guest) -> None:
        self._node, self._guest = node, guest
        self.name = guest.spec.name

    def kill(self) -> None:
        self._node.end_guest(self._guest.spec.uuid, "the lease of its node is over")


class _Watchdog:
    """The watchdog process; it runs as soon as it is wanted."""

    def __init__(self, node: "SimulatedNode") -> None:
        self._node = node

    def why_unarmed(self) -> str:
        return self._node.why_unarmed

    def want(self) -> None:
        """Run already."""

    async def ensure(self) -> None:
        """Return at once, unless there is no device."""
        if self._node.why_unarmed:
            raise HostError(self._node.why_unarmed)

    async def close(self) -> None: ...


@dataclass(kw_only=True)
class SimulatedNode(MirroredCalls, ModelNode):
    """One machine with its node daemon."""

    world: World
    hangs_guests: bool = False
    """Guests resist being killed, so that only a reset ends them."""
    running: dict[asyncio.Task[Any], Work] = field(default_factory=dict)
    begins: Callable[[Work], object] = lambda _work: None
    """Called with each changing call before it begins."""
    _handlers: Handlers = field(default_factory=dict)
    _boots: int = 0
    _record: LeaseRecord | None = None
    _missing_since: dict[str, float] = field(default_factory=dict)
    _starts: dict[str, float] = field(default_factory=dict)
    """Seconds that the start under way of each guest takes."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.mirrors = self.world.mirrors
        self._boot()

    # --- power ---

    def _boot(self) -> None:
        self._boots += 1
        self.boot_id = f"boot-{self.name}-{self._boots}"
        self.is_off, self._record = False, None
        self._guard = Guard(0.0)
        self._is_guarding = False
        self.restart_daemon()

    def restart_daemon(self) -> None:
        """Begin with what is on disk; running calls are gone."""
        super().restart_daemon()
        for task in list(self.running):
            task.cancel()
        self.recovery = NodeRecovery(
            self,
            self.world.recovery_time,
            self._check_master,
            _Watchdog(self),
            self._faults,
            requests=self.disk_requests,
        )
        self.recovery.begin()
        own = super().handlers() | {
            HEARTBEAT.name: self.recovery.heartbeat,
            RELAY_HEARTBEAT.name: self._relay,
            DISK_GRANTED.name: self.granted,
            COPY_JOINS.name: self.copy_joins,
        }
        self._handlers = self.recovery.under_lease(own)

    def lose_power(self, why: str) -> None:
        """Be off at once: guests and running calls are gone."""
        if self.is_off:
            return
        self.is_off = True
        self.world.trace.add(Kind.NODE_LOST, self.name, why)
        for task in list(self.running):
            task.cancel()
        for uuid in list(self.guests):
            self.end_guest(uuid, "its node is lost")
        for copy in self.mirrors.of_node(self.name):
            self.mirrors.close(copy)
        self.world.changed()

    def get_power(self) -> None:
        """Be up again, without guests."""
        if self.is_off:
            self._boot()
            self.world.trace.add(Kind.NODE_BACK, self.name)
            self.world.changed()

    # --- guests in the trace ---

    def end_guest(self, uuid: str, why: str) -> None:
        """Let a guest be gone."""
        guest = self.guests.pop(uuid, None)
        if guest is not None and guest.state in ("running", "paused"):
            self.world.trace.add(Kind.GUEST_DOWN, guest.spec.name, why, node=self.name)

    def crash_guest(self, uuid: str) -> None:
        """Let a guest end by a fault of its own."""
        self.faults[uuid] = GuestFault.CRASHED
        self.end_guest(uuid, "it has crashed")

    def _begin_guest(self, uuid: str) -> None:
        """Tell when its system serves."""
        guest = self.guests[uuid]
        self.faults.pop(uuid, None)
        took = self._starts.pop(uuid, 0.0)
        self.world.trace.add(Kind.GUEST_STARTS, guest.spec.name, node=self.name, took=took)

        def is_up() -> None:
            if self.guests.get(uuid) is guest:
                self.world.trace.add(Kind.GUEST_UP, guest.spec.name, node=self.name)

        asyncio.get_running_loop().call_later(self.world.seconds("boot_s"), is_up)

    def on_instance_start(self, args: StartArgs) -> Any:
        was_running = args.instance.uuid in self.guests
        result = super().on_instance_start(args)
        if not was_running:
            self._begin_guest(args.instance.uuid)
        return result

    def on_instance_shutdown(self, args: ShutdownArgs) -> Any:
        self._check_hypervisor(args.instance.hypervisor)
        self.end_guest(args.instance.uuid, "it was shut down")
        return super().on_instance_shutdown(args)

    def on_instance_reboot(self, args: RebootArgs) -> Any:
        result = super().on_instance_reboot(args)
        guest = self.guests[args.instance.uuid]
        self.guests[args.instance.uuid] = Guest(guest.spec)
        self.world.trace.add(
            Kind.GUEST_DOWN, guest.spec.name, "it was started again", node=self.name
        )
        self._begin_guest(args.instance.uuid)
        return result

    def on_migration_finish_target(self, args: FinishMigrationArgs) -> Any:
        guest = self.guests.get(args.instance.uuid)
        arrives = args.success and guest is not None and guest.state == "incoming"
        result = super().on_migration_finish_target(args)
        if arrives:
            self.world.trace.add(Kind.GUEST_MOVED, args.instance.name, node=self.name)
        return result

    def _faults(self, wanted: Sequence[str]) -> Mapping[str, GuestFault]:
        """As `ganeti.node.guest_faults`: a guest without a trace counts after a while."""
        now = self.world.recovery_time.monotonic()
        self._missing_since = {
            uuid: self._missing_since.get(uuid, now) for uuid in wanted if uuid not in self.guests
        }
        return {
            uuid: self.faults.get(uuid, GuestFault.CRASHED)
            for uuid, since in self._missing_since.items()
            if uuid in self.faults or now - since >= MISSING_S
        }

    # --- the machine of its lease ---

    def read(self) -> LeaseRecord | None:
        """Return the record of this boot."""
        return self._record

    def write(self, record: LeaseRecord) -> None:
        """Keep a record, and watch for its end."""
        self._record = record
        self._guard.ends_at = record.ends_at
        if record.protected and not self._is_guarding:
            self._is_guarding = True
            self._guard_later()

    def living_guests(self, uuids: Collection[str]) -> list[_Killed]:
        """Return the guests of these instances that run."""
        return [_Killed(self, guest) for uuid, guest in self.guests.items() if uuid in uuids]

    def _guard_later(self) -> None:
        time = self.world.recovery_time
        left_s = self._guard.ends_at - time.monotonic()
        delay_s = max(left_s, GUARD_LEAST_S) if left_s > 0 else GUARD_START_S
        time.call_later(delay_s, self._guard_now, self.boot_id)

    def _guard_now(self, boot_id: str) -> None:
        """Do what the watchdog process does."""
        if self.is_off or boot_id != self.boot_id or self._record is None:
            return
        guests = self.living_guests(self._record.protected)
        now = self.world.recovery_time.monotonic()
        actions = self._guard.tick(now, has_guests=bool(guests))
        if GuardAction.KILL in actions:
            self.world.trace.add(Kind.LEASE_OVER, self.name)
            for guest in guests if not self.hangs_guests else ():
                guest.kill()
        if GuardAction.RESET in actions and self.living_guests(self._record.protected):
            self.lose_power("its watchdog has reset it")
            asyncio.get_running_loop().call_later(self.world.seconds("node_boot_s"), self.get_power)
            return
        if self._record.protected:
            self._guard_later()
        else:
            self._is_guarding = False

    # --- calls ---

    async def post(self, name: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        """Answer a request as the node daemon does."""
        procedure, call = PROCEDURES[name], _call_of(headers)
        try:
            args = self.world.arguments.of(procedure, body)
            if name not in self._handlers:
                raise HostError(f"simulated nodes have no procedure {name}")
            if procedure.changes and (
                why := await self._check_master(call.epoch, call.master_uuid)
            ):
                return _error(CONFLICT, EPOCH_REFUSED, why)
            result = await self._handlers[name](args, call)
        except GanetiError as err:
            code = str(err.code) if isinstance(err, PrereqError | InputError) else ""
            return _error(FAILED, err.wire_name, err.message, code)
        hooks = "" if call.key else None
        return Answer(OK, b'{"result":' + wire.encode(result) + b"}", hooks)

    def begin(self, name: str, body: bytes, headers: Mapping[str, str]) -> asyncio.Task[Answer]:
        """Begin a changing call, which goes on if its caller is gone."""
        task = asyncio.get_running_loop().create_task(self.post(name, body, headers))
        args, call = self.world.arguments.of(PROCEDURES[name], body), _call_of(headers)
        work = Work(f"{name} {call.key}", call, concerned_instance(args))
        self.begins(work)
        self.running[task] = work
        task.add_done_callback(self.running.pop)
        return task

    async def _check_master(self, epoch: int, master: str) -> str | None:
        if epoch <= 0 or not master:
            return "a changing call needs the epoch and the UUID of the master"
        answer = self.register.decide(lambda old: check_epoch(old, epoch, NodeUuid(master)))
        return None if answer.granted else answer.reason

    async def _relay(self, args: RelayArgs, call: Call) -> HeartbeatResult:
        """Pass a heartbeat on to a node that does not answer the master."""
        network, target = self.world.network, self.peers.get(args.node.name)
        if target is None or target.is_off or not network.passes(self.name, args.node.name):
            await asyncio.sleep(self.world.durations.connect_timeout_s)
            raise HostError(f"node {args.node.name}: no answer")
        await asyncio.sleep(network.delay())
        result = await target.recovery.heartbeat(args.heartbeat, call)
        if target.is_off or not network.passes(args.node.name, self.name):
            raise HostError(f"node {args.node.name}: no answer")
        return result

    def on_register_read(self, args: Any) -> RegisterAnswer:
        del args
        register = self.register.read()
        if register is None:
            raise HostError("this node has no register")
        older = [
            one.what for one in self.running.values() if one.call.epoch < register.promised.epoch
        ]
        return RegisterAnswer(vote=Vote(True, register, voter=Voter(older_calls=tuple(older))))

    def on_end_stale_work(self, args: EndWorkArgs) -> EndWorkResult:
        result = super().on_end_stale_work(args)
        left = [
            UnfinishedWork(what=one.what, instance=one.instance)
            for one in self.running.values()
            if (args.older and one.call.epoch < self.call.epoch) or one.call.key in args.keys
        ]
        return EndWorkResult(ended=result.ended, unfinished=[*result.unfinished, *left])

    def start_takes(self, uuid: str) -> float:
        """Return how long the start of this guest's process will take; it begins now."""
        self._starts[uuid] = self.world.seconds("start_s")
        return self._starts[uuid]

    def _seconds_of(self, procedure: Procedure[Any, Any], args: Any) -> float:
        rule = _SECONDS.get(procedure.name)
        return 0.0 if rule is None else rule(self, args)

    # --- the power of other nodes ---

    def on_fence_agent_run(self, args: FenceAgentArgs) -> CommandOutput:
        name = self.world.node_with_device(args.agent, args.options)
        node = self._powered(name or "")
        if node is None:
            return CommandOutput(status=1, stderr="no answer")
        if args.action == AgentAction.OFF:
            node.lose_power("its power device has switched it off")
            return CommandOutput(status=0)
        return CommandOutput(status=STATUS_OFF if node.is_off else STATUS_ON)

    def on_oob_run(self, args: OobArgs) -> CommandOutput:
        node = self._powered(args.node_name)
        if node is None:
            return CommandOutput(status=1, stderr="no answer")
        match args.command:
            case OobCommand.POWER_STATUS:
                return CommandOutput(status=0, stdout=json.dumps({"powered": not node.is_off}))
            case OobCommand.HEALTH:
                return CommandOutput(status=0, stdout="[]")
            case OobCommand.POWER_ON:
                node.get_power()
            case OobCommand.POWER_CYCLE:
                node.lose_power("its power device has switched it off and on")
                node.get_power()
            case _:
                node.lose_power("its power device has switched it off")
        return CommandOutput(status=0)

    def on_fence_agent_problems(self, args: FenceAgentsArgs) -> dict[str, str]:
        del args
        return {}

    def on_oob_problems(self, args: ProgramsArgs) -> dict[str, str]:
        del args
        return {}

    def _powered(self, name: str) -> "SimulatedNode | None":
        """Return a node whose power device answers."""
        return self.peers.get(name) if self.world.power_works(name) else None

    # --- files ---

    def _complete_set(self, args: SsconfArgs) -> Mapping[str, str]:
        key = args.base, args.position, args.checksum or checksum(args.values)
        former = None if args.base is None else self.ssconf
        return self.world.ssconf_sets.of(
            key, former, lambda: super(SimulatedNode, self)._complete_set(args)
        )

    # --- storage ---

    def place_disk(self, disk: DiskSpec) -> None:
        """Have a disk of the configuration from the beginning."""
        for child in disk.children:
            self.place_disk(child)
        if is_mirrored(disk):
            self.mirrors.add(self.name, disk, is_filled=True)
            return
        place = self._place(disk)
        place.disks[path_of(disk)], place.owners[path_of(disk)] = disk.size, disk.uuid

    def _allows(self, kind: str, path: str) -> bool:
        del path
        return kind in self.directories

    def _place(self, disk: DiskSpec) -> SharedDirectory:
        if is_mirrored(disk):
            return self._place(disk.children[0])
        if disk.template == "plain":
            return self.groups.setdefault(str(disk.own_id[0]), SharedDirectory())
        return self.local if disk.template == "file" else self.shared


def _stopping_s(node: SimulatedNode, args: ShutdownArgs) -> float:
    return node.world.seconds("stop_s") if args.instance.uuid in node.guests else 0.0


def _moving_s(node: SimulatedNode, args: MigrateArgs) -> float:
    rate = node.world.durations.migration_mib_s
    return node.world.seconds("migration_s") + args.instance.memory / rate


def _creating_s(node: SimulatedNode, args: DiskArgs) -> float:
    wiped = _wiped(args.disk, node.world.durations.wipe_mib_s)
    return node.world.seconds("disk_create_s") + wiped


def _cutting_s(node: SimulatedNode, args: FenceAgentArgs) -> float:
    return node.world.seconds("power_cut_s") if args.action == AgentAction.OFF else 0.0


def _powering_s(node: SimulatedNode, args: OobArgs) -> float:
    return node.world.seconds("power_cut_s") if args.command != OobCommand.POWER_STATUS else 0.0


_SECONDS: dict[str, Callable[[SimulatedNode, Any], float]] = {
    INSTANCE_START.name: lambda node, args: node.start_takes(args.instance.uuid),
    INSTANCE_REBOOT.name: lambda node, args: node.start_takes(args.instance.uuid),
    INSTANCE_SHUTDOWN.name: _stopping_s,
    MIGRATION_RUN.name: _moving_s,
    BLOCKDEV_CREATE.name: _creating_s,
    BLOCKDEV_GROW.name: lambda node, _args: node.world.seconds("disk_create_s"),
    OS_CREATE.name: lambda node, _args: node.world.seconds("install_s"),
    OS_RENAME.name: lambda node, _args: node.world.seconds("install_s") / 10,
    FENCE_AGENT_RUN.name: _cutting_s,
    OOB_RUN.name: _powering_s,
}
"""How long the work of a call takes."""


def _call_of(headers: Mapping[str, str]) -> Call:
    epoch, master = headers.get(EPOCH_HEADER, "0"), headers.get(MASTER_HEADER, "")
    return Call(int(epoch), master, headers.get(KEY_HEADER, ""))


def _wiped(disk: DiskSpec, rate: float) -> float:
    return disk.size / rate if disk.wipe else 0.0


def _error(status: int, error: str, message: str, code: str = "") -> Answer:
    return Answer(
        status, msgspec.json.encode({"error": error, "message": message, "code": code}), None
    )
