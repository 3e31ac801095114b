import asyncio
import dataclasses
import sys
from typing import Any

import msgspec
import pytest

from ganeti.base.errors import InputError, PrereqError
from ganeti.config.snapshot import Snapshot
from ganeti.model import wire
from ganeti.model.job import OpState
from ganeti.model.names import JobStatus
from ganeti.model.objects import Disk, Instance, Node, NodeRow
from ganeti.model.opcodes.instance import OpInstanceCreate
from ganeti.model.recovery import InstanceRow, NodeState
from ganeti.query.execute import KINDS, SLICE, QueryExecutor, QueryResult, definitions
from ganeti.query.live import LiveSource
from ganeti.query.ordered import natural_key
from ganeti.rpc.procedures.external import ProviderInfo
from ganeti.rpc.procedures.figures import NodeFigures
from ganeti.rpc.procedures.instances import Lowered
from ganeti.simulation.virtual_time import LoopClock
from tests.unit.query.cluster import (
    INSTANCE_UUIDS,
    FakeJob,
    FakeJobs,
    FakeNodes,
    instance,
    job,
    locks,
    running,
    snapshot,
)

pytestmark = pytest.mark.virtual_time

H_TOOLS = {
    "node": "name mtotal mnode mfree dtotal dfree ctotal cnos offline drained vm_capable"
    " ndp/spindle_count group.uuid tags ndp/exclusive_storage sptotal spfree ndp/cpu_speed",
    "instance": "name disk_usage be/memory be/vcpus status pnode snodes tags be/auto_balance"
    " disk_template be/spindle_use disk.sizes disk.spindles forthcoming",
    "group": "uuid name alloc_policy ipolicy tags",
}
"""The fields that upstream's hbal, hinfo and other h-tools query."""

UPSTREAM_TITLES = {
    "instance": {
        "name": ("Instance", "text"),
        "os": ("OS", "text"),
        "hypervisor": ("Hypervisor", "text"),
        "pnode": ("Primary_node", "text"),
        "snodes": ("Secondary_Nodes", "other"),
        "status": ("Status", "text"),
        "oper_ram": ("Memory", "unit"),
        "oper_state": ("Running", "bool"),
        "admin_state": ("InstanceState", "text"),
        "be/memory": ("ConfigMaxMem", "unit"),
        "be/vcpus": ("ConfigVCPUs", "number"),
        "be/auto_balance": ("Auto_balance", "bool"),
        "be/spindle_use": ("be/spindle_use", "number"),
        "disk_usage": ("DiskUsage", "unit"),
        "disk_template": ("Disk_template", "text"),
        "disk.sizes": ("Disk_sizes", "other"),
        "disk.spindles": ("Disk_spindles", "other"),
        "nic.ips": ("NIC_IPs", "other"),
        "tags": ("Tags", "other"),
        "ctime": ("CTime", "timestamp"),
        "forthcoming": ("Forthcoming", "bool"),
    },
    "node": {
        "name": ("Node", "text"),
        "dtotal": ("DTotal", "unit"),
        "dfree": ("DFree", "unit"),
        "mtotal": ("MTotal", "unit"),
        "mnode": ("MNode", "unit"),
        "mfree": ("MFree", "unit"),
        "pinst_cnt": ("Pinst", "number"),
        "sinst_cnt": ("Sinst", "number"),
        "ctotal": ("CTotal", "number"),
        "cnos": ("CNOs", "number"),
        "offline": ("Offline", "bool"),
        "drained": ("Drained", "bool"),
        "vm_capable": ("VMCapable", "bool"),
        "group.uuid": ("GroupUUID", "text"),
        "ndp/spindle_count": ("SpindleCount", "number"),
        "ndp/exclusive_storage": ("ExclusiveStorage", "bool"),
        "ndp/cpu_speed": ("ndp/cpu_speed", "float"),
        "sptotal": ("SpTotal", "number"),
        "spfree": ("SpFree", "number"),
    },
    "group": {
        "name": ("Group", "text"),
        "node_cnt": ("Nodes", "number"),
        "pinst_cnt": ("Instances", "number"),
        "alloc_policy": ("AllocPolicy", "text"),
        "ndparams": ("NDParams", "other"),
    },
    "job": {
        "id": ("ID", "number"),
        "status": ("Status", "text"),
        "summary": ("Summary", "other"),
    },
    "lock": {"name": ("Name", "other"), "mode": ("Mode", "other")},
    "network": {"name": ("Network", "text"), "network": ("Subnet", "text")},
    "filter": {"uuid": ("UUID", "other"), "predicates": ("Predicates", "other")},
    "extstorage": {
        "name": ("Name", "text"),
        "node_status": ("NodeStatus", "other"),
        "nodegroup_status": ("NodegroupStatus", "other"),
        "parameters": ("Parameters", "other"),
    },
}
"""As in captures of the original."""


