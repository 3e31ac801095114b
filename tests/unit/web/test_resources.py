"""Every operation before a master with a small cluster."""

import dataclasses
import json
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from ganeti.base.errors import JobQueueFull
from ganeti.model import wire
from ganeti.model.job import Submitter, remote_source
from ganeti.model.objects import Instance, Node
from ganeti.model.operation import Right
from ganeti.query.execute import KINDS
from ganeti.rpc.procedures.figures import HistoryPart, NodeFigures
from ganeti.rpc.procedures.instances import Lowered
from ganeti.rpc.procedures.programs import OsInfo
from ganeti.web.lists import Listed
from ganeti.web.operations import JobOf, Operation
from ganeti.web.resources.every import OPERATIONS
from ganeti.web.resources.groups import GROUPS
from ganeti.web.resources.instances import INSTANCES
from ganeti.web.resources.networks import NETWORKS
from ganeti.web.resources.nodes import NODES, ONE_NODE
from tests.support.predictable import FrozenClock
from tests.support.recovery_status import ALARM, stuck_status
from tests.support.rest import GUEST, OPERATOR, READER, TENANT, RestRig
from tests.unit.query.cluster import INSTANCE_UUIDS, job, running

BODIES: list[Any] = [None, [], {"OP_ID": "OP_TEST_DELAY"}]
WORDS = {
    "node": "node1", "instance": "web1", "group": "default", "network": "net1", "image": "box", "job": "1",
    "snapshot": "s1",
    "point": "20261127-080000", "schedule": "nightly", "webhook": "chat", "key": "0123456789abcdef", "simulation": "0a",
    "upload": "0" * 32,
    "filter": "0a", "disk": "0", "resource": "node",
}  # fmt: skip
SLOW = {"/2/os", "/2/events", "/2/instances/{instance}/screenshot"}
INSTANCE: dict[str, Any] = {"name": "new.example.com", "__version__": 1, "mode": "create", "disk_template": "diskless",
            "disks": [], "nics": [], "os": "noop"}  # fmt: skip


def path_of(operation: Operation) -> str:
    path = operation.path
    for kind in operation.kinds:
        path = path.replace("{" + kind + "}", WORDS[kind])
    return path


def name_of(operation: Operation) -> str:
    return f"{operation.method} {operation.path}"


@pytest.mark.requirement("A1", "G21")
async def test_every_request_needs_a_name_and_a_password(rig: RestRig) -> None:
    for operation in OPERATIONS:
        for user in (None, "stranger"):
            if user and operation.method != "GET":
                continue  # it costs the address time
            answer = await rig.ask(operation.method, path_of(operation), {}, user=None)
            if operation.is_public:
                assert answer.json is None or answer.status in (400, 404), name_of(operation)
                continue
            assert answer.status == 401, name_of(operation)
            assert answer.headers["www-authenticate"] == 'Basic realm="Ganeti Remote API"'
            assert answer.json["code"] == 401
    assert (await rig.ask("GET", "/nothing/there", user=None)).status == 401
    assert rig.master.queue.submitted == []


@pytest.mark.requirement("A2", "G21")
async def test_read_only_user_changes_nothing(rig: RestRig) -> None:
    rig.master.queue.live.append(job(1))
    for operation in OPERATIONS:
        if operation.right in (Right.WRITE, Right.OPERATE):
            answer = await rig.ask(operation.method, path_of(operation), {}, user=READER)
            assert answer.status == 403, name_of(operation)
        if operation.right is not Right.KNOWN:
            answer = await rig.ask(operation.method, path_of(operation), {}, user=GUEST)
            assert answer.status == 403, name_of(operation)
        if operation.right is Right.WRITE:
            answer = await rig.ask(operation.method, path_of(operation), {}, user=OPERATOR)
            assert answer.status == 403, name_of(operation)
    assert rig.master.queue.submitted == []


@pytest.mark.requirement("S225")
async def test_a_method_that_a_path_does_not_have_is_not_allowed(rig: RestRig) -> None:
    answer = await rig.ask("DELETE", "/version")
    assert (answer.status, answer.headers["allow"]) == (405, "GET")
    assert (await rig.ask("DELETE", "/nothing/there")).status == 404


@pytest.mark.requirement("S155", "S156")
async def test_an_os_that_is_hidden_blacklisted_or_broken_is_not_offered(rig: RestRig) -> None:
    def system(name: str, *variants: str, problem: str = "") -> OsInfo:
        return OsInfo(name=name, path=f"/os/{name}", problem=problem, api_versions=[20],
                      variants=[*variants], parameters=[], version="", scripts=[])  # fmt: skip

    config = rig.master.config
    shown = replace(config.snapshot.cluster, hidden_os=("old",), blacklisted_os=("bad",))
    config.snapshot = dataclasses.replace(config.snapshot, cluster=shown)
    rig.master.nodes.systems = [
        *(system("tiny", "a", "b"), system("plain"), system("old"), system("bad")),
        system("broken", problem="no create script"),
    ]
    assert (await rig.ask("GET", "/2/os")).json == ["plain", "tiny+a", "tiny+b"]


@pytest.mark.requirement("G26")
async def test_every_operation_answers_and_never_by_a_fault(rig: RestRig) -> None:
    rig.master.queue.live.append(job(1))
    for operation in OPERATIONS:
        if operation.path in SLOW:
            continue
        for body in BODIES if operation.method != "GET" else BODIES[:1]:
            answer = await rig.ask(operation.method, path_of(operation), body)
            allowed = {200, 400, 403, 404, 409, 503}
            if "filter" in operation.path:
                allowed |= {501}
            assert answer.status in allowed, (name_of(operation), body, answer.body)


