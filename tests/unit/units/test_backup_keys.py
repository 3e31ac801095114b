"""Keys of backups: created, imported and retired as one change; backups that use them; and no secret that shows."""

import json
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest

from ganeti.base.backup_ciphers import instance_key, key_id
from ganeti.config.changes import HIDDEN, ChangedObject
from ganeti.config.merging.merge import _kept_keys
from ganeti.jobs.view import JobView
from ganeti.model.backup_key import BackupKey
from ganeti.model.opcodes.backup_keys import (
    OpBackupKeyCreate,
    OpBackupKeyImport,
    OpBackupKeyRetire,
)
from ganeti.model.opcodes.cluster import OpClusterSetParams
from ganeti.model.opcodes.drills import OpBackupDrill
from ganeti.model.opcodes.points import (
    OpBackupCheck,
    OpBackupPrune,
    OpBackupRestore,
)
from ganeti.protocols.paper_key import groups_of, paper_of
from ganeti.query.context import QueryContext
from ganeti.query.execute import KINDS
from ganeti.rpc.procedures.backup_keys import BackupKeys
from ganeti.simulation.faulty_store import Crash, Refuse
from tests.support.backup_nodes import backup_node, backup_world
from tests.support.units_cluster import Master, World, failed, said, succeeded
from tests.unit.units.opcodes import NAME, create
from tests.unit.units.test_incremental_backups import (
    backups,
    check_nothing_unfinished,
    contents,
    save,
    with_data,
    write,
)

pytestmark = [pytest.mark.virtual_time, pytest.mark.requirement("G23")]

KEY = bytes(range(32))
PAPER = paper_of(KEY, "other.example.com", "2026-11-28")


@pytest.fixture
def world() -> World:
    return backup_world("plain", "file", "diskless")


@pytest.fixture
async def master(world: World) -> AsyncIterator[Master]:
    one = await Master.begin(world)
    yield one
    await one.end()


def keys(master: Master) -> dict[str, BackupKey]:
    return {one.name: one for one in master.snapshot.table(BackupKey).values()}


def active(master: Master) -> list[str]:
    return [one.name for one in keys(master).values() if one.is_active]


def error(view: JobView) -> str:
    _name, (text, *_code) = failed(view)
    return str(text)


async def made(master: Master) -> str:
    return str(succeeded(await master.run(OpBackupKeyCreate())))


def restore(**fields: Any) -> OpBackupRestore:
    return OpBackupRestore(instance_name=NAME, **fields)


async def encrypting(master: Master, *, value: bool = True) -> None:
    succeeded(await master.run(OpClusterSetParams(encrypt_backups=value)))


async def test_new_key_replaces_the_active_one_and_both_remain(master: Master) -> None:
    first, second = await made(master), await made(master)
    assert active(master) == [second]
    assert set(keys(master)) == {first, second}
    for name, one in keys(master).items():
        assert key_id(bytes.fromhex(one.secret)) == name


@pytest.mark.parametrize("fault", [Refuse(), Crash(written=False), Crash(written=True)])
@pytest.mark.parametrize("number", range(5))
@pytest.mark.parametrize("op", ["create", "import", "retire"])
async def test_interrupted_change_of_keys_leaves_the_old_state_or_the_new_one(
    world: World, op: str, number: int, fault: Refuse | Crash
) -> None:
    """One transaction has the new key and the former one: there is always exactly one active key."""
    master = await Master.begin(world)
    first, second = await made(master), await made(master)
    ops = {
        "create": OpBackupKeyCreate(),
        "import": OpBackupKeyImport(secret=PAPER, is_active=True),
        "retire": OpBackupKeyRetire(key_id=first),
    }
    job_id = await master.submit(ops[op])
    master.store.inject(fault, after=number)
    if isinstance(fault, Crash):
        await master.is_dead_after_a_while()
        master = await master.restart()
        await master.idle()
    else:
        await master.final(job_id)
    left = set(keys(master))
    assert len(active(master)) == 1
    assert second in left
    if op == "retire":
        assert left in ({first, second}, {second})
    else:
        assert active(master) == [second] if len(left) == 2 else [*(left - {first, second})]
        assert first in left
    await master.end()


async def test_imported_key_is_for_restores_only_until_it_is_activated(master: Master) -> None:
    own = await made(master)
    name = succeeded(await master.run(OpBackupKeyImport(secret=PAPER)))
    assert name == key_id(KEY)
    assert active(master) == [own]
    view = await master.run(OpBackupKeyImport(secret=PAPER))
    assert "is already there" in error(view)
    succeeded(await master.run(OpBackupKeyImport(secret=PAPER, is_active=True)))
    assert active(master) == [name]


