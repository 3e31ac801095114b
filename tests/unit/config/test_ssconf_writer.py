"""The facts that nodes are told, and how they reach them."""

import asyncio
import itertools
from collections.abc import Mapping

import msgspec
import pytest
from msgspec.structs import replace

from ganeti.base.errors import RpcUnknown
from ganeti.config import ssconf_writer
from ganeti.config.config import Config
from ganeti.config.offline_notifier import LONGEST_S, TRY_FOR_S, OfflineNotifier
from ganeti.config.snapshot import Snapshot
from ganeti.config.ssconf_writer import SsconfDistributor, ssconf_values
from ganeti.config.transaction import Draft
from ganeti.model.objects import Node
from tests.unit.config.sample import (
    NODES,
    sample_config,
    sample_instance,
    sample_node,
    sample_snapshot,
)

pytestmark = pytest.mark.virtual_time

NAMES = tuple(f"node{number}.example.com" for number in (1, 2, 3))


class Nodes:
    """What each node was sent, and which do not answer."""

    def __init__(self) -> None:
        self.sent: list[tuple[float, str, int, Mapping[str, str]]] = []
        self.bases: list[tuple[str, int | None]] = []
        self.broken: set[str] = set()
        self.slow: set[str] = set()

    async def push(
        self,
        node: Node,
        position: int,
        values: Mapping[str, str],
        base: tuple[int, Mapping[str, str]] | None = None,
    ) -> None:
        self.bases.append((node.name, None if base is None else base[0]))
        if node.name in self.slow:
            await asyncio.sleep(30)
        if node.name in self.broken:
            raise RpcUnknown(node.name, "no answer")
        self.sent.append((asyncio.get_running_loop().time(), node.name, position, values))

    def latest(self, name: str) -> Mapping[str, str]:
        return [values for _, node, _, values in self.sent if node == name][-1]

    def times(self, name: str) -> list[float]:
        return [when for when, node, _, _ in self.sent if node == name]


async def begin() -> tuple[Config, Nodes, SsconfDistributor]:
    _, config = await sample_config()
    nodes = Nodes()
    distributor = SsconfDistributor(config, nodes.push)
    distributor.start()
    await asyncio.sleep(2)
    return config, nodes, distributor


def put(*things: object) -> "Putter":
    return Putter(things)


class Putter:
    def __init__(self, things: tuple[object, ...]) -> None:
        self.things = things

    def __call__(self, draft: Draft) -> None:
        for thing in self.things:
            draft.put(thing)  # type: ignore[type-var]  # any object of the model


def test_the_values_are_those_of_ganeti() -> None:
    values = ssconf_values(sample_snapshot(2))
    assert values["cluster_name"] == "cluster.example.com"
    assert values["master_node"] == "node1.example.com"
    assert values["node_list"].splitlines()[0] == "node1.example.com"
    assert values["node_primary_ips"].splitlines()[1] == "node2.example.com 192.0.2.2"
    assert values["instance_list"] == "web1.example.com\nweb2.example.com"
    assert values["master_candidates_certs"].splitlines()[0] == f"{NODES[0]}={'1' * 64}"
    assert values["primary_ip_family"] == "2"
    assert "acpi=True" in values["hvparams_kvm"]


async def test_nodes_with_a_memory_goal_know_the_minimum_of_their_guests() -> None:
    """Each change of a minimum reaches them."""
    plain = sample_snapshot(2)
    assert (ssconf_values(plain)["memory_goals"], ssconf_values(plain)["memory_minimums"]) == (
        "",
        "",
    )
    config, nodes, distributor = await begin()
    node = config.snapshot.nodes[NODES[0]]
    await config.change(put(replace(node, ndparams={"memory_goal": 2048})))
    await config.change(put(sample_instance(1, beparams={"minmem": 64})))
    await asyncio.sleep(3)
    latest = nodes.latest("node2.example.com")
    uuid = sample_instance(1).uuid
    assert latest["memory_goals"] == "node1.example.com 2048"
    assert latest["memory_minimums"] == f"{uuid} 64"
    await config.change(put(sample_instance(1, beparams={"minmem": 96})))
    await asyncio.sleep(3)
    assert nodes.latest("node2.example.com")["memory_minimums"] == f"{uuid} 96"
    await distributor.close()


@pytest.mark.requirement("F8", "S65")
async def test_every_online_node_gets_the_latest_set_at_most_once_a_second() -> None:
    config, nodes, distributor = await begin()
    assert {name for _, name, _, _ in nodes.sent} == {f"node{n}.example.com" for n in (1, 2, 3)}
    nodes.sent.clear()
    for number in range(1, 21):
        await config.change(put(sample_instance(number)))
        await asyncio.sleep(0.2)
    await asyncio.sleep(2)
    times = nodes.times("node1.example.com")
    assert all(later - earlier >= 1.0 for earlier, later in itertools.pairwise(times))
    assert 2 <= len(times) <= 6
    assert len(nodes.latest("node3.example.com")["instance_list"].splitlines()) == 20
    assert distributor.late_nodes() == []
    await distributor.close()


