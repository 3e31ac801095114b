"""Limited users: each field of each opcode with something that is not theirs."""

from collections.abc import Iterator
from typing import Annotated, Any, get_args, get_origin

import msgspec
import pytest
from msgspec.structs import replace

from ganeti.base.errors import ErrorCode, PrereqError
from ganeti.config.snapshot import Snapshot
from ganeti.jobs.view import JobView
from ganeti.model import wire
from ganeti.model.fields import RefersTo, declared_references
from ganeti.model.job import StoredJob, Submitter, remote_source
from ganeti.model.names import JobStatus
from ganeti.model.objects import (
    DetachedDisk,
    Disk,
    Image,
    ImageDisk,
    ImageUuid,
    Network,
    NetworkUuid,
)
from ganeti.model.opcode_table import OPCODES, parse_opcode
from ganeti.model.opcodes import OpCode
from ganeti.model.opcodes.base import DiskRequest, NicRequest
from ganeti.model.opcodes.instance import OpInstanceReboot
from ganeti.model.opcodes.instance_system import OpInstanceRename
from ganeti.model.opcodes.placing import OpInstanceMultiAlloc
from ganeti.model.opcodes.tags import OpTagsDel
from ganeti.model.scope import BY_PATTERN, Scope
from ganeti.units.job_scope import check_scope
from tests.support.units_cluster import Master, failed, succeeded
from tests.unit.query.cluster import INSTANCE_UUIDS, NODE_UUIDS, snapshot
from tests.unit.units.opcodes import NAME, create, modify

pytestmark = pytest.mark.requirement("G21")

PATTERNS = {
    RefersTo.NODE: "node1*", RefersTo.GROUP: "default", RefersTo.NETWORK: "mine", RefersTo.LINK: "br-mine",
    RefersTo.DIRECTORY: "mine", RefersTo.STORAGE: "mine", RefersTo.PATH: "/srv/mine/*", RefersTo.IMAGE: "mine",
}  # fmt: skip
MINE = Scope(names=("web1*",), others=tuple((kind.value, text) for kind, text in PATTERNS.items()))
CLOSED = replace(MINE, others=())
OTHER_DISK = "00000000-0000-4000-8000-0000000000d2"

