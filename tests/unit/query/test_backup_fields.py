"""The proof of a backup in queries."""

from typing import Any

import pytest

from ganeti.model.names import ProofState
from ganeti.protocols.backup_proof import Judgement
from ganeti.query.fields.backup import BACKUP_FIELDS, BackupRow
from ganeti.query.fields.field import UNAVAILABLE
from ganeti.rpc.procedures.backups import PointInfo

GOOD = Judgement(state=ProofState.GOOD, checked=5.0, drilled=9.0)
BAD = Judgement(state=ProofState.FAILED, why="disk 0: bad")


@pytest.mark.parametrize(
    ("fields", "values"),
    [
        ({}, ["unproven", UNAVAILABLE, UNAVAILABLE, UNAVAILABLE]),
        ({"proof": GOOD}, ["good", 5.0, 9.0, UNAVAILABLE]),
        ({"proof": BAD}, ["failed", UNAVAILABLE, UNAVAILABLE, "disk 0: bad"]),
        ({"problem": "damaged"}, [UNAVAILABLE] * 4),
    ],
)
def test_backup_has_its_proof(fields: dict[str, Any], values: list[Any]) -> None:
    point = PointInfo(target="/srv", instance="web1", point="20261127-080000", **fields)
    row = BackupRow(None, point)  # type: ignore[arg-type]  # the node does not matter
    names = ("proof", "checked", "drilled", "failure")
    assert [BACKUP_FIELDS[name].value(row) for name in names] == values