async def test_slow_node_gets_the_next_set_as_soon_as_it_has_taken_one() -> None:
    config, nodes, distributor = await begin()
    name = "node1.example.com"
    nodes.slow.add(name)
    nodes.sent.clear()
    await config.change(put(sample_instance(1)))
    await asyncio.sleep(5)
    await config.change(put(sample_instance(2)))
    nodes.slow.clear()
    await asyncio.sleep(30)
    first, second = nodes.times(name)
    assert second == first
    assert nodes.latest(name)["instance_list"] == "web1.example.com\nweb2.example.com"
    await distributor.close()


async def test_silent_node_is_tried_again_after_a_change_that_no_node_can_see() -> None:
    config, nodes, distributor = await begin()
    name = "node1.example.com"
    nodes.broken.add(name)
    await config.change(put(sample_instance(1)))
    await asyncio.sleep(60)
    nodes.broken.clear()
    nodes.sent.clear()
    await config.change(put(replace(config.snapshot.instances[sample_instance(1).uuid], os="x")))
    await asyncio.sleep(3)
    assert [node for _, node, _, _ in nodes.sent] == [name]
    await distributor.close()


async def test_a_change_that_no_node_can_see_is_not_sent() -> None:
    config, nodes, distributor = await begin()
    await config.change(put(sample_instance(1)))
    await asyncio.sleep(2)
    nodes.sent.clear()
    await config.change(put(sample_instance(1, tags=("x",))))
    await asyncio.sleep(2)
    assert nodes.sent == []
    await distributor.close()


