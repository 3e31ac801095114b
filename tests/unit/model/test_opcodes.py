"""Opcodes: strict reading, names, summaries."""

import msgspec
import pytest

from ganeti.base.errors import InputError
from ganeti.model import wire
from ganeti.model.job import OpState, StoredJob
from ganeti.model.opcode_table import OPCODES, parse_opcode
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
        ({"OP_ID": "OP_TEST_DELAY", "duration": 1, "priority": 9}, "opcode.priority"),
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


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0.0, "0.0"),
        (0.5, "0.5"),
        (1, "1.0"),
        (0.001, "1.0e-3"),
        (0.0125, "1.25e-2"),
        (2e7, "2.0e7"),
    ],
)
def test_numbers_in_job_lists_are_written_as_by_ganeti(seconds: float, shown: str) -> None:
    op = parse_opcode({"OP_ID": "OP_TEST_DELAY", "duration": seconds})
    assert op.summary() == f"TEST_DELAY({shown})"


_COMMON = {
    "dry_run": None,
    "debug_level": 0,
    "priority": 0,
    "depends": None,
    "comment": None,
    "reason": [["gnt:client:gnt-instance", "add-tags", 1795222527358617344]],
}


@pytest.mark.parametrize(
    ("op", "summary"),
    [
        (
            {"OP_ID": "OP_TAGS_SET", "kind": "instance", "tags": ["tag1"], "name": "cap1.peer"},
            "TAGS_SET",
        ),
        (
            {
                "OP_ID": "OP_NODE_SET_PARAMS", "node_name": "n1", "node_uuid": None, "force": False,
                "hv_state": None, "disk_state": None, "master_candidate": None, "offline": True,
                "drained": None, "auto_promote": False, "master_capable": None, "vm_capable": None,
                "secondary_ip": None, "ndparams": None, "powered": None,
            },
            "NODE_SET_PARAMS(n1)",
        ),
        (
            {
                "OP_ID": "OP_CLUSTER_SET_PARAMS", "force": False, "vg_name": None, "hvparams": {},
                "beparams": None, "candidate_pool_size": 3, "uid_pool": None, "drbd_helper": None,
                "reserved_lvs": None, "hidden_os": None, "compression_tools": None,
            },
            "CLUSTER_SET_PARAMS",
        ),
        ({"OP_ID": "OP_CLUSTER_REDIST_CONF"}, "CLUSTER_REDIST_CONF"),
    ],
)  # fmt: skip
def test_what_debian_s_client_sends_for_changes_is_understood(
    op: dict[str, object], summary: str
) -> None:
    assert parse_opcode({**_COMMON, **op}).summary() == summary


def test_every_opcode_is_named_by_ganeti_s_rule() -> None:
    for op_id, kind in OPCODES.items():
        words = op_id.removeprefix("OP_").split("_")
        assert kind.__name__ == "Op" + "".join(word.capitalize() for word in words)


def test_a_stored_job_reads_back_as_it_was_written() -> None:
    job = StoredJob(id=7, ops=(OpState(op=OpTestDelay(duration=1.5)),), received=12.5)
    assert wire.decode(wire.encode(job), StoredJob) == job


@pytest.mark.parametrize("name", OPCODES)
def test_null_means_unset_in_fields_of_upstreams_clients(name: str) -> None:
    kind = OPCODES[name]
    known = {field.encode_name: field for field in msgspec.structs.fields(kind)}
    sound = {field: _SOUND.get(field, "x") for field, one in known.items() if one.required}
    for field in kind.null_is_default:
        assert not known[field].required
        message = {"OP_ID": name, **sound, field: None}
        assert parse_opcode(message) == parse_opcode({"OP_ID": name, **sound})


def test_null_means_not_given_in_an_opcode_within_another_too() -> None:
    inner = {"OP_ID": "OP_INSTANCE_CREATE", "instance_name": "a", "osparams_private": None}
    op = parse_opcode({"OP_ID": "OP_INSTANCE_MULTI_ALLOC", "instances": [inner], "reason": None})
    assert wire.plain(op)["instances"][0]["osparams_private"] == {}


_SOUND = {
    "x509_key_name": ["x509-a", "0", "a"],
    "tags": ["x"],
    "nodes": ["x"],
    "disk": 0,
    "amount": 1,
    "duration": 0.0,
    "new_name": "y",
    "output_fields": [],
    "changes": {},
    "fields": [],
    "node_names": [],
}
