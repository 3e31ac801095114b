from pathlib import Path

import pytest

from ganeti.base.paths import Paths
from ganeti.node.application import NodeApplication, merged
from ganeti.rpc.calls import Call, Handlers
from ganeti.rpc.procedures import PROCEDURES
from ganeti.rpc.procedures.form import Nothing
from ganeti.rpc.procedures.host import VERSION
from ganeti.rpc.procedures.mastership import REGISTER_READ
from tests.support.predictable import FrozenClock


async def test_a_node_answers_every_procedure_that_is_declared(tmp_path: Path) -> None:
    paths = Paths(tmp_path)
    paths.data.mkdir(parents=True)
    node = NodeApplication(paths, FrozenClock(), left_cluster=lambda: None)
    try:
        assert node.handlers.keys() == PROCEDURES.keys()
        version = await node.handlers[VERSION.name](Nothing(), Call())
        assert version.cluster_uuid == ""
        state = await node.handlers[REGISTER_READ.name](Nothing(), Call())
        assert state.vote is None
        assert node.allowed() == frozenset()
    finally:
        await node.close()


def test_two_handlers_for_one_procedure_are_a_fault() -> None:
    one: Handlers = {"x": None}  # type: ignore[dict-item]  # never called
    with pytest.raises(AssertionError, match="x"):
        merged([one, one])