OWN: dict[RefersTo, Any] = {
    RefersTo.INSTANCE: "web1", RefersTo.NEW_INSTANCE: "web11", RefersTo.DETACHED_DISK: "mine",
    RefersTo.EXPORT: "web1.example.com", RefersTo.NODE: "node1", RefersTo.GROUP: "default", RefersTo.NETWORK: "mine",
    RefersTo.LINK: "br-mine", RefersTo.DIRECTORY: "mine", RefersTo.STORAGE: "mine", RefersTo.PATH: "/srv/mine/x",
    RefersTo.DESTINATION: "node1", RefersTo.TAGGED: "web1", RefersTo.CLUSTER: "", RefersTo.TAG: "",
    RefersTo.NOTHING: "x", RefersTo.ALLOCATOR: "hail", RefersTo.OS: "tiny",
    RefersTo.DISK_PARAMS: {"vg": "mine"}, RefersTo.DISK_CHANGES: [["attach", {"name": "mine"}]],
    RefersTo.NIC_CHANGES: [["add", {"network": "mine"}]], RefersTo.HYPERVISOR_PARAMS: {"kernel_path": "/srv/mine/x"},
    RefersTo.OS_PARAMS: {"image": "/srv/mine/x"}, RefersTo.DEPENDENCIES: [[7, []]],
    RefersTo.NEW_NODE: "", RefersTo.NEW_GROUP: "", RefersTo.NEW_NETWORK: "", RefersTo.IMAGE: "mine", RefersTo.NEW_IMAGE: "",
}  # fmt: skip
OTHERS: dict[RefersTo, list[Any]] = {
    RefersTo.INSTANCE: ["web2", "web2.example.com", INSTANCE_UUIDS[1], "web", "WEB2", "gone.example.com"],
    RefersTo.NEW_INSTANCE: ["web2.example.com", "db", "new.web1", "web2"],
    RefersTo.DETACHED_DISK: ["theirs", OTHER_DISK, "both", "none-of-this-name"],
    RefersTo.EXPORT: ["web2.example.com", "/srv/ganeti/export/web2.example.com", "/srv/ganeti/export/web1/../web2",
                      "/srv/ganeti/file-storage/web2", "web2", "web1.example.com/../web2"],
    RefersTo.NODE: ["node2", "node2.example.com", NODE_UUIDS[1], "nowhere"],
    RefersTo.GROUP: ["spare", "nowhere"],
    RefersTo.NETWORK: ["theirs", "00000000-0000-4000-8000-0000000000e2", "nowhere"],
    RefersTo.LINK: ["br0", "br-mine2"],
    RefersTo.DIRECTORY: ["web2.example.com", "mine/../web2.example.com", "theirs"],
    RefersTo.STORAGE: ["xenvg", "mine2"],
    RefersTo.PATH: ["/dev/xenvg/theirs", "/srv/mine/../theirs", "xenvg/theirs"],
    RefersTo.DESTINATION: ["node2"],
    RefersTo.TAGGED: ["web2", INSTANCE_UUIDS[1]],
    RefersTo.CLUSTER: ["anything"],
    RefersTo.TAG: ["tenant:a"],
    RefersTo.NEW_NODE: ["node1.example.com"],
    RefersTo.NEW_GROUP: ["default"],
    RefersTo.NEW_NETWORK: ["mine"],
    RefersTo.NEW_IMAGE: ["mine"],
    RefersTo.IMAGE: ["theirs", "00000000-0000-4000-8000-0000000000f2", "nowhere"],
    RefersTo.DISK_PARAMS: [{"vg": "xenvg"}, {"metavg": "xenvg"}, {"pool": "rbd"}, {"lun": 7}, {"provider": "p"},
                           {"disk-custom": "--x"}],
    RefersTo.DISK_CHANGES: [[["attach", {"name": "theirs"}]], [["attach", {"name": "both"}]], [["attach", 0, {"uuid": OTHER_DISK}]],
                            [["add", {"size": 1, "adopt": "/dev/sdb"}]], [["add", -1, {"size": 1, "vg": "xenvg"}]],
                            [["add", {"size": 1, "lun": "7"}]], [[0, {"provider": "p"}]]],
    RefersTo.NIC_CHANGES: [[["add", {"network": "theirs"}]], [["modify", 0, {"link": "br0"}]], [[0, {"vlan": ":5"}]]],
    RefersTo.HYPERVISOR_PARAMS: [{"kernel_path": "/etc/shadow"}, {"cdrom_image_path": "/dev/xenvg/theirs"},
                                 {"usb_devices": "host:1234:5678"}],
    RefersTo.OS_PARAMS: [{"image": "/srv/theirs"}, {"x": "../theirs"}, {"x": "file:///srv/theirs"},
                         {"image": " /srv/theirs"}, {"x": "a/../../theirs"}, {"stored_image": "theirs"}],
    RefersTo.DEPENDENCIES: [[[8, []]], [[7, []], [9, ["success"]]]],
}  # fmt: skip
OWN_JOBS = {7}


@pytest.fixture(name="cluster", scope="module")
def cluster_with_objects_of_two_tenants() -> Snapshot:
    one = snapshot()
    disk = Disk(uuid="d", size=1, template="plain")

    def detached(uuid: str, name: str, last: str) -> DetachedDisk:
        return DetachedDisk(uuid=uuid, name=name, disk=disk, last_instance=last)

    disks = [
        detached("d1", "mine", "web1.example.com"),
        detached(OTHER_DISK, "theirs", "web2.example.com"),
        detached("d3", "both", "web1.example.com"),
        detached("d4", "both", "web2.example.com"),
    ]
    networks = [
        Network(uuid=NetworkUuid(f"00000000-0000-4000-8000-0000000000e{number}"), name=name, network="192.0.2.0/24")
        for number, name in enumerate(("mine", "theirs"), 1)
    ]  # fmt: skip
    images = [
        Image(uuid=ImageUuid(f"00000000-0000-4000-8000-0000000000f{number}"), name=name, disks=(ImageDisk(size=1),))
        for number, name in enumerate(("mine", "theirs"), 1)
    ]  # fmt: skip
    return Snapshot.of(
        1,
        one.cluster,
        nodes=one.nodes.values(),
        groups=one.groups.values(),
        instances=one.instances.values(),
        others=[*disks, *networks, *images],
    )


def is_list(kind: type[Any], name: str) -> bool:
    """Whether a field holds several texts."""
    for base in kind.__mro__:
        note = vars(base).get("__annotations__", {}).get(name)
        if note is not None:
            type_ = get_args(note)[0] if get_origin(note) is Annotated else note
            return any(get_origin(one) is list for one in (type_, *get_args(type_)))
    raise AssertionError(name)


def shaped(kind: type[Any], name: str, refers: RefersTo, value: Any) -> Any:
    is_text = isinstance(value, str) and refers is not RefersTo.DESTINATION
    return [value] if is_text and is_list(kind, name) else value


