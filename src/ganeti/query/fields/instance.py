"""Fields of instances; the h-tools read them as well."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from ganeti.model.backup_schedule import BackupRun
from ganeti.model.instance_view import snapshot_dictionary
from ganeti.model.names import AdminState
from ganeti.model.params import BACKEND_PARAMS
from ganeti.model.recovery import Recovery
from ganeti.query.fields.field import (
    NO_DATA,
    UNAVAILABLE,
    Field,
    Missing,
    Need,
    ValueKind,
    kind_of_param,
)
from ganeti.query.fields.field import field_table as table
from ganeti.query.fields.hypervisor_params import hypervisor_param_fields
from ganeti.query.fields.instance_devices import disk_fields, nic_fields
from ganeti.query.fields.instance_row import InstanceRow
from ganeti.query.fields.stored import stored_fields
from ganeti.query.fields.usage import usage_fields
from ganeti.query.instance_status import PrimaryNode
from ganeti.recovery.instance import InstanceState
from ganeti.rpc.procedures.instances import ConsoleInfo, RunningInstance
from ganeti.schedules.alerts import state_of, worst

_TEXT, _BOOL, _NUMBER, _UNIT, _OTHER = (
    ValueKind.TEXT,
    ValueKind.BOOL,
    ValueKind.NUMBER,
    ValueKind.UNIT,
    ValueKind.OTHER,
)


def _live(
    name: str, title: str, kind: ValueKind, doc: str, value: Callable[[InstanceRow], Any]
) -> Field[InstanceRow]:
    return Field(name, title, kind, doc, value, frozenset((Need.INSTANCES,)))


def _oper_state(row: InstanceRow) -> bool | Missing:
    found = row.on_primary
    return found if isinstance(found, Missing) else row.primary_says is PrimaryNode.RUNS


def _of_running(value: Callable[[RunningInstance], Any]) -> Callable[[InstanceRow], Any]:
    def get(row: InstanceRow) -> Any:
        found = row.on_primary
        if isinstance(found, Missing):
            return found
        if found is None or row.primary_says not in (PrimaryNode.RUNS, PrimaryNode.STANDS_STILL):
            return UNAVAILABLE
        return value(found)

    return get


def _console(row: InstanceRow) -> dict[str, Any] | Missing:
    found = row.context.live.consoles.get(row.instance.uuid, NO_DATA)
    if isinstance(found, Missing):
        return found
    return console_dictionary(row.instance.name, row.primary_name, found)


def _console_log(row: InstanceRow) -> str | Missing:
    found = row.context.live.consoles.get(row.instance.uuid, NO_DATA)
    return found if isinstance(found, Missing) else found.log_path or UNAVAILABLE


def _recovery_state(row: InstanceRow) -> str | Missing:
    if row.beparams["recovery"] == Recovery.NONE:
        return UNAVAILABLE
    own = row.instance.recovery
    return InstanceState.GIVEN_UP.value if own and own.given_up else "protected"


_FIRST_VNC_PORT = 5900
"""The port of VNC's display 0."""


def _runs(row: InstanceRow) -> Sequence[BackupRun]:
    return row.context.backup_runs.get(row.instance.uuid, ())


def _backup_state(row: InstanceRow) -> str | Missing:
    found = worst(map(state_of, _runs(row)))
    return UNAVAILABLE if found is None else found.value


def console_dictionary(instance: str, node: str, console: ConsoleInfo) -> dict[str, Any]:
    """Return the parameters of a console, in the words that clients of Ganeti know (`ssh`, `vnc`, `spice`, `msg`)."""
    if console.kind in ("vnc", "spice"):
        found = {
            "instance": instance,
            "kind": console.kind,
            "host": console.host or node,
            "port": console.port,
        }
        return found | (
            {"display": console.port - _FIRST_VNC_PORT} if console.kind == "vnc" else {}
        )
    if console.kind != "socket":
        text = console.message or f"The console is of the kind {console.kind}"
        return {"instance": instance, "kind": "msg", "message": text}
    command = ["socat", "STDIO,raw,echo=0,escape=0x1d", f"UNIX-CONNECT:{console.path}"]
    return {"instance": instance, "kind": "ssh", "host": node, "user": "root", "command": command}


