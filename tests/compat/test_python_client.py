"""The Python client against a real cluster: an instance from its creation to its removal, all lists, events."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from ganeti_rest import Client, JobFailed, JobUpdate, NotFound
from tests.support.local_cluster import LocalCluster
from tests.support.openapi_values import DOCUMENT
from tests.unit.web.test_openapi import check

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]
NAME = "python1.example.com"


@pytest.fixture
def client(cluster: LocalCluster, address: str, trusted: Path) -> Iterator[Client]:
    with Client(address, user="tour", password="secret", ca_file=str(trusted)) as one:
        yield one


def create(client: Client, cluster: LocalCluster, name: str, **fields: Any) -> int:
    return client.instance_create(
        name=name,
        disk_template="sharedfile",
        disks=[{"size": 1}],
        nics=[],
        os="noop",
        osparams={"record": str(cluster.record)},
        pnode="node1",
        beparams={"maxmem": 16, "minmem": 16},
        **fields,
    )


def test_instance_from_creation_to_removal(client: Client, cluster: LocalCluster) -> None:
    seen: list[JobUpdate] = []
    assert client.wait(create(client, cluster, NAME, start=False), on_update=seen.append)
    assert seen[-1].status == "success"
    assert any("OS create" in text or "install" in text for one in seen for text in one.messages)
    client.wait(client.instance_startup(NAME))
    found = client.instance(NAME)
    assert (found["status"], found["pnode"]) == ("running", cluster.node(1).name)
    client.wait(client.instance_modify(NAME, custom_beparams={"maxmem": 32}))
    client.wait(client.instance_migrate(NAME, target_node="node2"))
    assert client.instance(NAME)["pnode"] == cluster.node(2).name
    client.wait(client.instance_tags_add(NAME, tag=["blue"]))
    assert client.instance_tags(NAME) == ["blue"]
    client.wait(client.instance_shutdown(NAME, timeout=0))
    client.wait(client.instance_remove(NAME, shutdown_timeout=0))
    with pytest.raises(NotFound):
        client.instance(NAME)


def test_error_of_a_job_is_the_masters(client: Client) -> None:
    with pytest.raises(JobFailed, match=r"nosuch\.example\.com") as raised:
        client.wait(client.instance_startup("nosuch.example.com"))
    assert raised.value.error_class == "OpPrereqError"


def test_key_of_the_caller_makes_one_job(client: Client) -> None:
    ids = {client.tags_add(tag=["once"], idempotency_key="python-once") for _ in range(2)}
    assert len(ids) == 1
    client.wait(ids.pop())


def test_lists_and_objects_are_those_of_the_document(client: Client, cluster: LocalCluster) -> None:
    client.wait(create(client, cluster, "listed1.example.com"))
    client.wait(client.network_create(name="listed", network="192.0.2.0/24"))
    client.wait(client.backup_schedule_create(name="listed", calendar="02:00", all_instances=True))
    try:
        lists: dict[str, Sequence[Mapping[str, Any]]] = {"Instance": client.instances(), "Node": client.nodes(), "Group": client.groups(),
                 "Network": client.networks(), "Job": client.jobs(), "BackupSchedule": client.backup_schedules()}  # fmt: skip
        for name, objects in lists.items():
            schema = DOCUMENT["components"]["schemas"][name]
            assert objects, name
            for one in objects:
                found: dict[str, Any] = {**one}
                assert set(found) == set(schema["required"])
                for field, value in found.items():
                    check(value, schema["properties"][field], f"{name} {field}")
    finally:
        client.wait(client.backup_schedule_remove("listed"))
        client.wait(client.network_remove("listed"))
        client.wait(client.instance_remove("listed1.example.com", shutdown_timeout=0))


def test_every_read_without_an_object_answers(client: Client) -> None:
    for read in (client.info, client.features, client.os, client.ha_status, client.overview, client.impact, client.users,
                 client.audit, client.filters, client.images, client.backups, client.settings, client.openapi_json,
                 client.docs, client.metrics, client.metrics_usage, client.tags):  # fmt: skip
        assert read() is not None, read
    for node in client.nodes():
        assert client.node_role(node["name"]) in ("master", "master-candidate")
        assert client.node_settings(node["name"])
    assert client.query("instance", fields="name")["data"] == []
    assert client.wait(client.verify())


def test_events_follow_a_job(
    client: Client, address: str, trusted: Path, cluster: LocalCluster
) -> None:
    job = client.tags_add(tag=["followed"])
    client.wait(job)
    seen: list[str] = []
    with Client(address, user="tour", password="secret", ca_file=str(trusted)) as other:
        for event in other.events(after="0-0", kinds=["job"]):
            if event.content.get("id") == job:
                seen.append(event.content["status"])
            if seen[-1:] == ["success"]:
                break
    assert seen[0] == "queued"
    assert (
        cluster.ok("gnt-job", "list", "--no-headers", "-o", "status", str(job)).lines == seen[-1:]
    )