def minimal(kind: type[OpCode]) -> dict[str, Any]:
    """The least that an opcode needs, all of it the user's own."""
    declared = declared_references(kind)
    found: dict[str, Any] = {"OP_ID": kind.op_id()}
    for field in msgspec.structs.fields(kind):
        if field.required:
            refers = declared.get(field.name, RefersTo.NOTHING)
            found[field.name] = (
                shaped(kind, field.name, refers, OWN[refers])
                if field.type not in (int, float)
                else 1
            )
    for name, value in (
        ("instances", ["web1"]),
        ("kind", "instance"),
        ("name", "web1"),
        ("mode", "all"),
    ):
        if name in found or (name == "instances" and declared.get(name) is RefersTo.INSTANCE):
            found[name] = value
    if kind.op_id() == "OP_TAGS_GET":
        found["name"] = "web1"
    if kind.op_id() == "OP_NODE_MODIFY_STORAGE":
        found["changes"] = {}
    return found


def parsed(plain: dict[str, Any]) -> OpCode | None:
    try:
        return parse_opcode(plain)
    except PrereqError:
        return None


def filled(kind: type[Any], name: str, refers: RefersTo, value: Any) -> dict[str, Any]:
    return {name: shaped(kind, name, refers, value)}


def cases() -> Iterator[tuple[str, dict[str, Any], RefersTo, bool]]:
    """Every declared field of every opcode: where, the opcode, the kind, and whether it is the user's own."""
    nested: dict[str, list[tuple[str, type[Any], dict[str, Any]]]] = {}
    for field, struct, least in (("disks", DiskRequest, {"size": 1}), ("nics", NicRequest, {})):
        nested.setdefault("OP_INSTANCE_CREATE", []).append((field, struct, least))
    for kind in OPCODES.values():
        base = minimal(kind)
        for name, refers in declared_references(kind).items():
            for value, is_own in values(refers):
                yield (
                    f"{kind.__name__}.{name}",
                    {**base, **filled(kind, name, refers, value)},
                    refers,
                    is_own,
                )
        for field, struct, least in nested.get(kind.op_id(), ()):
            for name, refers in declared_references(struct).items():
                for value, is_own in values(refers):
                    one = {**least, **filled(struct, name, refers, value)}
                    yield f"{kind.__name__}.{field}.{name}", {**base, field: [one]}, refers, is_own


def values(refers: RefersTo) -> Iterator[tuple[Any, bool]]:
    if refers in OTHERS:
        yield from ((value, False) for value in OTHERS[refers])
        if OWN[refers] != "":
            yield OWN[refers], True


def is_allowed(cluster: Snapshot, op: OpCode, scope: Scope = MINE) -> bool:
    try:
        check_scope(cluster, scope, op, OWN_JOBS)
    except PrereqError as err:
        if err.code is ErrorCode.FORBIDDEN:
            return False
        raise
    return True


def names_an_instance(plain: dict[str, Any], cluster: Snapshot) -> bool:
    op = parsed(minimal(OPCODES[plain["OP_ID"]]))
    return op is not None and is_allowed(cluster, op)


def test_every_kind_of_reference_has_examples() -> None:
    free = {
        *(RefersTo.NOTHING, RefersTo.ALLOCATOR, RefersTo.ALLOCATORS, RefersTo.OS),
        *(RefersTo.NEW_DISK, RefersTo.JOB),
    }
    assert OTHERS.keys() | free == set(RefersTo)
    assert set(PATTERNS) == set(BY_PATTERN)


def test_no_field_of_any_opcode_reaches_what_is_not_the_users(cluster: Snapshot) -> None:
    """Every declared field, with everything that belongs to somebody else; the user's own goes through."""
    refused = allowed = 0
    for where, plain, refers, is_own in cases():
        op = parsed(plain)
        if op is None:
            assert refers is RefersTo.CLUSTER, (where, plain)
            continue
        if is_own:
            if names_an_instance(plain, cluster):
                assert is_allowed(cluster, op), (where, plain)
                allowed += 1
            continue
        assert not is_allowed(cluster, op), (where, plain, refers)
        refused += 1
    assert refused > 900
    assert allowed > 80


def test_what_belongs_to_no_instance_is_closed_unless_the_users_file_opens_it(
    cluster: Snapshot,
) -> None:
    closed = 0
    for where, plain, refers, is_own in cases():
        op = parsed(plain)
        if is_own and refers in BY_PATTERN and op is not None:
            assert not is_allowed(cluster, op, CLOSED), where
            closed += 1
    assert closed > 40