async def test_typing_error_is_named(master: Master) -> None:
    groups = groups_of(KEY)
    groups[6] = "0000Z"
    view = await master.run(OpBackupKeyImport(secret=" ".join(groups)))
    assert "wrong groups: 7" in error(view)


async def test_encrypted_backups_build_on_each_other_and_are_restored(master: Master) -> None:
    await with_data(master)
    assert "gnt-backup key create" in error(await master.run(save(encrypt=True)))
    key = await made(master)
    await encrypting(master)
    first = succeeded(await master.run(save()))
    second = succeeded(await master.run(save()))
    assert second["parent"] == first["point"]
    assert [one.info.key_id for one in backups(master.world)] == [key, key]
    write(master.world, "new")
    succeeded(await master.run(restore()))
    assert set(contents(master.world)) == {"old"}
    drill = OpBackupDrill(instance_name=NAME)
    succeeded(await master.run(drill))
    succeeded(await master.run(OpBackupCheck(instance_name=NAME)))
    succeeded(await master.run(OpBackupPrune(instance_name=NAME, keep_last=1)))
    check_nothing_unfinished(master.world)


@pytest.mark.parametrize(("before", "after"), [(False, True), (True, False)])
async def test_chains_are_never_mixed(master: Master, before: bool, after: bool) -> None:
    await with_data(master)
    await made(master)
    succeeded(await master.run(save(encrypt=before)))
    view = await master.run(save(encrypt=after))
    assert succeeded(view)["parent"] == ""
    assert "this is a full backup: the last one" in said(view)
    assert set(backups(master.world)[1].parents.values()) == {""}


async def test_node_of_an_older_version_gets_no_data(master: Master, world: World) -> None:
    """It would ignore the keys, and write a plain backup."""
    await with_data(master)
    await made(master)
    backup_node(world, 2).encrypts = False
    assert "node2.example.com has an older version" in error(await master.run(save(encrypt=True)))
    assert backups(world) == []
    check_nothing_unfinished(world)
    succeeded(await master.run(save(encrypt=False)))


async def test_new_key_begins_a_new_chain(master: Master) -> None:
    await with_data(master)
    await encrypting(master)
    await made(master)
    old = succeeded(await master.run(save()))["point"]
    second = await made(master)
    new = succeeded(await master.run(save()))
    assert new["parent"] == ""
    assert backups(master.world)[1].info.key_id == second
    succeeded(await master.run(restore(point=old)))


async def test_node_gets_keys_for_the_one_instance(master: Master) -> None:
    await with_data(master)
    name = await made(master)
    master.rpc.reset()
    succeeded(await master.run(save(encrypt=True)))
    secret = bytes.fromhex(keys(master)[name].secret)
    expected = instance_key(secret, NAME).hex()
    given = [
        found
        for call in master.rpc.calls
        for found in (getattr(call.args, "keys", None), getattr(getattr(call.args, "point", None), "keys", None))
        if isinstance(found, BackupKeys)
    ]  # fmt: skip
    assert any(one.current == name for one in given)
    assert not any(one.is_required for one in given)
    master.rpc.reset()
    succeeded(await master.run(save(encrypt=True)))
    # Sums of a plain backup in place of the encrypted one would hide changes.
    sums = [call.args.point for call in master.rpc.calls if getattr(getattr(call.args, "point", None), "sums", False)]  # fmt: skip
    assert sums
    assert all(one.keys.is_required for one in sums)
    for one in given:
        assert secret.hex() not in one.keys.values()
        assert set(one.keys.values()) <= {expected}
        assert expected not in repr(one)


async def test_plain_backup_is_refused_where_backups_are_encrypted(master: Master) -> None:
    """A downgraded backup looks like this: an attacker has removed the encryption."""
    await with_data(master)
    await made(master)
    succeeded(await master.run(save(encrypt=False)))
    await encrypting(master)
    imported = create("web9.example.com", mode="import", disks=[], nics=[], src_path=NAME,
        src_backup=backups(master.world)[0].info.point, start=False)  # fmt: skip
    for op in (restore(), OpBackupDrill(instance_name=NAME), imported):
        assert "is not encrypted, and this cluster encrypts" in error(await master.run(op))
    succeeded(await master.run(restore(allow_unencrypted=True)))
    succeeded(await master.run(OpBackupDrill(instance_name=NAME, allow_unencrypted=True)))


async def test_encrypted_backup_becomes_a_new_instance_and_a_running_one(master: Master) -> None:
    await with_data(master, hypervisor="kvm")
    await made(master)
    await encrypting(master)
    point = succeeded(await master.run(save()))["point"]
    write(master.world, "new")
    op = create("web9.example.com", mode="import", disks=[], src_path=NAME, src_backup=point,
        start=False, disk_template="plain")  # fmt: skip
    succeeded(await master.run(op))
    assert contents(master.world).count("old") == 2
    succeeded(await master.run(restore(live=True)))
    assert contents(master.world).count("backup") == 2
    assert not any(backup_node(master.world, number).served for number in (1, 2, 3))