JOBS: list[tuple[str, str, Any, dict[str, Any]]] = [
    ("POST", "/2/instances", INSTANCE,
     {"OP_ID": "OP_INSTANCE_CREATE", "instance_name": "new.example.com"}),
    ("POST", "/2/instances?dry-run=1", {**INSTANCE, "os": "noop"},
     {"dry_run": True, "os_type": "noop"}),
    ("DELETE", "/2/instances/web1", None,
     {"OP_ID": "OP_INSTANCE_REMOVE", "instance_name": "web1"}),
    ("DELETE", "/2/instances/web1", {"shutdown_timeout": 5}, {"shutdown_timeout": 5}),
    ("POST", "/2/instances/web1/reboot?type=soft", {}, {"reboot_type": "soft"}),
    ("PUT", "/2/instances/web1/startup?force=1", None,
     {"OP_ID": "OP_INSTANCE_STARTUP", "force": True}),
    ("PUT", "/2/instances/web1/shutdown?no_remember=1", {"timeout": 3},
     {"timeout": 3, "no_remember": True}),
    ("PUT", "/2/instances/web1/modify", {"custom_beparams": {"vcpus": 2}},
     {"beparams": {"vcpus": 2}}),
    ("PUT", "/2/instances/web1/rename", {"new_name": "web9.example.com"},
     {"new_name": "web9.example.com"}),
    ("PUT", "/2/instances/web1/migrate", {"mode": "live"}, {"OP_ID": "OP_INSTANCE_MIGRATE"}),
    ("PUT", "/2/instances/web1/move", {"target_node": "node2", "stop": True},
     {"OP_ID": "OP_INSTANCE_MOVE", "target_node": "node2", "stop": True}),
    ("PUT", "/2/instances/web1/failover", None, {"OP_ID": "OP_INSTANCE_FAILOVER"}),
    ("POST", "/2/instances/web1/disk/2/grow", {"amount": 512}, {"disk": 2, "amount": 512}),
    ("POST", "/2/instances/web1/replace-disks?mode=replace_auto&disks=1,2", None,
     {"mode": "replace_auto", "disks": [1, 2]}),
    ("POST", "/2/instances/web1/replace-disks", {"mode": "replace_auto", "disks": "0"},
     {"disks": [0]}),
    ("POST", "/2/instances/web1/recreate-disks", {}, {"OP_ID": "OP_INSTANCE_RECREATE_DISKS"}),
    ("PUT", "/2/instances/web1/activate-disks?ignore_size=1", None, {"ignore_size": True}),
    ("PUT", "/2/instances/web1/deactivate-disks?force=1", None, {"force": True}),
    ("GET", "/2/instances/web1/info?static=1", None,
     {"OP_ID": "OP_INSTANCE_QUERY_DATA", "instances": ["web1"], "static": True}),
    ("PUT", "/2/instances/web1/tags?tag=a&tag=b", None,
     {"OP_ID": "OP_TAGS_SET", "kind": "instance", "name": "web1", "tags": ["a", "b"]}),
    ("DELETE", "/2/tags?tag=lab", None,
     {"OP_ID": "OP_TAGS_DEL", "kind": "cluster", "tags": ["lab"]}),
    ("PUT", "/2/nodes/node1/role?force=1&auto-promote=1", "drained",
     {"OP_ID": "OP_NODE_SET_PARAMS", "drained": True, "offline": None, "force": True,
      "auto_promote": True}),
    ("PUT", "/2/nodes/node1/role", "regular",
     {"drained": False, "offline": False, "master_candidate": False}),
    ("POST", "/2/nodes/node1/evacuate", {"mode": "primary-only"}, {"mode": "primary-only"}),
    ("POST", "/2/nodes/node1/migrate?live=0", None, {"mode": "non-live"}),
    ("POST", "/2/nodes/node1/migrate", {"mode": "live"}, {"mode": "live"}),
    ("POST", "/2/nodes/node1/powercycle?force=1", None, {"force": True}),
    ("PUT", "/2/nodes/node1/maintenance", {"shutdown": True},
     {"OP_ID": "OP_NODE_MAINTENANCE_BEGIN", "node_name": "node1", "shutdown": True}),
    ("DELETE", "/2/nodes/node1/maintenance?failback=1&wait=9", None,
     {"OP_ID": "OP_NODE_MAINTENANCE_END", "failback": True, "wait": 9}),
    ("DELETE", "/2/nodes/node1/maintenance", None,
     {"OP_ID": "OP_NODE_MAINTENANCE_END", "failback": False, "wait": 600}),
    ("POST", "/2/nodes/node1/fenced", {"confirm": True},
     {"OP_ID": "OP_NODE_FENCED", "node_name": "node1", "confirm": True}),
    ("POST", "/2/nodes/node1/modify", {"vm_capable": False}, {"vm_capable": False}),
    ("POST", "/2/groups", {"name": "new", "alloc_policy": None}, {"group_name": "new"}),
    ("PUT", "/2/groups/default/rename", {"new_name": "first"}, {"new_name": "first"}),
    ("PUT", "/2/groups/default/modify", {"custom_ndparams": {"spindle_count": 2}},
     {"ndparams": {"spindle_count": 2}}),
    ("PUT", "/2/groups/default/assign-nodes?force=1", {"nodes": ["node1"]},
     {"nodes": ["node1"], "force": True}),
    ("DELETE", "/2/groups/spare", None, {"OP_ID": "OP_GROUP_REMOVE"}),
    ("PUT", "/2/modify", {"beparams": {"vcpus": 2}}, {"OP_ID": "OP_CLUSTER_SET_PARAMS"}),
    ("PUT", "/2/redistribute-config", None, {"OP_ID": "OP_CLUSTER_REDIST_CONF"}),
    ("POST", "/2/instances/web1/repair?dry-run=1", {"early_release": True},
     {"OP_ID": "OP_INSTANCE_REPAIR", "instance_name": "web1", "early_release": True, "dry_run": True}),
    ("POST", "/2/instances/web1/replace-disks?mode=replace_auto&early_release=1", None, {"early_release": True}),
    ("POST", "/2/nodes/node1/migrate?dry-run=1", None, {"OP_ID": "OP_NODE_MIGRATE", "dry_run": True}),
]  # fmt: skip


