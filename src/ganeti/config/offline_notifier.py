"""Notifies a node that is marked offline, once, if it can be reached (F29).

A dead node receives nothing. A node that was marked by mistake, or was unreachable, learns that it
must start nothing any more: its guests may run elsewhere by now.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from functools import partial

from ganeti.base.errors import GanetiError
from ganeti.model.objects import Node

SHORTEST_S = 1.0
LONGEST_S = 300.0
"""Growing delays between attempts."""
TRY_FOR_S = 6 * 3600.0
"""Number of attempts.

Afterwards the master does not call the node until it returns or another master starts.
"""

_log = logging.getLogger(__name__)


class OfflineNotifier:
    """One task per offline node that does not know of its mark; `tell` sends the node the latest set.

    `offline_node` returns a node by its UUID if it is marked offline, and `knows_mark` returns
    whether the last set that it accepted shows the mark.
    """

    def __init__(
        self,
        offline_node: Callable[[str], Node | None],
        knows_mark: Callable[[Node], bool],
        tell: Callable[[Node], Awaitable[None]],
    ) -> None:
        self._offline_node = offline_node
        self._knows_mark = knows_mark
        self._tell = tell
        self._given_up: set[str] = set()
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def follow(self, nodes: Iterable[Node]) -> None:
        """Handle the nodes that are offline now; called after changes."""
        for node in nodes:
            uuid = node.uuid
            if not node.offline or uuid in self._given_up or uuid in self._tasks:
                continue
            if not self._knows_mark(node):
                task = asyncio.create_task(self._say(uuid), name=f"ssconf-offline-{node.name}")
                self._tasks[uuid] = task
                # Not in the task itself: a task that is cancelled before its first turn does
                # nothing.
                task.add_done_callback(partial(self._forget, uuid))

    def answers(self, uuid: str) -> None:
        """Handle a node that accepted a set from elsewhere: its earlier silence is out of date.

        It may be offline again before its return was seen.
        """
        self._given_up.discard(uuid)
        if task := self._tasks.pop(uuid, None):
            task.cancel()

    def _forget(self, uuid: str, ended: asyncio.Task[None]) -> None:
        if self._tasks.get(uuid) is ended:
            del self._tasks[uuid]

    async def close(self) -> None:
        """Cancel all tasks."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _say(self, uuid: str) -> None:
        loop = asyncio.get_running_loop()
        end, delay_s = loop.time() + TRY_FOR_S, SHORTEST_S
        while (node := self._offline_node(uuid)) and not self._knows_mark(node):
            try:
                await self._tell(node)
            except GanetiError as err:
                if loop.time() + delay_s > end:
                    _log.warning(
                        "cannot notify node %s that it is marked offline: %s", node.name, err
                    )
                    self._given_up.add(uuid)
                    return
                await asyncio.sleep(delay_s)
                delay_s = min(2 * delay_s, LONGEST_S)
            else:
                _log.info("node %s knows that it is marked offline", node.name)
                return
