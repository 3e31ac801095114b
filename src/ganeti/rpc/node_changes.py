"""Which nodes calls may have changed: what a node reported before that is out of date."""

from ganeti.model.objects import NodeUuid


class NodeChanges:
    """The last change of each node, in an order that does not depend on a clock."""

    def __init__(self) -> None:
        self._number = 0
        self._last: dict[NodeUuid, int] = {}

    def moment(self) -> int:
        """Return the present moment: later changes come after it."""
        return self._number

    def add(self, node: NodeUuid) -> None:
        """Record that a call that uses or frees resources of the node has ended, or that a call was not answered."""
        self._number += 1
        self._last[node] = self._number

    def since(self, node: NodeUuid, moment: int) -> bool:
        """Return whether the node may have changed after a moment."""
        return self._last.get(node, 0) > moment