async def test_a_request_becomes_the_job_that_it_means(rig: RestRig) -> None:
    for number, (method, path, body, wanted) in enumerate(JOBS, 1):
        answer = await rig.ask(method, path, body)
        assert (answer.status, answer.json) == (200, number), (path, answer.body)
        [op] = rig.master.queue.submitted[-1]
        plain = wire.plain(op)
        assert {name: plain.get(name) for name in wanted} == wanted


async def test_the_user_reaches_the_job_and_its_reason(rig: RestRig) -> None:
    await rig.ask("PUT", "/2/redistribute-config?reason=because", user="admin")
    assert rig.master.queue.submitters == [Submitter(remote_source("admin"))]
    [[op]] = rig.master.queue.submitted
    assert [one[:2] for one in op.reason] == [
        ("gnt:user", "because"),
        ("gnt:library:rlib2:redist_config", ""),
        op.reason[2][:2],
        ("gnt:rest", "user admin from 127.0.0.1"),
    ]


async def test_a_reinstallation_is_one_job_of_three_opcodes(rig: RestRig) -> None:
    assert (await rig.ask("POST", "/2/instances/web1/reinstall", {"os": "noop"})).json == 1
    [ops] = rig.master.queue.submitted
    kinds = ["OP_INSTANCE_SHUTDOWN", "OP_INSTANCE_REINSTALL", "OP_INSTANCE_STARTUP"]
    assert [op.op_id() for op in ops] == kinds
    await rig.ask("POST", "/2/instances/web1/reinstall?os=noop&nostartup=1")
    assert [op.op_id() for op in rig.master.queue.submitted[1]] == kinds[:2]
    mixed = await rig.ask("POST", "/2/instances/web1/reinstall?os=noop", {"os": "noop"})
    assert mixed.status == 400


