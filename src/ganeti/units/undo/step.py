"""What every kind of undo step can say and do; one class a kind, in the file of its subject.

A step is recorded before the act that it undoes, and is run by the master of that time, from the
record alone: at once, while the locks of its job are held (`run`), or *deferred*, after the job has
ended and others have worked on the same things (`run_deferred`).
"""

from dataclasses import dataclass, field
from typing import ClassVar, Self

import msgspec

from ganeti.base.errors import ExecError
from ganeti.config.snapshot import Snapshot
from ganeti.model import wire
from ganeti.model.job import UndoStep
from ganeti.model.objects import Instance, InstanceUuid, Node, NodeUuid
from ganeti.units.services import Services


@dataclass(frozen=True)
class Concerned:
    """What a step is about: the names of instances, and the UUIDs of nodes."""

    instances: set[str] = field(default_factory=set)
    nodes: set[str] = field(default_factory=set)


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One act to undo; its fields are what the record has, so a new one needs a default."""

    blocks_moves: ClassVar[bool] = True
    """Whether no guest that it concerns may be moved before it was run."""

    # `run` and `concerns` are abstract; msgspec's structs cannot be declared so.
    kind: ClassVar[str]
    """How the record calls it; never changed, since stored jobs have it."""

    def record(self) -> UndoStep:
        """The step as it is stored with its job."""
        return UndoStep(self.kind, wire.plain(self))

    @classmethod
    def read(cls, arguments: dict[str, object]) -> Self:
        """The step that was recorded with these arguments; InputError names the wrong field."""
        step: Self = wire.convert(arguments, cls, what=f"undo step {cls.kind}")
        return step

    async def run(self, services: Services, key: str) -> None:
        """Undo; `key` is that of its calls. Succeeds where there is nothing to undo; else GanetiError."""
        raise NotImplementedError

    async def run_deferred(self, services: Services, key: str) -> None:
        """Undo beside other jobs, under the locks of what it concerns, unless it is superseded."""
        await self.run(services, key)

    def superseded(self, snapshot: Snapshot) -> bool:
        """Return whether the configuration, whose changes are later, wants what this would take away.

        Then there is nothing to undo any more. ExecError if that is not known yet.
        """
        del snapshot
        return False

    def concerns(self, snapshot: Snapshot) -> Concerned:
        """Return what must be locked while it is run deferred, by the names of then and of now."""
        raise NotImplementedError

    def uses_disk(self, disk: str) -> bool:
        """Return whether what this could not undo may use the disk of this UUID, which must stay then."""
        del disk
        return True

    @property
    def removes(self) -> str | None:
        """The UUID of the disk that it takes away."""
        return None


def node_of(services: Services, uuid: str) -> Node | None:
    """The node of a step; None if it has left the cluster, and what was there with it."""
    return services.config.snapshot.nodes.get(NodeUuid(uuid))


def names_of(snapshot: Snapshot, uuid: str, *then: str) -> set[str]:
    """The names of an instance: those of then, and that of now if it is still there."""
    instance = snapshot.instances.get(InstanceUuid(uuid))
    return {*then, *([instance.name] if instance is not None else ())}


def not_migrating_here(snapshot: Snapshot, uuid: str, node: str) -> Instance | None:
    """The instance as it is now; ExecError while its guest may be on `node`."""
    instance = snapshot.instances.get(InstanceUuid(uuid))
    if instance is not None:
        check_not_moving_there(instance, node)
        if instance.migrating_to is not None and instance.primary_node == node:
            raise _still_migrating(instance)
    return instance


def check_not_moving_there(instance: Instance, node: str) -> None:
    """ExecError if a migration of the instance to `node` is still open."""
    if instance.migrating_to == node:
        raise _still_migrating(instance)


def _still_migrating(instance: Instance) -> ExecError:
    return ExecError(
        f"a migration of {instance.name} is still open; run: gnt-instance migrate --cleanup {instance.name}"
    )
