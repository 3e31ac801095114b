"""Why an instance is not on a node: what decided between groups, and what was wrong before."""

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import msgspec
import placement_clusters as clusters
import pytest

from ganeti.cli import hail
from ganeti.daemons.allocation_client import AllocationClient
from ganeti.daemons.allocation_worker import Worker
from ganeti.model.reasons import table
from ganeti.placement.description import Cluster
from ganeti.placement.load.message import read
from ganeti.placement.redundancy import unplaced_by_loss
from ganeti.placement.state import State
from tests.support.generated_clusters import Kind, cluster

WORLDS = [
    Kind(groups=1, fullest=0.9),
    Kind(groups=2, closed=0.2, fullest=0.4),
    Kind(groups=2, fullest=0.9),
    Kind(groups=3, closed=0.2, fullest=0.6),
]


def message_of(given: Cluster, template: str = "plain", **changes: Any) -> bytes:
    return clusters.encoded(clusters.message(given, clusters.allocation(template) | changes))


def reasons_of(message: bytes, chosen: list[str], **options: bool) -> dict[str, str]:
    """What `gnt-instance add --explain` says of a message."""
    asked = AllocationClient(Worker().exchange).explain(json.loads(message), chosen, options)
    return dict(asyncio.run(asked))


def answered(message: bytes, **options: bool) -> dict[str, Any]:
    return asyncio.run(AllocationClient(Worker().exchange).answer(json.loads(message), options))


def has_lone_node(given: Cluster) -> bool:
    """Whether a group has one online node, which only the daemon allocates to."""
    online = [node.group for node in given.nodes if not node.offline]
    return any(online.count(group.uuid) == 1 for group in given.groups)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("kind", WORLDS, ids=repr)
@pytest.mark.parametrize("template", ["plain", "drbd"])
def test_hail_explains_as_the_master_does(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: Kind, template: str
) -> None:
    seed = next(seed for seed in range(50) if not has_lone_node(cluster(seed, kind)))
    message = message_of(cluster(seed, kind), template)
    path = tmp_path / "message"
    path.write_bytes(message)
    assert hail.main(["--explain", str(path)]) == 0
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert found == answered(message)
    reasons = reasons_of(message, found["result"])
    assert len(reasons) == len(json.loads(message)["nodes"]) - len(found["result"])
    assert err.splitlines() == table(list(reasons.items()))


def two_groups(*policies: str) -> Cluster:
    given = cluster(1, Kind(groups=2, fullest=0.3))
    groups = [
        msgspec.structs.replace(group, alloc_policy=policy)
        for group, policy in zip(given.groups, policies, strict=True)
    ]
    return msgspec.structs.replace(given, groups=groups)


def group_of(given: Cluster, node: str) -> str:
    return next(one.group for one in given.nodes if one.name == node)


@pytest.mark.parametrize("template", ["plain", "drbd"])
def test_the_policy_that_decided_between_groups_is_named(template: str) -> None:
    given = two_groups("last_resort", "preferred")
    message = message_of(given, template)
    found = answered(message)
    assert {group_of(given, name) for name in found["result"]} == {"uuid-1"}
    reasons = reasons_of(message, found["result"])
    others = {why for name, why in reasons.items() if group_of(given, name) == "uuid-0"}
    assert others == {"its group is last_resort, group group1 is preferred"}


@pytest.mark.parametrize("template", ["plain", "drbd"])
def test_the_scores_that_decided_between_groups_are_named(template: str) -> None:
    given = two_groups("preferred", "preferred")
    message = message_of(given, template)
    found = answered(message)
    best = int(group_of(given, found["result"][0])[-1])
    scores = re.findall(r"score: ([\d.]+)", found["info"])
    reasons = reasons_of(message, found["result"])
    others = [why for name, why in reasons.items() if group_of(given, name) != f"uuid-{best}"]
    between = (
        f"group group{best} has a place with score {scores[best]}, its own has {scores[1 - best]}"
    )
    assert {why.split(", this node")[0] for why in others} == {between}
    assert between in others


def test_a_choice_by_other_rules_is_distinguished() -> None:
    given = two_groups("preferred", "last_resort")
    message = message_of(given)
    best = answered(message)["result"]
    worse = next(name for name, why in reasons_of(message, best).items() if " against " in why)
    told = reasons_of(message, [worse])
    assert told[best[0]].endswith(": the choice did not follow these rules")
    other = next(node.name for node in given.nodes if node.group == "uuid-1")
    told = reasons_of(message, [other])
    assert told[best[0]] == "group group1 was chosen, although it is last_resort"


@pytest.mark.parametrize("groups", [1, 2])
def test_a_node_that_was_unrecoverable_before_is_reported(groups: int) -> None:
    kind = Kind(groups=groups, fullest=0.9, templates=("plain",))
    seen = 0
    for seed in range(4):
        given = cluster(seed, kind)
        message = message_of(given)
        state = State(read(message)[0])
        for reason in reasons_of(message, answered(message)["result"]).values():
            head, _, tail = reason.partition(" could not be recovered if that node failed")
            if not head.startswith(("the instances of ", "more of the instances of ")):
                continue
            node = [one.name for one in state.nodes].index(head.split(" of ")[-1])
            before = unplaced_by_loss(state, node)
            seen += bool(before)
            causes = ", ".join(f"{number} {cause}" for cause, number in sorted(before.items()))
            assert tail == (f"; before: {causes}" if before else "")
            assert head.startswith("more") == bool(before and groups > 1)
    assert seen


def test_a_better_score_that_the_capacity_check_refused_is_no_equal() -> None:
    kind = Kind(groups=2, fullest=0.5, templates=("plain",))
    seen = 0
    for seed in range(8):
        message = message_of(cluster(seed, kind), memory=12 * 1024)
        found = answered(message)
        for name, reason in reasons_of(message, found["result"]).items():
            assert "did not follow these rules" not in reason
            if found["success"] and "could not be recovered" in reason:
                seen += answered_on(message, name) != [name]
    assert seen


def answered_on(message: bytes, name: str) -> list[str]:
    """The answer if only this node may be chosen."""
    given = json.loads(message)
    given["request"]["restrict-to-nodes"] = [name]
    result: list[str] = answered(json.dumps(given).encode())["result"]
    return result


def test_options_of_the_allocator_count_in_explanations_too() -> None:
    kind = Kind(groups=1, fullest=0.9, templates=("plain",))
    messages = [message_of(cluster(seed, kind)) for seed in range(3)]
    with_checks = [reasons_of(one, []) for one in messages]
    without = [reasons_of(one, [], **{"no-capacity-checks": True}) for one in messages]
    assert any("could not be recovered" in why for told in with_checks for why in told.values())
    assert not any("could not be recovered" in why for told in without for why in told.values())
    assert with_checks != without


def test_only_an_allocation_can_be_explained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = clusters.cluster(4)
    request = {"type": "multi-evacuate", "evac_nodes": ["node0001"]}
    path = tmp_path / "message"
    path.write_bytes(clusters.encoded(clusters.message(given, request)))
    assert hail.main(["--explain", str(path)]) == 1
    assert "only an allocation can be explained" in capsys.readouterr().err
