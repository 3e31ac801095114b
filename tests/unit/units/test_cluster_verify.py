"""What `gnt-cluster verify` finds, and what it does not make up."""

from collections.abc import Iterable
from typing import Any

import pytest
from msgspec.structs import replace

from ganeti import __version__
from ganeti.base.errors import RpcFailed
from ganeti.config.snapshot import Snapshot
from ganeti.config.transaction import Draft
from ganeti.model.names import AdminState
from ganeti.model.objects import (
    Cluster,
    Disk,
    GroupUuid,
    Instance,
    InstanceUuid,
    Nic,
    Node,
    NodeGroup,
    NodeUuid,
)
from ganeti.model.opcodes.cluster import (
    OpClusterVerify,
    OpClusterVerifyConfig,
    OpClusterVerifyGroup,
)
from ganeti.rpc.procedures.host import VerifyReport
from ganeti.rpc.procedures.instances import RunningInstance
from ganeti.rpc.procedures.programs import OsInfo
from ganeti.simulation.nodes.state import Guest
from ganeti.units.cluster.findings import (
    Expected,
    Finding,
    Running,
    config_findings,
    instance_findings,
    node_findings,
    orphan_findings,
    os_findings,
    policy_findings,
)
from ganeti.units.cluster.verify import LUClusterVerifyGroup
from tests.support.units_cluster import GROUP, NODES, Master, certificate, failed, said, succeeded
from tests.unit.units.opcodes import NAME, create

NOW, POSITION = 1_000_000.0, 100
EXPECTED = Expected(NOW, distributed=POSITION - 10, newest=POSITION)


def node(number: int = 1, **fields: Any) -> Node:
    base = Node(
        uuid=NODES[number - 1],
        name=f"node{number}.example.com",
        primary_ip=f"192.0.2.{number}",
        secondary_ip=f"192.0.2.{number}",
        group=GROUP,
        certificate=certificate(number),
        master_candidate=number == 1,
    )
    return replace(base, **fields)


def instance(number: int = 1, **fields: Any) -> Instance:
    uuid = InstanceUuid(f"00000000-0000-4000-a000-00000000000{number}")
    base = Instance(uuid=uuid, name=f"web{number}.example.com", primary_node=NODES[0])
    return replace(base, **fields)


def snapshot(
    instances: Iterable[Instance] = (), nodes: Iterable[Node] | None = None, **cluster: Any
) -> Snapshot:
    base = Cluster(
        uuid="00000000-0000-4000-9000-000000000001",
        name="cluster.example.com",
        master_node=NODES[0],
        file_storage_dir="/local",
        shared_file_storage_dir="/shared",
    )
    return Snapshot.of(
        POSITION,
        replace(base, **cluster),
        nodes=[node(1), node(2)] if nodes is None else nodes,
        groups=[NodeGroup(uuid=GROUP, name="default")],
        instances=instances,
    )


def codes(findings: Iterable[Finding]) -> list[tuple[str, str]]:
    return [(finding.code, finding.name) for finding in findings]


def guest(of: Instance, state: str = "running") -> RunningInstance:
    return RunningInstance(
        name=of.name,
        uuid=of.uuid,
        hypervisor="fake",
        memory=128,
        vcpus=1,
        state=state,
        cpu_time_s=0.0,
    )


def test_a_sound_configuration_has_no_findings() -> None:
    nics = (Nic(uuid="00000000-0000-4000-b000-000000000001", mac="aa:00:00:00:00:01"),)
    assert list(config_findings(snapshot([instance(1, nics=nics), instance(2)]))) == []


MAC = (Nic(uuid="00000000-0000-4000-b000-000000000001", mac="aa:00:00:00:00:01"),)
MAC_AGAIN = (Nic(uuid="00000000-0000-4000-b000-000000000002", mac="aa:00:00:00:00:01"),)


def one_disk(number: int) -> tuple[Disk, ...]:
    uuid = f"00000000-0000-4000-c000-00000000000{number}"
    return (Disk(uuid=uuid, size=1, template="file", logical_id=("loop", "/local/d")),)


