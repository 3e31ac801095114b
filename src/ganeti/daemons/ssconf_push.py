"""Sends sets of ssconf files to nodes: only what differs from the set that a node has confirmed.

The list of instances of a large cluster has half a megabyte, changes with each instance, and goes to every node.
"""

from collections.abc import Mapping

from msgspec.structs import replace

from ganeti.base.errors import RpcFailed
from ganeti.model.objects import Node
from ganeti.rpc.client import RpcClient
from ganeti.rpc.procedures.files import WRITE_SSCONF, LineChange, SsconfArgs
from ganeti.ssconf import checksum


class SsconfPush:
    """Gives nodes sets of ssconf files."""

    def __init__(self, rpc: RpcClient) -> None:
        self._rpc = rpc
        self._able: set[str] = set()
        """Nodes that take differences, as their last answer said."""
        self._last: tuple[Mapping[str, str], Mapping[str, str], SsconfArgs] | None = None
        """The sets of the last difference, and the message with it."""

    async def __call__(
        self,
        node: Node,
        position: int,
        values: Mapping[str, str],
        base: tuple[int, Mapping[str, str]] | None = None,
    ) -> None:
        """Give a node a set; RpcError if it does not have the set afterwards.

        `base` is the set that the node confirmed last. A node that has another one gets the whole set.
        """
        key = f"ssconf/{position}"
        if base is not None and node.uuid in self._able:
            args = self._difference(position, values, *base)
            try:
                await self._rpc.call(node, WRITE_SSCONF, args, key=f"{key}/{base[0]}")
            except RpcFailed:
                pass
            else:
                return
        whole = SsconfArgs(position=position, values=dict(values))
        written = await self._rpc.call(node, WRITE_SSCONF, whole, key=key)
        (self._able.add if written.takes_differences else self._able.discard)(node.uuid)

    def _difference(
        self, position: int, values: Mapping[str, str], base: int, former: Mapping[str, str]
    ) -> SsconfArgs:
        """Return what leads from one set to another; the same object for all nodes that need the same."""
        last = self._last
        args = None
        if last is not None and last[0] is former and last[1] is values:
            args = last[2]
            if (args.position, args.base) == (position, base):
                return args
        args = replace(args or difference(former, values), position=position, base=base)
        self._last = former, values, args
        return args


def difference(former: Mapping[str, str], values: Mapping[str, str]) -> SsconfArgs:
    """Return what leads from one set to another; positions are left to the caller."""
    changed = {name: text for name, text in values.items() if former.get(name) != text}
    lines = {}
    for name, text in changed.items():
        if name in former and (found := _line_change(former[name], text)) is not None:
            lines[name] = found
    return SsconfArgs(
        position=0,
        values={name: text for name, text in changed.items() if name not in lines},
        lines=lines,
        removed=sorted(former.keys() - values.keys()),
        checksum=checksum(values),
    )


def _line_change(former: str, text: str) -> LineChange | None:
    """Return which lines come and go; None if that does not lead from one text to the other."""
    before, after = former.split("\n"), text.split("\n")
    change = LineChange(
        removed=sorted(set(before) - set(after)), added=sorted(set(after) - set(before))
    )
    is_right = change.applied(former) == text
    is_small = len(change.removed) + len(change.added) < len(after) // 2
    return change if is_right and is_small else None
