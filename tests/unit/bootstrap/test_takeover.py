"""What an import would make of a host, before anything is made."""

from pathlib import Path

import pytest

from ganeti.base.errors import InputError, PrereqError
from ganeti.base.paths import Paths
from ganeti.bootstrap.takeover import ImportPlan, import_cluster, plan_import
from ganeti.model.objects import Node
from ganeti.upstream.choices import Choices, parse_names
from tests.unit.upstream import sample

HOST = "node2.example.com"


def planned(document: sample.Document, host: str = HOST) -> ImportPlan:
    document["cluster"].pop("secret_of_the_future", None)
    return plan_import(sample.encoded(document), host, Choices())


def said(plan: ImportPlan) -> str:
    return "\n".join(plan.lines())


def test_this_host_becomes_the_master_and_the_others_are_still_to_join() -> None:
    plan = planned(sample.document())
    assert plan.report.refused == []
    assert plan.master is not None
    assert (plan.master.name, plan.cluster.master_node) == (HOST, plan.master.uuid)
    assert plan.master.master_candidate
    (other,) = (one for one in plan.others if isinstance(one, Node))
    assert (other.offline, other.master_candidate) == (True, False)
    assert "node1.example.com is offline until 'gnt-node add --readd node1.example.com'" in said(
        plan
    )
    assert "the watcher rests" in said(plan)


def test_a_node_that_was_drained_is_to_be_so_again_and_one_that_was_offline_stays_so() -> None:
    for state, option in (("drained", " --drained"), ("offline", "")):
        document = sample.document()
        document["nodes"][sample.NODES[0]] |= {state: True, "master_candidate": False}
        plan = planned(document)
        (other,) = (one for one in plan.others if isinstance(one, Node))
        assert (other.offline, other.drained) == (True, False)
        assert f"until 'gnt-node add --readd{option} node1.example.com'" in said(plan)


def test_a_host_that_is_none_of_the_nodes_is_refused_with_what_to_do() -> None:
    plan = planned(sample.document(), "stranger.example.com")
    (refused,) = plan.report.refused
    assert "--rename='node:OLD=stranger.example.com'" in refused.advice


def test_two_that_claim_the_same_are_refused_by_name() -> None:
    document = sample.document()
    one, two = document["instances"].values()
    two["nics"][0]["mac"] = one["nics"][0]["mac"]
    (refused,) = planned(document).report.refused
    assert refused.field == "MAC address"
    assert "web" in refused.what


def test_two_kinds_with_one_uuid_are_refused_by_name() -> None:
    document = sample.document()
    node = sample.NODES[0]
    document["instances"][node] = {**document["instances"].pop(sample.GUEST), "uuid": node}
    (refused,) = (one for one in planned(document).report.refused if one.field == "uuid")
    assert refused.what == "instance web1.example.com"
    assert "node node1.example.com" in refused.text


def test_one_volume_is_not_two_disks() -> None:
    document = sample.document()
    other = "88888888-0000-4000-8000-000000000009"
    document["disks"][other] = {**document["disks"][sample.PLAIN], "uuid": other}
    next(one for one in document["instances"].values() if one["disks"] == [sample.PLAIN])[
        "disks"
    ].append(other)
    (refused,) = planned(document).report.refused
    assert "two of its disks have the disk xenvg vol.disk0" in refused.text


def test_a_filter_that_would_be_passed_over_is_refused() -> None:
    document = sample.document()
    (job_filter,) = document["filters"].values()
    job_filter["predicates"] = [["jobid", ["??", "id", 1]]]
    (refused,) = planned(document).report.refused
    assert (refused.what, refused.field) == (f"filter {job_filter['uuid']}", "predicates[0]")


@pytest.mark.parametrize("state", [{"offline": True}, {"drained": True}, {"master_capable": False}])
def test_what_becomes_of_the_state_of_the_new_master_is_said(state: dict[str, bool]) -> None:
    document = sample.document()
    document["nodes"][sample.NODES[1]] |= state
    assert f"changed: node {HOST}: {next(iter(state))}: is" in said(planned(document))


def test_a_new_name_for_what_is_not_there_is_refused() -> None:
    document = sample.document()
    del document["cluster"]["secret_of_the_future"]
    names = parse_names(["instance:web9.example.com=a.example.com", "network:lan=lan2"])
    plan = plan_import(sample.encoded(document), HOST, Choices(names=names))
    (refused,) = plan.report.refused
    assert refused.what == "instance web9.example.com"
    assert "--rename" in refused.advice


def test_rules_of_this_version_count() -> None:
    document = sample.document()
    document["nodegroups"][sample.GROUP]["networks"] = {}
    texts = [one.text for one in planned(document).report.refused]
    assert any("to which its group default is not connected" in text for text in texts)


@pytest.mark.asyncio
async def test_a_plan_with_refusals_is_not_carried_out(tmp_path: object) -> None:
    plan = planned(sample.document(), "stranger.example.com")
    with pytest.raises(PrereqError, match="nothing was made"):
        await import_cluster(plan, paths=Paths())


@pytest.mark.asyncio
async def test_a_port_that_is_none_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="99999 is not a port"):
        await import_cluster(planned(sample.document()), paths=Paths(tmp_path), port=99999)
    assert list(tmp_path.iterdir()) == []
