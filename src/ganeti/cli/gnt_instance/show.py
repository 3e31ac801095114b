"""gnt-instance list, list-fields and info."""

import argparse
from collections.abc import Sequence
from itertools import starmap
from typing import Any

from ganeti.base.errors import InputError
from ganeti.base.sizes import format_mib
from ganeti.cli.gnt_instance.snapshots import snapshot_words
from ganeti.cli.gnt_instance.table import table
from ganeti.cli.jobs import run_given
from ganeti.cli.objects import ObjectKind, add_list, described, shown
from ganeti.cli.opcode_options import OpOptions
from ganeti.cli.options import ALL_INSTANCES, INSTANCES, JSON, QUERY_JOB_OPTIONS
from ganeti.cli.output import Tree, format_time, or_default, print_json, print_tree
from ganeti.cli.top import add_instance_top


def _state(wanted: str, actual: str | None) -> str:
    said = f"configured to be {wanted}"
    return said if actual is None else f"{said}, actual state is {actual}"


def _nodes(primary: str, group: str, uuid: str, secondaries: Sequence[str]) -> Tree:
    first = [("primary", primary), ("group", f"{group} (UUID {uuid})")]
    return [first, [("secondaries", ", ".join(secondaries))]]


def _migration(other: str | None, name: str) -> str | None:
    """Return advice about an unfinished migration, or None."""
    if other is None:
        return None
    return f"with {other}, not finished; if no job works on it, run: gnt-instance migrate --cleanup {name}"


def _guest(agent: dict[str, Any] | None) -> Tree | None:
    """Return the guest's facts if its agent answers."""
    if not agent:
        return None
    said = [("host name", "host_name"), ("operating system", "os"), ("kernel", "kernel")]
    found: list[tuple[str, Any]] = [(title, agent[name]) for title, name in said if agent[name]]
    found += [
        (f"addresses of {one['name']}", ", ".join(one["addresses"]))
        for one in agent["interfaces"]
        if one["addresses"]
    ]
    return found


def _memory(found: dict[str, Any] | None) -> Tree | None:
    """Return the memory of the running guest, its bounds, and why it was lowered; None if it does not run."""
    if not found:
        return None
    bounds = f"{format_mib(found['least'])} to {format_mib(found['most'])}"
    said: list[tuple[str, Any]] = [("present", format_mib(found["present"])), ("bounds", bounds)]
    if lowered := found["lowered"]:
        before, goal = format_mib(lowered["before"]), format_mib(lowered["goal"])
        why = f"from {before} since {format_time(lowered['since'])}: its node keeps {goal} free (memory_goal)"
        said.append(("lowered", why))
    return said


def _backend(own: dict[str, Any], actual: dict[str, Any]) -> Tree:
    return or_default(own, {**actual, "memory": actual.get("maxmem")})


def _nic(number: int, values: list[Any]) -> list[tuple[str, Any]]:
    from ganeti.model.instance_view import NicView

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


def _template(answer: object) -> Tree | None:
    """Return that the instance is a template; None if it is not."""
    return "yes: it cannot start, and is cloned" if answer else None


def _snapshots(found: list[dict[str, Any]] | None) -> Tree | None:
    """Return the snapshots, the oldest first; None if there are none, or an older master does not report them."""
    return [(one["name"], snapshot_words(one)) for one in found or ()] or None


def _address(disk: dict[str, Any]) -> list[tuple[str, Any]]:
    if mirror := disk["drbd_info"]:
        return [
            ("nodeA", f"{mirror['primary_node']}, minor={mirror['primary_minor']}"),
            ("nodeB", f"{mirror['secondary_node']}, minor={mirror['secondary_minor']}"),
            ("port", mirror["port"]),
        ]
    return [("logical_id", ", ".join(map(str, disk["logical_id"])))]


def _mirror(mirror: dict[str, Any] | None) -> list[tuple[str, Any]]:
    """Return the state of both copies and the command that repairs them; an older master does not report it."""
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


INSTANCE_KIND = ObjectKind(
    query="instance",
    names=INSTANCES,
    listed=("name", "hypervisor", "os", "pnode", "status", "oper_ram"),
    variable="GNT_INSTANCE_LIST",
    list_help="List instances with their nodes and states.\nNames can contain the wildcards '*' and '?'.",
    info=(
        shown("Instance name", "name"),
        shown("UUID", "uuid"),
        shown("Serial number", "serial_no"),
        shown("Creation time", "ctime", value=format_time),
        shown("Modification time", "mtime", value=format_time),
        shown("State", "config_state", "run_state", value=_state),
        shown("Memory of the running guest", "memory", value=_memory, optional=True),
        shown("Template", "template", value=_template, optional=True),
        shown("Migration", "migrating_to", "name", value=_migration, optional=True),
        shown("Guest, as reported by its agent", "guest_agent", value=_guest, optional=True),
        shown("Nodes", "pnode", "pnode_group_name", "pnode_group_uuid", "snodes", value=_nodes),
        shown("Operating system", "os"),
        shown("Operating system parameters", "os_instance", "os_actual", value=or_default),
        shown("Allocated network port", "network_port"),
        shown("Hypervisor", "hypervisor"),
        shown("Hypervisor parameters", "hv_instance", "hv_actual", value=or_default),
        shown("Back-end parameters", "be_instance", "be_actual", value=_backend),
        shown("NICs", "nics", value=lambda nics: list(starmap(_nic, enumerate(nics)))),
        shown("Disk template", "disk_template"),
        shown("Disks", "disks", value=lambda disks: list(starmap(_disk, enumerate(disks)))),
        shown("Snapshots", "snapshots", value=_snapshots, optional=True),
        shown("Unfinished", "unfinished", optional=True),
    ),
)
add_list(table, INSTANCE_KIND)
add_instance_top(table)


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
    """Show the complete description of instances.

    For a running guest this includes its memory, its bounds, and why and since when its node has lowered it
    (node parameter memory_goal).
    """
    if bool(args.names) is args.all:
        raise InputError("pass the names of instances, or --all", "instances")
    found: dict[str, dict[str, Any]] = run_given(args, instances=args.names, use_locking=True)
    if args.is_json:
        return print_json([found[name] for name in sorted(found)])
    print_tree([described(INSTANCE_KIND.info, found[name]) for name in sorted(found)])
    return 0
