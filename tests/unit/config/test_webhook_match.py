"""Which events fit the rules of webhooks."""

from typing import Any

import pytest
from msgspec.structs import replace

from ganeti.config.snapshot import Snapshot
from ganeti.config.webhook_match import fits
from ganeti.model.webhook import Webhook
from ganeti.protocols.webhook import Happened
from tests.unit.query.cluster import snapshot

RULE = Webhook(uuid="u", name="w", url="https://h/", secret="0123456789abcdef")


@pytest.fixture(scope="module")
def view() -> Snapshot:
    return snapshot()


def job(*summaries: str) -> Happened:
    return Happened("1-1-1", "job", {"id": 1, "status": "queued", "summary": list(summaries)})


def of_object(kind: str, view: Snapshot, name: str, **more: Any) -> Happened:
    found = {
        "instance": view.instance_by_name,
        "node": view.node_by_name,
        "group": view.group_by_name,
    }
    thing = found[kind](name)
    assert thing is not None
    content = {
        "uuid": thing.uuid,
        "name": thing.name,
        "serial_no": 1,
        "tags": thing.tags,
        "change": "changed",
    }
    return Happened("1-1-1", kind, {**content, **more})  # fmt: skip


@pytest.mark.parametrize(("fields", "fitting"), [
    ({}, True),
    ({"kinds": ("job", "node")}, False),
    ({"kinds": ("instance",)}, True),
    ({"names": ("web1*",)}, True),
    ({"names": ("db*", "web*")}, True),
    ({"names": ("db*",)}, False),
    ({"object_tags": ("a", "red")}, True),
    ({"object_tags": ("red",)}, False),
    ({"names": ("db*",), "object_tags": ("a",)}, True),
    ({"kinds": ("job",), "names": ("web*",)}, False),
])  # fmt: skip
def test_event_of_an_instance(fields: dict[str, Any], fitting: bool, view: Snapshot) -> None:
    event = of_object("instance", view, "web1.example.com")
    assert fits(replace(RULE, **fields), event, view) is fitting


def test_job_fits_by_the_objects_that_its_summary_names(view: Snapshot) -> None:
    rule = replace(RULE, object_tags=("a",))
    assert fits(rule, job("INSTANCE_STARTUP(web1.example.com)"), view)
    assert fits(rule, job("TEST_DELAY(0.5)", "INSTANCE_STARTUP(web1.example.com)"), view)
    assert fits(rule, job("INSTANCES_X(other.example.com,web1.example.com)"), view)
    assert not fits(rule, job("CLUSTER_VERIFY", "INSTANCE_STARTUP(gone.example.com)"), view)
    assert fits(replace(RULE, names=("gone*",)), job("INSTANCE_REMOVE(gone.example.com)"), view)
    assert fits(RULE, job("CLUSTER_VERIFY"), view)


def test_group_covers_its_nodes_and_their_instances(view: Snapshot) -> None:
    instance = view.instance_by_name("web1.example.com")
    assert instance is not None
    node = view.nodes[instance.primary_node]
    rule = replace(RULE, groups=(node.group,))
    other = replace(RULE, groups=("another",))
    events = (
        of_object("instance", view, instance.name),
        of_object("node", view, node.name),
        of_object("group", view, view.groups[node.group].name),
        job(f"NODE_EVACUATE({node.name})"),
        Happened("1-1-1", "backup", {"instance": instance.uuid, "state": "old"}),
    )
    for event in events:
        assert fits(rule, event, view), event
        assert not fits(other, event, view), event


def test_removed_object_fits_by_its_last_name_and_tags(view: Snapshot) -> None:
    gone = {"uuid": "x", "name": "gone.example.com", "tags": ["old"], "change": "removed"}
    event = Happened("1-1-1", "instance", gone)
    assert fits(replace(RULE, object_tags=("old",)), event, view)
    assert fits(replace(RULE, names=("gone*",)), event, view)
    assert not fits(replace(RULE, groups=tuple(view.groups)), event, view)
