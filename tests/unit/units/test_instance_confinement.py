"""As whom an instance's process is to run, checked by the master before any node is asked."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from msgspec.structs import replace

from ganeti.model.opcodes.instance import OpInstanceStartup
from tests.support.units_cluster import Master, World, failed, succeeded
from tests.unit.units.opcodes import NAME, create, modify

pytestmark = [pytest.mark.virtual_time, pytest.mark.requirement("S228", "S230")]

WRONG = [
    ({"security_model": "pool"}, "the cluster has none"),
    ({"security_model": "pool"}, "gnt-cluster modify --uid-pool="),
    ({"security_model": "user"}, "security_domain: security_model=user needs the name"),
    ({"security_domain": "qemu"}, "has no effect with security_model=none"),
    ({"security_model": "pool", "security_domain": "qemu"}, "only user needs a name"),
]


@pytest.fixture
async def master(world: World) -> AsyncIterator[Master]:
    """With kvm in place of the fake hypervisor."""
    one = await Master.begin(world)
    await one.change(lambda draft: draft.put(replace(draft.cluster, enabled_hypervisors=("kvm",))))
    yield one
    await one.end()


@pytest.mark.parametrize(("hvparams", "text"), WRONG)
async def test_what_cannot_be_is_refused_before_a_node_is_asked(
    master: Master, hvparams: dict[str, Any], text: str
) -> None:
    _, (message, code) = failed(await master.run(create(hvparams=hvparams)))
    assert (code, text in message) == ("wrong_input", True)
    assert not any(call.procedure == "validate_hvparams" for call in master.rpc.calls)
    succeeded(await master.run(create(start=False)))
    # --force does not ask the node; this needs none.
    for force in (False, True):
        view = await master.run(modify(hvparams=hvparams, force=force))
        _, (message, code) = failed(view)
        assert (code, text in message) == ("wrong_input", True)
    assert "security_model" not in master.instance(NAME).hvparams
    _, (message, _) = failed(
        await master.run(OpInstanceStartup(instance_name=NAME, hvparams=hvparams))
    )
    assert text in message
    assert master.world.where(master.instance(NAME).uuid) == {}


@pytest.mark.requirement("A44")
async def test_parameters_of_one_start_are_shown_to_the_node_first(master: Master) -> None:
    succeeded(await master.run(create(start=False)))
    master.world.node(1).wrong_hvparams = ["keymap: QEMU has no keymap xx on this node"]
    start = OpInstanceStartup(instance_name=NAME, hvparams={"keymap": "xx"})
    _, (message, code) = failed(await master.run(start))
    assert (code, "QEMU has no keymap xx" in message) == ("wrong_input", True)
    assert "instance_start" not in master.rpc.acts()
    # Without any the node is not asked: what is wrong with it is said by the start itself.
    succeeded(await master.run(OpInstanceStartup(instance_name=NAME)))


async def test_the_pool_of_the_cluster_makes_it_possible(master: Master) -> None:
    await master.change(lambda draft: draft.put(replace(draft.cluster, uid_pool=((4000, 4019),))))
    succeeded(await master.run(create(hvparams={"security_model": "pool"}, start=False)))
    succeeded(
        await master.run(
            modify(hvparams={"security_model": "user", "security_domain": "qemu"}, force=True)
        )
    )
    await master.change(lambda draft: draft.put(replace(draft.cluster, uid_pool=())))
    # What is wrong already keeps nobody from changing something else.
    succeeded(await master.run(modify(hvparams={"acpi": False})))


async def test_parameters_of_the_cluster_count_too(master: Master) -> None:
    of_cluster = {"kvm": {"security_model": "pool"}}
    await master.change(lambda draft: draft.put(replace(draft.cluster, hvparams=of_cluster)))
    _, (message, _) = failed(await master.run(create()))
    assert "security_model: pool needs user ids" in message
    succeeded(await master.run(create(hvparams={"security_model": "none"})))