_CONFIGURED: tuple[Field[InstanceRow], ...] = (
    Field(
        "name",
        "Instance",
        _TEXT,
        "Name of the instance",
        lambda r: r.instance.name,
        is_host_name=True,
    ),
    Field("os", "OS", _TEXT, "OS definition, with its variant", lambda r: r.instance.os),
    Field(
        "hypervisor",
        "Hypervisor",
        _TEXT,
        "Hypervisor that runs the instance",
        lambda r: r.instance.hypervisor,
    ),
    Field(
        "pnode",
        "Primary_node",
        _TEXT,
        "Node that the instance runs on",
        lambda r: r.primary_name,
        is_host_name=True,
    ),
    Field(
        "pnode.group",
        "PrimaryNodeGroup",
        _TEXT,
        "Group of the primary node",
        lambda r: r.group_of(r.instance.primary_node)[0],
    ),
    Field(
        "pnode.group.uuid",
        "PrimaryNodeGroupUUID",
        _TEXT,
        "UUID of the primary node's group",
        lambda r: r.group_of(r.instance.primary_node)[1],
    ),
    Field(
        "snodes",
        "Secondary_Nodes",
        _OTHER,
        "Nodes that hold a second copy of the disks",
        lambda r: r.secondary_names,
        is_host_name=True,
    ),
    Field(
        "snodes.group",
        "SecondaryNodesGroups",
        _OTHER,
        "Groups of the secondary nodes",
        lambda r: [r.group_of(uuid)[0] for uuid in r.instance.secondary_nodes],
    ),
    Field(
        "snodes.group.uuid",
        "SecondaryNodesGroupsUUID",
        _OTHER,
        "UUIDs of the secondary nodes' groups",
        lambda r: [r.group_of(uuid)[1] for uuid in r.instance.secondary_nodes],
    ),
    Field(
        "admin_state",
        "InstanceState",
        _TEXT,
        "Desired state of the instance: up, down or offline",
        lambda r: r.instance.admin_state.value,
    ),
    Field(
        "admin_state_source",
        "InstanceStateSource",
        _TEXT,
        "Who wanted it last: the administrator or the guest's user",
        lambda r: r.instance.admin_state_source.value,
    ),
    Field(
        "admin_up",
        "Autostart",
        _BOOL,
        "Whether the instance should be up",
        lambda r: r.instance.admin_state is AdminState.UP,
    ),
    Field(
        "recovery_state",
        "Recovery",
        _TEXT,
        "Whether automatic recovery protects the instance, or has given it up",
        _recovery_state,
    ),
    Field(
        "recovery_why",
        "RecoveryReason",
        _TEXT,
        "Why automatic recovery has given the instance up",
        lambda r: (r.instance.recovery and r.instance.recovery.given_up) or UNAVAILABLE,
    ),
    Field(
        "snapshots",
        "Snapshots",
        _OTHER,
        "Snapshots of the disks, the oldest first: name, time, size, consistency, and the size of each disk",
        lambda r: [snapshot_dictionary(one) for one in r.instance.snapshots],
    ),
    Field(
        "snapshot_count",
        "SnapshotCount",
        _NUMBER,
        "Number of snapshots of the disks",
        lambda r: len(r.instance.snapshots),
    ),
    Field(
        "rolling_back",
        "RollingBack",
        _TEXT,
        "Snapshot to which an unfinished rollback has to be repeated",
        lambda r: next(
            (one.name for one in r.instance.snapshots if one.uuid == r.instance.rolling_back),
            UNAVAILABLE,
        ),
    ),
    Field(
        "restoring",
        "Restoring",
        _TEXT,
        "Backup from which an unfinished restore has to be repeated",
        lambda r: r.instance.restoring.point if r.instance.restoring else UNAVAILABLE,
    ),
    Field(
        "backup_last",
        "LastBackup",
        ValueKind.TIMESTAMP,
        "Time of the last good backup by a schedule",
        lambda r: max((run.last_good for run in _runs(r)), default=0.0) or UNAVAILABLE,
    ),
    Field(
        "backup_state",
        "BackupState",
        _TEXT,
        "State of the scheduled backups, the worst of all schedules: old, failing, waiting (for the first one) or good",
        _backup_state,
    ),
    Field(
        "template",
        "Template",
        _BOOL,
        "Whether it is a template, which cannot start and is cloned",
        lambda r: r.instance.template,
    ),
    Field(
        "forthcoming",
        "Forthcoming",
        _BOOL,
        "Whether the instance only reserves resources yet",
        lambda _row: False,
    ),
    Field(
        "disks_active",
        "DisksActive",
        _BOOL,
        "Whether the disks are wanted in use",
        lambda r: r.instance.admin_state is AdminState.UP,
    ),
    Field(
        "network_port",
        "Network_port",
        _OTHER,
        "Port of the graphical console (VNC or SPICE), if it has one",
        lambda r: UNAVAILABLE if r.instance.network_port is None else r.instance.network_port,
    ),
    Field(
        "hvparams",
        "HypervisorParameters",
        _OTHER,
        "Hypervisor parameters, including the cluster's",
        lambda r: r.hvparams,
    ),
    Field(
        "beparams",
        "BackendParameters",
        _OTHER,
        "Backend parameters, including the cluster's",
        lambda r: r.beparams,
    ),
    Field(
        "osparams",
        "OpSysParameters",
        _OTHER,
        "OS parameters, including the cluster's",
        lambda r: r.osparams,
    ),
    Field(
        "custom_hvparams",
        "CustomHypervisorParameters",
        _OTHER,
        "Hypervisor parameters that were set for this instance",
        lambda r: r.instance.hvparams,
    ),
    Field(
        "custom_beparams",
        "CustomBackendParameters",
        _OTHER,
        "Backend parameters that were set for this instance",
        lambda r: r.instance.beparams,
    ),
    Field(
        "custom_osparams",
        "CustomOpSysParameters",
        _OTHER,
        "OS parameters that were set for this instance",
        lambda r: r.instance.osparams,
    ),
    Field(
        "custom_nicparams",
        "CustomNicParameters",
        _OTHER,
        "NIC parameters that were set for each interface",
        lambda r: [nic.nicparams for nic in r.instance.nics],
    ),
)

