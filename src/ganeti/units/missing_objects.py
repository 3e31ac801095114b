"""Objects that a request of the REST interface names and that do not exist, found before a job is made of it.

The reference of a field is declared beside the field (`ganeti.model.fields.RefersTo`). Not checked: the object of
the path, which the job refuses as upstream's does; exports, volumes, devices and links, which only nodes know.
"""

import asyncio
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Protocol

from ganeti.base.errors import ErrorCode, PrereqError, RpcError
from ganeti.config.resolve import (
    resolve_group,
    resolve_image,
    resolve_instance,
    resolve_network,
    resolve_node,
)
from ganeti.config.snapshot import Snapshot
from ganeti.model.fields import RefersTo
from ganeti.model.iallocator import BUILT_IN, named_allocators
from ganeti.model.objects import DetachedDisk, Node
from ganeti.model.opcodes import OpCode
from ganeti.model.reach import Reference, references
from ganeti.rpc.procedures.form import Nothing
from ganeti.rpc.procedures.programs import ALLOCATOR_RUN, OS_DIAGNOSE, AllocatorArgs
from ganeti.units.calls import Rpc

ASK_S = 5.0
"""The longest wait for the nodes; a request that needs a slower one is left to its job."""
_FIELD = re.compile(r"\w+")


class Programs(Protocol):
    """The OS definitions and allocators of the nodes."""

    async def lacks(self, snapshot: Snapshot, one: Reference) -> str:
        """Return why an OS or an allocator does not exist; '' if it exists, and if a node does not answer."""
        ...


async def check_objects(
    snapshot: Snapshot,
    ops: Sequence[OpCode],
    unended: Callable[[], Iterable[OpCode]],
    programs: Programs,
) -> None:
    """Raise PrereqError (WRONG_INPUT) for the first named object that does not exist.

    A name that one of `ops`, or of the opcodes of `unended` jobs, creates counts as existing: a job may run before
    this request.
    """
    named = [one for op in ops for one in references(op) if not _is_in_path(op, one)]
    for one in named:
        why = _why_missing(snapshot, one)
        if why and not _is_coming(one, [*unended(), *ops]):
            raise _refusal(one, why)
    for one in named:
        if one.kind in _PROGRAMS and (why := await programs.lacks(snapshot, one)):
            raise _refusal(one, why)


class NodePrograms:
    """The `Programs` as the nodes report them."""

    def __init__(self, rpc: Rpc, *, has_built_in: bool) -> None:
        """`has_built_in` is true if the master has an allocator of its own."""
        self._rpc = rpc
        self._has_built_in = has_built_in

    async def lacks(self, snapshot: Snapshot, one: Reference) -> str:
        try:
            async with asyncio.timeout(ASK_S):
                if one.kind is RefersTo.OS:
                    return await self._lacks_os(snapshot, str(one.value))
                return await self._lacks_allocators(snapshot, str(one.value))
        except (RpcError, TimeoutError):
            return ""

    async def _lacks_allocators(self, snapshot: Snapshot, text: str) -> str:
        """Requests try several allocators in order, so one of them suffices."""
        names = named_allocators(text)
        master = snapshot.nodes[snapshot.cluster.master_node]
        for name in names:
            if name == BUILT_IN and self._has_built_in:
                return ""
            args = AllocatorArgs(name=name, message=None)
            if (await self._rpc.call(master, ALLOCATOR_RUN, args)).found:
                return ""
        return f"{master.name} has no allocator {text}" if names else ""

    async def _lacks_os(self, snapshot: Snapshot, text: str) -> str:
        """The master's node is asked first: nearly always it has the OS, and no other node is asked."""
        name = text.partition("+")[0]
        nodes = [node for node in snapshot.online_nodes() if node.vm_capable]
        first = [node for node in nodes if node.uuid == snapshot.cluster.master_node]
        for some in (first, [node for node in nodes if node not in first]):
            if await self._any_has_os(some, name):
                return ""
        return f"no node has an OS definition {name}; 'gnt-os list' shows those that exist"

    async def _any_has_os(self, nodes: Sequence[Node], name: str) -> bool:
        answers = (
            (await self._rpc.call_all(nodes, OS_DIAGNOSE, Nothing())).values() if nodes else ()
        )
        for answer in answers:
            if isinstance(answer, RpcError):
                raise answer
            if any(info.name == name for info in answer):
                return True
        return False


def _is_in_path(op: OpCode, one: Reference) -> bool:
    found = _FIELD.match(one.field)
    return found is not None and any(found[0] in route.fields_in_path for route in op.rest)


def _why_missing(snapshot: Snapshot, one: Reference) -> str:
    """Return why an object is not in the configuration; '' if it is, and for kinds that it does not hold."""
    if one.kind not in _EXISTING or not isinstance(one.value, str):
        return ""
    try:
        _EXISTING[one.kind](snapshot, one.value)
    except PrereqError as err:
        if err.code in (ErrorCode.UNKNOWN_ENTITY, ErrorCode.WRONG_INPUT):
            return err.message
    return ""


def _find_disk(snapshot: Snapshot, text: str) -> None:
    """Raise PrereqError if there is no such disk; an attached one may be detached before the job starts."""
    detached = ((one.uuid, one.name) for one in snapshot.table(DetachedDisk).values())
    disks = (disk for one in snapshot.instances.values() for disk in one.disks)
    attached = ((one.uuid, one.name) for one in disks)
    if not any(text in words for words in chain(detached, attached)):
        raise PrereqError(f"there is no disk {text!r:.80}", ErrorCode.UNKNOWN_ENTITY)


def _is_coming(one: Reference, ops: Iterable[OpCode]) -> bool:
    """Return whether an opcode creates an object of this name."""
    created = _CREATED[one.kind]
    return any(
        other.kind is created and _may_be(str(other.value).lower(), one.value.lower())
        for op in ops
        for other in references(op)
    )


def _may_be(new: str, named: str) -> bool:
    """Return whether two names may be of one object: the short one may lack a domain."""
    return new == named or new.startswith(f"{named}.") or named.startswith(f"{new}.")


def _refusal(one: Reference, why: str) -> PrereqError:
    return PrereqError(f"{one.field}: {why}", ErrorCode.WRONG_INPUT)


_EXISTING: Mapping[RefersTo, Callable[[Snapshot, str], object]] = {
    RefersTo.NODE: resolve_node,
    RefersTo.GROUP: resolve_group,
    RefersTo.NETWORK: resolve_network,
    RefersTo.IMAGE: resolve_image,
    RefersTo.INSTANCE: resolve_instance,
    RefersTo.DETACHED_DISK: _find_disk,
}
_CREATED = {
    RefersTo.NODE: RefersTo.NEW_NODE,
    RefersTo.GROUP: RefersTo.NEW_GROUP,
    RefersTo.NETWORK: RefersTo.NEW_NETWORK,
    RefersTo.IMAGE: RefersTo.NEW_IMAGE,
    RefersTo.INSTANCE: RefersTo.NEW_INSTANCE,
    RefersTo.DETACHED_DISK: RefersTo.NEW_DISK,
}
_PROGRAMS = (RefersTo.OS, RefersTo.ALLOCATOR)
