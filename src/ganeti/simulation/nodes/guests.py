"""The calls about guests."""

from typing import Any

from ganeti.base.errors import (
    ErrorCode,
    HypervisorError,
    InputError,
    PrereqError,
)
from ganeti.model.instance_spec import InstanceSpec
from ganeti.rpc.procedures.agent import AgentInfo, Frozen, FrozenArgs
from ganeti.rpc.procedures.consoles import ConsoleArgs, ConsoleEndpoint
from ganeti.rpc.procedures.figures import (
    HistoryArgs,
    HistoryForgetArgs,
    HistoryPart,
    NodeFigures,
)
from ganeti.rpc.procedures.form import Nothing
from ganeti.rpc.procedures.hardware import ForgetNvramArgs, Nvram, Screenshot, WriteNvramArgs
from ganeti.rpc.procedures.host import (
    HypervisorsArgs,
)
from ganeti.rpc.procedures.instances import (
    ConsoleInfo,
    HvParamsArgs,
    InstanceArgs,
    RebootArgs,
    RunningInstance,
    ShutdownArgs,
    StartArgs,
    Stopped,
)
from ganeti.rpc.procedures.networks import NicsArgs
from ganeti.rpc.procedures.uids import UidPoolArgs, UidPoolUse
from ganeti.simulation.nodes.disks import DiskCalls
from ganeti.simulation.nodes.state import Guest
from ganeti.uidpool import CheckUidPool