WRONG: list[tuple[str, str, Any, str]] = [
    ("POST", "/2/instances", {**INSTANCE, "disks": [{"size": "big"}]}, "body.disks[0].size"),
    ("POST", "/2/instances", {**INSTANCE, "frobnicate": 1}, "frobnicate"),
    ("POST", "/2/instances", {"name": "x"}, "version 0"),
    ("POST", "/2/instances", {**INSTANCE, "__version__": 2}, "Unsupported"),
    ("POST", "/2/instances", {**INSTANCE, "instance_name": "y"}, "renamed"),
    ("PUT", "/2/instances/web1/modify", {"instance_name": "web2"}, "static"),
    ("PUT", "/2/instances/web1/modify", {"reason": []}, "static"),
    ("PUT", "/2/instances/web1/modify", {"priority": 99}, "priority"),
    ("PUT", "/2/nodes/node1/role", "king", "king"),
    ("PUT", "/2/nodes/node1/role", None, "role"),
    ("POST", "/2/instances/web1/disk/0/grow", {"amount": "x"}, "amount"),
    ("POST", "/2/instances-multi-alloc", {}, "instances"),
    ("POST", "/2/nodes/node1/migrate?live=1&mode=live", None, "Only one"),
    ("PUT", "/2/query/node", {"fields": "name"}, "fields"),
    ("GET", "/2/query/node", None, "fields"),
    ("GET", "/2/nodes?bulk=yes", None, "bulk"),
    ("GET", "/2/nodes?limit=0", None, "limit"),
    ("PUT", "/2/filters/0a", {"sudo": 1}, "sudo"),
    ("GET", "/2/nodes?bulk=-1040", None, "'bulk' parameter: give 0 or 1"),
    ("GET", "/2/nodes?bulk=2", None, "bulk"),
    ("GET", "/2/nodes?bulc=1", None, "unknown query parameter 'bulc'"),
    ("GET", "/2/nodes?bulk=1&bulk=0", None, "twice"),
    ("GET", "/version?x=1", None, "unknown query parameter 'x'"),
    ("DELETE", "/2/instances/web1?dry_run=1", None, "unknown query parameter 'dry_run'"),
    ("DELETE", "/2/instances/web1?dry_run", None, "unknown query parameter 'dry_run'"),
    ("DELETE", "/2/instances/web1?dry-run", None, "'dry-run' needs a value, as in dry-run=1"),
    ("DELETE", "/2/instances/web1?dry-run=", None, "'dry-run' needs a value"),
    ("GET", "/2/instances?limit=", None, "'limit' needs a value"),
    ("PUT", "/2/instances/web1/tags?tag=", None, "tag"),
    ("DELETE", "/2/jobs/1?dry-run=1", None, "dry-run"),
    ("POST", "/2/instances", {**INSTANCE, "mode": "copy"}, "mode"),
    ("POST", "/2/instances", {**INSTANCE, "disks": [{"size": -5}], "disk_template": "plain"}, "disks[0].size"),
    ("POST", "/2/instances", {**INSTANCE, "disks": [{"size": 1}] * 17}, "17 disks: at most 16"),
    ("POST", "/2/instances", {**INSTANCE, "nics": [{"mac": "x"}]}, "nics[0].mac"),
    ("POST", "/2/instances", {**INSTANCE, "name": "no_such name"}, "instance_name"),
    ("POST", "/2/instances", {**INSTANCE, "beparams": {"vcpus": "many"}}, "beparams.vcpus"),
    ("PUT", "/2/instances/web1/rename", {"new_name": "WEB"}, "new_name"),
    ("PUT", "/2/instances/web1/modify", {"disks": [["explode", 0, {}]]}, "disks[0]"),
    ("PUT", "/2/instances/web1/modify", {"beparams": {"vcpus": 0}}, "beparams.vcpus"),
    ("PUT", "/2/instances/web1/modify", {"os_name": "../x"}, "os_name"),
    ("PUT", "/2/instances/web1/modify", {"disks": [["add", {"size": "x"}]]}, "disks[0].size"),
    ("PUT", "/2/instances/web1/modify", {"nics": [["add", {"mac": "x"}]]}, "nics[0].mac"),
    ("POST", "/2/instances", {**INSTANCE, "disk_template": "glued"}, "disk_template"),
    ("POST", "/2/instances", {**INSTANCE, "hypervisor": "xen-pvm"}, "hypervisor"),
    ("POST", "/2/instances", {**INSTANCE, "hypervisor": "kvm", "hvparams": {"acpy": True}}, "hvparams.acpy"),
    ("POST", "/2/instances", {**INSTANCE, "disk_template": "plain", "disks": [{"size": 1, "params": {"x": 1}}]},
     "disks[0].params.x"),
    ("POST", "/2/instances/web1/replace-disks", {"mode": "replace_all"}, "mode"),
    ("POST", "/2/instances/web1/reboot?type=warm", None, "reboot_type"),
    ("PUT", "/2/modify", {"candidate_pool_size": 0}, "candidate_pool_size"),
]  # fmt: skip


@pytest.mark.requirement("A12", "A14")
async def test_what_is_wrong_is_named(rig: RestRig) -> None:
    for method, path, body, text in WRONG:
        answer = await rig.ask(method, path, body)
        assert answer.status == 400, (path, body, answer.body)
        assert text in answer.explain
    assert rig.master.queue.submitted == []


async def test_lists_are_of_names_or_whole(rig: RestRig) -> None:
    names = (await rig.ask("GET", "/2/instances")).json
    assert names[0] == {"id": "web1.example.com", "uri": "/2/instances/web1.example.com"}
    whole = (await rig.ask("GET", "/2/instances?bulk=1")).json
    assert [one["name"] for one in whole] == [one["id"] for one in names]
    assert whole[0]["beparams"]["memory"] == whole[0]["beparams"]["maxmem"] == 64
    node = (await rig.ask("GET", "/2/nodes/node2")).json
    assert node["secondary_ip"] == node["sip"]
    assert (await rig.ask("GET", "/2/nodes/node1/role")).json == "master"
    assert (await rig.ask("GET", "/2/groups")).json[0]["name"] == "default"
    assert (await rig.ask("GET", "/2/tags")).json == ["lab"]
    assert (await rig.ask("GET", "/version")).body == b"2\n"
    for path in ("/2/instances/nothing", "/2/nodes/nothing", "/2/groups/nothing", "/2/jobs/99"):
        assert (await rig.ask("GET", path)).status == 404


async def test_pages_of_a_list_have_everything_once(rig: RestRig) -> None:
    for path in ("/2/instances?bulk=1", "/2/instances", "/2/jobs"):
        rig.master.queue.live[:] = [job(number) for number in (3, 1, 20, 100)]
        key = "name" if "bulk" in path else "id"
        whole = (await rig.ask("GET", path)).json
        mark = "&" if "?" in path else "?"
        found, after = [], ""
        while True:
            part = (await rig.ask("GET", f"{path}{mark}limit=3{after}")).json
            if not part:
                break
            found += part
            after = f"&after={part[-1][key]}"
        assert found == whole
        assert len(found) == 4


async def test_what_has_not_changed_is_not_sent_again(rig: RestRig) -> None:
    first = await rig.ask("GET", "/2/instances?bulk=1")
    again = await rig.ask(
        "GET", "/2/instances?bulk=1", headers={"If-None-Match": first.headers["etag"]}
    )
    assert (again.status, again.body) == (304, b"")
    rig.master.config.snapshot = type(rig.master.config.snapshot).of(
        2, rig.master.config.snapshot.cluster
    )
    changed = await rig.ask(
        "GET", "/2/instances?bulk=1", headers={"If-None-Match": first.headers["etag"]}
    )
    assert (changed.status, changed.json) == (200, [])


