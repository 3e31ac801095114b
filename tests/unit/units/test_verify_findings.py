"""What the check of a cluster finds about files, disks, memory and candidates."""

import hashlib
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from ganeti import ssconf
from ganeti.base.errors import RpcFailed
from ganeti.config.ssconf_writer import ssconf_values
from ganeti.model.disk_templates import StorageUnit
from ganeti.model.names import AdminState
from ganeti.model.objects import Disk, Instance, InstanceUuid, Node, NodeUuid
from ganeti.model.opcodes.cluster import OpClusterVerify, OpClusterVerifyGroup
from ganeti.model.verify_codes import Subject, VerifyCode
from ganeti.rpc.procedures.disks import StoredDisk
from ganeti.rpc.procedures.files import NodeFile, SharedFiles
from ganeti.rpc.procedures.host import VerifyReport
from ganeti.units.cluster.disk_findings import (
    Listing,
    known_places,
    missing_findings,
    unknown_disks,
)
from ganeti.units.cluster.file_findings import (
    SsconfExpected,
    authority_findings,
    renewed_findings,
    role_findings,
    shared_findings,
    ssconf_findings,
)
from ganeti.units.cluster.findings import Finding, candidate_findings
from ganeti.units.cluster.gather import PART, parts
from ganeti.units.cluster.mastership_findings import renewal_findings
from ganeti.units.cluster.redundancy import memory_findings
from tests.support.units_cluster import NODES, Master, failed, said, succeeded
from tests.unit.units.opcodes import NAME, create
from tests.unit.units.test_cluster_verify import NOW, instance, node, report, snapshot

FILE = NodeFile(path="/etc/own.conf", content=b"abc", mode=0o644)
SECRET = NodeFile(path="/var/lib/ganeti/rapi.pem", content=b"k", mode=0o600, candidates_only=True)
SUM = hashlib.sha256(b"abc").hexdigest()
SILENT = RpcFailed("node2.example.com", "no connection")
SECOND = node(2)


def one(found: Any) -> Finding:
    (finding,) = found
    assert isinstance(finding, Finding)
    return finding


def test_there_is_a_code_for_every_kind_of_thing() -> None:
    assert {code.subject for code in VerifyCode} == set(Subject)
    assert all(code.meaning and code.value == code.name for code in VerifyCode)


def test_a_finding_without_a_known_code_is_an_internal_fault() -> None:
    with pytest.raises(ValueError, match="ENOSUCH is not the code"):
        Finding("ENOSUCH", "node", "node1", "x")


# --- files ---


@pytest.mark.requirement("F8")
@pytest.mark.parametrize(
    ("fields", "late", "text", "is_error"),
    [
        ({"ssconf_checksum": "other"}, (), "differ from the configuration", True),
        ({"ssconf_checksum": "other"}, (SECOND.name,), "are not up to date yet", False),
        ({"ssconf_position": -1}, (), "has no ssconf files", True),
    ],
)
def test_a_node_with_other_facts_is_found(
    fields: dict[str, Any], late: tuple[str, ...], text: str, is_error: bool
) -> None:
    expected = SsconfExpected(frozenset({"right"}), 100, late)
    finding = one(ssconf_findings([(SECOND, report(**fields))], expected))
    assert (finding.code, finding.name) == ("ENODEFILECHECK", SECOND.name)
    assert (text in finding.text, finding.is_error) == (True, is_error)


@pytest.mark.parametrize(
    "fields",
    [
        {"ssconf_checksum": "right"},
        {"ssconf_checksum": "right", "ssconf_position": 7},
        {"ssconf_checksum": "newer", "ssconf_position": 101},
        {"ssconf_checksum": ""},
    ],
)
def test_the_same_or_newer_facts_are_fine(fields: dict[str, Any]) -> None:
    expected = SsconfExpected(frozenset({"right"}), 100, ())
    answers: list[tuple[Node, VerifyReport | RpcFailed]] = [
        (SECOND, report(**fields)),
        (SECOND, SILENT),
    ]
    assert list(ssconf_findings(answers, expected)) == []


def test_the_checksum_of_a_set_depends_on_its_content_only() -> None:
    values = {"a": "1", "b": "2"}
    assert ssconf.checksum(values) == ssconf.checksum({"b": "2", "a": "1"})
    assert ssconf.checksum(values) != ssconf.checksum({"a": "12", "b": ""})
    assert ssconf.checksum(values) != ssconf.checksum({"a": "1"})


