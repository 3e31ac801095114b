"""Nodes get the difference to the set that they have confirmed."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from ganeti.base.errors import PrereqError, RpcFailed
from ganeti.daemons.ssconf_push import SsconfPush, difference
from ganeti.model import wire
from ganeti.model.objects import Node
from ganeti.node.membership import complete_set
from ganeti.rpc.procedures.files import SsconfArgs, SsconfWritten
from tests.unit.config.sample import sample_node

NAMES = [f"web{number:05}.example.com" for number in range(20_000)]
FORMER = {"instance_list": "\n".join(NAMES), "cluster_name": "c", "hvparams_fake": "x=1"}
LATER = {
    "instance_list": "\n".join(sorted([*NAMES[:10], *NAMES[11:], "a.example.com"])),
    "cluster_name": "d",
}


@dataclass
class OneNode:
    """A node with a set of files; one of an earlier version takes whole sets only."""

    takes_differences: bool = True
    position: int = -1
    values: Mapping[str, str] = field(default_factory=dict)
    sizes: list[int] = field(default_factory=list)

    async def call(self, node: Node, _procedure: object, args: SsconfArgs, *, key: str) -> Any:
        assert key
        self.sizes.append(len(wire.encode(args)))
        assert self.takes_differences or args.base is None
        if args.base is None:
            self.values = args.values
        else:
            try:
                self.values = complete_set(args, self.position, self.values)
            except PrereqError as err:
                raise RpcFailed(node.name, err.message, "OpPrereqError") from err
        self.position = args.position
        return SsconfWritten(takes_differences=self.takes_differences)


async def test_node_gets_only_what_differs_from_its_set() -> None:
    node = OneNode()
    push = SsconfPush(node)  # type: ignore[arg-type]  # the part of it that is used
    await push(sample_node(1), 1, FORMER)
    await push(sample_node(1), 2, LATER, (1, FORMER))
    assert (node.position, node.values) == (2, LATER)
    assert node.sizes[0] > 400_000
    assert node.sizes[1] < 400


async def test_node_with_other_files_gets_the_whole_set() -> None:
    node = OneNode()
    push = SsconfPush(node)  # type: ignore[arg-type]  # the part of it that is used
    await push(sample_node(1), 1, FORMER)
    node.values = {**FORMER, "cluster_name": "changed by hand"}
    await push(sample_node(1), 2, {**LATER, "cluster_name": "c"}, (1, {**FORMER}))
    assert node.values == {**LATER, "cluster_name": "c"}
    node.position = 7
    await push(sample_node(1), 8, FORMER, (2, LATER))
    assert node.values == FORMER


async def test_node_of_an_earlier_version_gets_whole_sets() -> None:
    node = OneNode(takes_differences=False)
    push = SsconfPush(node)  # type: ignore[arg-type]  # the part of it that is used
    await push(sample_node(1), 1, FORMER)
    await push(sample_node(1), 2, LATER, (1, FORMER))
    assert node.values == LATER


@pytest.mark.parametrize(
    ("former", "text"),
    [("b\na", "b\na\nc"), ("a\na", "a"), ("", "x\ny\nz"), ("a\nb\nc\nd", ""), ("x", "y")],
)
def test_texts_that_are_no_sorted_lines_are_sent_whole(former: str, text: str) -> None:
    args = difference({"name": former}, {"name": text})
    made = SsconfArgs(
        position=2, values=args.values, base=1, lines=args.lines, checksum=args.checksum
    )
    assert complete_set(made, 1, {"name": former}) == {"name": text}
