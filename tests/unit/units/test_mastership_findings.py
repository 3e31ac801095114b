"""What the check of a cluster finds about the state, its holders, their software, and exclusion tags."""

import asyncio

import pytest

from ganeti import __version__
from ganeti.base.errors import RpcError, RpcFailed
from ganeti.model.objects import Instance, Node, NodeUuid
from ganeti.model.opcodes.cluster import OpClusterVerifyConfig
from ganeti.model.verify_codes import VerifyCode
from ganeti.rpc.procedures.host import VerifyReport
from ganeti.store.backends import ServerFault
from ganeti.units.cluster.mastership_findings import (
    degraded_findings,
    exclusion_findings,
    preserved_state_findings,
    register_findings,
    server_findings,
    version_findings,
)
from ganeti.units.services import RegisterState
from tests.support.fake_rpc import Fault
from tests.support.units_cluster import NODES, Master, failed, said, succeeded
from tests.unit.units.opcodes import create
from tests.unit.units.test_cluster_verify import instance, node, report, snapshot


@pytest.mark.requirement("A26", "G17")
def test_node_beyond_the_masters_epoch_and_slow_voters_are_named() -> None:
    nodes = [node(number) for number in (1, 2, 3)]
    states = [
        RegisterState(nodes[0].uuid, has_vote=True, seconds=0.01),
        RegisterState(nodes[1].uuid, has_vote=False, seconds=0.01, promised=2**31 - 1),
        RegisterState(nodes[2].uuid, has_vote=True, seconds=1.7),
        RegisterState(NodeUuid("gone"), has_vote=True, seconds=9),
    ]
    beyond, slow = register_findings(snapshot(nodes=nodes), states)
    assert (beyond.name, beyond.is_error) == (nodes[1].name, True)
    assert "2147483647" in beyond.text
    assert f"gnt-node add --readd {nodes[1].name}" in beyond.text
    assert (slow.name, slow.is_error) == (nodes[2].name, False)
    assert "took 1.7 s" in slow.text
    late = RegisterState(nodes[1].uuid, has_vote=True, seconds=2.0, silent="no answer within 2 s")
    (silent,) = register_findings(snapshot(nodes=nodes), [late])
    assert "no answer within 2 s" in silent.text


@pytest.mark.requirement("A26")
def test_node_that_promised_the_epoch_to_a_loser_of_the_vote_is_named() -> None:
    nodes = [node(number) for number in (1, 2)]
    states = [
        RegisterState(nodes[1].uuid, True, 0.01, promised=4, promised_to=nodes[0].uuid),
        RegisterState(nodes[1].uuid, True, 0.01, promised=4, promised_to=NodeUuid("gone")),
    ]
    found, of_gone = register_findings(snapshot(nodes=nodes), states)
    assert (found.code, found.name, found.is_error) == ("ENODESETUP", nodes[1].name, True)
    assert f"has promised epoch 4 to {nodes[0].name}, which lost the vote" in found.text
    assert "refuses every changing call of this master" in found.text
    assert "restart ganeti-masterd on the master node" in found.text
    assert "epoch 4 to gone" in of_gone.text


PRESERVED = "/var/lib/ganeti/state.db.aside-3-17"


def test_there_are_as_many_codes_as_interfaces_has() -> None:
    # Upstream Ganeti has none of these.
    own = {
        VerifyCode.ENODEFENCE,
        VerifyCode.EINSTANCEBACKUP,
        VerifyCode.ENODEIMAGE,
        VerifyCode.ECLUSTERWEBHOOK,
    }
    assert len(set(VerifyCode) - own) == 41


def test_a_state_that_was_moved_aside_is_shown_until_it_is_removed() -> None:
    answers: list[tuple[Node, VerifyReport | RpcError]] = [
        (node(1), report()),
        (
            node(2),
            report(
                preserved_states=[PRESERVED],
                preserved_contents={PRESERVED: "only this file has jobs 17"},
            ),
        ),
        (node(3), RpcFailed("node3", "no")),
    ]
    (found,) = preserved_state_findings(answers)
    assert (found.code, found.name, found.is_error) == (
        "ENODEFILECHECK",
        "node2.example.com",
        False,
    )
    assert f"{PRESERVED}, a preserved state of a former master: only this file has" in found.text


@pytest.mark.parametrize(
    ("protocol", "software", "is_error"),
    [(1, "0.1", False), (2, "0.1", True), (0, __version__, True), (2, __version__, True)],
)
def test_another_protocol_is_an_error_and_other_software_a_warning(
    protocol: int, software: str, is_error: bool
) -> None:
    (found,) = version_findings(node(), report(protocol=protocol, software=software))
    assert (found.code, found.is_error) == ("ENODEVERSION", is_error)
    assert software in found.text
    if is_error:
        assert f"node RPC {protocol}" in found.text