def test_an_opcode_about_no_instance_is_refused(cluster: Snapshot) -> None:
    everything = Scope(names=("web1*",), others=tuple((kind.value, "*") for kind in BY_PATTERN))
    allowed = {
        kind.op_id()
        for kind in OPCODES.values()
        if (op := parsed(minimal(kind))) is not None and is_allowed(cluster, op, everything)
    }
    assert all(
        "INSTANCE" in name or "BACKUP" in name
        for name in allowed - {"OP_TAGS_GET", "OP_CLUSTER_REPAIR_DISK_SIZES"}
    )
    assert "OP_INSTANCE_REBOOT" in allowed
    for name in (
        "OP_CLUSTER_QUERY",
        "OP_TEST_ALLOCATOR",
        "OP_NODE_EVACUATE",
        "OP_INSTANCE_MULTI_ALLOC",
    ):
        assert name not in allowed


def test_a_tag_gives_access_to_what_exists_only(cluster: Snapshot) -> None:
    scope = Scope(tags=frozenset({"a"}))
    assert is_allowed(cluster, OpInstanceReboot(instance_name="web1"), scope)
    assert not is_allowed(cluster, OpInstanceReboot(instance_name="web2"), scope)
    assert not is_allowed(cluster, create("web9.example.com", pnode=None), scope)


# --- in jobs ---

TENANT = Submitter(remote_source("tenant"), CLOSED)


async def run_as(master: Master, op: OpCode, submitter: Submitter = TENANT) -> JobView:
    return await master.final(await master.queue.submit([op], submitter=submitter))


def refused(view: JobView, text: str) -> None:
    name, (said, code) = failed(view)
    assert (name, code) == ("OpPrereqError", "permission_denied")
    assert text in said


@pytest.mark.virtual_time
async def test_a_job_is_checked_again_when_it_runs(master: Master) -> None:
    """The instance loses the tag while the user's job waits for its lock."""
    succeeded(await master.run(create("db1.example.com", tags=["team"])))
    by_tag = Submitter(remote_source("tenant"), Scope(tags=frozenset({"team"})))
    reboot = OpInstanceReboot(instance_name="db1.example.com")
    succeeded(await run_as(master, reboot, by_tag))
    gone = OpTagsDel(kind="instance", name="db1.example.com", tags=["team"])
    first = await master.queue.submit([gone])
    second = await master.queue.submit(
        [replace(reboot, depends=[(first, ["success"])])], submitter=by_tag
    )
    assert (await master.final(first)).status is JobStatus.SUCCESS
    master.rpc.reset()
    refused(
        await master.final(second),
        "instance_name: this user may not use the instance 'db1.example.com'",
    )
    assert master.rpc.acts() == []


@pytest.mark.virtual_time
async def test_a_job_that_was_not_checked_at_submission_does_nothing(master: Master) -> None:
    succeeded(
        await master.run(
            create(
                "web2.example.com", disks=[DiskRequest(size=64), DiskRequest(size=64, name="loot")]
            )
        )
    )
    succeeded(
        await master.run(
            modify("web2.example.com", disks=[["detach", -1, {}]], hotplug_if_possible=True)
        )
    )
    succeeded(await master.run(create(NAME)))
    master.rpc.reset()
    refused(
        await run_as(master, modify(NAME, disks=[["attach", {"name": "loot"}]])),
        "detached disk 'loot'",
    )
    refused(
        await run_as(master, OpInstanceRename(instance_name=NAME, new_name="db1.example.com")),
        "new_name",
    )
    theirs = create("web12.example.com", mode="import", src_path="web2.example.com", pnode=None)
    refused(
        await run_as(master, theirs),
        "src_path: this user may not use the export 'web2.example.com'",
    )
    inside = create(
        "web12.example.com", disk_template="file", file_storage_dir="web2.example.com", pnode=None
    )
    refused(await run_as(master, inside), "directory=PATTERN")
    assert master.rpc.acts() == []


@pytest.mark.virtual_time
async def test_jobs_of_a_users_job_have_its_scope_and_the_masters_choice_of_nodes(
    master: Master,
) -> None:
    wishes = [
        create(f"web1{number}.example.com", pnode=None, nics=[], start=False) for number in (1, 2)
    ]
    done = succeeded(
        await run_as(master, OpInstanceMultiAlloc(instances=wishes, iallocator="hail"))
    )
    for _, job_id in done["jobs"]:
        view = await master.final(job_id)
        succeeded(view)
        assert view.source == TENANT.source
    assert {one.name for one in master.snapshot.instances.values()} == {
        "web11.example.com",
        "web12.example.com",
    }


def test_the_scope_is_stored_with_the_job() -> None:
    job = StoredJob(id=1, ops=(), received=1.0, source=TENANT.source, scope=MINE)
    assert wire.decode(wire.encode(job), StoredJob, what="job") == job
    old = wire.decode(b'{"id":1,"ops":[],"received":1.0}', StoredJob, what="job")
    assert old.scope is None