_ASKED: tuple[Field[InstanceRow], ...] = (
    _live(
        "status",
        "Status",
        _TEXT,
        "Desired and actual state: running; ADMIN_down, ADMIN_offline or USER_down where it is"
        " rightly down; ERROR_down (not there, or paused), ERROR_up or ERROR_wrongnode where it is"
        " not as wanted;"
        " ERROR_nodedown or ERROR_nodeoffline where its node cannot be asked",
        lambda r: r.status,
    ),
    _live(
        "oper_state",
        "Running",
        _BOOL,
        "Whether the instance runs now; a paused one does not",
        _oper_state,
    ),
    _live(
        "oper_ram",
        "Memory",
        _UNIT,
        "Memory that the hypervisor gives the instance now",
        _of_running(lambda found: found.memory),
    ),
    _live(
        "oper_ram_before",
        "MemoryBefore",
        _UNIT,
        "Memory that the instance had before its node took some of it to keep memory free (memory_goal)",
        _of_running(lambda found: found.lowered.before if found.lowered else UNAVAILABLE),
    ),
    _live(
        "oper_vcpus",
        "VCPUs",
        _NUMBER,
        "Virtual processors that the instance has now",
        _of_running(lambda found: found.vcpus),
    ),
    Field(
        "console",
        "Console",
        _OTHER,
        "How to reach the console",
        _console,
        frozenset((Need.CONSOLES,)),
    ),
    Field(
        "console_log",
        "ConsoleLog",
        _TEXT,
        "File on the primary node with all that the guest has said on its console",
        _console_log,
        frozenset((Need.CONSOLES,)),
    ),
)


def _backend(name: str, alias: str = "") -> Field[InstanceRow]:
    param = BACKEND_PARAMS[name]
    return Field(
        alias or f"be/{name}",
        param.title or f"be/{name}",
        kind_of_param(param),
        f'Backend parameter "{name}"',
        lambda row: row.beparams.get(name, param.default),
    )


_OLD_NAMES = {
    "bridge": "nic.bridge/0",
    "ip": "nic.ip/0",
    "mac": "nic.mac/0",
    "nic_link": "nic.link/0",
    "nic_mode": "nic.mode/0",
    "nic_network": "nic.network/0",
    "sda_size": "disk.size/0",
    "sdb_size": "disk.size/1",
}


def _old_names() -> list[Field[InstanceRow]]:
    """Return the same fields under the names that Ganeti once had for them."""
    fields = {one.name: one for one in (*disk_fields(), *nic_fields())}
    return [replace(fields[name], name=old) for old, name in _OLD_NAMES.items()]


INSTANCE_FIELDS = table(
    _CONFIGURED,
    _ASKED,
    usage_fields(lambda row: row.figures),
    stored_fields("instance", lambda row: row.instance),
    disk_fields(),
    nic_fields(),
    (_backend(name) for name in BACKEND_PARAMS),
    (_backend("maxmem", "be/memory"), _backend("vcpus", "vcpus")),
    _old_names(),
    hypervisor_param_fields(),
)