def executor(nodes: FakeNodes | None = None, jobs: FakeJobs | None = None) -> QueryExecutor:
    live = LiveSource(nodes or FakeNodes(), LoopClock())
    return QueryExecutor(snapshot, jobs or FakeJobs(), locks, live)


async def rows(one: QueryExecutor, kind: str, names: str, raw_filter: Any = None) -> list[Any]:
    return (await one.query(kind, names.split(), raw_filter)).data


@pytest.mark.parametrize(
    ("kind", "name"), [(kind, name) for kind, names in UPSTREAM_TITLES.items() for name in names]
)
async def test_titles_and_kinds_are_those_of_upstream(kind: str, name: str) -> None:
    field = KINDS[kind].fields[name]
    assert (field.title, field.kind.value) == UPSTREAM_TITLES[kind][name]


@pytest.mark.parametrize("kind", sorted(KINDS))
async def test_every_field_of_every_kind_answers(kind: str) -> None:
    fields = sorted(KINDS[kind].fields)
    nodes = FakeNodes({"node1": [running(1)]})
    one = executor(nodes, FakeJobs([job(1), job(2, JobStatus.RUNNING)]))
    found = await one.query(kind, fields)
    assert len(found.fields) == len(fields)
    assert all(len(row) == len(fields) for row in found.data)
    assert all(field["doc"] and field["title"] for field in found.fields)
    sent = wire.decode(wire.encode(found.to_wire()), dict)
    assert [len(row) for row in sent["data"]] == [len(fields)] * len(found.data)


@pytest.mark.parametrize("kind", sorted(H_TOOLS))
async def test_the_h_tools_get_all_that_they_ask_for(kind: str) -> None:
    names = H_TOOLS[kind].split()
    found = await executor(FakeNodes({"node1": [running(1)]})).query(kind, names)
    assert [field["name"] for field in found.fields] == names
    assert all(field["kind"] != "unknown" for field in found.fields)
    assert {status for row in found.data for status, _value in row} <= {0, 2, 3, 4}


async def test_instances_show_their_state_where_it_is_known() -> None:
    nodes = FakeNodes({"node1": [running(1)], "node2": [running(3)]})
    assert await rows(executor(nodes), "instance", "name status oper_ram") == [
        [[0, "web1.example.com"], [0, "running"], [0, 64]],
        [[0, "web2.example.com"], [0, "ERROR_down"], [3, None]],
        [[0, "web3.example.com"], [0, "ERROR_up"], [0, 64]],
        [[0, "web4.example.com"], [0, "ERROR_nodeoffline"], [4, None]],
    ]


async def test_memory_before_its_node_took_some_is_known_only_then() -> None:
    lowered = msgspec.structs.replace(running(3), lowered=Lowered(before=128, since=1.0, goal=512))
    nodes = FakeNodes({"node1": [running(1)], "node2": [lowered]})
    found = await rows(executor(nodes), "instance", "name oper_ram_before")
    assert [found[0], found[2]] == [
        [[0, "web1.example.com"], [3, None]],
        [[0, "web3.example.com"], [0, 128]],
    ]


