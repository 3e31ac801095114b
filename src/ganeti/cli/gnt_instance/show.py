"""gnt-instance list, list-fields and info."""

import argparse
from typing import Any

from ganeti.base.errors import InputError
from ganeti.base.sizes import format_mib
from ganeti.cli.gnt_instance.table import table
from ganeti.cli.jobs import run_given
from ganeti.cli.opcode_options import OpOptions
from ganeti.cli.options import (
    ALL_INSTANCES,
    FIELD_NAMES,
    INSTANCES,
    JSON,
    LIST_OPTIONS,
    QUERY_JOB_OPTIONS,
    TABLE_OPTIONS,
)
from ganeti.cli.output import (
    format_time,
    or_default,
    print_fields,
    print_json,
    print_list,
    print_tree,
    wanted_filter,
)
from ganeti.model.instance_view import NicView

DEFAULT_FIELDS = ("name", "hypervisor", "os", "pnode", "status", "oper_ram")


@table.command("list", INSTANCES, *LIST_OPTIONS)
def list_instances(args: argparse.Namespace) -> int:
    """List instances with their nodes and states.

    Names may hold '*' and '?'. GNT_INSTANCE_LIST in the environment replaces the default fields.
    """
    filter_ = wanted_filter("name", args.names, args.filter)
    return print_list(
        args, "instance", DEFAULT_FIELDS, variable="GNT_INSTANCE_LIST", filter_=filter_
    )


@table.command("list-fields", FIELD_NAMES, *TABLE_OPTIONS)
def list_fields(args: argparse.Namespace) -> int:
    """List the fields that list can show."""
    return print_fields(args, "instance")


@table.command(
    "info",
    INSTANCES,
    ALL_INSTANCES,
    JSON,
    OpOptions("instance.OpInstanceQueryData"),
    *QUERY_JOB_OPTIONS,
    aliases=("show",),
)
def info(args: argparse.Namespace) -> int:
    """Show everything about instances."""
    if bool(args.names) is args.all:
        raise InputError("give names of instances, or --all", "instances")
    found: dict[str, dict[str, Any]] = run_given(args, instances=args.names, use_locking=True)
    if args.is_json:
        return print_json([found[name] for name in sorted(found)])
    print_tree([_described(found[name]) for name in sorted(found)])
    return 0


def _described(instance: dict[str, Any]) -> list[tuple[str, Any]]:
    wanted = f"configured to be {instance['config_state']}"
    actual = instance["run_state"]
    own = dict(instance["be_instance"])
    all_backend = {**instance["be_actual"], "memory": instance["be_actual"].get("maxmem")}
    return [
        ("Instance name", instance["name"]),
        ("UUID", instance["uuid"]),
        ("Serial number", instance["serial_no"]),
        ("Creation time", format_time(instance["ctime"])),
        ("Modification time", format_time(instance["mtime"])),
        ("State", wanted if actual is None else f"{wanted}, actual state is {actual}"),
        *_migration(instance),
        *_guest(instance.get("guest_agent")),
        (
            "Nodes",
            [
                [
                    ("primary", instance["pnode"]),
                    (
                        "group",
                        f"{instance['pnode_group_name']} (UUID {instance['pnode_group_uuid']})",
                    ),
                ],
                [("secondaries", ", ".join(instance["snodes"]))],
            ],
        ),
        ("Operating system", instance["os"]),
        (
            "Operating system parameters",
            or_default(instance["os_instance"], instance["os_actual"]),
        ),
        ("Allocated network port", instance["network_port"]),
        ("Hypervisor", instance["hypervisor"]),
        ("Hypervisor parameters", or_default(instance["hv_instance"], instance["hv_actual"])),
        ("Back-end parameters", or_default(own, all_backend)),
        ("NICs", [_nic(number, nic) for number, nic in enumerate(instance["nics"])]),
        ("Disk template", instance["disk_template"]),
        ("Disks", [_disk(number, disk) for number, disk in enumerate(instance["disks"])]),
    ]


def _migration(instance: dict[str, Any]) -> list[tuple[str, Any]]:
    """What to do about a migration that broke off; nothing without one."""
    other = instance.get("migrating_to")
    if other is None:
        return []
    remedy = f"gnt-instance migrate --cleanup {instance['name']}"
    return [("Migration", f"with {other}, not finished; if no job is at it, run: {remedy}")]


def _guest(agent: dict[str, Any] | None) -> list[tuple[str, Any]]:
    """What the guest says of itself, where its agent answers."""
    if not agent:
        return []
    said = [("host name", "host_name"), ("operating system", "os"), ("kernel", "kernel")]
    shown: list[tuple[str, Any]] = [(title, agent[name]) for title, name in said if agent[name]]
    shown += [
        (f"addresses of {one['name']}", ", ".join(one["addresses"]))
        for one in agent["interfaces"]
        if one["addresses"]
    ]
    return [("Guest, as its agent says", shown)]


def _nic(number: int, values: list[Any]) -> list[tuple[str, Any]]:
    nic = NicView(*values)
    return [
        (f"nic/{number}", ""),
        ("MAC", nic.mac),
        ("IP", nic.ip),
        ("mode", nic.mode),
        ("link", nic.link),
        ("vlan", nic.vlan),
        ("network", nic.network_name),
        ("UUID", nic.uuid),
        ("name", nic.name),
    ]


def _disk(number: int, disk: dict[str, Any]) -> list[tuple[str, Any]]:
    return [
        (f"disk/{number}", f"{disk['dev_type']}, size {format_mib(disk['size'])}"),
        *([("spindles", disk["spindles"])] if disk.get("spindles") else []),
        ("access mode", disk["mode"]),
        *_address(disk),
        *_copy("on primary", disk["on_primary"]),
        *_copy("on secondary", disk["on_secondary"]),
        *_mirror(disk.get("mirror")),
        ("name", disk["name"]),
        ("UUID", disk["uuid"]),
    ]


def _address(disk: dict[str, Any]) -> list[tuple[str, Any]]:
    if mirror := disk["drbd_info"]:
        return [
            ("nodeA", f"{mirror['primary_node']}, minor={mirror['primary_minor']}"),
            ("nodeB", f"{mirror['secondary_node']}, minor={mirror['secondary_minor']}"),
            ("port", mirror["port"]),
        ]
    return [("logical_id", ", ".join(map(str, disk["logical_id"])))]


def _mirror(mirror: dict[str, Any] | None) -> list[tuple[str, Any]]:
    """The state of both copies together, and what repairs them; a master of an older version does not say it."""
    if not mirror:
        return []
    repair = [("repair", mirror["repair"])] if mirror["repair"] else []
    return [("state of the mirror", mirror["problem"] or mirror["state"]), *repair]


def _copy(title: str, found: dict[str, Any] | None) -> list[tuple[str, Any]]:
    if not found:
        return []
    words = [found["path"], "there" if found["exists"] else "missing"]
    if sync := found["sync"]:
        words.append(sync["state"])
        if sync["percent"] is not None:
            words.append(f"{sync['percent']:.1f}% in sync")
    said = ", ".join(word for word in words if word)
    return [(title, f"{said}: {found['problem']}" if found["problem"] else said)]