async def test_files_are_made_again_only_for_changes_that_they_may_show(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config, _, distributor = await begin()
    made: list[int] = []

    def counted(snapshot: Snapshot) -> dict[str, str]:
        made.append(snapshot.position)
        return ssconf_values(snapshot)

    monkeypatch.setattr(ssconf_writer, "ssconf_values", counted)
    seen = []
    for change in (
        put(sample_instance(1)),
        put(sample_instance(1, tags=("x",))),
        put(sample_instance(1, name="other.example.com")),
        put(sample_node(3, tags=("x",))),
        put(sample_instance(1, name="other.example.com", tags=("y",))),
        lambda draft: draft.remove(draft.instances[sample_instance(1).uuid]),
        put(replace(config.snapshot.cluster, tags=("x",))),
    ):
        before = len(made)
        await config.change(change)
        await asyncio.sleep(2)
        seen.append(len(made) > before)
    assert seen == [True, False, True, True, False, True, True]
    assert distributor.position == config.snapshot.position
    await distributor.close()


async def test_the_position_is_what_every_online_node_has_shown() -> None:
    config, nodes, distributor = await begin()
    first = distributor.position
    assert first == config.snapshot.position
    nodes.broken = {"node2.example.com"}
    await config.change(put(sample_instance(1)))
    await asyncio.sleep(5)
    assert distributor.position == first
    nodes.broken = set()
    await asyncio.sleep(60)
    assert distributor.position > first
    await distributor.close()


async def test_a_node_that_does_not_answer_is_tried_again_and_delays_no_other() -> None:
    config, nodes, distributor = await begin()
    nodes.broken, nodes.slow = {"node2.example.com"}, {"node3.example.com"}
    nodes.sent.clear()
    await config.change(put(sample_instance(1)))
    await asyncio.sleep(10)
    assert len(nodes.times("node1.example.com")) == 1
    assert distributor.late_nodes() == ["node2.example.com", "node3.example.com"]
    nodes.broken, nodes.slow = set(), set()
    await asyncio.sleep(60)
    assert nodes.latest("node2.example.com")["instance_list"] == "web1.example.com"
    assert distributor.late_nodes() == []
    await distributor.close()


async def test_offline_nodes_get_the_latest_set_on_return() -> None:
    config, nodes, distributor = await begin()
    offline = msgspec.structs.replace(sample_node(3), offline=True, master_candidate=False)
    await config.change(put(offline))
    await asyncio.sleep(2)
    nodes.sent.clear()
    await config.change(put(sample_instance(1)))
    await asyncio.sleep(5)
    assert nodes.times("node3.example.com") == []
    await config.change(put(sample_node(3)))
    await asyncio.sleep(5)
    assert nodes.latest("node3.example.com")["instance_list"] == "web1.example.com"
    await distributor.close()


@pytest.mark.requirement("F29")
async def test_node_marked_offline_is_notified_once() -> None:
    config, nodes, distributor = await begin()
    offline = msgspec.structs.replace(sample_node(3), offline=True, master_candidate=False)
    nodes.sent.clear()
    await config.change(put(offline))
    await asyncio.sleep(3)
    assert nodes.latest(NAMES[2])["offline_nodes"] == NAMES[2]
    await config.change(put(sample_instance(1)))
    await asyncio.sleep(600)
    assert len(nodes.times(NAMES[2])) == 1
    # Back and away again: told again.
    for node in (sample_node(3), offline):
        await config.change(put(node))
        await asyncio.sleep(3)
    assert nodes.latest(NAMES[2])["offline_nodes"] == NAMES[2]
    await distributor.close()


@pytest.mark.requirement("F29")
async def test_unreachable_node_is_notified_later() -> None:
    config, nodes, distributor = await begin()
    offline = msgspec.structs.replace(sample_node(3), offline=True, master_candidate=False)
    nodes.broken = {NAMES[2]}
    await config.change(put(offline))
    await asyncio.sleep(3600)
    nodes.sent.clear()
    assert distributor.late_nodes() == []  # nobody waits for it
    await config.change(put(sample_instance(1)))
    nodes.broken = set()
    await asyncio.sleep(LONGEST_S + 1)
    assert nodes.latest(NAMES[2])["instance_list"] == "web1.example.com"
    assert nodes.latest(NAMES[2])["offline_nodes"] == NAMES[2]
    await distributor.close()


@pytest.mark.requirement("F29")
async def test_node_that_stays_away_is_not_retried_by_this_master() -> None:
    config, nodes, distributor = await begin()
    offline = msgspec.structs.replace(sample_node(3), offline=True, master_candidate=False)
    nodes.broken = {NAMES[2]}
    await config.change(put(offline))
    await asyncio.sleep(TRY_FOR_S + 1)
    nodes.broken = set()
    nodes.sent.clear()
    await config.change(put(sample_instance(1)))
    await asyncio.sleep(2 * LONGEST_S)
    assert nodes.times(NAMES[2]) == []
    await distributor.close()
    another = SsconfDistributor(config, nodes.push)
    another.start()
    await asyncio.sleep(3)
    assert nodes.latest(NAMES[2])["offline_nodes"] == NAMES[2]
    await another.close()


@pytest.mark.requirement("F29")
@pytest.mark.parametrize("away_s", [3, 3600, TRY_FOR_S + 1])
async def test_node_back_for_a_moment_is_notified_again(away_s: float) -> None:
    config, nodes, distributor = await begin()
    offline = msgspec.structs.replace(sample_node(3), offline=True, master_candidate=False)
    nodes.broken = {NAMES[2]} if away_s > 3 else set()
    await config.change(put(offline))
    await asyncio.sleep(away_s)
    nodes.broken = set()
    await config.change(put(sample_instance(1)))  # from now on, sets are a second apart
    await asyncio.sleep(0)
    await config.change(put(sample_node(3)))
    await distributor.push_now(sample_node(3))
    assert nodes.latest(NAMES[2])["offline_nodes"] == ""
    await config.change(put(offline))
    await asyncio.sleep(3)
    assert nodes.latest(NAMES[2])["offline_nodes"] == NAMES[2]
    await distributor.close()


@pytest.mark.requirement("F29")
async def test_early_answer_does_not_prevent_the_notification() -> None:
    offline, told = sample_node(3, offline=True, master_candidate=False), []

    async def tell(node: Node) -> None:
        told.append(node.name)

    notifier = OfflineNotifier(lambda _uuid: offline, lambda _node: bool(told), tell)
    for _ in range(2):
        notifier.follow([offline])
        notifier.answers(offline.uuid)
    notifier.follow([offline])
    await asyncio.sleep(1)
    assert told == [NAMES[2]]
    await notifier.close()


async def test_new_node_gets_its_set_at_once() -> None:
    config, nodes, distributor = await begin()
    nodes.sent.clear()
    await distributor.push_now(sample_node(2))
    assert [name for _, name, _, _ in nodes.sent] == ["node2.example.com"]
    nodes.broken = {"node2.example.com"}
    with pytest.raises(RpcUnknown):
        await distributor.push_now(config.snapshot.nodes[NODES[1]])
    await distributor.close()


async def test_settling_waits_until_all_nodes_have_the_last_change() -> None:
    config, nodes, distributor = await begin()
    await config.change(put(sample_instance(7)))
    wanted = config.snapshot.position
    assert await distributor.settle(3) == []
    assert distributor.position >= wanted
    assert all("web7." in nodes.latest(name)["instance_list"] for name in NAMES)
    begun = asyncio.get_running_loop().time()
    assert await distributor.settle(3) == []
    assert asyncio.get_running_loop().time() == begun
    await distributor.close()


async def test_settling_ends_in_time_and_names_late_nodes() -> None:
    config, nodes, distributor = await begin()
    nodes.broken.add(NAMES[1])
    await config.change(put(sample_instance(7)))
    begun = asyncio.get_running_loop().time()
    assert await distributor.settle(3) == [NAMES[1]]
    assert asyncio.get_running_loop().time() == begun + 3
    await distributor.close()


async def test_next_set_names_the_one_that_the_node_has_confirmed() -> None:
    config, nodes, distributor = await begin()
    first = nodes.sent[-1][2]
    assert {base for _, base in nodes.bases} == {None}
    nodes.bases.clear()
    await config.change(put(sample_instance(9)))
    await asyncio.sleep(3)
    assert {base for _, base in nodes.bases} == {first}
    await distributor.close()
