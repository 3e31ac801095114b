"""gnt-network: what it submits and prints."""

from typing import Any

import pytest

from ganeti.cli.gnt_network import table as gnt_network
from tests.unit.cli.fake_master import FakeMaster, Run, rows_of

INFO = {
    "name": "net", "uuid": "u-1", "serial_no": 3, "network": "198.51.100.0/29",
    "gateway": "198.51.100.1", "free_count": 4, "reserved_count": 4, "map": "XX.X...X",
    "external_reservations": "198.51.100.0, 198.51.100.1, 198.51.100.7",
    "group_list": [["default", "bridged", "br0", ""]], "tags": ["a"],
}  # fmt: skip


def submitted(master: FakeMaster) -> dict[str, Any]:
    """The only opcode of the only job."""
    [op] = master.args_of("SubmitJob")[0]
    assert isinstance(op, dict)
    return op


@pytest.mark.parametrize(
    ("words", "fields"),
    [
        (
            ["add", "--network=192.0.2.0/24", "--gateway=192.0.2.1", "--network6=2001:db8::/64",
             "--gateway6=2001:db8::1", "--mac-prefix=aa:00:01", "--add-reserved-ips=192.0.2.5,192.0.2.7",
             "--tags=a,b", "--no-conflicts-check", "net"],
            {"OP_ID": "OP_NETWORK_ADD", "network_name": "net", "network": "192.0.2.0/24",
             "gateway": "192.0.2.1", "network6": "2001:db8::/64", "gateway6": "2001:db8::1",
             "mac_prefix": "aa:00:01", "add_reserved_ips": ["192.0.2.5", "192.0.2.7"],
             "tags": ["a", "b"], "conflicts_check": False},
        ),
        (
            ["modify", "--gateway=none", "--remove-reserved-ips=192.0.2.5-192.0.2.7", "net"],
            {"OP_ID": "OP_NETWORK_SET_PARAMS", "gateway": "none", "mac_prefix": None,
             "remove_reserved_ips": ["192.0.2.5-192.0.2.7"]},
        ),
        (["remove", "-f", "net"], {"OP_ID": "OP_NETWORK_REMOVE", "force": True}),
        (["rename", "net", "lan"], {"OP_ID": "OP_NETWORK_RENAME", "new_name": "lan"}),
        (
            ["connect", "-N", "mode=openvswitch,link=sw0,vlan=.10", "net", "default"],
            {"OP_ID": "OP_NETWORK_CONNECT", "group_name": "default", "network_mode": "openvswitch",
             "network_link": "sw0", "network_vlan": ".10", "conflicts_check": True},
        ),
        (["disconnect", "net", "g"], {"OP_ID": "OP_NETWORK_DISCONNECT", "group_name": "g"}),
        (["add-tags", "net", "a"], {"OP_ID": "OP_TAGS_SET", "kind": "network", "name": "net"}),
    ],
)  # fmt: skip
def test_options_become_the_opcode(
    master: FakeMaster, run: Run, words: list[str], fields: dict[str, Any]
) -> None:
    master.job()
    assert run(gnt_network, *words)[0] == 0
    op = submitted(master)
    assert {name: op[name] for name in fields} == fields


def test_without_groups_all_are_connected_with_the_clusters_parameters(
    master: FakeMaster, run: Run
) -> None:
    master.job()
    master.replies["QueryGroups"] = [["g1"], ["g2"]]
    default = {"mode": "bridged", "link": "br0", "vlan": ""}
    master.replies["QueryClusterInfo"] = {"nicparams": {"default": default}}
    code, out, _err = run(gnt_network, "connect", "-N", "link=br7", "net")
    jobs = master.args_of("SubmitManyJobs")[0]
    assert [(op["group_name"], op["network_mode"], op["network_link"]) for [op] in jobs] == [
        ("g1", "bridged", "br7"), ("g2", "bridged", "br7"),
    ]  # fmt: skip
    assert (code, "Group Job Result" in out) == (0, True)


@pytest.mark.parametrize("words", [["mac=1"], ["mode"], ["link=br0,ip=1"]])
def test_parameters_that_no_connection_has_are_refused(
    master: FakeMaster, run: Run, words: list[str]
) -> None:
    assert run(gnt_network, "connect", "-N", *words, "net", "g")[0] == 1
    assert master.requests == []


def test_info_shows_the_map_and_who_uses_it(master: FakeMaster, run: Run) -> None:
    master.replies["QueryNetworks"] = rows_of(INFO)
    rows = [[[0, "web1"], [0, ["198.51.100.3", "10.0.0.1"]], [0, ["u-1", None]]]]
    master.replies["Query"] = {"fields": [], "data": rows}
    code, out, _err = run(gnt_network, "info", "net")
    assert (code, out.splitlines()) == (0, [
        "Network name: net",
        "UUID: u-1",
        "Serial number: 3",
        "  Subnet: 198.51.100.0/29",
        "  Gateway: 198.51.100.1",
        "  IPv6 Subnet: None",
        "  IPv6 Gateway: None",
        "  Mac Prefix: None",
        "  Tags: a",
        "  Size: 8",
        "  Free: 4 (50.00%)",
        "  Usage map:",
        "        0 XX.X...X                                                         7",
        "         (X) used    (.) free",
        "  externally reserved IPs:",
        "    198.51.100.0, 198.51.100.1, 198.51.100.7",
        "  connected to node groups:",
        "    default (mode:bridged link:br0 vlan:)",
        "  used by 1 instances:",
        "    web1: 0:198.51.100.3",
    ])  # fmt: skip


def test_list_shows_groups_in_one_cell(master: FakeMaster, run: Run) -> None:
    titles = ["Network", "Subnet", "Gateway", "MacPrefix", "GroupList", "Tags"]
    names = ["name", "network", "gateway", "mac_prefix", "group_list", "tags"]
    fields = [
        {"name": name, "title": title, "kind": "other", "doc": ""}
        for name, title in zip(names, titles, strict=True)
    ]
    row = [
        [0, "net"],
        [0, "192.0.2.0/24"],
        [3, None],
        [3, None],
        [0, INFO["group_list"]],
        [0, ["a"]],
    ]
    master.replies["Query"] = {"fields": fields, "data": [row]}
    code, out, _err = run(gnt_network, "list", "--separator=;")
    assert (code, out.splitlines()[1]) == (0, "net;192.0.2.0/24;-;-;default (bridged, br0, );a")
    assert master.args_of("Query") == ["network", names, None]