class GuestCalls(DiskCalls):
    """The calls about guests."""

    def _running(self, guest: Guest) -> RunningInstance:
        return RunningInstance(
            name=guest.spec.name,
            uuid=guest.spec.uuid,
            hypervisor=guest.spec.hypervisor,
            memory=guest.spec.memory,
            vcpus=guest.spec.vcpus,
            state=guest.state,
            cpu_time_s=0.0,
            lowered=guest.lowered,
        )

    def on_instances_info(self, args: HypervisorsArgs) -> list[RunningInstance]:
        for name in args.hypervisors:
            self._check_hypervisor(name)
        return [
            self._running(guest)
            for guest in self.guests.values()
            if guest.spec.hypervisor in args.hypervisors
        ]

    def on_instance_info(self, args: InstanceArgs) -> RunningInstance | None:
        self._check_hypervisor(args.instance.hypervisor)
        guest = self.guests.get(args.instance.uuid)
        return self._running(guest) if guest else None

    def on_instance_start(self, args: StartArgs) -> Nothing:
        self._check_may_start()
        self._check_hypervisor(args.instance.hypervisor)
        self._check_disks(args.instance)
        move = self.disk_moves.get(args.instance.uuid)
        if move is not None:
            right = move.new if move.is_moved else move.old
            if {one.logical_id for one in right} != {one.logical_id for one in args.instance.disks}:
                self.violations.append(f"{args.instance.name} starts from disks of the past")
        if self.refuses_start:
            raise HypervisorError(self.refuses_start)
        guest = self.guests.get(args.instance.uuid)
        if guest and guest.state in ("incoming", "postmigrate"):
            raise HypervisorError(f"{args.instance.name} is in an unfinished migration")
        if guest is None or guest.state != "running":
            state = "paused" if args.paused else "running"
            self.guests[args.instance.uuid] = Guest(args.instance, state)
        return Nothing()

    def _check_may_start(self) -> None:
        if self.name in self.ssconf.get("offline_nodes", "").split():
            raise PrereqError("this node is marked offline", ErrorCode.WRONG_STATE)

    def on_instance_shutdown(self, args: ShutdownArgs) -> Stopped:
        self._check_hypervisor(args.instance.hypervisor)
        self.guests.pop(args.instance.uuid, None)
        return Stopped(has_history=args.instance.uuid in self.histories)

    def on_instance_reboot(self, args: RebootArgs) -> Nothing:
        self._check_may_start()
        if args.reboot_type not in ("soft", "hard"):
            raise InputError(f"{args.reboot_type} is neither soft nor hard", "reboot_type")
        guest = self._here(args.instance)
        if guest.state in ("incoming", "postmigrate"):
            raise HypervisorError(f"{args.instance.name} is in an unfinished migration")
        guest.state = "running"
        return Nothing()

    def on_instance_console(self, args: InstanceArgs) -> ConsoleInfo:
        self._here(args.instance)
        return ConsoleInfo(kind="msg", message=f"{args.instance.name} has no console")

    def on_nics_check(self, args: NicsArgs) -> list[str]:
        self._check_hypervisor(args.hypervisor)
        if args.hypervisor not in self.networked:
            return []
        return [
            f"NIC {nic.index}: the bridge {nic.link!r} does not exist"
            for nic in args.nics
            if nic.mode == "bridged" and nic.link not in self.bridges
        ]

    def on_uid_pool_use(self, args: UidPoolArgs) -> UidPoolUse:
        pool = CheckUidPool(args.uid_pool)
        asked = {uid for low, high in pool for uid in range(low, high + 1)}
        in_use = [uid for uid in self.uids_in_use if uid in asked]
        return UidPoolUse(conflicts=self.uid_conflicts, in_use=in_use)

    def on_validate_hvparams(self, args: HvParamsArgs) -> list[str]:
        self._check_hypervisor(args.hypervisor)
        return self.wrong_hvparams

    def on_pinned_hvparams(self, args: HvParamsArgs) -> dict[str, Any]:
        return dict(self.pinned_hvparams) if self._is_able(args.hypervisor) else {}

    def on_instance_screenshot(self, args: InstanceArgs) -> Screenshot:
        self._check_able(args.instance)
        return Screenshot(png=f"screen of {self._here(args.instance).spec.name}".encode())

    def on_console_open(self, args: ConsoleArgs) -> ConsoleEndpoint:
        self._check_able(args.instance)
        self._here(args.instance)
        return ConsoleEndpoint(port=1, secret=args.instance.uuid)

    def on_figures(self, _args: Nothing) -> NodeFigures:
        return self.figures

    def on_history(self, args: HistoryArgs) -> HistoryPart:
        found = self.histories.get(args.uuid, HistoryPart())
        pairs = zip(found.times, found.rows, strict=True)
        rows = {time: row for time, row in pairs if args.start <= time <= args.end}
        return HistoryPart(times=list(rows), rows=list(rows.values()))

    def on_history_forget(self, args: HistoryForgetArgs) -> Nothing:
        self.histories.pop(args.uuid, None)
        return Nothing()

    def on_agent_info(self, args: InstanceArgs) -> AgentInfo | None:
        return self.agents.get(args.instance.uuid)

    def _check_able(self, instance: InstanceSpec) -> None:
        if not self._is_able(instance.hypervisor):
            raise HypervisorError(f"instances of {instance.hypervisor} have nothing like that")

    def on_agent_freeze(self, args: FrozenArgs) -> Frozen:
        self._check_able(args.instance)
        self._here(args.instance)
        return Frozen(file_systems=1)

    def on_agent_thaw(self, args: InstanceArgs) -> Frozen:
        self._check_able(args.instance)
        return Frozen(file_systems=int(args.instance.uuid in self.guests))

    def on_nvram_read(self, args: InstanceArgs) -> Nvram:
        return Nvram(content=self.nvram.get(args.instance.uuid))

    def on_nvram_write(self, args: WriteNvramArgs) -> Nothing:
        self._check_able(args.instance)
        self.nvram[args.instance.uuid] = args.content
        return Nothing()

    def on_nvram_forget(self, args: ForgetNvramArgs) -> Nothing:
        self.nvram.pop(args.instance.uuid, None)
        return Nothing()

    def _here(self, spec: InstanceSpec) -> Guest:
        self._check_hypervisor(spec.hypervisor)
        if spec.uuid not in self.guests:
            raise HypervisorError(f"{spec.name} does not run on this node")
        return self.guests[spec.uuid]