@pytest.mark.parametrize("listed", [INSTANCES, NODES, ONE_NODE, GROUPS, NETWORKS])
def test_what_asks_nodes_is_declared_so(listed: Listed) -> None:
    kind = KINDS[listed.method.removeprefix("Query").removesuffix("s").lower()]
    assert listed.is_live is any(kind.fields[name].needs for name in listed.fields)


async def test_entity_tag_of_configuration_data_is_its_position(rig: RestRig) -> None:
    for path in ("/2/groups?bulk=1", "/2/instances", "/2/groups/default", "/2/nodes"):
        first = await rig.ask("GET", path)
        known = {"If-None-Match": first.headers["etag"]}
        assert first.headers["etag"].startswith('"1-')
        calls = rig.services.master.calls
        again = await rig.ask("GET", path, headers=known)
        assert (again.status, again.body) == (304, b"")
        assert rig.services.master.calls == calls + 1, "the position, and nothing else"
        elsewhere = await rig.ask("GET", "/2/networks", headers=known)
        assert elsewhere.status == 200
        snapshot = rig.master.config.snapshot
        rig.master.config.snapshot = dataclasses.replace(snapshot, position=2)
        assert (await rig.ask("GET", path, headers=known)).status == 200
        rig.master.config.snapshot = snapshot


@pytest.mark.requirement("F16")
async def test_the_same_key_is_the_same_job(rig: RestRig) -> None:
    key = {"Idempotency-Key": "deploy-7"}
    path = "/2/instances/web1/reboot"
    answers = [(await rig.ask("POST", path, {}, headers=key)).json for _ in range(3)]
    assert answers == [1, 1, 1]
    assert len(rig.master.queue.submitted) == 1
    other = await rig.ask("POST", path, {"shutdown_timeout": 1}, headers=key)
    assert other.status == 422
    assert (await rig.ask("POST", path, {}, user=OPERATOR, headers=key)).json == 2
    assert (await rig.ask("POST", path, {}, headers={"Idempotency-Key": "a b"})).status == 400


@pytest.mark.requirement("F16")
async def test_a_key_means_the_whole_request_with_its_query(rig: RestRig) -> None:
    """A dry run's key does not answer for the real call."""
    key = {"Idempotency-Key": "deploy-8"}
    path = "/2/instances/web1"
    assert (await rig.ask("DELETE", f"{path}?dry-run=1", headers=key)).json == 1
    assert (await rig.ask("DELETE", f"{path}?dry-run=1", headers=key)).json == 1
    for other in (path, f"{path}?dry-run=0", f"{path}?dry-run=1&reason=x"):
        assert (await rig.ask("DELETE", other, headers=key)).status == 422, other
    assert (await rig.ask("PUT", f"{path}/shutdown?dry-run=1", headers=key)).status == 422
    assert len(rig.master.queue.submitted) == 1


async def test_a_reason_is_accepted_everywhere_as_old_clients_send_one(rig: RestRig) -> None:
    for operation in OPERATIONS:
        if operation.method == "GET" and operation.path not in SLOW | {"/2/jobs/{job}/wait"}:
            answer = await rig.ask("GET", f"{path_of(operation)}?reason=because")
            assert "reason" not in answer.body.decode() or answer.status != 400, operation.path
    reinstall = "/2/instances/web1/reinstall?reason=because"
    assert (await rig.ask("POST", reinstall, {"os": "noop"})).status == 200


