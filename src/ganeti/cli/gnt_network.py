"""gnt-network: pools of addresses, and the groups that use them."""

import argparse
import textwrap
from collections.abc import Sequence
from typing import Any, NoReturn

from ganeti.base.errors import InputError
from ganeti.base.terminal import escaped, say
from ganeti.cli.command import EXIT_FAILURE, option
from ganeti.cli.declared import program
from ganeti.cli.jobs import run_job, run_jobs
from ganeti.cli.key_values import merged_key_values
from ganeti.cli.opcode_options import OpOptions
from ganeti.cli.options import FIELD_NAMES, JOB_OPTIONS, JSON, LIST_OPTIONS, TABLE_OPTIONS
from ganeti.cli.output import print_fields, print_list, print_objects, wanted_filter
from ganeti.cli.tags import NETWORK_KIND, add_tag_commands
from ganeti.clients import fields
from ganeti.clients.luxi import LuxiClient
from ganeti.model.operation import NETWORK, Argument

table = program(
    "gnt-network", "Makes, changes and removes networks: pools of addresses for instances."
)

DEFAULT_FIELDS = ("name", "network", "gateway", "mac_prefix", "group_list", "tags")
NETWORKS = Argument("names", "names of networks", nargs="*", completion="network")
GROUPS = Argument(
    "groups", "names of groups; all groups without any", nargs="*", completion="group"
)
NIC_PARAMETERS = option(
    "-N",
    "--nic-parameters",
    dest="nic_parameters",
    action="append",
    metavar="mode=MODE,link=LINK,vlan=VLAN",
    help="how interfaces in the network are connected on nodes of the groups; the cluster's without",
)
MAP_WIDTH, TEXT_WIDTH = 64, 64
_NIC_KEYS = ("mode", "link", "vlan")


@table.command("list", NETWORKS, *LIST_OPTIONS)
def list_networks(args: argparse.Namespace) -> int:
    """List networks with their subnets and groups."""
    filter_ = wanted_filter("name", args.names, args.filter)
    overrides = {"group_list": _groups}
    return print_list(args, "network", DEFAULT_FIELDS, filter_=filter_, overrides=overrides)


def _groups(groups: Sequence[Sequence[str]]) -> str:
    return ",".join(f"{name} ({', '.join(rest)})" for name, *rest in groups)


@table.command("list-fields", FIELD_NAMES, *TABLE_OPTIONS)
def list_fields(args: argparse.Namespace) -> int:
    """List the fields that list can show."""
    return print_fields(args, "network")


_INFO_FIELDS = (
    *("name", "uuid", "serial_no", "network", "gateway", "network6", "gateway6", "mac_prefix"),
    *("free_count", "reserved_count", "map", "external_reservations", "group_list", "tags"),
)


@table.command("info", NETWORKS, JSON, aliases=("show",))
def info(args: argparse.Namespace) -> int:
    """Show networks with their addresses, groups and instances; all without names."""
    with LuxiClient() as client:
        if args.is_json:
            return print_objects(
                fields.NETWORK, client.rows("Networks", args.names, fields.NETWORK)
            )
        rows = client.rows("Networks", args.names, _INFO_FIELDS)
        for row in rows:
            network = dict(zip(_INFO_FIELDS, row, strict=True))
            has_it = ["=[]", "nic.networks", network["uuid"]]
            users = client.query("instance", ["name", "nic.ips", "nic.networks"], has_it)
            for line in [*_described(network), *_users(network["uuid"], users["data"])]:
                say(line)
    return 0


def _described(network: dict[str, Any]) -> list[str]:
    size = network["free_count"] + network["reserved_count"]
    lines = [
        f"Network name: {escaped(network['name'])}",
        f"UUID: {network['uuid']}",
        f"Serial number: {network['serial_no']}",
        f"  Subnet: {network['network']}",
        f"  Gateway: {network['gateway']}",
        f"  IPv6 Subnet: {network['network6']}",
        f"  IPv6 Gateway: {network['gateway6']}",
        f"  Mac Prefix: {network['mac_prefix']}",
        f"  Tags: {', '.join(network['tags'])}",
        f"  Size: {size}",
        f"  Free: {network['free_count']} ({network['free_count'] / size:.2%})",
        "  Usage map:",
    ]
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


@table.command(
    "connect",
    NETWORK,
    GROUPS,
    NIC_PARAMETERS,
    OpOptions("network.OpNetworkConnect"),
    *JOB_OPTIONS,
)
def connect(args: argparse.Namespace) -> int:
    """Let the instances of groups use a network; a job for each group.

    Interfaces in the network have mode, link and VLAN of the group that their node is in.
    """
    wanted = merged_key_values(args.nic_parameters, "nic-parameters")
    for name, value in wanted.items():
        if name not in _NIC_KEYS:
            raise InputError(f"no such parameter; known: {', '.join(_NIC_KEYS)}", name)
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
    """Disconnect a network from groups where no instance uses it; a job for each group."""
    with LuxiClient() as client:
        return _for_groups(client, args)


def _for_groups(client: LuxiClient, args: argparse.Namespace, **params: Any) -> int:
    groups = args.groups or [name for (name,) in client.rows("Groups", [], ["name"])]
    jobs = [(one, args.op.opcode(args, group_name=one, **params)) for one in groups]
    if len(jobs) == 1:
        run_job(client, jobs[0][1], args)
        return 0
    return 0 if run_jobs(client, jobs, args, heading="Group") else EXIT_FAILURE


add_tag_commands(table, NETWORK_KIND)


def main() -> NoReturn:
    """The program."""
    table.main()
