"""gnt-network: pools of addresses, and the groups that use them."""

import argparse
import operator
import textwrap
from collections.abc import Sequence
from typing import Any, NoReturn

from ganeti.base.errors import InputError
from ganeti.base.terminal import escaped
from ganeti.cli.command import EXIT_FAILURE, option
from ganeti.cli.declared import program
from ganeti.cli.jobs import run_job, run_jobs
from ganeti.cli.key_values import merged_key_values
from ganeti.cli.objects import ObjectKind, add_info, add_list, described, shown
from ganeti.cli.opcode_options import OpOptions
from ganeti.cli.options import JOB_OPTIONS
from ganeti.cli.tags import add_tag_commands
from ganeti.clients.luxi import LuxiClient
from ganeti.model.operation import NETWORK, Argument

table = program(
    "gnt-network", "Create, change and remove networks: pools of addresses for instances."
)

GROUPS = Argument("groups", "names of groups; default: all groups", nargs="*", completion="group")
NIC_PARAMETERS = option(
    "-N",
    "--nic-parameters",
    dest="nic_parameters",
    action="append",
    metavar="mode=MODE,link=LINK,vlan=VLAN",
    help="connection of the network on nodes of the groups; default: the cluster's NIC parameters",
)
MAP_WIDTH, TEXT_WIDTH = 64, 64
_NIC_KEYS = ("mode", "link", "vlan")


def _groups(groups: Sequence[Sequence[str]]) -> str:
    return ",".join(f"{name} ({', '.join(rest)})" for name, *rest in groups)


def _lines(client: LuxiClient, network: dict[str, Any]) -> list[str]:
    """Return the lines that upstream Ganeti prints for a network."""
    has_it = ["=[]", "nic.networks", network["uuid"]]
    users = client.query("instance", ["name", "nic.ips", "nic.networks"], has_it)
    head = [
        f"{label}: {escaped(str(value))}" for label, value in described(NETWORK_KIND.info, network)
    ]
    return [*head, *_addresses(network), *_users(network["uuid"], users["data"])]


def _addresses(network: dict[str, Any]) -> list[str]:
    lines = ["  Usage map:"]
    cells = network["map"]
    for start in range(0, len(cells), MAP_WIDTH):
        part = cells[start : start + MAP_WIDTH]
        lines.append(f"    {start:>5} {part:<{MAP_WIDTH}} {start + len(part) - 1}")
    lines += ["         (X) used    (.) free", "  externally reserved IPs:"]
    lines += [f"    {one}" for one in textwrap.wrap(network["external_reservations"], TEXT_WIDTH)]
    lines.append("  connected to node groups:" if network["group_list"] else "  not connected")
    lines += [
        f"    {escaped(name)} (mode:{mode} link:{escaped(link)} vlan:{vlan})"
        for name, mode, link, vlan in network["group_list"]
    ]
    return lines


def _users(uuid: str, rows: Sequence[Any]) -> list[str]:
    lines = [f"  used by {len(rows)} instances:" if rows else "  not used by any instances"]
    for (_, name), (_, ips), (_, networks) in rows:
        own = [
            f"{index}:{ip}"
            for index, (ip, network) in enumerate(zip(ips, networks, strict=True))
            if network == uuid
        ]
        lines.append(f"    {escaped(name)}: {', '.join(own)}")
    return lines


def _share(free: int, reserved: int) -> str:
    return f"{free} ({free / (free + reserved):.2%})"


NETWORK_KIND = ObjectKind(
    query="network",
    rows="Networks",
    names=Argument("names", "names of networks", nargs="*", completion="network"),
    listed=("name", "network", "gateway", "mac_prefix", "group_list", "tags"),
    formats={"group_list": _groups},
    list_help="List networks with their subnets and groups.",
    info_help="Show networks with their addresses, groups and instances; default: all networks.",
    info=(
        shown("Network name", "name"),
        shown("UUID", "uuid"),
        shown("Serial number", "serial_no"),
        shown("  Subnet", "network"),
        shown("  Gateway", "gateway"),
        shown("  IPv6 Subnet", "network6"),
        shown("  IPv6 Gateway", "gateway6"),
        shown("  Mac Prefix", "mac_prefix"),
        shown("  Tags", "tags", value=", ".join),
        shown("  Size", "free_count", "reserved_count", value=operator.add),
        shown("  Free", "free_count", "reserved_count", value=_share),
    ),
    more=("map", "external_reservations", "group_list"),
    lines=_lines,
)
add_list(table, NETWORK_KIND)
add_info(table, NETWORK_KIND)


@table.command(
    "connect",
    NETWORK,
    GROUPS,
    NIC_PARAMETERS,
    OpOptions("network.OpNetworkConnect"),
    *JOB_OPTIONS,
)
def connect(args: argparse.Namespace) -> int:
    """Connect a network to groups, so that their instances can use it; one job a group.

    Interfaces in the network have the mode, link and VLAN that were set for the group of their node.
    """
    wanted = merged_key_values(args.nic_parameters, "nic-parameters")
    for name, value in wanted.items():
        if name not in _NIC_KEYS:
            raise InputError(f"unknown parameter; use one of {', '.join(_NIC_KEYS)}", name)
        if not isinstance(value, str):
            raise InputError("needs a value", name)
    with LuxiClient() as client:
        if not {"mode", "link"} <= wanted.keys():
            wanted = {**client.cluster_info()["nicparams"]["default"], **wanted}
        params = {f"network_{name}": wanted[name] for name in _NIC_KEYS if name in wanted}
        return _for_groups(client, args, **params)


@table.command(
    "disconnect", NETWORK, GROUPS, OpOptions("network.OpNetworkDisconnect"), *JOB_OPTIONS
)
def disconnect(args: argparse.Namespace) -> int:
    """Disconnect a network from groups where no instance uses it; one job a group."""
    with LuxiClient() as client:
        return _for_groups(client, args)


def _for_groups(client: LuxiClient, args: argparse.Namespace, **params: Any) -> int:
    groups = args.groups or [name for (name,) in client.rows("Groups", [], ["name"])]
    jobs = [(one, args.op.opcode(args, group_name=one, **params)) for one in groups]
    if len(jobs) == 1:
        run_job(client, jobs[0][1], args)
        return 0
    return 0 if run_jobs(client, jobs, args, heading="Group") else EXIT_FAILURE


add_tag_commands(table, "network", NETWORK)


def main() -> NoReturn:
    """Run the program."""
    table.main()