async def test_exports_are_listed_with_the_nodes_that_did_not_report_what_they_have() -> None:
    silent = executor(FakeNodes(silent={"node2"}))
    wanted = ["node1.example.com", "node2.example.com", "node4.example.com"]
    found = await rows(silent, "export", "node export")
    assert [row for row in found if row[0][1] in wanted][:2] == [
        [[0, "node1.example.com"], [0, "web1.example.com"]],
        [[0, "node2.example.com"], [2, None]],
    ]
    of_one = ["==", "node", "node1"]
    assert await rows(silent, "export", "export", of_one) == [[[0, "web1.example.com"]]]
    old = await silent.exports([])
    assert (old["node1.example.com"], old["node2.example.com"]) == (["web1.example.com"], False)
    assert await silent.exports(["node1"]) == {"node1.example.com": ["web1.example.com"]}


async def test_providers_of_external_storage_are_listed_with_where_they_can_be_used() -> None:
    shelf = ProviderInfo(name="shelf", path="/srv/shelf", parameters=[("pool", "Where")])
    names = "name node_status nodegroup_status parameters"
    on_both = executor(FakeNodes(providers={"node1": [shelf], "node2": [shelf]}))
    [row] = await rows(on_both, "extstorage", names)
    usable = [["/srv/shelf", True, "", [["pool", "Where"]]]]
    assert [value for _status, value in row] == [
        "shelf",
        {"node1.example.com": usable, "node2.example.com": usable},
        {"default": True},
        [["pool", "Where"]],
    ]
    of_one = executor(FakeNodes(providers={"node1": [shelf]}, silent={"node2"}))
    wanted = ["=", "name", "shelf"]
    assert await rows(of_one, "extstorage", "nodegroup_status", wanted) == [
        [[0, {"default": False}]]
    ]


async def test_a_silent_node_has_no_data_and_the_others_do() -> None:
    nodes = FakeNodes({"node1": [running(1)]}, silent={"node2"})
    assert await rows(executor(nodes), "instance", "name status oper_state") == [
        [[0, "web1.example.com"], [0, "running"], [0, True]],
        [[0, "web2.example.com"], [0, "ERROR_nodedown"], [2, None]],
        [[0, "web3.example.com"], [0, "ERROR_nodedown"], [2, None]],
        [[0, "web4.example.com"], [0, "ERROR_nodeoffline"], [4, None]],
    ]
    assert await rows(executor(nodes), "node", "name mfree dfree") == [
        [[0, "node1.example.com"], [0, 3000], [0, 10240]],
        [[0, "node2.example.com"], [2, None], [2, None]],
        [[0, "node3.example.com"], [4, None], [4, None]],
    ]


async def test_an_instance_on_another_node_is_on_the_wrong_one() -> None:
    nodes = FakeNodes({"node2": [running(1)]})
    found = await rows(executor(nodes), "instance", "status", ["=", "name", "web1"])
    assert found == [[[0, "ERROR_wrongnode"]]]


async def test_what_only_waits_for_a_guest_or_has_sent_it_does_not_run_it() -> None:
    nodes = FakeNodes({"node1": [running(1)], "node2": [running(1, "incoming")]})
    found = await rows(executor(nodes), "instance", "status", ["=", "name", "web1"])
    assert found == [[[0, "running"]]]
    nodes = FakeNodes({"node1": [running(1, "postmigrate")], "node2": [running(1)]})
    found = await rows(executor(nodes), "instance", "status", ["=", "name", "web1"])
    assert found == [[[0, "ERROR_wrongnode"]]]


