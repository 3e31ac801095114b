"""What an import would make of a host, before anything is made."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from ganeti.base.errors import InputError, PrereqError
from ganeti.base.paths import Paths
from ganeti.bootstrap.takeover import ImportPlan, import_cluster, last_job_of, plan_import
from ganeti.model.objects import Node
from ganeti.upstream.choices import Choices, parse_names
from ganeti.upstream.forms import parse
from ganeti.upstream.writing import document_of
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
    assert "the watcher is paused" in said(plan)


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
def test_effect_on_the_state_of_the_new_master_is_reported(state: dict[str, bool]) -> None:
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


def exported(plan: ImportPlan, document: sample.Document, **joined: bool) -> sample.Document:
    """What an export gives after an import; `joined` are flags of the other node, once it has joined."""
    assert plan.master is not None
    master = replace(plan.master, certificate="ab" * 32)
    others = [
        replace(one, certificate="cd" * 32, **joined) if isinstance(one, Node) and joined else one
        for one in plan.others
    ]
    written, _ = document_of([plan.cluster, master, *others], parse(sample.encoded(document)))
    return written


@pytest.mark.requirement("G28")
@pytest.mark.parametrize("state", ["offline", "drained", "master_candidate"])
@pytest.mark.parametrize("value", [False, True])
def test_nodes_that_have_not_joined_yet_are_exported_as_they_were(state: str, value: bool) -> None:
    document = sample.document()
    other = document["nodes"][sample.NODES[0]]
    other |= {"master_candidate": False, state: value}
    before = {**other}
    assert exported(planned(document), document)["nodes"][sample.NODES[0]] == before


def test_a_node_that_was_marked_offline_after_it_joined_is_exported_so() -> None:
    document = sample.document()
    written = exported(planned(document), document, offline=True, master_candidate=False)
    assert written["nodes"][sample.NODES[0]]["offline"] is True
    written = exported(planned(document), document, offline=False, master_candidate=True)
    assert written["nodes"][sample.NODES[0]]["offline"] is False


def test_ids_of_jobs_begin_above_those_that_filters_mean(tmp_path: Path) -> None:
    document = sample.document()
    (mark,) = (one["watermark"] for one in document["filters"].values())
    plan = planned(document)
    assert plan.last_job == mark
    assert f"job ids begin at {mark + 1}" in said(plan)
    config = tmp_path / "config.data"
    assert last_job_of(config) == 0
    serial = tmp_path / "queue" / "serial"
    serial.parent.mkdir()
    for text, number in (("4711\n", 4711), ("", 0), ("many", 0), ("9" * 40, 0)):
        serial.write_text(text)
        assert last_job_of(config) == number
    host_plan = plan_import(
        sample.encoded(document), HOST, Choices(keep_unknown=True), last_job=4711
    )
    assert host_plan.last_job == 4711


@pytest.mark.asyncio
async def test_a_plan_with_refusals_is_not_carried_out(tmp_path: object) -> None:
    plan = planned(sample.document(), "stranger.example.com")
    with pytest.raises(PrereqError, match="nothing was created"):
        await import_cluster(plan, paths=Paths())


@pytest.mark.asyncio
async def test_a_port_that_is_none_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="99999 is not a port"):
        await import_cluster(planned(sample.document()), paths=Paths(tmp_path), port=99999)
    assert list(tmp_path.iterdir()) == []