CROSS_SITE: list[dict[str, str]] = [
    {"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"}, {"Origin": "https://evil.example"},
    {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site", "Origin": "https://localhost"},
]  # fmt: skip


@pytest.mark.requirement("G21")
async def test_a_page_of_another_site_changes_nothing(rig: RestRig) -> None:
    for operation in OPERATIONS:
        if operation.method == "GET" and not isinstance(operation.does, JobOf):
            continue
        for headers in CROSS_SITE:
            answer = await rig.ask(operation.method, path_of(operation), headers=headers)
            assert (answer.status, answer.explain) == (
                403,
                "a page of another site has sent this request",
            )
    assert rig.master.queue.submitted == []
    own: list[dict[str, str]] = [
        {"Origin": "https://localhost"},
        {"Sec-Fetch-Site": "same-origin"},
        {},
    ]
    for headers in own:
        answer = await rig.ask("PUT", "/2/redistribute-config", headers=headers)
        assert answer.status == 200
    refused = [json.loads(line) for line in rig.audit.read_text().splitlines()]
    assert {one["status"] for one in refused} == {403, 200}


@pytest.mark.requirement("A1")
async def test_a_browser_is_never_asked_for_basic_credentials(rig: RestRig) -> None:
    """It would keep them, and add them to what pages of other sites send."""
    for path in ("/2/docs", "/2/info"):
        page = await rig.ask("GET", path, user=None, headers={"Accept": "text/html,*/*"})
        assert (page.status, page.headers["content-type"].partition(";")[0]) == (401, "text/html")
        assert "www-authenticate" not in page.headers
        assert "frame-ancestors 'none'" in page.headers["content-security-policy"]
        assert 'credentials: "omit"' in page.body.decode()
        script = await rig.ask("GET", path, user=None, headers={"Sec-Fetch-Site": "same-origin"})
        assert (script.status, script.json["code"]) == (401, 401)
        assert "www-authenticate" not in script.headers


async def test_jobs_are_read_waited_for_and_cancelled(rig: RestRig) -> None:
    rig.master.queue.live.append(job(5))
    one = (await rig.ask("GET", "/2/jobs/5")).json
    assert (one["id"], one["status"], one["summary"]) == (5, "success", ["TEST_DELAY(0.5)"])
    body = {"fields": ["status"], "previous_job_info": None, "previous_log_serial": None}
    news = (await rig.ask("GET", "/2/jobs/5/wait", body)).json
    assert news == {"job_info": ["success"], "log_entries": []}
    assert (await rig.ask("DELETE", "/2/jobs/5")).json == [True, "Job 5 canceled"]
    assert (await rig.ask("DELETE", "/2/jobs/6")).status == 404


async def test_a_full_queue_is_no_fault_of_the_server(rig: RestRig) -> None:
    async def full(*_args: Any, **_more: Any) -> int:
        raise JobQueueFull("too many live jobs")

    rig.master.queue.submit = full  # type: ignore[method-assign] # it is full for this test
    answer = await rig.ask("PUT", "/2/redistribute-config")
    assert (answer.status, answer.headers["retry-after"]) == (503, "30")


async def test_queries_go_through(rig: RestRig) -> None:
    body = {"fields": ["name"], "qfilter": ["=", "name", "node2.example.com"]}
    found = (await rig.ask("PUT", "/2/query/node", body)).json
    assert found["data"] == [[[0, "node2.example.com"]]]
    fields = (await rig.ask("GET", "/2/query/node/fields?fields=name")).json["fields"]
    assert [one["name"] for one in fields] == ["name"]
    assert (await rig.ask("GET", "/2/query/chair?fields=name")).status == 400


@pytest.mark.requirement("A44", "A45")
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/2/instances", {**INSTANCE, "hvparams": {"kernel_path": "/etc/shadow"}}),
        ("/2/instances", {**INSTANCE, "hvparams": {"cdrom_image_path": "/var/lib/ganeti/ca.key"}}),
        ("/2/instances", {**INSTANCE, "hvparams": {"kvm_extra": "-drive file=/dev/sda"}}),
    ],
)
async def test_parameters_that_reach_the_host_are_forbidden_at_once(
    rig: RestRig, path: str, body: Any
) -> None:
    answer = await rig.ask("POST", path, body)
    assert answer.status == 403
    assert "--remote-hvparams" in answer.explain
    modify = await rig.ask("PUT", "/2/instances/web1/modify", {"hvparams": body["hvparams"]})
    assert modify.status == 403
    cluster = await rig.ask("PUT", "/2/modify", {"hvparams": {"kvm": body["hvparams"]}})
    assert cluster.status == 403
    several = {"instances": [{**INSTANCE, "hvparams": body["hvparams"]}]}
    del several["instances"][0]["__version__"]
    assert (await rig.ask("POST", "/2/instances-multi-alloc", several)).status == 403
    assert rig.master.queue.submitted == []


@pytest.mark.requirement("G21")
async def test_restricted_user_is_limited_to_own_objects(rig: RestRig) -> None:
    names = (await rig.ask("GET", "/2/instances", user=TENANT)).json
    assert [one["id"] for one in names] == ["web1.example.com"]
    whole = (await rig.ask("GET", "/2/instances?bulk=1", user=TENANT)).json
    assert [one["name"] for one in whole] == ["web1.example.com"]
    assert (await rig.ask("GET", "/2/instances/web1", user=TENANT)).status == 200
    assert (await rig.ask("GET", "/2/instances/web2", user=TENANT)).status == 404
    own = await rig.ask("POST", "/2/instances/web1/reboot", {}, user=TENANT)
    assert own.status == 200
    rig.master.queue.live.append(job(50))
    mine = (await rig.ask("GET", "/2/jobs", user=TENANT)).json
    assert [one["id"] for one in mine] == [own.json]
    others: list[tuple[str, str, Any]] = [
        ("DELETE", "/2/instances/web2", None),
        ("POST", "/2/instances", INSTANCE),
        ("PUT", "/2/instances/web1/tags?tag=x", None),
        ("GET", "/2/nodes", None),
        ("GET", "/2/query/instance?fields=name", None),
        ("GET", "/2/jobs/50", None),
        ("DELETE", "/2/jobs/50", None),
        ("PUT", "/2/modify", {}),
        ("POST", "/2/instances-multi-alloc", {"instances": []}),
    ]
    for method, path, body in others:
        answer = await rig.ask(method, path, body, user=TENANT)
        assert answer.status in (403, 404), (method, path)
    mine = {**INSTANCE, "name": "web11.example.com"}
    assert (await rig.ask("POST", "/2/instances", mine, user=TENANT)).status == 200
    assert len(rig.master.queue.submitted) == 2


