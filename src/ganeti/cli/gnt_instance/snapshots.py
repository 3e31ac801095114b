"""gnt-instance snapshot."""

import argparse
from typing import Any

from ganeti.base.errors import InputError
from ganeti.base.sizes import format_mib
from ganeti.base.terminal import say
from ganeti.cli.gnt_instance.table import table
from ganeti.cli.jobs import run_opcode
from ganeti.cli.opcode_options import OpOptions
from ganeti.cli.options import FORCE, JOB_OPTIONS, JSON, NO_HEADERS, SEPARATOR
from ganeti.cli.output import format_time, print_json, print_rows
from ganeti.clients.luxi import LuxiClient
from ganeti.model.operation import INSTANCE, Argument

CREATE = OpOptions("snapshots.OpInstanceSnapshotCreate")
ROLLBACK = OpOptions("snapshots.OpInstanceSnapshotRollback")
_KINDS = {
    "create": CREATE,
    "rollback": ROLLBACK,
    "remove": OpOptions("snapshots.OpInstanceSnapshotRemove"),
}
_HEADINGS = ("Snapshot", "Time", "Size", "Memory", "Consistency")
_MEANING = {
    "down": "guest down",
    "agent": "file systems frozen",
    "crash": "as after a loss of power",
    "memory": "with the guest's memory",
}


def snapshot_words(one: dict[str, Any]) -> str:
    """Return date, size and consistency of a snapshot in one line."""
    what = _MEANING.get(one["consistency"], one["consistency"])
    size = format_mib(one["size"])
    if one["memory"] is not None:
        size = f"{size} and {format_mib(one['memory'])} of memory"
    return f"{format_time(one['ctime'])}, {size}, {what}"


@table.command(
    "snapshot",
    Argument("action", "create, list, rollback or remove"),
    INSTANCE,
    Argument("snapshot", "name of the snapshot; create without a name uses the time", nargs="?"),
    CREATE,
    ROLLBACK,
    FORCE,
    NO_HEADERS,
    SEPARATOR,
    JSON,
    *JOB_OPTIONS,
)
def snapshot(args: argparse.Namespace) -> int:
    """Take snapshots of an instance's disks, list them, roll the disks back to one, or remove one.

    A snapshot has all disks at the same moment. If the guest runs, it is paused for that moment; an agent in the
    guest (use_guest_agent) first freezes the file systems. Otherwise the disks are as after a loss of power; create
    and list show which. Templates plain and rbd have snapshots; file and sharedfile have them on a file system that
    shares blocks between files (XFS, btrfs), ext if the provider has a script for them. A snapshot of template plain
    takes the space of the disks in the volume group, one of a thin volume or a file that of later writes.

    With --memory, create also saves the memory and the devices of the running guest, of the same moment, on a disk
    beside its disks of twice the guest's memory. The guest runs meanwhile and is paused for the end. A rollback to
    this snapshot then continues the guest from that moment, started if it was down; an agent in the guest then sets its clock. It is refused if hypervisor
    parameters, memory, vcpus, disks, network interfaces or QEMU no longer fit; --no-memory rolls back only the disks,
    which are as after a loss of power.

    A rollback keeps the snapshot and all others, and needs a guest that is down; --stop shuts it down and starts it
    again, or ends it at once if memory replaces it. After an interrupted rollback the guest cannot start before the rollback is repeated. Rollback and remove
    ask for confirmation; --force skips the prompt. The backend parameter max_snapshots limits the number.

    An instance with snapshots starts, stops, migrates and fails over on shared storage, and is exported, as any
    other. Operations that would lose snapshots are refused, and name the command that removes them: growing and
    converting disks, and copying them to another node. Removing the instance removes its snapshots.
    """
    if args.action == "list":
        return _list(args)
    if args.action not in _KINDS:
        raise InputError(f"{args.action!r:.40} must be create, list, rollback or remove", "action")
    if args.action != "create" and not args.snapshot:
        raise InputError("name the snapshot; gnt-instance snapshot list shows all", "snapshot")
    for action, options in (("create", CREATE), ("rollback", ROLLBACK)):
        if args.action != action and (given := options.given(args)):
            raise InputError(f"is only for {action}", next(iter(given)))
    op_options = _KINDS[args.action]
    more = op_options.given(args) if args.action != "remove" else {}
    with LuxiClient() as client:
        [[name]] = client.rows("Instances", [args.instance_name], ["name"])
    op = op_options.kind(instance_name=name, snapshot=args.snapshot, **more)
    result = run_opcode(op, args)
    if result and args.is_json:
        return print_json(result)
    if result and not args.dry_run:
        say(f"Snapshot {result['name']} of {name}: {_MEANING[result['consistency']]}")
    return 0


def _list(args: argparse.Namespace) -> int:
    if args.snapshot or CREATE.given(args) or ROLLBACK.given(args):
        raise InputError("list accepts only the name of an instance", "snapshot")
    with LuxiClient() as client:
        [[found]] = client.rows("Instances", [args.instance_name], ["snapshots"])
    if args.is_json:
        return print_json(found)
    rows = [
        [
            one["name"],
            format_time(one["ctime"]),
            format_mib(one["size"]),
            "-" if one["memory"] is None else format_mib(one["memory"]),
            one["consistency"],
        ]
        for one in found
    ]
    print_rows(_HEADINGS, rows, args)
    return 0
