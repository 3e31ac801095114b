"""The reports of nodes about their hook directories, sent with other answers (docs/design/hooks.md)."""

import itertools

from ganeti.model.objects import NodeUuid
from ganeti.rpc.procedures.hooks import HookDirectory, parse_report


class HookReports:
    """The latest report of each node, in an order that does not depend on a clock."""

    def __init__(self) -> None:
        self._latest: dict[NodeUuid, tuple[int, str]] = {}
        self._moments = itertools.count(1)

    def moment(self) -> int:
        """Return a number that is greater than all earlier ones: for an operation that begins, or a call."""
        return next(self._moments)

    def add(self, node: NodeUuid, called_at: int, report: str) -> None:
        """Remember the report in the answer to a call that was made at this moment."""
        latest = self._latest.get(node)
        if latest is None or latest[0] < called_at:
            self._latest[node] = (called_at, report)

    def since(self, node: NodeUuid, moment: int) -> list[HookDirectory] | None:
        """Return the directories that the node reported to a call made after `moment`; None without one."""
        latest = self._latest.get(node)
        return None if latest is None or latest[0] < moment else parse_report(latest[1])