async def test_configuration_alone_asks_no_node() -> None:
    nodes = FakeNodes()
    await rows(executor(nodes), "instance", "name pnode be/memory disk.sizes nic.ips")
    await rows(executor(nodes), "node", "name role pinst_cnt")
    assert nodes.calls == []


async def test_consoles_are_asked_only_of_rows_that_are_shown() -> None:
    nodes = FakeNodes()
    one = executor(nodes)
    found = await rows(one, "instance", "console console_log", ["=", "name", "web1"])
    assert found == [
        [
            [
                0,
                {
                    "instance": "web1.example.com",
                    "kind": "ssh",
                    "host": "node1.example.com",
                    "user": "root",
                    "command": [
                        "socat",
                        "STDIO,raw,echo=0,escape=0x1d",
                        "UNIX-CONNECT:/run/web1.example.com",
                    ],
                },
            ],
            [0, "/log"],
        ]
    ]
    assert nodes.calls == [("instance_console", "node1")]


async def test_a_filter_on_live_data_asks_once() -> None:
    nodes = FakeNodes({"node1": [running(1)]})
    found = await rows(executor(nodes), "instance", "name status", ["=", "status", "running"])
    assert found == [[[0, "web1.example.com"], [0, "running"]]]
    assert sorted(nodes.calls) == [("instances_info", "node1"), ("instances_info", "node2")]


async def test_an_unknown_field_is_a_marked_column() -> None:
    found = await executor().query("node", ["name", "nosuch"], ["=", "name", "node1"])
    assert found.fields[1]["kind"] == "unknown"
    assert found.data == [[[0, "node1.example.com"], [1, None]]]
    assert definitions(KINDS["node"], ["nosuch"])[0]["kind"] == "unknown"


def test_fields_are_in_their_natural_order() -> None:
    names = [one["name"] for one in definitions(KINDS["instance"], None)]
    assert names.index("disk.size/2") < names.index("disk.size/10")


async def test_disks_and_interfaces_can_be_asked_for_by_number() -> None:
    names = "disk.size/0 disk.size/1 nic.mac/0 nic.bridge/0 nic.mac/1 disk_usage"
    found = await rows(executor(), "instance", names, ["=", "name", "web1"])
    assert found == [
        [[0, 1024], [3, None], [0, "aa:00:00:11:22:33"], [0, "br0"], [3, None], [0, 1024]]
    ]


async def test_the_usage_of_disks_includes_the_metadata_of_mirrors() -> None:
    mirror = Disk(uuid="d2", size=1024, template="drbd", logical_id=(11000,))
    one, held = snapshot(), instance(1, 1, disk_template="drbd", disks=(mirror,))
    nodes, groups = list(one.nodes.values()), list(one.groups.values())
    other = Snapshot.of(2, one.cluster, nodes=nodes, groups=groups, instances=[held])
    live = LiveSource(FakeNodes(), LoopClock())
    asked = QueryExecutor(lambda: other, FakeJobs(), locks, live)
    assert await rows(asked, "instance", "disk_usage") == [[[0, 1152]]]


async def test_tags_can_be_looked_for() -> None:
    assert await rows(executor(), "node", "name", ["=", "tags", "fast"]) == [
        [[0, "node2.example.com"]]
    ]
    assert await rows(executor(), "instance", "name", ["=[]", "tags", "a"]) == [
        [[0, "web1.example.com"]]
    ]


async def test_roles_of_nodes_are_one_letter() -> None:
    assert await rows(executor(), "node", "role ndp/spindle_count") == [
        [[0, "M"], [0, 1]],
        [[0, "R"], [0, 7]],
        [[0, "O"], [0, 1]],
    ]


async def test_groups_count_their_nodes_and_instances() -> None:
    assert await rows(executor(), "group", "name node_cnt pinst_cnt") == [
        [[0, "default"], [0, 3], [0, 4]],
        [[0, "spare"], [0, 0], [0, 0]],
    ]


