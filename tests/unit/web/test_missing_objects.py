"""Each field of each body that names an object, with a name that does not exist: a 400, and no job."""

import urllib.parse
from collections.abc import Iterator
from typing import Any, NamedTuple, get_args, get_origin

import msgspec

from ganeti.model.fields import RefersTo, declared_references
from ganeti.model.opcodes import OpCode
from ganeti.model.opcodes.base import DiskRequest, NicRequest
from ganeti.model.opcodes.instance import OpInstanceCreate
from ganeti.model.opcodes.placing import OpInstanceMultiAlloc
from ganeti.web.operations import JobOf, Operation
from ganeti.web.resources.every import OPERATIONS
from tests.support.rest import RestRig
from tests.unit.units.test_nasty_values import REQUIRED
from tests.unit.web.test_resources import path_of

GONE = "nosuch"
VALUES: dict[RefersTo, Any] = {
    **dict.fromkeys((RefersTo.NODE, RefersTo.GROUP, RefersTo.NETWORK, RefersTo.IMAGE, RefersTo.INSTANCE), GONE),
    **dict.fromkeys((RefersTo.OS, RefersTo.ALLOCATOR, RefersTo.DESTINATION), GONE),
    RefersTo.ALLOCATORS: f"hail/relocate={GONE}",
    RefersTo.NIC_CHANGES: [["add", {"network": GONE}]],
    RefersTo.DISK_CHANGES: [["attach", {"name": GONE}]],
}  # fmt: skip
CREATE: dict[str, Any] = {"instance_name": "new.example.com", "mode": "create", "disk_template": "diskless",
                          "disks": [], "nics": [], "os_type": "tiny"}  # fmt: skip
BASES: dict[str, dict[str, Any]] = {
    "OP_INSTANCE_CREATE": {"__version__": 1, **CREATE},
    "OP_INSTANCE_MULTI_ALLOC": {"instances": [CREATE]},
    "OP_INSTANCE_REPLACE_DISKS": {"mode": "replace_new_secondary"},
    "OP_BACKUP_EXPORT": {"target_node": "node1.example.com"},
    "OP_NODE_EVACUATE": {"mode": "secondary-only"},
    "OP_NODE_SET_PARAMS": {"drained": True},
    "OP_NODE_FENCED": {"confirm": True},
    "OP_BACKUP_PRUNE": {"node": "node1.example.com", "keep_last": 1},
    "OP_BACKUP_DRILL": {"node": "node1.example.com"},
    "OP_BACKUP_SCHEDULE_ADD": {"schedule_name": "nightly", "calendar": "daily"},
    "OP_WEBHOOK_ADD": {"webhook_name": "chat", "url": "https://h.test/", "secret": "0123456789abcdef"},
}  # fmt: skip
"""Sound bodies that differ from `REQUIRED`."""
SECONDARY = {"pnode": "node1.example.com", "disk_template": "drbd", "disks": [{"size": 1}]}
IMPORT = {"mode": "import", "src_path": "web1.example.com"}
CLONE = {"mode": "clone"}
CONVERT = {"disk_template": "drbd"}
MORE: dict[tuple[str, str], dict[str, Any]] = {
    **{("OP_INSTANCE_CREATE", name): SECONDARY for name in ("snode", "snode_uuid")},
    **{("OP_INSTANCE_CREATE", name): IMPORT for name in ("src_node", "src_node_uuid")},
    ("OP_INSTANCE_CREATE", "src_instance"): CLONE,
    **{("OP_INSTANCE_SET_PARAMS", name): CONVERT for name in ("remote_node", "remote_node_uuid")},
}  # fmt: skip
"""What a body needs beside one field."""
OTHERWISE = {
    ("post_instances_name_recreate_disks", "disks"),  # attaches no disk
    ("put_instances_name_modify", "iallocator"),  # the request names the node of a conversion
    ("put_nodes_name_role", "node_uuid"),  # its body is a text, not an object
    ("post_instances_multi_alloc", "instances[0].iallocator"),  # one allocator places all
    ("post_instances_multi_alloc", "instances[0].src_instance"),  # it only creates
}


class Case(NamedTuple):
    operation: Operation
    field: str
    arguments: dict[str, str]
    body: dict[str, Any]


def is_list(kind: type[Any], name: str) -> bool:
    for base in kind.__mro__:
        note = vars(base).get("__annotations__", {}).get(name)
        if note is not None:
            return "list" in str(get_args(note)[0] if get_origin(note) else note)
    return False


def named(kind: type[Any]) -> Iterator[tuple[str, Any]]:
    """The fields of a struct that name an object, with a value that names none."""
    for name, refers in declared_references(kind).items():
        if refers in VALUES and name in kind.__struct_fields__:
            value = VALUES[refers]
            wrapped = (
                isinstance(value, str)
                and is_list(kind, name)
                and refers is not RefersTo.DESTINATION
            )
            yield name, [value] if wrapped else value


def bodies(opcode: type[OpCode], base: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, value in named(opcode):
        yield name, {**base, **MORE.get((opcode.op_id(), name), {}), name: value}
    if opcode is OpInstanceMultiAlloc:
        for name, one in bodies(OpInstanceCreate, CREATE):
            yield f"instances[0].{name}", {**base, "instances": [one]}
    if opcode is OpInstanceCreate:
        for list_, struct, fields in (
            ("nics", NicRequest, {}),
            ("disks", DiskRequest, {"size": 1}),
        ):
            for name, value in named(struct):
                yield f"{list_}[0].{name}", {**base, list_: [{**fields, name: value}]}


def cases() -> Iterator[Case]:
    for operation in OPERATIONS:
        if not isinstance(operation.does, JobOf):
            continue
        opcode, route = operation.does.opcode, operation.does.route
        required = [one.name for one in msgspec.structs.fields(opcode) if one.required]
        base = {name: REQUIRED[name] for name in required if name not in operation.does.fixed}
        base = BASES.get(opcode.op_id(), base)
        in_query = {one.field: one.name for one in route.query if one.field}
        needed = {one.name: "1" for one in route.query if one.is_required}
        for field, body in bodies(opcode, base):
            if field in in_query:
                yield Case(operation, field, {**needed, in_query[field]: GONE}, base)
            elif (
                field not in operation.does.fixed
                and field not in route.forbidden
                and route.has_body
            ):
                yield Case(operation, field, needed, body)


async def ask(rig: RestRig, case: Case) -> Any:
    path = path_of(case.operation)
    if case.arguments:
        path += "?" + urllib.parse.urlencode(case.arguments)
    return await rig.ask(case.operation.method, path, case.body)


async def test_name_of_no_object_in_a_body_is_a_bad_request(rig: RestRig) -> None:
    wrong, seen = [], 0
    for case in cases():
        if (case.operation.id, case.field) in OTHERWISE:
            continue
        answer = await ask(rig, case)
        seen += 1
        words = (case.field, GONE)
        if answer.status != 400 or not all(word in answer.explain for word in words):
            wrong.append((case.operation.id, case.field, answer.status, answer.body))
    assert not wrong, "\n".join(map(str, wrong))
    assert rig.master.queue.submitted == []
    assert seen > 70
