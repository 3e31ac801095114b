"""The calls about the node itself."""

import hashlib
from collections.abc import Mapping
from ipaddress import ip_interface
from typing import Any

from ganeti import __version__
from ganeti.base.errors import (
    ErrorCode,
    HostError,
    InputError,
    PrereqError,
)
from ganeti.base.identifiers import interface_name
from ganeti.model.disk_templates import THIN_POOL, VOLUME_GROUP
from ganeti.model.host_facts import HostFacts, HostQuestion, Link, Space
from ganeti.model.recovery import Token
from ganeti.node.membership import complete_set
from ganeti.rpc.procedures.commands import (
    CommandOutput,
    FenceAgentArgs,
    FenceAgentsArgs,
    OobArgs,
    ProgramsArgs,
    RestrictedArgs,
    ShellArgs,
)
from ganeti.rpc.procedures.disks import (
    StorageUnits,
    StoredDisk,
)
from ganeti.rpc.procedures.files import NodeFile, SharedFiles, SsconfArgs, SsconfWritten
from ganeti.rpc.procedures.form import Nothing
from ganeti.rpc.procedures.hooks import HookDirectory, HookResult, HooksArgs
from ganeti.rpc.procedures.host import (
    LeaveArgs,
    NodeInfo,
    NodeInfoArgs,
    NodeVersion,
    StorageSpace,
    VerifyArgs,
    VerifyReport,
)
from ganeti.rpc.procedures.host import TestDelayArgs as DelayArgs
from ganeti.rpc.procedures.mastership import MasterIpArgs, RegisterAnswer
from ganeti.rpc.procedures.power import PowercycleResult
from ganeti.rpc.procedures.recovery import HeartbeatArgs, HeartbeatResult, RelayArgs
from ganeti.simulation.nodes.state import NodeState
from ganeti.ssconf import checksum
from ganeti.store.election import Vote, Voter


