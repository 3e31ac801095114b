"""The scope of a limited REST user: only requests about instances of the user's scope.

The master checks the scope at submission and again under the locks of each opcode, since names may have changed
meanwhile. The reference of a field is declared beside the field (`ganeti.model.fields.RefersTo`).
"""

from collections.abc import Callable, Container

from ganeti.base.errors import ErrorCode, InputError, PrereqError
from ganeti.base.identifiers import is_uuid
from ganeti.config.resolve import (
    full_name,
    resolve_group,
    resolve_image,
    resolve_instance,
    resolve_network,
    resolve_node,
)
from ganeti.config.snapshot import Snapshot
from ganeti.model.fields import RefersTo
from ganeti.model.objects import DetachedDisk
from ganeti.model.opcodes import OpCode
from ganeti.model.reach import Reference, references
from ganeti.model.scope import BY_PATTERN, Scope
from ganeti.units.instance.importing import export_name

_RESOLVERS: dict[RefersTo, Callable[[Snapshot, str], str]] = {
    RefersTo.NODE: lambda snapshot, text: resolve_node(snapshot, text).name,
    RefersTo.GROUP: lambda snapshot, text: resolve_group(snapshot, text).name,
    RefersTo.NETWORK: lambda snapshot, text: resolve_network(snapshot, text).name,
    RefersTo.IMAGE: lambda snapshot, text: resolve_image(snapshot, text).name,
}
_FREE = (RefersTo.ALLOCATOR, RefersTo.OS, RefersTo.NEW_DISK)
_HIDDEN = (RefersTo.PATH, RefersTo.STORAGE)
"""Kinds whose values may be secret parameters, so that messages omit them."""


def check_scope(
    snapshot: Snapshot, scope: Scope | None, op: OpCode, own_jobs: Container[int] | None = None
) -> None:
    """Raise PrereqError (FORBIDDEN) if the opcode refers to anything beyond the scope, or to no instance in it.

    Without `own_jobs` dependencies are not checked: job numbers do not change their meaning.
    """
    if scope is None or not scope.is_restricted:
        return
    found = list(references(op))
    for one in found:
        if one.kind is RefersTo.JOB:
            if own_jobs is not None and one.value not in own_jobs:
                raise _forbidden(f"{one.field}: job {one.value} is not a job of this user")
        elif one.kind not in _FREE and not _is_within(snapshot, scope, one):
            raise _forbidden(_why(one))
    if not any(one.kind in _OWNED for one in found):
        raise _forbidden(
            "this user is limited to some instances, and the request names none of them"
        )


def jobs_of(op: OpCode) -> set[int]:
    """Return the jobs on which an opcode depends, by their absolute numbers."""
    return {one.value for one in references(op) if one.kind is RefersTo.JOB}


def _is_within(snapshot: Snapshot, scope: Scope, one: Reference) -> bool:
    if not isinstance(one.value, str):
        return False
    if one.kind in _OWNED:
        return _OWNED[one.kind](snapshot, scope, one.value)
    if one.kind not in BY_PATTERN:
        return False
    try:
        name = _RESOLVERS[one.kind](snapshot, one.value) if one.kind in _RESOLVERS else one.value
    except PrereqError:
        return False
    return scope.has_other(one.kind, name)


def _has_instance(snapshot: Snapshot, scope: Scope, text: str) -> bool:
    """Return whether an instance is within the scope; a removed one is checked by its name."""
    try:
        found = resolve_instance(snapshot, text)
    except PrereqError as err:
        is_gone = err.code is ErrorCode.UNKNOWN_ENTITY and not is_uuid(text.lower())
        return is_gone and scope.has_name(text)
    return scope.has(found.name, found.tags)


def _has_new_name(snapshot: Snapshot, scope: Scope, text: str) -> bool:
    try:
        return scope.has_name(full_name(snapshot, text))
    except PrereqError:
        return scope.has_name(text)


def _has_detached_disk(snapshot: Snapshot, scope: Scope, text: str) -> bool:
    """Return whether the disk last belonged to an instance within the scope; several disks may share a name."""
    disks = [one for one in snapshot.table(DetachedDisk).values() if text in (one.uuid, one.name)]
    return bool(disks) and all(_has_instance(snapshot, scope, one.last_instance) for one in disks)


def _has_export(snapshot: Snapshot, scope: Scope, text: str) -> bool:
    try:
        return _has_instance(snapshot, scope, export_name(text))
    except InputError:
        return False


_OWNED: dict[RefersTo, Callable[[Snapshot, Scope, str], bool]] = {
    RefersTo.INSTANCE: _has_instance,
    RefersTo.NEW_INSTANCE: _has_new_name,
    RefersTo.DETACHED_DISK: _has_detached_disk,
    RefersTo.EXPORT: _has_export,
}
"""Kinds of objects that belong to an instance."""


def _why(one: Reference) -> str:
    said = "" if one.kind in _HIDDEN else f" {str(one.value)!r:.80}"
    text = f"{one.field}: this user may not use the {one.kind.value}{said}"
    if one.kind in BY_PATTERN:
        text += f"; the option {one.kind.value}=PATTERN in the users file allows it"
    return text


def _forbidden(why: str) -> PrereqError:
    return PrereqError(why, ErrorCode.FORBIDDEN)