async def test_merged_cluster_keeps_the_keys_of_both() -> None:
    """Without them, nobody could read the backups of the other cluster."""
    found = [BackupKey(uuid=f"u{at}", name=key_id(bytes([at] * 32)), secret=bytes([at] * 32).hex(), is_active=True)
        for at in (1, 2)]  # fmt: skip
    views: list[Any] = [_Keys({one.uuid: one}) for one in found]
    kept = _kept_keys(views[0], views[1])
    assert [(one.name, one.is_active) for one in kept] == [(found[1].name, False)]
    assert _kept_keys(views[0], views[0]) == []


class _Keys:
    """What the merge reads of a snapshot."""

    def __init__(self, found: dict[str, BackupKey]) -> None:
        self._found = found

    def table(self, _kind: type[BackupKey]) -> dict[str, BackupKey]:
        return self._found


async def test_lost_key_is_named(master: Master) -> None:
    await with_data(master)
    name = await made(master)
    point = succeeded(await master.run(save(encrypt=True)))["point"]
    view = await master.run(OpBackupKeyRetire(key_id=name))
    assert f"backup {point} of {NAME} on node2.example.com" in error(view)
    secret = keys(master)[name].secret
    succeeded(await master.run(OpBackupKeyRetire(key_id=name, force=True)))
    for op in (restore(), OpBackupDrill(instance_name=NAME)):
        text = error(await master.run(op))
        assert f"encrypted with backup key {name}, which this cluster does not have" in text
        assert "gnt-backup key import" in text
    paper = paper_of(bytes.fromhex(secret), "c", "2026-11-28")
    succeeded(await master.run(OpBackupKeyImport(secret=paper)))
    succeeded(await master.run(restore()))


async def test_key_is_retired_only_when_nothing_can_use_it(master: Master, world: World) -> None:
    name = await made(master)
    await encrypting(master)
    assert "create another one first" in error(await master.run(OpBackupKeyRetire(key_id=name)))
    await encrypting(master, value=False)
    assert "there is no backup key" in error(await master.run(OpBackupKeyRetire(key_id="0" * 16)))
    assert "gnt-backup key list" in error(await master.run(OpBackupKeyRetire(key_id="zz")))
    handlers = master.rpc.nodes.pop("node3.example.com")
    assert "may still be needed: node node3" in error(
        await master.run(OpBackupKeyRetire(key_id=name))
    )
    master.rpc.nodes["node3.example.com"] = handlers
    succeeded(await master.run(OpBackupKeyRetire(key_id=name)))
    assert keys(master) == {}


async def test_key_shows_nowhere(master: Master, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    await with_data(master)
    name = await made(master)
    view = await master.run(OpBackupKeyImport(secret=PAPER, is_active=True))
    succeeded(view)
    succeeded(await master.run(save(encrypt=True)))
    succeeded(await master.run(restore()))
    texts = [caplog.text]
    rows = master.world.disk.rows.items()
    texts += [value.decode(errors="replace") for (kind, _), value in rows if kind.startswith("job")]
    assert len(texts) > 1
    found, context = KINDS["backup-key"], QueryContext(master.snapshot)
    for row in found.rows(context):
        texts.append(str([field.value(row) for field in found.fields.values()]))
    secrets = [one.secret for one in keys(master).values()]
    secrets += [instance_key(bytes.fromhex(one), NAME).hex() for one in secrets]
    secrets += groups_of(KEY)
    for text in texts:
        assert not [one for one in secrets if one in text]
    assert name in keys(master)


@pytest.mark.parametrize("encrypt", [False, True])
async def test_secret_os_parameters_are_in_no_backup(master: Master, encrypt: bool) -> None:
    secrets = {"osparams_private": {"pass": "swordfish1"}, "osparams_secret": {"pin": "swordfish2"}}
    await with_data(master, **secrets)
    assert master.instance(NAME).osparams_private == {"pass": "swordfish1"}
    await made(master)
    master.rpc.reset()
    view = await master.run(save(encrypt=encrypt))
    succeeded(view)
    assert "private OS parameters are not in the backup" in said(view)
    assert "swordfish" not in backups(master.world)[0].description
    commits = [one.args for one in master.rpc.calls if one.procedure == "backup_commit"]
    assert commits
    assert "swordfish" not in str([one.description for one in commits])


def test_audit_log_hides_the_key() -> None:
    key = BackupKey(uuid="u", name=key_id(KEY), secret=KEY.hex())
    differences = ChangedObject(None, key).differences()
    assert differences["secret"] == [None, HIDDEN]
    assert KEY.hex() not in json.dumps(differences)