async def test_jobs_are_listed_in_order_and_archived_ones_if_they_are_named() -> None:
    one = executor(jobs=FakeJobs([job(12), job(3)], archived=[job(2)]))
    assert await rows(one, "job", "id summary") == [
        [[0, 3], [0, ["TEST_DELAY(0.5)"]]],
        [[0, 12], [0, ["TEST_DELAY(0.5)"]]],
    ]
    named = ["|", ["=", "id", 2], ["=", "id", 12]]
    assert await rows(one, "job", "id archived", named) == [
        [[0, 2], [0, True]],
        [[0, 12], [0, False]],
    ]


async def test_who_asks_whether_jobs_are_archived_gets_those_that_are() -> None:
    old = [job(number) for number in range(1, 251)]
    one = executor(jobs=FakeJobs([job(252), job(251)], archived=old))
    found = await rows(one, "job", "id archived")
    assert [row[0][1] for row in found] == list(range(1, 253))
    assert [row[1][1] for row in found] == [True] * 250 + [False] * 2
    late = [">", "id", 249]
    assert [row[0][1] for row in await rows(one, "job", "id archived", late)] == [250, 251, 252]


async def test_times_of_jobs_are_seconds_and_microseconds() -> None:
    one = executor(jobs=FakeJobs([job(1)]))
    assert await rows(one, "job", "received_ts start_ts end_ts") == [
        [[0, [1_700_000_000, 250_000]], [0, [1_700_000_001, 0]], [0, None]]
    ]


@pytest.mark.requirement("G23")
async def test_private_and_secret_parameters_are_never_shown() -> None:
    op = OpInstanceCreate(
        instance_name="web1", osparams_private={"pw": "xyzzy"}, osparams_secret={"key": "xyzzy"}
    )
    secretive = FakeJob(1, (OpState(op=op),))
    found = await rows(executor(jobs=FakeJobs([secretive])), "job", "ops")
    assert "xyzzy" not in repr(found)
    assert found[0][0][1][0]["osparams_private"] == {"pw": "<redacted>"}


async def test_locks_show_who_has_them() -> None:
    assert await rows(executor(), "lock", "mode owner") == [
        [[0, None], [0, None]],
        [[0, "exclusive"], [0, ["12"]]],
    ]


async def test_kinds_that_do_not_exist_yet_are_empty() -> None:
    assert await rows(executor(), "network", "name") == []


async def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(PrereqError, match="known: instance, node"):
        await executor().query("nosuch", ["name"])


async def test_a_wrong_filter_is_refused() -> None:
    with pytest.raises(InputError, match="unknown field 'nosuch'"):
        await executor().query("node", ["name"], ["=", "nosuch", 1])
    with pytest.raises(InputError, match=r"unknown field 'nmae'; did you mean name\?"):
        await executor().query("node", ["name"], ["=", "nmae", 1])


async def test_the_old_form_gives_values_in_the_order_of_names() -> None:
    found = await executor().values("instance", ["web3", "web1.example.com"], ["name", "oper_ram"])
    assert found == [["web3.example.com", None], ["web1.example.com", None]]
    assert len(await executor().values("node", [], ["name"])) == 3


async def test_the_old_form_refuses_unknown_names_and_fields() -> None:
    with pytest.raises(PrereqError, match="there is no instance nosuch"):
        await executor().values("instance", ["nosuch"], ["name"])
    with pytest.raises(PrereqError, match="unknown field"):
        await executor().values("instance", [], ["nosuch"])


@pytest.mark.parametrize("kind", ["instance", "node", "group", "network"])
async def test_a_filter_that_only_lists_names_is_refused_if_one_means_nothing(kind: str) -> None:
    known = (await executor().query(kind, ["name"])).data[:1]
    names = [["=", "name", row[0][1]] for row in known] + [["=", "name", "nosuch"]]
    for raw in (["=", "name", "nosuch"], ["|", *names], ["|", ["|", *names]]):
        with pytest.raises(PrereqError, match=f"there is no {kind} nosuch"):
            await executor().query(kind, ["name"], raw)
    for raw in (["&", ["|", *names]], ["=~", "name", "nosuch"], ["!", ["!", names[-1]]]):
        assert len((await executor().query(kind, ["name"], raw)).data) <= len(known)