@pytest.mark.requirement("G21")
@pytest.mark.parametrize(
    ("method", "path", "body", "field"),
    [
        ("POST", "/2/instances", {"mode": "import", "src_path": "web2.example.com"}, "src_path"),
        ("POST", "/2/instances", {"mode": "import", "src_node": "node2"}, "src_node"),
        ("POST", "/2/instances", {"disks": [{"size": 0, "adopt": "xenvg/d1"}]}, "disks[0].adopt"),
        ("POST", "/2/instances", {"file_storage_dir": "web2.example.com"}, "file_storage_dir"),
        ("POST", "/2/instances", {"osparams": {"image": "/srv/other"}}, "osparams.image"),
        ("POST", "/2/instances", {"depends": [[50, ["success"]]]}, "depends[0]"),
        ("POST", "/2/instances", {"tags": ["team:b"]}, "tags[0]"),
        ("PUT", "/2/instances/web1/modify", {"disks": [["attach", {"name": "data"}]]}, "disks[0]"),
        ("PUT", "/2/instances/web1/modify", {"nics": [["add", {"link": "br7"}]]}, "nics[0].link"),
        ("PUT", "/2/instances/web1/rename", {"new_name": "db1.example.com"}, "new_name"),
        ("PUT", "/2/instances/web1/migrate", {"target_node": "node2"}, "target_node"),
        ("PUT", "/2/instances/web1/failover", {"instance_uuid": "web2"}, "instance_uuid"),
        ("PUT", "/2/instances/web1/export", {"destination": "node2"}, "target_node"),
    ],
)
async def test_a_limited_user_names_nothing_that_belongs_to_others(
    rig: RestRig, method: str, path: str, body: dict[str, Any], field: str
) -> None:
    rig.master.queue.live.append(job(50))
    if path == "/2/instances":
        body = {**INSTANCE, "name": "web11.example.com", **body}
    answer = await rig.ask(method, path, body, user=TENANT)
    assert (answer.status, answer.explain.partition(": ")[0]) == (403, field)
    assert rig.master.queue.submitted == []


async def test_the_users_file_opens_nodes_to_limited_users(rig: RestRig) -> None:
    rig.users.write_text(rig.users.read_text().replace("name=web1*", "name=web1*,node=node2*"))
    rig.known_users.refresh()
    path, body = "/2/instances/web1/migrate", {"target_node": "node2"}
    assert (await rig.ask("PUT", path, body, user=TENANT)).status == 200
    [submitter] = rig.master.queue.submitters
    assert submitter.scope is not None
    assert submitter.scope.others == (("node", "node2*"),)


async def test_what_would_change_something_is_in_the_audit_log(rig: RestRig) -> None:
    await rig.ask("GET", "/2/nodes")
    await rig.ask("PUT", "/2/query/node", {"fields": ["name"]})
    await rig.ask("PUT", "/2/instances/web1/startup?reason=maintenance")
    await rig.ask("PUT", "/2/instances/web1/shutdown", user=READER)
    await rig.ask("POST", "/2/instances", {**INSTANCE, "osparams_secret": {"pw": "hunter2"}})
    text = rig.audit.read_text()
    records = [json.loads(line) for line in text.splitlines()]
    assert [(one["user"], one["path"], one["status"], one["jobs"]) for one in records] == [
        ("admin", "/2/instances/web1/startup", 200, [1]),
        ("reader", "/2/instances/web1/shutdown", 403, []),
        ("admin", "/2/instances", 200, [2]),
    ]
    assert records[0]["reason"] == "maintenance"
    assert records[0]["address"] == "127.0.0.1"
    assert "hunter2" not in text


async def test_metrics_have_all_figures(rig: RestRig) -> None:
    text = (await rig.ask("GET", "/metrics", user=READER)).body.decode()
    assert 'ganeti_jobs{state="queued"} 1' in text
    assert 'ganeti_rpc_seconds_bucket{procedure="node_info",le="+Inf"} 3' in text
    assert "ganeti_position 7" in text
    assert 'ganeti_backup_failures_total{schedule="nightly"} 3' in text
    assert 'ganeti_backup_instances{schedule="nightly",state="old"} 1' in text
    name = "ganeti_backup_last_success_timestamp_seconds"
    assert f'{name}{{schedule="nightly",instance="web1.example.com"}} 1795000000' in text
    assert "ganeti_rest_connections 1" in text
    for line in text.splitlines():
        assert line.startswith("#") or line.rpartition(" ")[2].replace(".", "").isdecimal()


