"""Choosing nodes by an allocator: what it is sent, and that nothing is given away twice."""

import asyncio
import json
import threading
from typing import Any

import pytest
from msgspec.structs import replace

from ganeti.model.opcodes.base import DiskRequest, NicRequest
from ganeti.model.opcodes.instance import OpInstanceRemove, OpInstanceShutdown, OpInstanceStartup
from ganeti.model.opcodes.test import OpTestAllocator
from ganeti.rpc.procedures.programs import AllocatorOutput
from ganeti.simulation.nodes.state import hail
from ganeti.units import allocator_message, instance_texts
from tests.support.fake_rpc import Fault
from tests.support.units_cluster import GROUP, NODES, Master, failed, said, succeeded
from tests.unit.units.opcodes import NAME, create

pytestmark = pytest.mark.virtual_time


async def set_allocator(master: Master, name: str = "hail") -> None:
    await master.change(lambda draft: draft.put(replace(draft.cluster, default_iallocator=name)))


async def question(master: Master, **fields: Any) -> dict[str, Any]:
    """What an allocator would be sent."""
    op = OpTestAllocator(direction="in", **fields)
    message: dict[str, Any] = json.loads(succeeded(await master.run(op)))
    return message


@pytest.mark.requirement("S160")
async def test_the_chosen_node_is_shown_and_used(master: Master) -> None:
    master.world.node(1).memory = master.world.node(3).memory = 400
    view = await master.run(create(pnode=None, iallocator="hail"))
    assert succeeded(view) == ["node2.example.com"]
    assert "Selected nodes for the instance: node2.example.com" in said(view)
    assert master.instance(NAME).primary_node == NODES[1]
    master.check()


@pytest.mark.requirement("S184")
async def test_the_default_allocator_is_asked_unless_a_node_is_named(master: Master) -> None:
    await set_allocator(master)
    succeeded(await master.run(create(pnode="node3")))
    assert master.instance(NAME).primary_node == NODES[2]
    assert not [call for call in master.rpc.calls if call.procedure == "allocator_run"]
    succeeded(await master.run(create("web2.example.com", pnode=None)))
    assert [call for call in master.rpc.calls if call.procedure == "allocator_run"]


@pytest.mark.requirement("S168", "G11")
async def test_two_creations_at_once_do_not_both_get_the_last_memory(master: Master) -> None:
    for number in (1, 2, 3):
        master.world.node(number).memory = 600 if number == 2 else 100
    jobs = [
        await master.submit(create(f"web{number}.example.com", pnode=None, iallocator="hail"))
        for number in (1, 2)
    ]
    views = [await master.final(job_id) for job_id in jobs]
    assert sorted(str(view.status) for view in views) == ["error", "success"]
    loser = next(view for view in views if str(view.status) == "error")
    _, (text, code) = failed(loser)
    assert code == "insufficient_resources"
    assert "node2.example.com, node3.example.com: 413 to 425 MiB of memory short" in text
    master.check()


@pytest.mark.requirement("G11")
async def test_allocations_at_once_are_decided_one_after_the_other(master: Master) -> None:
    """An allocator that is asked while another one decides would choose the same node."""
    for number in (1, 2, 3):
        master.world.node(number).memory = 100 if number == 1 else 600
    handlers = master.rpc.nodes["node1.example.com"]
    ask = handlers["allocator_run"]

    async def slowly(args: Any, call: Any) -> Any:
        await asyncio.sleep(5)
        return await ask(args, call)

    handlers["allocator_run"] = slowly
    jobs = [
        await master.submit(create(f"web{number}.example.com", pnode=None, iallocator="hail"))
        for number in (1, 2)
    ]
    chosen = [succeeded(await master.final(job_id)) for job_id in jobs]
    assert sorted(chosen) == [["node2.example.com"], ["node3.example.com"]]
    master.check()


class Gate:
    """Holds a procedure of one node until it is opened."""

    def __init__(self, master: Master, number: int, procedure: str) -> None:
        self.reached, self._open = asyncio.Event(), asyncio.Event()
        handlers = master.rpc.nodes[f"node{number}.example.com"]
        handler = handlers[procedure]

        async def held(args: Any, call: Any) -> Any:
            self.reached.set()
            await self._open.wait()
            return await handler(args, call)

        handlers[procedure] = held

    def open(self) -> None:
        self._open.set()