@pytest.mark.requirement("S66", "S68")
@pytest.mark.parametrize(
    ("sums", "is_candidate", "text", "is_error"),
    [
        ({}, False, "lacks /etc/own.conf", True),
        ({FILE.path: "other"}, False, "has another /etc/own.conf", True),
        ({FILE.path: SUM}, True, "lacks /var/lib/ganeti/rapi.pem", True),
    ],
)
def test_files_that_are_not_the_master_s_are_found(
    sums: dict[str, str], is_candidate: bool, text: str, is_error: bool
) -> None:
    shared = SharedFiles(files=[FILE, SECRET], problems=[])
    answers = [(node(2, master_candidate=is_candidate), report(file_checksums=sums))]
    finding = one(shared_findings(answers, shared, NODES[0]))
    assert (finding.code, finding.is_error) == ("ECLUSTERFILECHECK", is_error)
    assert text in finding.text


@pytest.mark.requirement("G23")
def test_what_a_role_does_not_allow_is_named_with_the_command_that_repairs_it() -> None:
    held = ["ca.key", "hmac.key", "state.db", "archive.db", "rapi.pem", "cluster-domain-secret"]
    files = [f"/var/lib/ganeti/{name}" for name in held]
    leftover = report(role_files=files, role_daemons=["ganeti-masterd", "ganeti-confd"])
    for fields in ({}, {"drained": True}):
        found = list(of_roles([(node(2, **fields), leftover)]))
        assert all("gnt-cluster redist-conf" in one.text and one.is_error for one in found)
        for path in (*files, "ganeti-masterd", "ganeti-confd"):
            assert sum(f"{path} " in one.text or f"{path}," in one.text for one in found) == 1
    fine = (node(1), leftover), (node(2, master_candidate=True), leftover)
    assert list(of_roles([*fine, (SECOND, SILENT), (SECOND, report())])) == []
    bare = (node(2, master_candidate=True), report(role_files=[]))
    assert "lacks ca.key" in one(of_roles([bare])).text


def of_roles(answers: list[Any], *, confd_on_all: bool = False) -> Iterator[Finding]:
    return role_findings(answers, NODES[0], confd_on_all=confd_on_all)


@pytest.mark.requirement("S238")
def test_copy_of_confd_belongs_to_regular_nodes_while_the_cluster_asks_for_it() -> None:
    copy = report(
        role_files=["/var/lib/ganeti/node-hmac.key", "/var/lib/ganeti/confd.db"],
        role_daemons=["ganeti-confd"],
    )
    assert list(of_roles([(SECOND, copy)], confd_on_all=True)) == []
    assert len(list(of_roles([(SECOND, copy)]))) == 3
    candidate = (node(2, master_candidate=True), copy)
    assert (
        "node-hmac.key, which a candidate node"
        in next(of_roles([candidate], confd_on_all=True)).text
    )
    lacks = list(of_roles([(SECOND, report(role_files=[]))], confd_on_all=True))
    assert [(one.is_error, one.text.split()[1]) for one in lacks] == [
        (False, "confd.db,"),
        (False, "node-hmac.key,"),
    ]


def test_files_that_are_the_master_s_are_fine() -> None:
    shared = SharedFiles(files=[FILE, SECRET], problems=[])
    good = report(file_checksums={FILE.path: SUM})
    assert list(shared_findings([(node(1), report()), (SECOND, good)], shared, NODES[0])) == []
    assert list(shared_findings([(SECOND, report())], None, NODES[0])) == []
    missing = SharedFiles(files=[], problems=["/etc/x does not exist"])
    assert not one(shared_findings([], missing, NODES[0])).is_error


@pytest.mark.requirement("F39")
def test_a_node_that_missed_a_renewal_is_found_the_master_too() -> None:
    shared = SharedFiles(files=[FILE, SECRET], problems=[])
    renewed = {SECRET.path: "new"}
    answers = [
        (node(1, master_candidate=True), report(file_checksums={SECRET.path: "old"})),
        (
            node(2, master_candidate=True),
            report(file_checksums={SECRET.path: "new", FILE.path: SUM}),
        ),
        (
            node(3, master_candidate=True),
            report(file_checksums={SECRET.path: "old", FILE.path: SUM}),
        ),
    ]
    first, third = renewed_findings(answers, renewed, NODES[0])
    assert "fail over to a candidate that has it" in first.text
    assert third.text.endswith("renewed last; run gnt-cluster redist-conf")
    assert list(shared_findings(answers, shared, NODES[0], renewed)) == []