class HostCalls(NodeState):
    """The calls about the node itself."""

    def on_oob_run(self, args: OobArgs) -> CommandOutput:
        self.oob_ran.append((args.command, args.node_name))
        if args.program not in self.oob_programs:
            raise HostError(f"out-of-band program {args.program}: No such file or directory")
        return self.oob_programs[args.program](args)

    def on_oob_problems(self, args: ProgramsArgs) -> dict[str, str]:
        return {
            one: "No such file or directory"
            for one in args.programs
            if one not in self.oob_programs
        }

    def on_fence_agent_run(self, args: FenceAgentArgs) -> CommandOutput:
        if args.agent not in self.fence_agents:
            raise HostError(f"fence agent {args.agent}: it is not installed")
        self.fence_agents_ran.append(args)
        return self.fence_agents[args.agent](args)

    def on_fence_agent_problems(self, args: FenceAgentsArgs) -> dict[str, str]:
        return {one: "it is not installed" for one in args.agents if one not in self.fence_agents}

    def on_restricted_command(self, args: RestrictedArgs) -> CommandOutput:
        if args.command not in self.restricted_commands:
            raise HostError("this node does not run that command; the reason is in its log")
        return self.restricted_commands[args.command]

    def on_shell_command(self, args: ShellArgs) -> CommandOutput:
        if not self.runs_shell:
            raise PrereqError("this node does not run shell command lines", ErrorCode.WRONG_STATE)
        return CommandOutput(status=0, stdout=args.line)

    def on_hooks_list(self, args: Nothing) -> list[HookDirectory]:
        return [HookDirectory(hook=hook, phase=phase) for hook, phase in sorted(self.hooks)]

    def on_hooks_run(self, args: HooksArgs) -> list[HookResult]:
        self.hooks_ran.append(args)
        found = self.hooks[args.hook, args.phase]
        return found(args) if callable(found) else found

    def on_version(self, args: Nothing) -> NodeVersion:
        return NodeVersion(
            software=__version__,
            protocol=1,
            node_name=self.name,
            cluster_uuid="" if self.left else self.cluster_uuid,
        )

    def on_node_info(self, args: NodeInfoArgs) -> NodeInfo:
        return NodeInfo(
            memory_total=self.memory,
            memory_free=max(self.memory - self.guests.memory, 0),
            memory_node=0,
            cpu_total=self.cpus,
            cpu_nodes=1,
            cpu_sockets=1,
            cpu_node=0,
            boot_id=self.boot_id,
            time=self.time,
            storage=[
                StorageSpace(
                    unit=unit,
                    total=place.total,
                    free=max(place.free, 0),
                    promised=place.disks.total if unit.kind == THIN_POOL else 0,
                )
                for unit, place in self._units(args.storage)
            ],
            hypervisor_versions={
                name: "0" if name in self.hypervisors else "" for name in args.hypervisors
            },
        )

    def on_host_facts(self, args: HostQuestion) -> HostFacts:
        return HostFacts(
            name=self.name,
            memory_mib=self.memory,
            cpus=self.cpus,
            is_clock_synchronised=True,
            spaces={one: Space(total=1 << 20, free=1 << 19) for one in args.directories},
            links={one: Link(is_bridge=True, is_up=True, mtu=1500) for one in args.links},
            volume_groups={name: one.free for name, one in self.groups.items()},
        )

    def on_node_verify(self, args: VerifyArgs) -> VerifyReport:
        return VerifyReport(
            software=__version__,
            protocol=1,
            time=self.time,
            hypervisor_problems={
                name: [] if name in self.hypervisors else [f"this node has no hypervisor {name}"]
                for name in args.hypervisors
            },
            storage_problems=[
                f"lvm-vg storage: there is no volume group {unit.key}"
                for unit in args.storage
                if unit.kind == VOLUME_GROUP and unit.key not in self.groups
            ],
            connection_problems={},
            certificate_not_after=self.time + 1e9,
            ssconf_position=self.ssconf_position,
            writable_problems=[],
            ssconf_checksum=checksum(self.ssconf) if self.ssconf else "",
            file_checksums={
                path: hashlib.sha256(self.files[path].content).hexdigest()
                for path in args.files
                if path in self.files
            },
        )

    def on_leave_cluster(self, args: LeaveArgs) -> Nothing:
        if args.cluster_uuid != self.cluster_uuid:
            raise PrereqError(f"not in {args.cluster_uuid}", ErrorCode.WRONG_STATE)
        self.left = True
        return Nothing()

    def on_write_ssconf(self, args: SsconfArgs) -> SsconfWritten:
        if args.position < self.ssconf_position:
            raise PrereqError("the set is older than the one here", ErrorCode.WRONG_STATE)
        self.ssconf_position, self.ssconf = args.position, self._complete_set(args)
        return SsconfWritten(takes_differences=True)

    def _complete_set(self, args: SsconfArgs) -> Mapping[str, str]:
        if args.base is None:
            return args.values
        return complete_set(args, self.ssconf_position, self.ssconf)

    def on_register_read(self, args: Nothing) -> RegisterAnswer:
        register = self.register.read()
        if register is None:
            raise HostError("this node has no register")
        voter = Voter(older_calls=tuple(self.older_calls))
        return RegisterAnswer(vote=Vote(True, register, voter=voter))

    def on_shared_files(self, args: Any) -> SharedFiles:
        return SharedFiles(files=self.shared_files, problems=[])

    def on_write_file(self, args: NodeFile) -> Nothing:
        parts = args.path.split("/")
        if parts[0] or len(parts) == 1 or any(part in ("", ".", "..") for part in parts[1:]):
            raise PrereqError(f"{args.path} is not a plain path", ErrorCode.WRONG_INPUT)
        if args.path in self.forbidden_files:
            raise PrereqError(f"not allowed: {args.path}", ErrorCode.WRONG_STATE)
        self.files[args.path] = args
        return Nothing()

    def on_master_ip_up(self, args: MasterIpArgs) -> Nothing:
        if args.netdev:
            check_address(args)
            self.has_master_ip = True
        return Nothing()

    def on_master_ip_down(self, args: MasterIpArgs) -> Nothing:
        if args.netdev:
            check_address(args)
            self.has_master_ip = False
        return Nothing()

    def on_stored_disks(self, args: StorageUnits) -> list[StoredDisk]:
        return [
            StoredDisk(unit=unit, name=path, size=size)
            for unit, place in self._units(args.units)
            for path, size in sorted(place.disks.items())
        ]

    def on_node_powercycle(self, args: Nothing) -> PowercycleResult:
        self._check_epoch(self.call)
        self.restarts += 1
        return PowercycleResult(delay_s=5)

    def on_heartbeat(self, args: HeartbeatArgs) -> HeartbeatResult:
        self._check_epoch(self.call)
        self.beats.append(args)
        return HeartbeatResult(
            token=Token(self.boot_id, self.time),
            is_armed=not self.why_unarmed,
            why_unarmed=self.why_unarmed,
            faults={one: fault for one, fault in self.faults.items() if one in args.wanted},
        )

    def on_relay_heartbeat(self, args: RelayArgs) -> HeartbeatResult:
        target = self.peers.get(args.node.name)
        if target is None or target.is_off:
            raise HostError(f"node {args.node.name}: no answer")
        target.call = self.call
        return target.on_heartbeat(args.heartbeat)

    def on_test_delay(self, args: DelayArgs) -> Nothing:
        if args.duration_s < 0:
            raise InputError("must not be negative", "duration_s")
        return Nothing()


def check_address(args: MasterIpArgs) -> None:
    """Refuse what no host could have as an address."""
    interface_name(args.netdev, "netdev")
    try:
        ip_interface(f"{args.address}/{args.netmask}")
    except ValueError as err:
        raise PrereqError(str(err), ErrorCode.WRONG_INPUT) from err
    if not args.netmask:
        raise PrereqError("0 is not a netmask's length", ErrorCode.WRONG_INPUT)
