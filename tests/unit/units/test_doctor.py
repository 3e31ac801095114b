"""Examination of the hosts of a cluster: which question, which nodes, which findings."""

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from ganeti.model.host_facts import HostFacts, HostQuestion
from ganeti.model.opcodes.cluster import OpClusterDoctor
from ganeti.simulation.nodes.model import ModelNode
from ganeti.units.cluster.doctor import host_question, without_guests
from tests.support.units_cluster import Master, World, failed, succeeded

WHERE = ["node1.example.com", "node2.example.com", "node3.example.com"]


class Host(ModelNode):
    """A node that remembers the questions, and whose facts a test changes."""

    asked: tuple[HostQuestion, ...] = ()
    changes: dict[str, Any] = {}  # noqa: RUF012 - replaced, never changed

    def on_host_facts(self, args: HostQuestion) -> HostFacts:
        self.asked = (*self.asked, args)
        return msgspec.structs.replace(super().on_host_facts(args), **self.changes)


@pytest.fixture
async def hosts() -> AsyncIterator[Master]:
    world = World(node_type=Host, enabled_disk_templates=("drbd", "plain", "sharedfile"))
    for node in world.nodes.values():
        node.groups = {"xenvg": node.local}
    one = await Master.begin(world)
    yield one
    await one.end()


def host(master: Master, number: int) -> Host:
    node = master.world.node(number)
    assert isinstance(node, Host)
    return node


async def findings(master: Master, *nodes: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = succeeded(await master.run(OpClusterDoctor(nodes=list(nodes))))
    return found


async def test_each_node_is_asked_for_what_the_cluster_uses(hosts: Master) -> None:
    found = await findings(hosts)
    assert {one["level"] for one in found} == {"ok"}, found
    assert list(dict.fromkeys(one["host"] for one in found)) == WHERE
    [question] = host(hosts, 1).asked
    assert question == host_question(hosts.config.snapshot)
    assert (question.runs_kvm, question.volume_group, question.uses_drbd) == (True, "xenvg", True)
    assert (question.directories, question.links) == (("/shared",), ("br0",))
    assert question.ports == (), "the cluster's own daemons listen there"


async def test_finding_names_its_host_and_only_given_nodes_are_asked(hosts: Master) -> None:
    host(hosts, 2).changes = {"is_clock_synchronised": False}
    [bad] = [one for one in await findings(hosts) if one["level"] != "ok"]
    assert (bad["host"], bad["code"], bad["level"]) == (WHERE[1], "no-time-service", "error")
    assert bad["command"] == "apt-get install chrony"
    assert {one["host"] for one in await findings(hosts, "node3")} == {WHERE[2]}
    assert len(host(hosts, 1).asked) == 1
    assert failed(await hosts.run(OpClusterDoctor(nodes=["node9"])))[1][1] == "unknown_entity"


async def test_hosts_are_compared_with_each_other(hosts: Master) -> None:
    for number, version in ((1, "7.2"), (2, "7.2"), (3, "8.0")):
        host(hosts, number).changes = {"qemu_version": version}
    [bad] = [one for one in await findings(hosts) if one["level"] != "ok"]
    assert (bad["host"], bad["code"]) == ("", "qemu-differs")


async def test_node_that_does_not_answer_is_a_finding(hosts: Master) -> None:
    del hosts.rpc.nodes[WHERE[1]]
    [bad] = [one for one in await findings(hosts) if one["level"] != "ok"]
    assert (bad["host"], bad["code"]) == (WHERE[1], "no-answer")


def test_node_without_guests_needs_no_virtualisation() -> None:
    question = HostQuestion(volume_group="xenvg", uses_drbd=True, links=("br0",), ports=(1,))
    assert without_guests(question) == HostQuestion(runs_kvm=False, ports=(1,))