@pytest.mark.parametrize(
    ("wrong", "expected", "text"),
    [
        (
            snapshot(enabled_hypervisors=("xen",)),
            ("ECLUSTERCFG", "cluster.example.com"),
            "unknown hypervisor xen",
        ),
        (
            snapshot(enabled_disk_templates=("tape",)),
            ("ECLUSTERCFG", "cluster.example.com"),
            "unknown disk template tape",
        ),
        (
            snapshot(master_node=NodeUuid("gone")),
            ("ECLUSTERCFG", "cluster.example.com"),
            "the master node is not in the configuration",
        ),
        (
            snapshot(nodes=[node(1), node(2, group=GroupUuid("gone"))]),
            ("ECLUSTERDANGLINGNODES", "node2.example.com"),
            "belongs to an unknown group (gone)",
        ),
        (
            snapshot([instance(1, primary_node=NodeUuid("gone"))]),
            ("EINSTANCEBADNODE", "web1.example.com"),
            "is on an unknown node (gone)",
        ),
        (
            snapshot([instance(1, nics=MAC), instance(2, nics=MAC_AGAIN)]),
            ("ECLUSTERCFG", "web2.example.com"),
            "has the MAC address aa:00:00:00:00:01 of instance web1.example.com",
        ),
        (
            snapshot(
                [
                    instance(1, disk_template="file", disks=one_disk(1)),
                    instance(2, disk_template="file", disks=one_disk(2)),
                ]
            ),
            ("ECLUSTERCFG", "web2.example.com"),
            "has the disk loop /local/d of instance web1.example.com",
        ),
        (
            snapshot([instance(1, name="node2.example.com")]),
            ("ECLUSTERCFG", "node2.example.com"),
            "has the host name node2.example.com of node node2.example.com",
        ),
        (
            snapshot(nodes=[node(1), node(2, offline=True, drained=True)]),
            ("ECLUSTERCFG", "node2.example.com"),
            "both offline and drained",
        ),
    ],
)
def test_a_contradiction_in_the_configuration_is_found_once(
    wrong: Snapshot, expected: tuple[str, str], text: str
) -> None:
    (finding,) = config_findings(wrong)
    assert (finding.code, finding.name) == expected
    assert text in finding.text
    assert finding.is_error


@pytest.mark.requirement("S235")
def test_an_instance_outside_its_policy_is_a_warning() -> None:
    small = {"minmax": [{"min": {"memory-size": 1}, "max": {"memory-size": 127}}]}
    one = instance(1)
    (finding,) = policy_findings(snapshot([one], ipolicy=small), [one])
    assert (finding.code, finding.is_error) == ("EINSTANCEPOLICY", False)
    assert "memory-size 128" in finding.text
    assert list(policy_findings(snapshot([one]), [one])) == []


def report(**fields: Any) -> VerifyReport:
    base = VerifyReport(
        software=__version__,
        protocol=1,
        time=NOW,
        hypervisor_problems={"fake": []},
        storage_problems=[],
        connection_problems={},
        certificate_not_after=NOW + 365 * 86400,
        ssconf_position=POSITION,
        writable_problems=[],
    )
    return replace(base, **fields)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"time": NOW + 149},
        {"ssconf_position": POSITION - 10},
        {"certificate_not_after": NOW + 31 * 86400},
    ],
)
def test_a_sound_node_has_no_findings(fields: dict[str, Any]) -> None:
    assert list(node_findings(node(), report(**fields), EXPECTED)) == []


@pytest.mark.requirement("A39", "F40")
@pytest.mark.parametrize(
    ("fields", "code", "text", "is_error"),
    [
        ({"time": NOW + 151}, "ENODETIME", "its clock is 151 s ahead of the master's", True),
        ({"time": NOW - 200}, "ENODETIME", "its clock is 200 s behind the master's", True),
        ({"certificate_not_after": NOW + 86400}, "ECLUSTERCERT", "ends in 1 days", False),
        ({"certificate_not_after": NOW - 1}, "ECLUSTERCERT", "its certificate has ended", True),
        ({"hypervisor_problems": {"kvm": ["no QEMU"]}}, "ENODEHV", "hypervisor kvm: no QEMU", True),
        ({"storage_problems": ["/x is missing"]}, "ENODEFILESTORAGEPATHS", "/x is missing", True),
        ({"writable_problems": ["/y"]}, "ENODESETUP", "/y", True),
        ({"permission_problems": ["/z is open"]}, "ENODESETUP", "/z is open", True),
        ({"connection_problems": {"node2": "no"}}, "ENODENET", "cannot reach node node2: no", True),
        ({"ssconf_position": POSITION + 1}, "ENODEFILECHECK", "newer than the master's", True),
        ({"ssconf_position": POSITION - 11}, "ENODEFILECHECK", "not up to date", False),
    ],
)
def test_what_is_wrong_with_a_node_is_found(
    fields: dict[str, Any], code: str, text: str, is_error: bool
) -> None:
    (finding,) = node_findings(node(), report(**fields), EXPECTED)
    assert (finding.code, finding.is_error) == (code, is_error)
    assert text in finding.text


