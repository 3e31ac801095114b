"""Keys that encrypt backups: created, imported, retired; and what nodes get of them."""

import re
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from ganeti.base.backup_ciphers import instance_key, key_id, new_key
from ganeti.base.errors import ErrorCode, InputError, PrereqError, RpcError
from ganeti.config.snapshot import Snapshot
from ganeti.config.transaction import Draft
from ganeti.config.view import View
from ganeti.jobs.executor import Change, Outcome
from ganeti.locking.levels import Level
from ganeti.locking.requests import ALL, LockRequest, lock
from ganeti.model.backup_key import KEYS_LIMIT, BackupKey
from ganeti.model.opcodes.backup_keys import (
    OpBackupKeyCreate,
    OpBackupKeyImport,
    OpBackupKeyRetire,
)
from ganeti.protocols.paper_key import parse_paper
from ganeti.rpc.procedures.backup_keys import BackupKeys
from ganeti.rpc.procedures.backups import BACKUP_LIST, PointInfo
from ganeti.rpc.procedures.form import Nothing
from ganeti.units.base import LogicalUnit
from ganeti.units.context import UnitContext

_KEY_ID = re.compile(r"[0-9a-f]{16}\Z", re.ASCII)
_SHOWN = 5


def active_key(view: View) -> BackupKey | None:
    """Return the key for new encrypted backups."""
    return next((one for one in view.table(BackupKey).values() if one.is_active), None)


def keys_for(
    snapshot: Snapshot, instance: str, *, encrypts: bool = False, is_required: bool = False
) -> BackupKeys:
    """Return what a node needs for the backups of a name: keys for this name only. PrereqError without an active key."""
    current = active_key(snapshot) if encrypts else None
    if encrypts and current is None:
        raise PrereqError(
            f"the backup of {instance} is to be encrypted, and the cluster has no key for that; create one, and print it:"
            " gnt-backup key create && gnt-backup key export",
            ErrorCode.WRONG_STATE,
        )
    return BackupKeys(
        keys={
            one.name: instance_key(bytes.fromhex(one.secret), instance).hex()
            for one in snapshot.table(BackupKey).values()
        },
        current=current.name if current else "",
        is_required=is_required,
    )


def keys_to_read(snapshot: Snapshot, point: PointInfo, *, allow_unencrypted: bool) -> BackupKeys:
    """Return the keys for reading a backup; PrereqError if its key is not there, or if it should have one.

    An attacker who can write to the directory can replace an encrypted backup by a plain one.
    """
    if point.key_id and point.key_id not in {
        one.name for one in snapshot.table(BackupKey).values()
    }:
        raise PrereqError(
            f"backup {point.point} of {point.instance} is encrypted with backup key {point.key_id}, which this cluster does"
            " not have; import it from its paper: gnt-backup key import FILE",
            ErrorCode.UNKNOWN_ENTITY,
        )
    if not point.key_id and snapshot.cluster.encrypt_backups and not allow_unencrypted:
        raise PrereqError(
            f"backup {point.point} of {point.instance} is not encrypted, and this cluster encrypts its backups: it is older"
            " than that, or was replaced by another one; --allow-unencrypted reads it nevertheless",
            ErrorCode.WRONG_STATE,
        )
    return keys_for(snapshot, point.instance, is_required=bool(point.key_id))


@dataclass(frozen=True)
class KeyPlan:
    """The change of the configuration, and the id of the key."""

    key_id: str
    change: Change


def _put(key: BackupKey) -> Change:
    """Return the change that adds a key; if it is active, in place of the former one."""

    def change(draft: Draft) -> None:
        known = draft.table(BackupKey)
        if len(known) >= KEYS_LIMIT:
            raise PrereqError(
                f"the limit of {KEYS_LIMIT} backup keys is reached; remove one that no backup uses: gnt-backup key retire"
                " KEY",
                ErrorCode.NO_RESOURCES,
            )
        if key.is_active:
            for other in [one for one in known.values() if one.is_active]:
                draft.put(replace(other, is_active=False))
        draft.put(key)

    return change


class LUBackupKeyCreate(LogicalUnit[OpBackupKeyCreate, KeyPlan]):
    """Create a key; one transaction makes it the active one."""

    async def check_prereq(self, ctx: UnitContext) -> KeyPlan:
        secret = new_key()
        key = BackupKey(
            uuid=ctx.ids.uuid(),
            name=key_id(secret),
            secret=secret.hex(),
            is_active=True,
            owner=ctx.run.source,
        )
        change = _put(key)
        ctx.check_change(change)
        return KeyPlan(key.name, change)

    def dry_run_result(self, ctx: UnitContext, plan: KeyPlan) -> Any:
        del ctx, plan

    async def execute(self, ctx: UnitContext, plan: KeyPlan) -> Outcome:
        ctx.info(
            f"new encrypted backups use key {plan.key_id}; the first one of each instance is a full one. Print the key and keep"
            f" it elsewhere: gnt-backup key export {plan.key_id}"
        )
        return Outcome(plan.key_id, change=plan.change)


