"""The file that confd of a node answers from that is not a candidate."""

from pathlib import Path

import pytest

from ganeti.base.errors import HostError, InputError
from ganeti.base.paths import Paths
from ganeti.confd.copy_file import write_copy
from ganeti.confd.facts import KINDS, without_secrets
from ganeti.confd.keys import confd_keys, keep_key, keep_own_key, key_of_node, own_key
from ganeti.confd.local_copy import LocalCopy
from ganeti.config.transaction import put_row
from ganeti.model.objects import NodeUuid
from ganeti.model.stored import Stored
from ganeti.protocols.confd import QueryType
from ganeti.store.encoding import encode_transaction
from ganeti.store.interface import Delete, Identity, Operation, Put, Transaction
from tests.unit.confd.cluster import POSITION, SECRET, ask, facts_of, objects
from tests.unit.config.sample import sample_instance

IDENTITY = Identity("cluster-1", NodeUuid("node-5"))


def content(*things: Stored | Operation) -> bytes:
    operations = []
    for thing in things:
        row = thing if isinstance(thing, Put | Delete) else put_row(thing)
        if isinstance(row, Put) and row.kind in KINDS:
            row = Put(row.kind, row.key, without_secrets(row.kind, row.value))
        operations.append(row)
    return encode_transaction(Transaction(tuple(operations)))


def write(path: Path, base: int | None, position: int, *things: Stored | Operation) -> int:
    return write_copy(path, IDENTITY, base, position, content(*things))


@pytest.mark.requirement("S238", "G23")
async def test_confd_follows_a_copy_as_it_follows_the_state(tmp_path: Path) -> None:
    path = tmp_path / "confd.db"
    assert write(path, None, POSITION, *objects()) == POSITION
    assert path.stat().st_mode & 0o777 == 0o600
    copy = LocalCopy(path)
    try:
        third = sample_instance(3)
        assert write(path, POSITION, POSITION + 5, third) == POSITION + 5
        await copy.look()
        assert copy.facts.position == POSITION + 5
        expected = facts_of([*objects(), third])
        for kind in (QueryType.INSTANCES, QueryType.NODE_IPS, QueryType.MASTER):
            assert ask(copy.facts, kind) == ask(expected, kind)
        disks = [
            ask(facts, QueryType.INSTANCE_DISKS, "web2.example.com")
            for facts in (copy.facts, expected)
        ]
        assert disks[0] == disks[1]
        assert disks[0][0] == 0
        minors = [
            ask(facts, QueryType.NODE_DRBD, "node1.example.com") for facts in (copy.facts, expected)
        ]
        assert minors[0] == minors[1]
        # A whole copy takes the place of everything, in the file that confd has open.
        assert write(path, None, POSITION + 9, *objects()) == POSITION + 9
        await copy.look()
        assert "web3.example.com" not in copy.facts.instance_names
    finally:
        await copy._worker.close()
        copy._connection.close()


@pytest.mark.requirement("S238", "G23")
def test_no_secret_leaves_the_master() -> None:
    sent = content(*objects())
    assert SECRET.encode() not in sent
    assert b"root_password" not in sent
    assert b"web2.example.com" in sent


@pytest.mark.requirement("S238")
def test_changes_of_another_base_change_nothing(tmp_path: Path) -> None:
    path = tmp_path / "confd.db"
    assert write(path, POSITION, POSITION + 1, sample_instance(3)) == 0
    assert write(path, None, POSITION, *objects()) == POSITION
    assert write(path, POSITION + 1, POSITION + 2, sample_instance(3)) == POSITION
    assert write(path, POSITION, POSITION) == POSITION


@pytest.mark.requirement("S238")
def test_damaged_copy_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "confd.db"
    write(path, None, POSITION, *objects())
    path.write_bytes(b"no database" * 1000)
    assert write(path, POSITION, POSITION + 1, sample_instance(3)) == 0
    assert write(path, None, POSITION, *objects()) == POSITION


def test_what_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(HostError, match=r"missing/confd\.db"):
        write(tmp_path / "missing" / "confd.db", None, 1, *objects())
    with pytest.raises(InputError, match="not a change"):
        write_copy(tmp_path / "confd.db", IDENTITY, None, 1, b"garbage")
    with pytest.raises(InputError, match="does not use"):
        write(tmp_path / "confd.db", None, 1, Put("job", "1", b"x"))
    assert not (tmp_path / "confd.db").exists()


@pytest.mark.requirement("S238", "S51")
def test_key_of_a_node_discloses_no_other_key(tmp_path: Path) -> None:
    paths = Paths(tmp_path)
    paths.data.mkdir(parents=True)
    cluster_key = b"k" * 64
    keep_key(paths, cluster_key)
    own, other = (key_of_node(cluster_key, name) for name in ("node1", "node2"))
    assert len({own, other, *confd_keys(paths)}) == 3
    assert keep_own_key(paths, own)
    assert not keep_own_key(paths, own)
    assert own_key(paths) == (own,)
    assert paths.own_confd_key.stat().st_mode & 0o777 == 0o600
    with pytest.raises(InputError):
        keep_own_key(paths, b"short")