def test_a_silent_node_is_found() -> None:
    silent = RpcFailed("node1.example.com", "no connection")
    (finding,) = node_findings(node(), silent, EXPECTED)
    assert (finding.code, finding.text) == ("ENODERPC", "does not answer: no connection")


UP = instance(1, admin_state=AdminState.UP)
DOWN = instance(1)
SILENT = RpcFailed("node1.example.com", "no connection")


@pytest.mark.parametrize(
    ("one", "running"),
    [
        (UP, {NODES[0]: [guest(UP)], NODES[1]: []}),
        (UP, {NODES[0]: [guest(UP, "shutdown")], NODES[1]: []}),  # USER_down
        (DOWN, {NODES[0]: [], NODES[1]: []}),
        (DOWN, {NODES[0]: [guest(DOWN, "shutdown")], NODES[1]: []}),
        (UP, {NODES[0]: SILENT, NODES[1]: []}),
    ],
)
def test_an_instance_as_it_should_be_has_no_findings(one: Instance, running: Any) -> None:
    assert list(instance_findings(snapshot([one]), [one], running)) == []


@pytest.mark.parametrize(
    ("one", "running", "code", "text", "is_error"),
    [
        (UP, {NODES[0]: [], NODES[1]: []}, "EINSTANCEDOWN", "is not running on node1", True),
        (UP, {NODES[0]: [guest(UP, "paused")]}, "EINSTANCEDOWN", "is paused on node1", False),
        (UP, {NODES[0]: [guest(UP, "postmigrate")]}, "EINSTANCEDOWN", "is not running", True),
        (DOWN, {NODES[0]: [guest(DOWN)]}, "EINSTANCEWRONGNODE", "but should be down", False),
        (
            UP,
            {NODES[0]: [], NODES[1]: [guest(UP)]},
            "EINSTANCEWRONGNODE",
            "is on node2.example.com, but should be on node1.example.com; run gnt-instance migrate",
            True,
        ),
        (
            UP,
            {NODES[0]: [guest(UP)], NODES[1]: [guest(UP, "incoming")]},
            "EINSTANCEWRONGNODE",
            "is on node2.example.com",
            True,
        ),
        (
            replace(UP, migrating_to=NODES[1]),
            {NODES[0]: [guest(UP)]},
            "EINSTANCEWRONGNODE",
            "a migration was interrupted",
            True,
        ),
    ],
)
def test_an_instance_that_is_not_as_it_should_be_is_found(
    one: Instance, running: Any, code: str, text: str, is_error: bool
) -> None:
    (finding,) = instance_findings(snapshot([one]), [one], running)
    assert (finding.code, finding.is_error) == (code, is_error)
    assert text in finding.text


def test_an_instance_of_an_offline_node_is_found() -> None:
    nodes = [node(1), node(2, offline=True)]
    one = replace(UP, primary_node=NODES[1])
    (finding,) = instance_findings(snapshot([one], nodes), [one], {NODES[0]: []})
    assert (finding.code, finding.name) == ("EINSTANCEBADNODE", one.name)


def test_an_unknown_guest_is_found() -> None:
    running: Running = {NODES[0]: [guest(UP)], NODES[1]: SILENT}
    assert codes(orphan_findings(snapshot(), set(), running)) == [
        ("ENODEORPHANINSTANCE", "node1.example.com")
    ]
    assert list(orphan_findings(snapshot(), {UP.uuid}, running)) == []


def os_info(**fields: Any) -> OsInfo:
    base = OsInfo(
        name="tiny",
        path="/os/tiny",
        problem="",
        api_versions=[20],
        variants=[],
        parameters=[],
        version="1",
        scripts=[],
    )
    return replace(base, **fields)


@pytest.mark.requirement("S141")
def test_os_definitions_that_are_broken_or_differ_are_found() -> None:
    assert list(os_findings({"node1": [os_info()], "node2": [os_info()]})) == []
    (broken,) = os_findings({"node1": [os_info(problem="no create script")]})
    assert (broken.code, broken.text) == ("ENODEOS", "OS tiny: no create script")
    (differing,) = os_findings({"node1": [os_info()], "node2": [os_info(version="2")]})
    assert differing.text == "OS tiny has different versions (node1: 1, node2: 2)"


def test_a_finding_has_a_form_for_people_and_one_for_scripts() -> None:
    finding = Finding("ENODERPC", "node", "node1", "does not answer")
    assert finding.line(with_code=False) == "  - ERROR: node node1: does not answer"
    assert finding.line(with_code=True) == "  - ERROR:ENODERPC:node:node1:does not answer"


# --- the units ---

virtual_time = pytest.mark.virtual_time


