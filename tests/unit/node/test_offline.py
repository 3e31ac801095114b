"""A node that is marked offline starts nothing."""

from pathlib import Path
from typing import Any

import pytest

from ganeti import ssconf
from ganeti.base.errors import PrereqError
from ganeti.base.paths import Paths
from ganeti.node.offline import STARTS, is_marked_offline, starting_nothing
from ganeti.rpc.calls import Call, Handlers
from ganeti.rpc.procedures.instances import INSTANCE_SHUTDOWN
from tests.support.node_certificates import Authority

pytestmark = pytest.mark.requirement("F29")


@pytest.mark.parametrize("procedure", STARTS)
async def test_what_starts_a_guest_is_refused_only_while_the_node_is_offline(
    procedure: str,
) -> None:
    done: list[Any] = []

    async def handler(args: Any, _call: Call) -> Any:
        done.append(args)

    offline = True
    handlers: Handlers = {procedure: handler, INSTANCE_SHUTDOWN.name: handler}
    guarded = starting_nothing(handlers, lambda: offline)
    with pytest.raises(PrereqError, match="marked offline"):
        await guarded[procedure]("start", Call())
    await guarded[INSTANCE_SHUTDOWN.name]("stop", Call())
    assert done == ["stop"]
    offline = False
    await guarded[procedure]("start", Call())
    assert done == ["stop", "start"]


def test_a_node_learns_it_from_its_set(tmp_path: Path) -> None:
    paths = Paths(tmp_path)
    assert not is_marked_offline(paths)
    Authority().equip(paths, "node1.example.com")
    ssconf.write_set(paths, 1, {"offline_nodes": "node10.example.com\n"})
    assert not is_marked_offline(paths)
    ssconf.write_set(paths, 2, {"offline_nodes": "node1.example.com\nnode10.example.com\n"})
    assert is_marked_offline(paths)