@pytest.mark.requirement("G27")
@pytest.mark.parametrize(
    ("ends", "text", "is_error"),
    [
        (NOW + 29 * 86400, "the authority's certificate ends in 29 days", False),
        (NOW - 1, "the authority's certificate has ended", True),
    ],
)
def test_the_end_of_the_authority_is_found(ends: float, text: str, is_error: bool) -> None:
    said_by = report(authority="a", authority_not_after=ends)
    finding = one(authority_findings([(SECOND, said_by)], NOW))
    assert (finding.code, finding.text, finding.is_error) == ("ECLUSTERCERT", text, is_error)


def test_a_node_with_another_authority_is_found() -> None:
    good = report(authority="a", authority_not_after=NOW + 1e9)
    bad = report(authority="b", authority_not_after=NOW + 1e9)
    finding = one(authority_findings([(node(1), good), (node(3), good), (SECOND, bad)], NOW))
    assert (finding.code, finding.name) == ("ECLUSTERCERT", SECOND.name)
    assert list(authority_findings([(node(1), good), (SECOND, SILENT)], NOW)) == []


# --- the network ---


@pytest.mark.parametrize("count", [1, 2 * PART, 2 * PART + 1, 1000])
def test_every_node_is_connected_to_by_others_and_by_few_of_many(count: int) -> None:
    nodes = [replace(node(1), uuid=NodeUuid(f"{at}")) for at in range(count)]
    found = parts(nodes)
    assert [one.uuid for part, _ in found for one in part] == [one.uuid for one in nodes]
    callers = dict.fromkeys((one.uuid for one in nodes), 0)
    for part, peers in found:
        assert len(peers) <= 2 * PART
        for one in peers:
            callers[one.uuid] += len(part)
    assert min(callers.values()) >= min(count, PART)
    if count <= 2 * PART:
        assert set(callers.values()) == {count}


# --- disks ---


def with_disk(template: str = "file", path: str = "/local/web1/d") -> Instance:
    disk = Disk(
        uuid="00000000-0000-4000-c000-000000000001",
        size=512,
        template=template,
        logical_id=("loop", path),
    )
    return instance(1, disk_template=template, disks=(disk,))


def file(path: str, size: int = 512, template: str = "file") -> StoredDisk:
    directory = "/local" if template == "file" else "/shared"
    unit = StorageUnit(kind=template, key=directory)
    return StoredDisk(unit=unit, name=path, size=size)


@pytest.mark.parametrize("template", ["file", "sharedfile"])
@pytest.mark.parametrize(
    ("size", "code"),
    [(None, "EINSTANCEMISSINGDISK"), (511, "EINSTANCEFAULTYDISK"), (512, None), (600, None)],
)
def test_a_disk_that_is_missing_or_too_small_is_found(
    template: str, size: int | None, code: str | None
) -> None:
    path = f"/{'local' if template == 'file' else 'shared'}/web1/d"
    here = with_disk(template, path)
    files = [] if size is None else [file(path, size, template)]
    listing = Listing({NODES[0]: files}, None) if template == "file" else Listing({}, files)
    found = list(missing_findings(snapshot([here]), [here], listing))
    assert [finding.code for finding in found] == ([] if code is None else [code])


def test_what_was_not_listed_is_not_missing() -> None:
    local, shared = with_disk(), with_disk("sharedfile")
    silent = Listing({NODES[0]: SILENT}, None)
    assert list(missing_findings(snapshot([local]), [local, shared], silent)) == []
    assert list(missing_findings(snapshot(), [instance(1)], Listing({}, None))) == []


