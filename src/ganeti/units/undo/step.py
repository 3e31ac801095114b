"""The base of every kind of undo step; one class a kind, in the file of its subject.

A step is recorded before the act that it undoes. The master of a later time runs it from the record alone: at once,
while the locks of its job are held (`run`), or *deferred*, after the job has ended and others have used
the same objects (`run_deferred`).
"""

from abc import ABCMeta, abstractmethod
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
    """The subjects of a step: the names of instances, and the UUIDs of nodes and images."""

    instances: set[str] = field(default_factory=set)
    nodes: set[str] = field(default_factory=set)
    images: set[str] = field(default_factory=set)


class _AbstractStruct(msgspec.StructMeta, ABCMeta):
    """The metaclass of a struct with abstract methods."""


class Step(msgspec.Struct, frozen=True, kw_only=True, metaclass=_AbstractStruct):
    """One act to undo; its fields are those of the record, so a new one needs a default."""

    blocks_moves: ClassVar[bool] = True
    """True if the step must run before any of its guests may be moved."""

    kind: ClassVar[str]
    """Its name in records; never changed, since stored jobs contain it."""

    def record(self) -> UndoStep:
        """Return the step in the form that is stored with its job."""
        return UndoStep(self.kind, wire.plain(self))

    @classmethod
    def read(cls, arguments: dict[str, object]) -> Self:
        """Return the step that was recorded with these arguments; InputError names the wrong field."""
        step: Self = wire.convert(arguments, cls, what=f"undo step {cls.kind}")
        return step

    @abstractmethod
    async def run(self, services: Services, key: str) -> None:
        """Undo; `key` is that of its calls. Succeeds if there is nothing to undo; else GanetiError."""

    async def run_deferred(self, services: Services, key: str) -> None:
        """Undo beside other jobs, under the locks of its subjects, unless it is superseded."""
        await self.run(services, key)

    def superseded(self, snapshot: Snapshot) -> bool:
        """Return whether the configuration, which is newer, needs what this would remove.

        Then there is nothing left to undo. ExecError if that is not known yet.
        """
        del snapshot
        return False

    @abstractmethod
    def concerns(self, snapshot: Snapshot) -> Concerned:
        """Return the locks for a deferred run, by the former and the present names."""

    def uses_disk(self, disk: str) -> bool:
        """Return whether the remains of this step may use the disk of this UUID, which must then be kept."""
        del disk
        return True

    @property
    def removes(self) -> str | None:
        """The UUID of the disk that it removes."""
        return None


def node_of(services: Services, uuid: str) -> Node | None:
    """Return the node of a step; None if it has left the cluster with everything on it."""
    return services.config.snapshot.nodes.get(NodeUuid(uuid))


def names_of(snapshot: Snapshot, uuid: str, *then: str) -> set[str]:
    """Return the names of an instance: the recorded ones, and the present one if it still exists."""
    instance = snapshot.instances.get(InstanceUuid(uuid))
    return {*then, *([instance.name] if instance is not None else ())}


def not_migrating_here(snapshot: Snapshot, uuid: str, node: str) -> Instance | None:
    """Return the present instance; ExecError while its guest may be on `node`."""
    instance = snapshot.instances.get(InstanceUuid(uuid))
    if instance is not None:
        check_not_moving_there(instance, node)
        if instance.migrating_to is not None and instance.primary_node == node:
            raise _still_migrating(instance)
    return instance


def check_not_moving_there(instance: Instance, node: str) -> None:
    """Raise ExecError if a migration of the instance to `node` is unfinished."""
    if instance.migrating_to == node:
        raise _still_migrating(instance)


def _still_migrating(instance: Instance) -> ExecError:
    return ExecError(
        f"a migration of {instance.name} is unfinished; run: gnt-instance migrate --cleanup {instance.name}"
    )
