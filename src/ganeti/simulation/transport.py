"""Calls between simulated nodes: what `ganeti.rpc.transport` does, over a simulated network."""

import asyncio
from collections.abc import Mapping

from ganeti.model.objects import Node
from ganeti.rpc.procedures import PROCEDURES
from ganeti.rpc.procedures.form import Lane
from ganeti.rpc.transport import Answer, NoAnswer, NotSent
from ganeti.simulation.nodes.simulated import SimulatedNode
from ganeti.simulation.nodes.world import World
from ganeti.simulation.simulation_loop import SimulationLoop


class SimulatedTransport:
    """The connections of one node to all nodes, by their names."""

    def __init__(self, world: World, own: str, nodes: Mapping[str, SimulatedNode]) -> None:
        self._world, self._own, self._nodes = world, own, nodes

    async def post(
        self,
        node: Node,
        procedure: str,
        body: bytes,
        *,
        headers: Mapping[str, str],
        timeout_s: float,
        lane: Lane,
    ) -> Answer:
        del lane
        world, target = self._world, self._nodes.get(node.name)
        times, loop = world.durations, SimulationLoop.running()
        end = loop.now + timeout_s
        if target is None or target.is_off or not world.network.passes(self._own, node.name):
            await loop.after(min(times.connect_timeout_s, timeout_s))
            raise NotSent(f"node {node.name} does not answer")
        await loop.after(world.network.delay())
        answer: Answer | None = None
        if not target.is_off and not PROCEDURES[procedure].changes:
            answer = await target.post(procedure, body, headers)
        elif not target.is_off:
            answer = await _ended(target.begin(procedure, body, headers), timeout_s)
        if answer is None or target.is_off or not world.network.passes(node.name, self._own):
            await loop.after(max(min(times.silence_s, end - loop.now), 0.0))
            raise NoAnswer(f"the connection to node {node.name} has broken")
        await loop.after(world.network.delay())
        return answer

    async def close(self) -> None:
        """Leave what was begun to the nodes."""


async def _ended(task: asyncio.Task[Answer], timeout_s: float) -> Answer | None:
    """Return the answer; None if there is none in time, or the node has died."""
    loop = asyncio.get_running_loop()
    over: asyncio.Future[None] = loop.create_future()

    def is_over(_task: object = None) -> None:
        if not over.done():
            over.set_result(None)

    timer = loop.call_later(timeout_s, is_over)
    task.add_done_callback(is_over)
    try:
        await over
    finally:
        timer.cancel()
        task.remove_done_callback(is_over)
    return None if not task.done() or task.cancelled() else task.result()
