"""What is read of a stored job, also of one that another version has stored."""

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from ganeti.base.errors import InputError
from ganeti.jobs.reading import read_stored
from ganeti.jobs.record import LiveJob
from ganeti.model import wire
from ganeti.model.fields import RefersTo
from ganeti.model.job import OpState, StoredJob, Submitter
from ganeti.model.opcodes.base import DiskRequest
from ganeti.model.opcodes.instance import OpInstanceCreate
from ganeti.model.scope import Scope

JOB = StoredJob(
    id=7,
    ops=(OpState(op=OpInstanceCreate(instance_name="a", disks=[DiskRequest(size=1)])),),
    received=1.0,
)


def stored(**fields: Any) -> bytes:
    """The job with fields of a later version: of the job, of its opcode, of a disk in it."""
    plain = msgspec.to_builtins(JOB)
    operation = plain["ops"][0]["op"]
    plain |= fields.get("job", {})
    operation |= fields.get("op", {})
    operation["disks"][0] |= fields.get("disk", {})
    return wire.encode(plain)


@pytest.mark.requirement("G28")
@pytest.mark.parametrize("nothing", [None, False, 0, "", [], {}])
def test_fields_of_a_later_version_that_say_nothing_are_left_out(nothing: Any) -> None:
    new = {"later": nothing, "last": nothing}
    assert read_stored(stored(op=new, disk=new), StoredJob, what="job 7") == JOB
    assert read_stored(stored(job={"later": "x"}), StoredJob, what="job 7") == JOB


@pytest.mark.requirement("G28")
@pytest.mark.parametrize("where", ["op", "disk"])
def test_a_job_that_would_mean_something_else_is_not_read(where: str) -> None:
    for fields in ({"later": True}, {"first": None, "later": "x"}):
        with pytest.raises(InputError, match=r"job 7.*`later`.*newer version"):
            read_stored(stored(**{where: fields}), StoredJob, what="job 7")


@pytest.mark.requirement("G28")
def test_what_is_damaged_is_called_that() -> None:
    for data in (b"", b"{", stored()[:-9], stored(job={"received": "x"})):
        with pytest.raises(InputError) as refused:
            read_stored(data, StoredJob, what="job 7")
        assert "newer version" not in refused.value.message


@pytest.mark.requirement("G21")
def test_a_job_submits_others_within_its_own_scope() -> None:
    scope = Scope(names=("web1*",))
    job = StoredJob(id=1, ops=(), received=1.0, source="tenant", scope=scope)
    submitter = LiveJob(job).as_submitter
    assert submitter.source == "tenant"
    assert submitter.scope is not None
    assert submitter.scope.names == scope.names
    assert submitter.scope.has_other(RefersTo.NODE, "node2.example.com")
    assert LiveJob(replace(job, scope=None)).as_submitter == Submitter("tenant")