@pytest.mark.requirement("G11")
@pytest.mark.parametrize("procedure", ["blockdev_create", "os_create", "instance_start"])
@pytest.mark.parametrize("named", [False, True])
async def test_memory_stays_promised_until_the_guest_runs(
    master: Master, procedure: str, named: bool
) -> None:
    for number in (1, 2, 3):
        master.world.node(number).memory = 600 if number == 2 else 100
    where: dict[str, Any] = {"pnode": "node2"} if named else {"pnode": None, "iallocator": "hail"}
    gate = Gate(master, 2, procedure)
    first = await master.submit(create(**where))
    await gate.reached.wait()
    _, (_, code) = failed(await master.run(create("web2.example.com", **where)))
    assert code == "insufficient_resources"
    gate.open()
    succeeded(await master.final(first))
    master.check()


async def test_memory_of_a_failed_creation_is_free_again(master: Master) -> None:
    master.world.node(1).memory = 600
    master.rpc.fail(1, Fault.REFUSED)
    failed(await master.run(create()))
    succeeded(await master.run(create("web2.example.com")))
    master.check()


async def test_an_instance_that_is_not_to_start_takes_no_memory(master: Master) -> None:
    master.world.node(1).memory = 600
    gate = Gate(master, 1, "os_create")
    first = await master.submit(create(start=False))
    await gate.reached.wait()
    succeeded(await master.run(create("web2.example.com", disk_template="diskless", disks=[])))
    gate.open()
    succeeded(await master.final(first))
    master.check()


async def test_disks_that_are_being_made_are_counted(master: Master) -> None:
    gate = Gate(master, 1, "blockdev_create")
    big = {"disk_template": "file"}
    first = await master.submit(create(**big))
    await gate.reached.wait()
    master.world.node(1).local.total = 1000  # 768 of it are promised
    _, (text, code) = failed(await master.run(create("web2.example.com", **big)))
    assert code == "insufficient_resources"
    assert "has 232 MiB free" in text
    gate.open()
    succeeded(await master.final(first))


@pytest.mark.requirement("S164", "S165", "S166", "S167", "S170", "S171")
async def test_the_message_has_the_form_of_the_protocol(master: Master) -> None:
    succeeded(await master.run(create(tags=["b", "a"])))
    message = await question(master, disk_template="diskless", name="new.example.com")
    assert message["version"] == 2
    assert message["enabled_hypervisors"] == ["fake", "kvm"]
    assert message["nodegroups"][GROUP].keys() == {
        "name",
        "alloc_policy",
        "networks",
        "ipolicy",
        "tags",
    }
    instance = message["instances"][NAME]
    assert instance["nodes"] == ["node1.example.com"]
    assert instance["admin_state"] == "up"
    assert instance["tags"] == ["a", "b"]
    assert [disk["size"] for disk in instance["disks"]] == [512, 256]
    node = message["nodes"]["node1.example.com"]
    assert node["group"] == GROUP
    assert (node["i_pri_memory"], node["i_pri_up_memory"]) == (512, 512)
    assert (node["total_memory"], node["free_memory"]) == (4096, 3584)
    request = message["request"]
    assert (request["type"], request["name"]) == ("allocate", "new.example.com")
    assert (request["required_nodes"], request["disk_space_total"]) == (1, 0)


@pytest.mark.requirement("S170", "S171")
@pytest.mark.parametrize("mode", ["allocate", "multi-allocate"])
async def test_a_request_for_a_new_instance_has_all_that_is_known_of_it(
    master: Master, mode: str
) -> None:
    message = await question(
        master,
        mode=mode,
        name="new.example.com",
        memory=1024,
        vcpus=3,
        spindle_use=2,
        disks=[DiskRequest(size=512), DiskRequest(size=256, mode="ro")],
        disk_template="file",
        nics=[NicRequest(mode="bridged", ip="192.0.2.77", mac="aa:00:00:00:00:77", link="br7")],
        os="tiny+a",
        hypervisor="kvm",
        tags=["b", "a"],
    )
    request = message["request"]
    if mode == "multi-allocate":
        assert request.keys() == {"type", "instances"}
        [request] = request["instances"]
    assert request == {
        "type": "allocate",
        "name": "new.example.com",
        "required_nodes": 1,
        "memory": 1024,
        "vcpus": 3,
        "spindle_use": 2,
        "disks": [
            {"mode": "rw", "size": 512, "spindles": None},
            {"mode": "ro", "size": 256, "spindles": None},
        ],
        "disk_space_total": 768,
        "disk_template": "file",
        "nics": [
            {
                "ip": "192.0.2.77",
                "mac": "aa:00:00:00:00:77",
                "mode": "bridged",
                "link": "br7",
                "bridge": "br7",
                "network": None,
            }
        ],
        "hypervisor": "kvm",
        "os": "tiny+a",
        "tags": ["b", "a"],
    }


