"""Opcodes: strict reading, names, summaries."""

import pytest

from ganeti.base.errors import InputError
from ganeti.model import wire
from ganeti.model.job import OpState, StoredJob
from ganeti.model.opcodes import OPCODES, parse_opcode
from ganeti.model.opcodes.test import OpTestDelay


@pytest.mark.requirement("A22")
@pytest.mark.parametrize(
    ("value", "path"),
    [
        ({"OP_ID": "OP_NO_SUCH"}, "opcode.OP_ID"),
        ({"OP_ID": "__class__"}, "opcode.OP_ID"),
        ({}, "opcode"),
        ([], "opcode"),
        ({"OP_ID": "OP_TEST_DELAY"}, "opcode"),
        ({"OP_ID": "OP_TEST_DELAY", "duration": "1"}, "opcode.duration"),
        ({"OP_ID": "OP_TEST_DELAY", "duration": 1, "extra": 1}, "opcode"),
        ({"OP_ID": "OP_TEST_DELAY", "duration": 1, "depends": [[1, "x"]]}, "opcode.depends[0][1]"),
        (
            {"OP_ID": "OP_INSTANCE_CREATE", "instance_name": "a", "disks": [{"size": "x"}]},
            "opcode.disks[0].size",
        ),
        (
            {"OP_ID": "OP_INSTANCE_CREATE", "instance_name": "a", "nics": [{"color": "x"}]},
            "opcode.nics[0]",
        ),
        ({"OP_ID": "OP_TEST_DELAY", "duration": 1, "priority": 20}, "opcode.priority"),
        ({"OP_ID": "OP_TEST_DELAY", "duration": 1, "priority": -21}, "opcode.priority"),
    ],
)
def test_a_malformed_opcode_is_refused_with_the_path_of_the_wrong_field(
    value: object, path: str
) -> None:
    with pytest.raises(InputError) as caught:
        parse_opcode(value)
    assert caught.value.field == path


def test_what_debian_s_client_sends_for_a_new_instance_is_understood() -> None:
    op = parse_opcode(
        {
            "OP_ID": "OP_INSTANCE_CREATE",
            "instance_name": "cap1.peer",
            "beparams": {"memory": 16, "vcpus": 1},
            "disk_template": "diskless",
            "no_install": True,
            "reason": [["gnt:client:gnt-instance", "add", 1795222501743479040]],
            "source_shutdown_timeout": 120,
        }
    )
    assert op.summary() == "INSTANCE_CREATE(cap1.peer)"


def test_every_opcode_is_named_by_ganeti_s_rule() -> None:
    for op_id, kind in OPCODES.items():
        words = op_id.removeprefix("OP_").split("_")
        assert kind.__name__ == "Op" + "".join(word.capitalize() for word in words)


def test_a_stored_job_reads_back_as_it_was_written() -> None:
    job = StoredJob(id=7, ops=(OpState(op=OpTestDelay(duration=1.5)),), received=12.5)
    assert wire.decode(wire.encode(job), StoredJob) == job
