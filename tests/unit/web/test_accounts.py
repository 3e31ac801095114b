"""The audit log and the users by REST."""

import time

from ganeti.model.names import JobStatus
from tests.support.rest import READER, TENANT, RestRig
from tests.unit.query.cluster import job


def record(when: float, **more: object) -> dict[str, object]:
    return {"time": when, "user": "job 7", "method": "changed", "path": "instance web1", "status": "done",
            "jobs": [7], **more}  # fmt: skip


async def test_audit_has_requests_and_changes_in_one_order(rig: RestRig) -> None:
    await rig.ask("PUT", "/2/instances/web1/startup?reason=now")
    rig.master.records = [record(time.time() + 60), record(5, path="node n1", jobs=[1])]
    found = (await rig.ask("GET", "/2/audit")).json
    assert [one["path"] for one in found] == [
        "instance web1", "/2/instances/web1/startup", "node n1",
    ]  # fmt: skip
    assert found[1]["reason"] == "now"
    assert [one["jobs"] for one in (await rig.ask("GET", "/2/audit?about=web1")).json] == [
        [7],
        [1],
    ]
    assert len((await rig.ask("GET", "/2/audit?job=7")).json) == 1
    assert len((await rig.ask("GET", "/2/audit?limit=1")).json) == 1
    assert len((await rig.ask("GET", "/2/audit?user=admin")).json) == 1
    assert len((await rig.ask("GET", "/2/audit?since=100")).json) == 2
    for wrong in ("limit=0", "limit=1001", "since=x"):
        assert (await rig.ask("GET", f"/2/audit?{wrong}")).status == 400


async def test_audit_and_users_are_only_for_administrators(rig: RestRig) -> None:
    for path in ("/2/audit", "/2/users"):
        assert (await rig.ask("GET", path, user=READER)).status == 403
        assert (await rig.ask("GET", path, user=TENANT)).status == 403
    rig.users.write_text("admin secret write\nreader secret read,+audit_read\n")
    assert rig.known_users.refresh()
    assert (await rig.ask("GET", "/2/audit", user=READER)).status == 200
    assert (await rig.ask("GET", "/2/users", user=READER)).status == 403


async def test_priority_of_a_job_can_be_changed(rig: RestRig) -> None:
    rig.master.queue.live.append(job(5, JobStatus.QUEUED))
    path = "/2/jobs/5/priority"
    assert (await rig.ask("PUT", path, {"priority": -10})).json[0] is True
    assert (await rig.ask("PUT", path, {"priority": -10}, user=READER)).status == 403
    for wrong in ({}, {"priority": "high"}, {"priority": True}, {"priority": 1, "more": 2}):
        assert (await rig.ask("PUT", path, wrong)).status == 400


async def test_users_are_listed_with_rights_and_sessions_but_no_secrets(rig: RestRig) -> None:
    body = {"username": "reader", "password": "secret"}
    answer = await rig.ask("POST", "/2/session", body, user=None)
    assert answer.status == 200
    answer = await rig.ask("GET", "/2/users")
    found = {one["name"]: one for one in answer.json}
    assert list(found) == ["admin", "reader", "operator", "guest", "tenant"]
    assert found["reader"]["sessions"] == 1
    assert found["reader"]["last_used"] > 0
    assert found["admin"]["sessions"] == 0
    assert found["admin"]["rights"] == ["known", "read", "operate", "write"]
    assert found["tenant"]["names"] == ["web1*"]
    assert b"secret" not in answer.body


async def test_user_of_a_login_link_is_listed(rig: RestRig) -> None:
    secret = rig.master.links.make("", "operator", 60)
    assert (await rig.ask("POST", "/2/session", {"link": secret}, user=None)).status == 200
    found = (await rig.ask("GET", "/2/users")).json[-1]
    assert (found["name"], found["source"], found["sessions"]) == ("link:operator", "link", 1)