async def test_usage_metrics_have_a_series_for_each_known_figure(
    rig: RestRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    busy = (0.5, 64.0, None, *[0.0] * 8)
    guests = dict.fromkeys(INSTANCE_UUIDS[:2], busy)
    rig.master.nodes.figures = {
        name: NodeFigures(node=busy, guests=guests) for name in ("node1", "node2")
    }
    text = (await rig.ask("GET", "/metrics/usage", user=READER)).body.decode()
    labels = 'instance="web1.example.com",node="node1.example.com"'
    assert f"ganeti_instance_cpu_busy{{{labels}}} 0.5" in text
    assert f"ganeti_instance_memory_bytes{{{labels}}} {64 * 1024 * 1024}" in text
    assert 'ganeti_node_cpu_busy{node="node2.example.com"} 0.5' in text
    assert "guest_memory_bytes{" not in text, "unknown"
    assert "node_guest_memory" not in text
    assert "ganeti_usage_instances_omitted 0" in text
    assert (await rig.ask("GET", "/metrics/usage", user=GUEST)).status == 403
    monkeypatch.setattr("ganeti.web.metrics.INSTANCES_LIMIT", 1)
    text = (await rig.ask("GET", "/metrics/usage")).body.decode()
    assert "ganeti_usage_instances_omitted 1" in text
    assert text.count("ganeti_instance_cpu_busy{") == 1


async def test_usage_metrics_have_the_memory_goal_and_what_guests_have_given(rig: RestRig) -> None:
    text = (await rig.ask("GET", "/metrics/usage", user=READER)).body.decode()
    assert "memory_goal_bytes{" not in text
    assert "given_bytes{" not in text
    assert "instances_info" not in {name for name, _node in rig.master.nodes.calls}
    shown = rig.master.config.snapshot
    goals = {
        uuid: replace(one, ndparams=one.ndparams | {"memory_goal": 256})
        for uuid, one in shown.nodes.items()
        if one.name.startswith("node1")
    }
    rig.master.config.snapshot = dataclasses.replace(
        shown, tables={**shown.tables, Node: {**shown.nodes, **goals}}
    )
    given = Lowered(before=96, since=1.0, goal=256)
    rig.master.nodes.instances = {
        "node1": [replace(running(1), lowered=given)], "node2": [running(3)],
    }  # fmt: skip
    text = (await rig.ask("GET", "/metrics/usage", user=READER)).body.decode()
    assert f'ganeti_node_memory_goal_bytes{{node="node1.example.com"}} {256 << 20}\n' in text
    labels = 'instance="web1.example.com",node="node1.example.com"'
    assert f"ganeti_instance_memory_given_bytes{{{labels}}} {32 << 20}\n" in text
    assert text.count("given_bytes{") == 1


async def test_history_is_that_of_the_nodes(rig: RestRig) -> None:
    now = int(FrozenClock().time())
    begin = now - now % 60 - 120
    rig.master.nodes.histories["node1"] = HistoryPart(
        times=[begin, begin + 60], rows=[(0.5, *[None] * 10), (0.25, *[None] * 10)]
    )
    path = f"/2/instances/web1/history?start={begin}&step=60"
    found = (await rig.ask("GET", path, user=READER)).json
    assert (found["step"], found["times"], found["silent"]) == (60, [begin, begin + 60], [])
    assert found["figures"]["cpu"] == [0.5, 0.25]
    assert found["figures"]["net_in"] == [None, None]
    found = (await rig.ask("GET", f"/2/nodes/node1/history?start={begin}&step=60")).json
    assert found["times"] == [begin, begin + 60]
    assert (await rig.ask("GET", "/2/nodes/node1/history")).json["step"] == 5


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/2/instances/web1/history?step=7", 400),
        ("/2/instances/web1/history?start=x", 400),
        ("/2/instances/web1/history?start=1.5", 400),
        ("/2/instances/unknown/history", 404),
        ("/2/nodes/unknown/history", 404),
    ],
)
async def test_a_wrong_range_or_name_of_a_history_is_refused(
    rig: RestRig, path: str, status: int
) -> None:
    assert (await rig.ask("GET", path)).status == status


@pytest.mark.requirement("A68")
async def test_a_limited_user_sees_the_history_of_own_instances_only(rig: RestRig) -> None:
    assert (await rig.ask("GET", "/2/instances/web1/history", user=TENANT)).status == 200
    assert (await rig.ask("GET", "/2/instances/web2/history", user=TENANT)).status == 404
    assert (await rig.ask("GET", "/2/nodes/node1/history", user=TENANT)).status == 403
    assert (await rig.ask("GET", "/metrics/usage", user=TENANT)).status == 403


@pytest.mark.requirement("F34")
async def test_no_answer_contains_secrets_of_the_configuration(rig: RestRig) -> None:
    shown = rig.master.config.snapshot
    [(uuid, one)] = [pair for pair in shown.instances.items() if pair[1].disks]
    disk = msgspec.structs.replace(one.disks[0], secret="of-drbd-4711")
    keeper = msgspec.structs.replace(
        one, disks=(disk,), osparams_private={"password": "of-guest-4711"}
    )
    nodes = {
        name: msgspec.structs.replace(node, fence_secret="of-bmc-4711")
        for name, node in shown.nodes.items()
    }
    tables: dict[Any, Any] = {
        **shown.tables,
        Instance: {**shown.instances, uuid: keeper},
        Node: nodes,
    }
    rig.master.config.snapshot = dataclasses.replace(shown, tables=tables)
    rig.master.queue.live.append(job(1))
    seen = 0
    for operation in OPERATIONS:
        if operation.method == "GET" and operation.path not in SLOW:
            for query in ("", "?bulk=1"):
                answer = await rig.ask("GET", path_of(operation) + query)
                assert b"4711" not in answer.body, name_of(operation)
                seen += answer.body.count(keeper.name.encode())
    for kind, one_kind in KINDS.items():
        path = f"/2/query/{kind}?fields={','.join(one_kind.fields)}"
        answer = await rig.ask("GET", path)
        assert b"4711" not in answer.body, kind
        seen += answer.body.count(keeper.name.encode())
    assert seen > 5


@pytest.mark.requirement("D7")
async def test_state_of_recovery_is_for_readers_without_limits(rig: RestRig) -> None:
    rig.master.recovery = stuck_status()
    answer = await rig.ask("GET", "/2/ha-status", user=READER)
    assert [one["state"] for one in answer.json["nodes"]] == ["healthy", "stuck", "healthy"]
    assert answer.json["alarms"] == [ALARM]
    for user in (GUEST, TENANT):
        assert (await rig.ask("GET", "/2/ha-status", user=user)).status == 403


@pytest.mark.requirement("D7", "A44")
@pytest.mark.parametrize("user", [READER, OPERATOR, TENANT])
async def test_only_writers_without_limits_confirm_that_a_node_is_off(
    rig: RestRig, user: str
) -> None:
    answer = await rig.ask("POST", "/2/nodes/node1/fenced", {"confirm": True}, user=user)
    assert answer.status == 403
    assert rig.master.queue.submitted == []