async def test_a_listed_name_may_be_short_or_a_uuid_or_written_large() -> None:
    ((uuid, name),) = ((row[0][1], row[1][1]) for row in (
        await executor().query("instance", ["uuid", "name"], ["=", "name", "web1"])
    ).data)  # fmt: skip
    for meant in (uuid, uuid.upper(), name, name.upper()):
        found = await executor().query("instance", ["name"], ["=", "name", meant])
        assert found.data == [[[0, name]]], meant


@pytest.mark.parametrize("kind", ["instance", "node"])
async def test_rows_are_as_a_list_of_names_has_them(kind: str) -> None:
    every = [row[0][1] for row in (await executor().query(kind, ["name"])).data]
    assert len(every) > 2
    for names in (every[::-1], [*every[1:], every[0], every[1]]):
        raw = ["|", *(["=", "name", name] for name in names)]
        found = await executor().query(kind, ["name"], raw)
        assert [row[0][1] for row in found.data] == list(dict.fromkeys(names))
    at_once = executor().query_at_once(
        "node", ["name"], ["|", *[["=", "name", one] for one in ("node3", "node1")]]
    )
    assert at_once is not None
    assert [row[0][1].partition(".")[0] for row in at_once.data] == ["node3", "node1"]


async def test_a_job_that_is_listed_and_gone_is_a_row_of_its_number() -> None:
    one = executor(jobs=FakeJobs([job(1), job(3)]))
    raw = ["|", ["=", "id", 3], ["=", "id", 99], ["=", "id", 1], ["=", "id", 99]]
    found = await one.query("job", ["status", "id", "nosuch"], raw)
    assert found.data == [
        [[0, "success"], [0, 3], [1, None]],
        [[3, None], [0, 99], [1, None]],
        [[0, "success"], [0, 1], [1, None]],
    ]
    assert (await one.query("job", ["id"], ["&", raw])).data == [[[0, 1]], [[0, 3]]]


async def test_a_job_that_is_not_there_is_a_row_of_nulls() -> None:
    one = executor(jobs=FakeJobs([job(1)]))
    assert await one.job_values([99999, 1], ["id", "status"]) == [[99999, None], [1, "success"]]
    assert await one.job_values([], ["id"]) == [[1]]


async def test_many_rows_let_others_on_the_loop_in_between() -> None:
    one = executor(jobs=FakeJobs([job(number) for number in range(1000)]))
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counter = asyncio.create_task(count())
    await one.query("job", ["id"])
    counter.cancel()
    assert turns >= 20


def test_names_are_sorted_as_people_do() -> None:
    names = ["node10", "node2", "node1.b", "a"]
    assert sorted(names, key=natural_key) == ["a", "node1.b", "node2", "node10"]


@pytest.mark.requirement("S189")
@pytest.mark.sampled(0)
async def test_a_round_of_the_loop_has_a_bounded_number_of_rows_however_many_clients_ask() -> None:
    rows_done = 0

    class CountedJobs(FakeJobs):
        def view(self, job_id: int) -> FakeJob | None:
            nonlocal rows_done
            rows_done += 1
            return super().view(job_id)

    one = executor(jobs=CountedJobs([job(number) for number in range(1, 201)]))
    everything = sorted(KINDS["job"].fields)
    asking = [
        asyncio.create_task(work)
        for _ in range(50)
        for work in (
            one.job_values([], everything),
            one.job_values(list(range(1, 201)), everything),
            one.query("job", everything),
        )
    ]
    most = 0
    while not all(task.done() for task in asking):
        before = rows_done
        await asyncio.sleep(0)
        most = max(most, rows_done - before)
    assert 0 < most <= 2 * SLICE
    for task in asking:
        answer = task.result()
        assert len(answer.data if isinstance(answer, QueryResult) else answer or ()) == 200


