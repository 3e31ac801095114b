"""The cluster's keys and its name, as jobs."""

from typing import Any

import pytest
from msgspec.structs import replace

from ganeti.model.opcodes.cluster import OpClusterRename, OpClusterRenewCrypto
from tests.support.units_cluster import Master, failed, said, succeeded

pytestmark = pytest.mark.virtual_time


class PlayedRenewal:
    """Notes what is wanted; one node is late."""

    def __init__(self) -> None:
        self.wanted: list[Any] = []
        self.late = {"node3.example.com": "it is down"}

    async def renew(self, *, authority: bool) -> dict[str, str]:
        self.wanted.append(authority)
        return self.late

    async def renew_confd_key(self) -> dict[str, str]:
        self.wanted.append("confd")
        return {}


@pytest.fixture
def renewal(master: Master) -> PlayedRenewal:
    played = PlayedRenewal()
    object.__setattr__(master.services, "renewal", played)
    return played


@pytest.mark.requirement("F39")
async def test_what_is_asked_for_is_renewed_and_late_nodes_are_named(
    master: Master, renewal: PlayedRenewal
) -> None:
    view = await master.run(OpClusterRenewCrypto(cluster_certificate=True, confd_key=True))
    assert succeeded(view) == ["node3.example.com"]
    assert renewal.wanted == ["confd", True]
    assert "node3.example.com gets it when it answers again: it is down" in said(view)
    renewal.late = {}
    assert succeeded(await master.run(OpClusterRenewCrypto(node_certificates=True))) == []
    assert renewal.wanted[-1] is False


@pytest.mark.parametrize("fields", [{}, {"renew_ssh_keys": True, "node_certificates": True}])
async def test_nothing_and_what_there_is_not_cannot_be_renewed(
    master: Master, renewal: PlayedRenewal, fields: dict[str, Any]
) -> None:
    view = await master.run(OpClusterRenewCrypto(**fields))
    assert failed(view)[0] == "OpPrereqError"
    assert renewal.wanted == []


def rename(name: str, ip: str | None = "192.0.2.77") -> OpClusterRename:
    return OpClusterRename(name=name, ip=ip)


async def test_the_cluster_has_another_name_and_address(master: Master) -> None:
    assert succeeded(await master.run(rename("new.example.com"))) == "new.example.com"
    cluster = master.snapshot.cluster
    assert (cluster.name, cluster.master_ip) == ("new.example.com", "192.0.2.77")


async def test_the_address_moves_with_the_name(master: Master) -> None:
    def address(draft: Any) -> None:
        draft.put(replace(draft.cluster, master_netdev="eth0", master_ip="192.0.2.70"))

    await master.change(address)
    succeeded(await master.run(rename("new.example.com")))
    calls = [call.procedure for call in master.rpc.calls if "master_ip" in call.procedure]
    assert calls == ["master_ip_down", "master_ip_up"]
    assert master.snapshot.cluster.master_ip == "192.0.2.77"


@pytest.mark.parametrize(
    ("name", "ip", "why"),
    [
        ("node1.example.com", "192.0.2.77", "needs a name of its own"),
        ("New.example.com", "192.0.2.77", "lower case"),
        ("new.example.com", "192.0.2.777", "not an IP address"),
        ("-x", "192.0.2.77", "name"),
        ("no-such-name.invalid", None, "give one with --master-ip"),
    ],
)
async def test_other_names_are_refused(master: Master, name: str, ip: str | None, why: str) -> None:
    view = await master.run(rename(name, ip))
    assert why in str(failed(view))
    assert master.snapshot.cluster.name == "cluster.example.com"


async def test_the_same_name_is_no_change(master: Master) -> None:
    succeeded(await master.run(rename("new.example.com")))
    assert "already" in str(failed(await master.run(rename("new.example.com"))))
