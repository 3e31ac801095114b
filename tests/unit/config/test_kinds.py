"""A further kind of objects needs its own declaration, and nothing else of the configuration changes."""

from collections.abc import Iterator

import msgspec
import pytest

from ganeti.base.errors import ErrorCode, PrereqError
from ganeti.config.config import Config
from ganeti.config.index import Claim
from ganeti.config.kinds import KINDS, kind_of
from ganeti.config.kinds.kind import Kind, Problem
from ganeti.config.transaction import Draft, put_row
from ganeti.config.view import Tables, View
from ganeti.model.objects import Cluster, Instance
from ganeti.model.stored import Stored
from ganeti.simulation.counting_ids import CountingIds
from ganeti.units.cluster.findings import config_findings
from tests.support.predictable import FrozenClock
from tests.unit.config.sample import sample_instance, sample_objects, sample_snapshot, store_with

UUID = "00000000-0000-4000-d000-000000000001"


class Rack(Stored, frozen=True, kw_only=True):
    """Something that clusters do not have yet."""

    vlan: int
    old: str = ""


def _claims(_cluster: Cluster, rack: Rack) -> Iterator[Claim]:
    yield Claim("VLAN", str(rack.vlan))


def _problems(_view: View, rack: Rack) -> Iterator[Problem]:
    if rack.vlan < 1:
        yield ErrorCode.WRONG_INPUT, f"rack {rack.name}: {rack.vlan} is no VLAN"


def _references(view: View, rack: Rack) -> Iterator[Problem]:
    for instance in view.instances.values():
        if rack.name in instance.tags:
            yield ErrorCode.WRONG_STATE, f"{instance.name} is on rack {rack.name}"


RACK = Kind(
    "rack",
    Rack,
    _claims,
    _problems,
    _references,
    upgraded=lambda rack: msgspec.structs.replace(rack, old=""),
)
BLUE = Rack(uuid=UUID, name="blue", vlan=7)


@pytest.fixture(autouse=True)
def declared(monkeypatch: pytest.MonkeyPatch) -> None:
    kind: type[Stored] = Rack
    monkeypatch.setitem(KINDS, kind, RACK)


def draft(instances: int = 0) -> Draft:
    return Draft(sample_snapshot(instances), FrozenClock())


async def test_it_is_stored_read_back_and_brought_up_to_date() -> None:
    old = msgspec.structs.replace(BLUE, old="words of an earlier version")
    store, lease = await store_with(*sample_objects(), old)
    config = await Config.load(store, lease, FrozenClock(), CountingIds())
    assert config.snapshot.table(Rack) == {UUID: BLUE}
    assert config.snapshot.find(UUID) == BLUE
    assert BLUE in list(config.snapshot.objects())
    await config.change(lambda change: change.put(msgspec.structs.replace(BLUE, vlan=8)))
    (found,) = config.snapshot.table(Rack).values()
    assert (found.vlan, found.serial_no, kind_of(found)) == (8, 2, "rack")
    await config.change(lambda change: change.remove(found))
    assert config.snapshot.table(Rack) == {}
    again = await Config.load(store, lease, FrozenClock(), CountingIds())
    assert again.snapshot.table(Rack) == {}


def test_claims_are_unique() -> None:
    change = draft()
    change.put(BLUE)
    green = Rack(uuid=UUID.replace("1", "2"), name="green", vlan=7)
    with pytest.raises(PrereqError, match="rack green: the VLAN 7 is already used by rack blue"):
        change.put(green)
    change.put(msgspec.structs.replace(BLUE, vlan=9))
    change.put(green)
    assert set(change.finish()[0].table(Rack)) == {UUID, green.uuid}


def test_its_rules_hold_for_changes_and_removals() -> None:
    change = draft()
    change.put(msgspec.structs.replace(BLUE, vlan=0))
    with pytest.raises(PrereqError, match="0 is no VLAN"):
        change.finish()
    change = draft(instances=1)
    change.put(BLUE)
    change.put(sample_instance(1, tags=("blue",)))
    first, _rows = change.finish()
    change = Draft(first, FrozenClock())
    change.remove(BLUE)
    with pytest.raises(PrereqError, match="is on rack blue"):
        change.finish()
    (instance,) = first.table(Instance).values()
    change.remove(instance)
    assert change.finish()[0].table(Rack) == {}


def test_verify_looks_at_it() -> None:
    change = draft()
    change.put(BLUE)
    snapshot, rows = change.finish()
    assert rows == [put_row(next(iter(snapshot.table(Rack).values())))]
    tables: Tables = {**snapshot.tables, Rack: {UUID: msgspec.structs.replace(BLUE, vlan=0)}}
    wrong = type(snapshot)(snapshot.position, snapshot.cluster, tables)
    texts = [finding.text for finding in config_findings(wrong)]
    assert "rack blue: 0 is no VLAN" in texts