@pytest.mark.requirement("S189")
async def test_threads_that_commit_need_not_wait_for_large_queries() -> None:
    intervals = set[float]()

    class AskedJobs(FakeJobs):
        def view(self, job_id: int) -> FakeJob | None:
            intervals.add(sys.getswitchinterval())
            return super().view(job_id)

    usual_s = sys.getswitchinterval()
    one = executor(jobs=AskedJobs([job(number) for number in range(SLICE + 1)]))
    for ids in ([], list(range(SLICE + 1))):
        await one.job_values(ids, ["id"])
        assert max(intervals) < usual_s
        intervals.clear()
    await one.job_values([1], ["id"])
    assert intervals == {usual_s}


@pytest.mark.requirement("D7", "D13")
async def test_recorded_state_of_recovery_is_a_field_of_nodes_and_instances() -> None:
    base = snapshot()
    nodes, guests = list(base.nodes.values()), list(base.instances.values())
    stuck = NodeRow(nodes[0].uuid, NodeState.STUCK, 3, why="no fencing method is left")
    tables: dict[Any, Any] = {
        **base.tables,
        Node: {**base.nodes, nodes[0].uuid: msgspec.structs.replace(nodes[0], recovery=stuck)},
        Instance: {
            **base.instances,
            guests[0].uuid: msgspec.structs.replace(
                guests[0],
                beparams={"recovery": "failover"},
                recovery=InstanceRow(guests[0].uuid, given_up="3 attempts"),
            ),
        },
    }
    shown = dataclasses.replace(base, tables=tables)
    fields = ["name", "recovery_state", "recovery_why"]
    executor = QueryExecutor(lambda: shown, FakeJobs(), locks, LiveSource(FakeNodes(), LoopClock()))
    for kind, thing, values in (
        ("node", nodes[0], ["stuck", "no fencing method is left"]),
        ("instance", guests[0], ["given up", "3 attempts"]),
    ):
        found = {row[0][1]: row for row in (await executor.query(kind, fields, None)).data}
        assert [value for _status, value in found.pop(thing.name)[1:]] == values
        assert all(status for row in found.values() for status, _value in row[1:])


async def test_figures_are_those_of_the_primary_node() -> None:
    busy = (0.1234, 64.4, None, 1024.6, *[2.04] * 7)
    nodes = FakeNodes(
        figures={
            "node1": NodeFigures(node=busy, guests={INSTANCE_UUIDS[0]: busy}),
            "node2": NodeFigures(node=(1.0, 2.0), guests={INSTANCE_UUIDS[0]: busy}),
        }
    )
    fields = "name usage.cpu usage.memory usage.guest_memory usage.disk_read usage.disk_reads"
    assert await rows(executor(nodes), "instance", fields) == [
        [[0, "web1.example.com"], [0, 0.123], [0, 64], [3, None], [0, 1025], [0, 2.0]],
        [[0, "web2.example.com"], *[[3, None]] * 5],
        [[0, "web3.example.com"], *[[3, None]] * 5],
        [[0, "web4.example.com"], *[[4, None]] * 5],
    ]
    assert await rows(executor(nodes), "node", "name usage.cpu usage.memory") == [
        [[0, "node1.example.com"], [0, 0.123], [0, 64]],
        [[0, "node2.example.com"], [2, None], [2, None]],
        [[0, "node3.example.com"], [4, None], [4, None]],
    ], "node2 has another version"
    assert ("figures", "node3") not in nodes.calls, "it is offline"
    silent = FakeNodes(silent={"node1", "node2"})
    assert (await rows(executor(silent), "node", "usage.cpu"))[:2] == [[[2, None]], [[2, None]]]
