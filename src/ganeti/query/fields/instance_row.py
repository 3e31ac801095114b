"""An instance in the form for its fields."""

from dataclasses import dataclass
from functools import cached_property

from ganeti.config import fill
from ganeti.model.figures import Values
from ganeti.model.names import AdminStateSource
from ganeti.model.objects import Instance, Nic
from ganeti.model.params import Params
from ganeti.query.context import QueryContext
from ganeti.query.fields.field import NO_DATA, OFFLINE, UNAVAILABLE, Missing
from ganeti.query.instance_status import PrimaryNode, instance_status
from ganeti.rpc.procedures.instances import RunningInstance

_SAYS = {"shutdown": PrimaryNode.SHUT_DOWN, "paused": PrimaryNode.STANDS_STILL}


@dataclass
class InstanceRow:
    """One instance in its context; expensive values are computed once."""

    context: QueryContext
    instance: Instance

    @cached_property
    def hvparams(self) -> Params:
        return fill.filled_hvparams(self.context.snapshot.cluster, self.instance)

    @cached_property
    def beparams(self) -> Params:
        return fill.filled_beparams(self.context.snapshot, self.instance)

    @cached_property
    def osparams(self) -> Params:
        return dict(fill.filled_osparams(self.context.snapshot.cluster, self.instance))

    def nicparams(self, nic: Nic) -> Params:
        snapshot = self.context.snapshot
        group = (
            fill.group_of(snapshot, self.instance.primary_node) if nic.network is not None else None
        )
        return fill.filled_nicparams(snapshot.cluster, nic, group)

    def network_name(self, nic: Nic) -> str | None:
        """Return the name of an interface's network."""
        network = self.context.snapshot.networks.get(nic.network) if nic.network else None
        return None if network is None else network.name

    @property
    def primary_name(self) -> str:
        return self.context.node_name(self.instance.primary_node)

    @property
    def secondary_names(self) -> list[str]:
        return [self.context.node_name(uuid) for uuid in self.instance.secondary_nodes]

    def group_of(self, node_uuid: str) -> tuple[str, str]:
        """Return name and UUID of a node's group."""
        node = self.context.snapshot.nodes.get(node_uuid)
        group = self.context.snapshot.groups.get(node.group) if node else None
        return ("", "") if group is None else (group.name, group.uuid)

    @property
    def on_primary(self) -> RunningInstance | Missing | None:
        """The instance's state on its primary node; None if it is not there."""
        node = self.context.nodes.get(self.instance.primary_node)
        running = NO_DATA if node is None else self.context.running_on(node)
        return running if isinstance(running, Missing) else running.get(self.instance.uuid)

    @property
    def primary_says(self) -> PrimaryNode:
        found = self.on_primary
        if found is None:
            return PrimaryNode.HAS_NOT
        if isinstance(found, Missing):
            return PrimaryNode.OFFLINE if found is OFFLINE else PrimaryNode.SILENT
        if not found.has_guest:
            return PrimaryNode.HAS_NOT
        return _SAYS.get(found.state, PrimaryNode.RUNS)

    @property
    def figures(self) -> Values | Missing:
        """The figures of the guest on its primary node."""
        node = self.context.nodes.get(self.instance.primary_node)
        found = NO_DATA if node is None else self.context.figures_of(node)
        if isinstance(found, Missing):
            return found
        return found.guests.get(self.instance.uuid, UNAVAILABLE)

    @property
    def status(self) -> str:
        places = self.context.live.places.get(self.instance.uuid, ())
        elsewhere = any(uuid != self.instance.primary_node for uuid in places)
        wanted, source = self.instance.admin_state, self.instance.admin_state_source
        return instance_status(
            wanted,
            self.primary_says,
            runs_elsewhere=elsewhere,
            by_user=source is AdminStateSource.USER,
        ).value