def verify_group(**fields: Any) -> OpClusterVerifyGroup:
    return OpClusterVerifyGroup(group_name="default", **fields)


async def in_good_order(master: Master) -> None:
    for model in master.world.nodes.values():
        model.time = master.services.clock.time()
        model.ssconf_position = master.snapshot.position


@virtual_time
async def test_a_sound_cluster_verifies(master: Master) -> None:
    succeeded(await master.run(create()))
    await in_good_order(master)
    jobs = succeeded(await master.run(OpClusterVerify()))["jobs"]
    views = [await master.final(job_id) for _, job_id in jobs]
    assert [succeeded(view) for view in views] == [True, True]
    assert "* Verifying cluster config" in said(views[0])
    assert "* Verifying group 'default'" in said(views[1])
    assert "ERROR" not in said(views[0]) + said(views[1])
    assert "WARNING" not in said(views[0]) + said(views[1])


@virtual_time
async def test_verifying_one_group_needs_one_job(master: Master) -> None:
    await in_good_order(master)
    jobs = succeeded(await master.run(OpClusterVerify(group_name="default")))["jobs"]
    assert len(jobs) == 1
    assert succeeded(await master.final(jobs[0][1])) is True


@virtual_time
async def test_errors_are_reported_with_codes_and_can_be_ignored(master: Master) -> None:
    succeeded(await master.run(create()))
    await in_good_order(master)
    master.world.node(1).guests.clear()
    view = await master.run(verify_group(error_codes=True))
    assert succeeded(view) is False
    assert f"  - ERROR:EINSTANCEDOWN:instance:{NAME}:is not running" in said(view)
    view = await master.run(verify_group(ignore_errors=["EINSTANCEDOWN"]))
    assert succeeded(view) is True
    assert f"  - WARNING: instance {NAME}: is not running" in said(view)


@virtual_time
async def test_simulated_errors_fail_the_check(master: Master) -> None:
    assert succeeded(await master.run(OpClusterVerifyConfig(debug_simulate_errors=True))) is False


@virtual_time
async def test_silent_nodes_and_unknown_guests_are_reported(master: Master) -> None:
    succeeded(await master.run(create()))
    await in_good_order(master)
    spec = next(iter(master.world.node(1).guests.values())).spec
    stranger = replace(spec, uuid="stranger", name="stranger")
    master.world.node(1).guests["stranger"] = Guest(stranger)
    del master.rpc.nodes["node2.example.com"]
    view = await master.run(verify_group())
    assert succeeded(view) is False
    assert "ERROR: node node2.example.com: does not answer" in said(view)
    assert "ERROR: node node1.example.com: runs the unknown instance stranger" in said(view)


@virtual_time
async def test_offline_nodes_are_not_asked(master: Master) -> None:
    def offline(draft: Draft) -> None:
        draft.put(replace(draft.nodes[NODES[1]], offline=True))

    await master.change(offline)
    await in_good_order(master)
    view = await master.run(verify_group())
    assert succeeded(view) is True
    assert "NOTICE: node node2.example.com is offline" in said(view)
    assert "node2.example.com" not in {call.node_name for call in master.rpc.calls}


@virtual_time
async def test_instances_that_come_and_go_meanwhile_are_no_errors(master: Master) -> None:
    succeeded(await master.run(create()))
    await in_good_order(master)
    handlers = master.rpc.nodes["node3.example.com"]
    answer = handlers["node_verify"]

    async def slow(args: Any, call: Any) -> Any:
        succeeded(await master.run(create("web2.example.com", pnode="node2")))
        return await answer(args, call)

    handlers["node_verify"] = slow
    view = await master.run(verify_group())
    assert succeeded(view) is True, said(view)


def test_instances_that_come_later_do_not_change_the_locks() -> None:
    """Or a check of a busy group would never get its locks."""
    unit = LUClusterVerifyGroup(verify_group())
    first = unit.declare_locks(snapshot([instance(1), instance(2)]))
    assert unit.declare_locks(snapshot([instance(1), instance(2), instance(3)])) == first
    assert unit.declare_locks(snapshot([instance(1)])) != first


@virtual_time
@pytest.mark.parametrize(
    ("op", "code"),
    [
        (OpClusterVerifyGroup(group_name="nosuch"), "unknown_entity"),
        (OpClusterVerify(group_name="nosuch"), "unknown_entity"),
        (verify_group(skip_checks=["nosuch"]), "wrong_input"),
    ],
)
async def test_a_wrong_check_is_refused(master: Master, op: Any, code: str) -> None:
    name, arguments = failed(await master.run(op))
    assert (name, arguments[1]) == ("OpPrereqError", code)