@pytest.mark.requirement("S170", "S171")
async def test_an_allocator_is_sent_all_of_an_instance_that_is_created(master: Master) -> None:
    nic = NicRequest(mode="bridged", ip="192.0.2.77", mac="aa:00:00:00:00:77", link="br7")
    op = create(pnode=None, iallocator="hail", nics=[nic], hypervisor="kvm", tags=["a"])
    succeeded(await master.run(op))
    [call] = [call for call in master.rpc.calls if call.procedure == "allocator_run"]
    request = json.loads(call.args.message)["request"]
    disks = [{"mode": "rw", "size": size, "spindles": None} for size in (512, 256)]
    assert (request["type"], request["name"], request["required_nodes"]) == ("allocate", NAME, 1)
    assert request["disks"] == disks
    assert request["disk_space_total"] == 768
    assert [(one["ip"], one["mac"], one["bridge"]) for one in request["nics"]] == [
        ("192.0.2.77", "aa:00:00:00:00:77", "br7")
    ]
    assert (request["vcpus"], request["memory"]) == (1, 512)
    assert (request["os"], request["hypervisor"], request["tags"]) == ("tiny", "kvm", ["a"])
    assert request["disk_template"] == op.disk_template


async def test_a_message_about_many_instances_is_made_beside_the_loop(
    master: Master, monkeypatch: pytest.MonkeyPatch
) -> None:
    succeeded(await master.run(create()))
    expected = await question(master)
    threads: list[bool] = []
    real = allocator_message._message

    def watched(*args: Any, **kwargs: Any) -> Any:
        threads.append(threading.current_thread() is threading.main_thread())
        return real(*args, **kwargs)

    monkeypatch.setattr(allocator_message, "_message", watched)
    assert await question(master) == expected
    monkeypatch.setattr(allocator_message, "INSTANCES_AT_ONCE", 0)
    assert await question(master) == expected
    assert threads == [True, False]


async def test_messages_of_instances_are_kept_beside_the_loop(
    master: Master, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("web1.example.com", "web2.example.com", "web3.example.com"):
        succeeded(await master.run(create(instance_name=name)))
    monkeypatch.setattr(allocator_message, "INSTANCES_AT_ONCE", 0)
    await question(master)
    one = master.instance("web1.example.com")
    await master.change(lambda draft: draft.put(replace(one, tags=("new",))))
    seen: list[str] = []
    real = instance_texts._instance

    def counted(snapshot: Any, instance: Any) -> Any:
        seen.append(instance.name)
        return real(snapshot, instance)

    monkeypatch.setattr(instance_texts, "_instance", counted)
    await question(master)
    assert seen == [one.name]


@pytest.mark.requirement("S236")
async def test_free_memory_rises_when_a_guest_is_stopped(master: Master) -> None:
    succeeded(await master.run(create()))
    before = (await question(master))["nodes"]["node1.example.com"]
    succeeded(await master.run(OpInstanceShutdown(instance_name=NAME)))
    after = (await question(master))["nodes"]["node1.example.com"]
    assert after["free_memory"] - before["free_memory"] == 512
    assert (after["i_pri_memory"], after["i_pri_up_memory"]) == (512, 0)


@pytest.mark.requirement("S167")
async def test_live_values_of_offline_and_silent_nodes_are_left_out(master: Master) -> None:
    await master.change(lambda draft: draft.put(replace(draft.nodes[NODES[1]], offline=True)))
    del master.rpc.nodes["node3.example.com"]
    nodes = (await question(master))["nodes"]
    for name in ("node2.example.com", "node3.example.com"):
        assert nodes[name]["offline"]
        assert "free_memory" not in nodes[name]
    succeeded(await master.run(create(pnode=None, iallocator="hail")))
    assert master.instance(NAME).primary_node == NODES[0]


@pytest.mark.requirement("S188")
async def test_an_allocator_can_be_tried_without_creating_anything(master: Master) -> None:
    answered = succeeded(await master.run(OpTestAllocator(iallocator="hail")))
    assert json.loads(answered)["success"]
    assert master.rpc.acts() == []
    assert not master.snapshot.instances


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"mode": "defragment"}, "mode: "),
        ({"mode": "node-evacuate"}, "evac_mode: is needed"),
        ({"count": 2000}, "count: must be at most"),
        ({"direction": "up"}, "direction: must be in or out"),
        ({"memory": 0}, "memory: must be at least 1"),
        ({"name": "a b"}, "name: "),
        ({}, "the cluster has no default allocator"),
    ],
)
async def test_a_wrong_trial_is_refused(master: Master, fields: dict[str, Any], text: str) -> None:
    name, (message, code) = failed(await master.run(OpTestAllocator(**fields)))
    assert (name, code) == ("OpPrereqError", "wrong_input")
    assert text in message