def test_the_same_software_is_no_finding() -> None:
    assert list(version_findings(node(), report())) == []


def test_degraded_is_a_warning_about_the_cluster() -> None:
    (found,) = degraded_findings(snapshot(), is_degraded=True)
    assert (found.code, found.is_error) == ("ECLUSTERCFG", False)
    assert list(degraded_findings(snapshot(), is_degraded=False)) == []


@pytest.mark.virtual_time
@pytest.mark.requirement("G1")
@pytest.mark.parametrize("is_degraded", [False, True])
async def test_a_check_of_a_degraded_cluster_reports_it_and_succeeds(
    master: Master, is_degraded: bool
) -> None:
    object.__setattr__(master.services, "is_degraded", lambda: is_degraded)
    view = await master.run(OpClusterVerifyConfig(error_codes=True))
    assert succeeded(view) is True
    assert ("WARNING:ECLUSTERCFG:cluster:cluster.example.com:degraded" in said(view)) == is_degraded


@pytest.mark.virtual_time
@pytest.mark.requirement("G11")
async def test_a_check_reports_what_jobs_left_undone_until_it_is_undone(master: Master) -> None:
    master.rpc.fail(3, Fault.REFUSED)  # the installation
    for number in (4, 6, 7):  # the removal of one disk, again and again
        master.rpc.fail(number, Fault.NOT_SENT)
    failed(await master.run(create()))
    await asyncio.sleep(6)
    view = await master.run(OpClusterVerifyConfig(error_codes=True))
    assert succeeded(view) is True
    text = "WARNING:ECLUSTERCFG:cluster:cluster.example.com:job 1 (INSTANCE_CREATE(web1.example.com)) left remove_disk"
    assert text in said(view)
    assert "node1.example.com: cannot be reached" in said(view)
    await master.nothing_is_left()
    view = await master.run(OpClusterVerifyConfig(error_codes=True))
    assert "remove_disk" not in said(view)


def tagged(number: int, *tags: str) -> Instance:
    return instance(number, tags=frozenset(tags))


@pytest.mark.parametrize(
    ("cluster_tags", "tags", "conflict"),
    [
        (["htools:iextags:service"], ["service:dns", "service:dns"], "service:dns"),
        (["htools:iextags:service"], ["service:dns", "service:web"], ""),
        (["htools:iextags:service"], ["services:dns", "services:dns"], ""),
        (["htools:iextags:"], [":dns", ":dns"], ""),
        (["service"], ["service:dns", "service:dns"], ""),
    ],
)
def test_instances_of_one_exclusion_tag_on_one_node_are_found(
    cluster_tags: list[str], tags: list[str], conflict: str
) -> None:
    instances = [tagged(1, tags[0]), tagged(2, tags[1])]
    found = list(
        exclusion_findings(snapshot(instances, tags=frozenset(cluster_tags)), [node(1), node(2)])
    )
    assert [one.code for one in found] == ["EEXTAGS"] * bool(conflict)
    assert all(conflict in one.text and not one.is_error for one in found)


def test_the_same_tag_on_two_nodes_is_as_it_should_be() -> None:
    instances = [tagged(1, "a:x"), instance(2, tags=frozenset(["a:x"]), primary_node=NODES[1])]
    tags = frozenset(["htools:iextags:a"])
    assert list(exclusion_findings(snapshot(instances, tags=tags), [node(1), node(2)])) == []


@pytest.mark.requirement("G22")
def test_servers_of_the_state_are_findings_of_their_nodes_or_of_the_cluster() -> None:
    faults = [ServerFault("node2.example.com", "is down"), ServerFault("", "is full", False)]
    shown = [found.line(with_code=True) for found in server_findings(snapshot(), faults)]
    assert shown == [
        "  - ERROR:ENODESETUP:node:node2.example.com:is down",
        f"  - WARNING:ECLUSTERCFG:cluster:{snapshot().cluster.name}:is full",
    ]


@pytest.mark.virtual_time
@pytest.mark.requirement("G22")
@pytest.mark.parametrize("is_error", [False, True])
async def test_a_server_of_the_state_that_is_down_fails_the_check_and_a_warning_does_not(
    master: Master, is_error: bool
) -> None:
    async def faults() -> list[ServerFault]:
        return [ServerFault("node2.example.com", "is not well", is_error)]

    object.__setattr__(master.services, "state_faults", faults)
    view = await master.run(OpClusterVerifyConfig(error_codes=True))
    assert succeeded(view) is not is_error
    assert ":ENODESETUP:node:node2.example.com:is not well" in said(view)