def test_a_file_that_is_orphaned_is_found() -> None:
    known = known_places([snapshot([with_disk()])])
    above = StoredDisk(unit=StorageUnit(kind="file", key="/"), name="/local/web1/d", size=512)
    files = [file("/local/web1/d"), above, file("/local/coming/d"), file("/local/lost/d", 7)]
    finding = one(unknown_disks("node1", files, known, {"coming"}))
    assert (finding.code, finding.is_error) == ("ENODEORPHANLV", False)
    assert finding.text == "the file /local/lost/d (7 MiB) belongs to no instance"


# --- memory and candidates ---


def guest(number: int, memory: int, **fields: Any) -> Instance:
    given: dict[str, Any] = {
        "disk_template": "sharedfile",
        "admin_state": AdminState.UP,
        "beparams": {"minmem": memory, "maxmem": memory},
    }
    uuid = InstanceUuid(f"00000000-0000-4000-a000-0000000000{number:02}")
    return replace(instance(1, **{**given, **fields}), uuid=uuid, name=f"web{number}.example.com")


def unsafe(instances: list[Instance], free: dict[NodeUuid, int]) -> list[str]:
    nodes = [node(1), node(2), node(3)]
    return [
        finding.name
        for finding in memory_findings(snapshot(instances, nodes), nodes, free)
        if finding.code == "ENODEN1"
    ]


def test_a_node_whose_guests_find_no_other_place_is_found() -> None:
    two = [guest(1, 512), guest(2, 512)]
    free = {NODES[0]: 0, NODES[1]: 512, NODES[2]: 512}
    assert unsafe(two, free) == []
    assert unsafe([*two, guest(3, 1)], free) == ["node1.example.com"]
    assert unsafe([guest(1, 600)], free) == ["node1.example.com"]
    assert unsafe([guest(1, 600)], {**free, NODES[2]: 600}) == []


@pytest.mark.parametrize(
    "fields",
    [
        {"admin_state": AdminState.DOWN},
        {"disk_template": "file"},
        {"beparams": {"minmem": 9999, "maxmem": 9999, "auto_balance": False}},
    ],
)
def test_guests_that_no_job_moves_need_no_memory_elsewhere(fields: dict[str, Any]) -> None:
    assert unsafe([guest(1, 9999, **fields)], dict.fromkeys(NODES, 1)) == []


def losses(instances: list[Instance], free: dict[NodeUuid, int]) -> list[str]:
    nodes = [node(1), node(2), node(3)]
    return [
        finding.text
        for finding in memory_findings(snapshot(instances, nodes), nodes, free)
        if "protected" in finding.text
    ]


def protected(number: int, memory: int, priority: int = 50, **fields: Any) -> Instance:
    beparams = {"minmem": 1, "maxmem": memory, "recovery": "failover",
                "recovery_priority": priority, "auto_balance": False}  # fmt: skip
    return guest(number, memory, **{"beparams": beparams, **fields})


def test_protected_instances_that_would_not_fit_are_named_with_what_is_short() -> None:
    free = {NODES[0]: 9999, NODES[1]: 512, NODES[2]: 512}
    kinds = ["sharedfile", "rbd", "diskless"]
    three = [protected(at, 512, disk_template=kind) for at, kind in enumerate(kinds, 1)]
    assert losses(three[:2], free) == []
    assert losses(three, free) == [
        (
            "1 of 3 protected instances would not fit if node1.example.com failed:"
            " web3.example.com (512 MiB of memory short)"
        )
    ]
    assert losses([*three, protected(4, 512, 99)], free) == [
        (
            "2 of 4 protected instances would not fit if node1.example.com failed:"
            " web2.example.com (512 MiB of memory short), web3.example.com (512 MiB of memory short)"
        )
    ]
    unprotected = [guest(5, 512), guest(6, 512), guest(7, 512)]
    assert losses(unprotected, free) == []


def test_protected_instance_whose_data_is_elsewhere_on_no_node_in_service_is_named() -> None:
    free = {NODES[0]: 9999, NODES[1]: 100, NODES[2]: 9999}
    assert "web1.example.com (no other node has its disks)" in losses(
        [protected(1, 10, disk_template="file")], free
    )[0]  # fmt: skip
    mirrored = protected(1, 512, disk_template="drbd", secondary_nodes=(NODES[1],))
    assert "web1.example.com (412 MiB of memory short)" in losses([mirrored], free)[0]
    assert "web1.example.com (its secondary node is not in service)" in losses(
        [mirrored], {NODES[0]: 1}
    )[0]  # fmt: skip
    shared = protected(1, 512)
    assert "web1.example.com (no other node is in service)" in losses([shared], {NODES[0]: 1})[0]