async def test_a_placement_under_way_is_seen_by_the_next_allocation(master: Master) -> None:
    messages: list[dict[str, Any]] = []

    def spy(message: dict[str, Any]) -> Any:
        messages.append(message)
        return hail(message)

    master.world.node(1).allocators["spy"] = spy
    gates = [Gate(master, number, "blockdev_create") for number in (1, 2, 3)]
    first = await master.submit(create(pnode=None, iallocator="spy"))
    await asyncio.sleep(1)
    second = await master.submit(create("web2.example.com", pnode=None, iallocator="spy"))
    await asyncio.sleep(1)
    for gate in gates:
        gate.open()
    succeeded(await master.final(first))
    succeeded(await master.final(second))
    assert NAME not in messages[0]["instances"]
    assert messages[1]["instances"][NAME]["memory"] == 512


async def test_a_stopped_instance_is_started_only_where_memory_is_left(master: Master) -> None:
    succeeded(await master.run(create(start=False)))
    master.world.node(1).memory = 500
    _, (_, code) = failed(await master.run(OpInstanceStartup(instance_name=NAME)))
    assert code == "insufficient_resources"
    succeeded(await master.run(OpInstanceRemove(instance_name=NAME)))
    master.check()


@pytest.mark.requirement("S160", "S182", "S237")
@pytest.mark.parametrize(
    ("info", "shown"),
    [
        ("Can't find a suitable node for position 1 (already selected: )", "position 1"),
        (
            "Can't find a suitable node for position 2 (already selected: node1.example.com)",
            "position 2",
        ),
    ],
)
async def test_a_scripted_refusal_has_the_words_of_the_seed(
    master: Master, info: str, shown: str
) -> None:
    answer = {"success": False, "info": info, "result": []}
    master.world.node(1).allocators["scripted"] = lambda _message: AllocatorOutput(
        found=True, stdout=json.dumps(answer)
    )
    _, (text, code) = failed(await master.run(create(pnode=None, iallocator="scripted")))
    assert shown in info
    assert (text, code) == (
        f"Can't compute nodes using iallocator 'scripted': {info}",
        "insufficient_resources",
    )


@pytest.mark.requirement("S160")
async def test_a_scripted_choice_has_the_words_of_the_seed(master: Master) -> None:
    answer = {"success": True, "info": "Allocation successful", "result": ["node1.example.com"]}
    master.world.node(1).allocators["scripted"] = lambda _message: AllocatorOutput(
        found=True, stdout=json.dumps(answer)
    )
    view = await master.run(create(pnode=None, iallocator="scripted"))
    succeeded(view)
    lines = [line.strip() for line in said(view).splitlines()]
    selected = next(number for number, line in enumerate(lines) if "Selected nodes" in line)
    assert lines[selected].endswith("Selected nodes for the instance: node1.example.com")
    assert lines[selected + 1].endswith("* creating instance disks...")