class LUBackupKeyImport(LogicalUnit[OpBackupKeyImport, KeyPlan]):
    """Add a key from its text. A key that is there already becomes active if requested."""

    def check_arguments(self) -> None:
        try:
            parse_paper(self.op.secret)
        except InputError as err:
            raise InputError(err.message, "secret") from err

    async def check_prereq(self, ctx: UnitContext) -> KeyPlan:
        secret = parse_paper(self.op.secret)
        name = key_id(secret)
        known = {one.name: one for one in ctx.snapshot.table(BackupKey).values()}.get(name)
        if known is not None:
            if known.is_active or not self.op.is_active:
                raise PrereqError(f"backup key {name} is already there", ErrorCode.EXISTS)
            known = replace(known, is_active=True)
        key = known or BackupKey(
            uuid=ctx.ids.uuid(),
            name=name,
            secret=secret.hex(),
            is_active=self.op.is_active,
            owner=ctx.run.source,
        )
        change = _put(key)
        ctx.check_change(change)
        return KeyPlan(name, change)

    def dry_run_result(self, ctx: UnitContext, plan: KeyPlan) -> Any:
        del ctx
        return plan.key_id

    async def execute(self, ctx: UnitContext, plan: KeyPlan) -> Outcome:
        del ctx
        return Outcome(plan.key_id, change=plan.change)


class LUBackupKeyRetire(LogicalUnit[OpBackupKeyRetire, KeyPlan]):
    """Remove a key that no backup uses."""

    def check_arguments(self) -> None:
        if not _KEY_ID.match(self.op.key_id):
            raise InputError(
                f"{self.op.key_id!r:.40} is not the id of a backup key; gnt-backup key list shows all",
                "key_id",
            )

    def declare_locks(self, snapshot: Snapshot) -> list[LockRequest]:
        """All nodes, exclusively: no backup that would use the key is made meanwhile."""
        del snapshot
        return [lock(Level.NODE, ALL)]

    async def check_prereq(self, ctx: UnitContext) -> KeyPlan:
        name, snapshot = self.op.key_id, ctx.snapshot
        keys = {one.name: one for one in snapshot.table(BackupKey).values()}
        if name not in keys:
            raise PrereqError(
                f"there is no backup key {name}; gnt-backup key list shows all",
                ErrorCode.UNKNOWN_ENTITY,
            )
        if keys[name].is_active and snapshot.cluster.encrypt_backups:
            raise PrereqError(
                f"new backups use key {name}; create another one first: gnt-backup key create, or stop the encryption:"
                " gnt-cluster modify --encrypt-backups=no",
                ErrorCode.WRONG_STATE,
            )
        if (why := await self._uses(ctx)) and not self.op.force:
            raise PrereqError(
                f"backup key {name} may still be needed: {'; '.join(why)}; the backups that use it cannot be read without"
                " it (--force removes it nevertheless)",
                ErrorCode.WRONG_STATE,
            )
        uuid = keys[name].uuid

        def change(draft: Draft) -> None:
            draft.remove(draft.table(BackupKey)[uuid])

        ctx.check_change(change)
        return KeyPlan(name, change)

    async def _uses(self, ctx: UnitContext) -> list[str]:
        """Return the backups that use the key, and the nodes that may have some."""
        nodes = list(ctx.snapshot.online_nodes())
        found = [
            f"node {one.name} is offline" for one in ctx.snapshot.nodes.values() if one.offline
        ]
        answers = await ctx.call_all(nodes, BACKUP_LIST, Nothing())
        for node, answer in zip(nodes, answers.values(), strict=True):
            if isinstance(answer, RpcError):
                found.append(str(answer))
                continue
            used = [one for one in answer.points if one.key_id == self.op.key_id]
            found += [
                f"backup {one.point} of {one.instance} on {node.name}" for one in used[:_SHOWN]
            ]
            if len(used) > _SHOWN:
                found.append(f"{len(used) - _SHOWN} more on {node.name}")
            found += [
                f"{one.target} on {node.name}: {one.problem}"
                for one in answer.targets
                if one.problem
            ]
            found += [
                f"backup {one.point} of {one.instance} on {node.name} has a damaged manifest"
                for one in answer.points
                if one.problem
            ]
        return found

    async def execute(self, ctx: UnitContext, plan: KeyPlan) -> Outcome:
        del ctx
        return Outcome(plan.key_id, change=plan.change)