def test_too_few_candidates_are_a_warning() -> None:
    nodes = [node(1), node(2), node(3, offline=True)]
    finding = one(candidate_findings(snapshot(nodes=nodes, candidate_pool_size=3)))
    assert (finding.code, finding.is_error) == ("ECLUSTERCFG", False)
    assert "has 1 master candidates instead of 2; run gnt-node modify" in finding.text
    assert list(candidate_findings(snapshot(nodes=nodes, candidate_pool_size=1))) == []


@pytest.mark.requirement("F39")
def test_nodes_that_are_behind_in_a_renewal_are_warnings() -> None:
    nodes = [node(1, certificate_generation=2), node(2), node(3, offline=True)]
    assert list(renewal_findings(snapshot(nodes=nodes))) == []
    found = list(renewal_findings(snapshot(nodes=nodes, certificate_generation=2)))
    assert [(one.code, one.name, one.is_error) for one in found] == [
        ("ECLUSTERCERT", "node2.example.com", False),
        ("ECLUSTERCERT", "node3.example.com", False),
    ]
    assert "sends it when the node answers" in found[0].text
    assert "gnt-node add --readd node3.example.com" in found[1].text
    both = snapshot(nodes=nodes, certificate_generation=2, authorities=("new", "old"))
    assert "until these nodes have new certificates: node2.example.com" in [
        *renewal_findings(both)
    ][-1].text.replace("\n", " ")


# --- the units ---


async def in_good_order(master: Master) -> None:
    for model in master.world.nodes.values():
        model.time = master.services.clock.time()
        model.ssconf_position = master.snapshot.position
        model.ssconf = ssconf_values(master.snapshot)


@pytest.mark.virtual_time
async def test_lost_disks_files_and_facts_are_found_by_the_job(master: Master) -> None:
    succeeded(await master.run(create(disk_template="file")))
    await in_good_order(master)
    verify = OpClusterVerifyGroup(group_name="default", error_codes=True)
    view = await master.run(verify)
    assert succeeded(view) is True, said(view)
    assert "WARNING" not in said(view)
    master.world.node(1).local.disks.popitem()
    master.world.node(2).local.disks["/local/lost"] = 5
    master.world.shared.disks["/shared/lost"] = 6
    master.world.node(3).ssconf = {"cluster_name": "other"}
    master.world.node(1).shared_files = [FILE]
    view = await master.run(verify)
    assert succeeded(view) is False
    for line in (
        f"ERROR:EINSTANCEMISSINGDISK:instance:{NAME}:disk/1 is missing on node1.example.com",
        "WARNING:ENODEORPHANLV:node:node2.example.com:the file /local/lost (5 MiB)",
        "WARNING:ENODEORPHANLV:node:node1.example.com:the file /shared/lost (6 MiB)",
        "ERROR:ENODEFILECHECK:node:node3.example.com:its ssconf files differ from the configuration",
        "ERROR:ECLUSTERFILECHECK:node:node2.example.com:lacks /etc/own.conf",
    ):
        assert f"  - {line}" in said(view), said(view)


@pytest.mark.virtual_time
async def test_too_little_memory_is_an_error_that_can_be_skipped(master: Master) -> None:
    succeeded(await master.run(create()))
    await in_good_order(master)
    for number in (2, 3):
        master.world.node(number).memory = 100
    view = await master.run(OpClusterVerifyGroup(group_name="default"))
    assert succeeded(view) is False
    assert "ERROR: node node1.example.com: if it fails" in said(view)
    op = OpClusterVerifyGroup(group_name="default", skip_checks=["nplusone_mem"])
    assert succeeded(await master.run(op)) is True


@pytest.mark.virtual_time
async def test_an_unknown_code_is_refused(master: Master) -> None:
    for op in (
        OpClusterVerify(ignore_errors=["ENOSUCH"]),
        OpClusterVerifyGroup(group_name="default", ignore_errors=["ENOSUCH"]),
    ):
        _, (text, code) = failed(await master.run(op))
        assert (code, "unknown code: ENOSUCH; known: ECLUSTERCERT" in text) == ("wrong_input", True)
