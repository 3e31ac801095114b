"""Stops the time of leases and heartbeats while each exchange would repeat the last one.

A cluster of 100 nodes exchanges eight million heartbeats a day. Nearly all of them change nothing.
"""

import asyncio
from collections.abc import Callable, Mapping

from ganeti.config.fill import recovery_of
from ganeti.config.snapshot import Snapshot, differing_instances
from ganeti.daemons.watched import is_listed_anew
from ganeti.model.names import AdminState
from ganeti.model.objects import Instance
from ganeti.model.recovery import NodeState, Recovery
from ganeti.recovery.status import NodeStatus
from ganeti.recovery.times import BEAT_S
from ganeti.simulation.master import SimulatedMaster
from ganeti.simulation.nodes.simulated import SimulatedNode
from ganeti.simulation.nodes.world import World
from ganeti.simulation.trace import Event, Kind

LEAST_S = 2 * BEAT_S + 0.5
"""After a disturbance, every node gets two heartbeats at least."""
CONFIRMED_S = BEAT_S + 0.25
"""New protection is confirmed by a heartbeat that is sent at once; if its answer is lost, time must continue."""
LOOK_S = 1.0
_DISTURBING = (
    Kind.NODE_LOST,
    Kind.NODE_BACK,
    Kind.LINK_CUT,
    Kind.LINK_HEALED,
    Kind.MASTER,
    Kind.MASTER_LOST,
    Kind.LEASE_OVER,
)


class Pace:
    """Lets recovery's time go on from each disturbance until the cluster is calm again."""

    def __init__(
        self,
        world: World,
        nodes: Mapping[str, SimulatedNode],
        master: Callable[[], SimulatedMaster | None],
    ) -> None:
        self._world, self._nodes, self._master = world, nodes, master
        self._looking: asyncio.TimerHandle | None = None
        self._confirming: asyncio.TimerHandle | None = None
        self._snapshot: Snapshot | None = None

    def begin(self) -> None:
        """Follow what happens from now on."""
        self._world.trace.listen(self._happened)
        self.disturb()

    def follow(self, snapshot: Snapshot) -> None:
        """Take in a new configuration."""
        before, self._snapshot = self._snapshot, snapshot
        if before is None or _concerns_nodes(before, snapshot):
            self.disturb()
            return
        changed = [
            (before.instances.get(uuid), one)
            for uuid in differing_instances(before, snapshot)
            if (one := snapshot.instances.get(uuid)) is not None
        ]
        if any(_ends_migration(was, one) and not self._runs(snapshot, one) for was, one in changed):
            self.disturb()
        elif self._confirming is None and any(is_listed_anew(snapshot, one) for _, one in changed):
            loop = asyncio.get_running_loop()
            self._confirming = loop.call_later(CONFIRMED_S, self._must_be_calm)

    def _must_be_calm(self) -> None:
        self._confirming = None
        master = self._master()
        if master is None or not master.recovery.is_settled:
            self.disturb()

    def disturb(self) -> None:
        """Let recovery's time go on."""
        self._world.recovery_time.go_on()
        # The next failure may happen in any moment between two heartbeats.
        delay_s = LEAST_S + self._world.dice.random() * BEAT_S
        at = asyncio.get_running_loop().time() + delay_s
        if self._looking is not None:
            at = max(at, self._looking.when())
            self._looking.cancel()
        self._looking = asyncio.get_running_loop().call_at(at, self._look)

    def close(self) -> None:
        """Leave the time alone."""
        for timer in (self._looking, self._confirming):
            if timer is not None:
                timer.cancel()

    def _look(self) -> None:
        if self._is_calm():
            self._looking = None
            self._world.recovery_time.stop()
        else:
            self._looking = asyncio.get_running_loop().call_later(LOOK_S, self._look)

    def _happened(self, event: Event) -> None:
        about = {Kind.GUEST_DOWN: (event.name,), Kind.JOB_ENDED: event.instances}
        if event.kind in _DISTURBING or any(map(self._is_missed, about.get(event.kind, ()))):
            self.disturb()

    def _is_missed(self, name: str) -> bool:
        """Return whether a guest is gone that its node must report."""
        master = self._master()
        snapshot = None if master is None else master.config.snapshot
        instance = None if snapshot is None else snapshot.instance_by_name(name)
        if master is None or snapshot is None or instance is None:
            return False
        return not self._runs(snapshot, instance) and not master.is_locked(name)

    def _runs(self, snapshot: Snapshot, instance: Instance) -> bool:
        """Return whether its guest is where it should be, or no node misses it."""
        node = snapshot.nodes[instance.primary_node]
        if instance.uuid in self._nodes[node.name].guests or node.offline:
            return True
        is_wanted = instance.admin_state is AdminState.UP
        return not is_wanted or recovery_of(snapshot, instance) is Recovery.NONE

    def _is_calm(self) -> bool:
        master = self._master()
        if master is None or self._world.network.is_disturbed:
            return False
        recovery, snapshot = master.recovery, master.config.snapshot
        return (
            all(self._is_settled(snapshot, one) for one in recovery.node_statuses())
            and recovery.is_settled
            and all(
                self._runs(snapshot, one) or master.is_locked(one.name)
                for one in snapshot.instances.values()
            )
        )

    def _is_settled(self, snapshot: Snapshot, one: NodeStatus) -> bool:
        """Return whether a node answers as ever, or is off and known to be."""
        node, found = self._nodes[one.name], snapshot.node_by_name(one.name)
        if one.state is NodeState.HEALTHY:
            return not node.is_off and one.silent_s < LEAST_S
        is_away = one.state is NodeState.FENCED and node.is_off
        return is_away and found is not None and found.offline


def _concerns_nodes(before: Snapshot, now: Snapshot) -> bool:
    """Return whether other nodes may be watched, or others protect instances."""
    return (before.cluster, before.groups, before.nodes) != (now.cluster, now.groups, now.nodes)


def _ends_migration(was: Instance | None, now: Instance) -> bool:
    """Return whether the place of a guest is known again; no job may end with that."""
    return was is not None and was.migrating_to is not None and now.migrating_to is None
