"""Clusters of real daemons become one, over real sshd with root's password."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from ganeti.bootstrap.daemons import Daemons
from ganeti.bootstrap.merge.agent import Agent
from ganeti.bootstrap.merge.steps import STEPS, Step
from tests.support.merging import Merging, clusters_to_merge, joined_networks, picture

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.in_turn,
    pytest.mark.skipif(os.geteuid() != 0, reason="sshd needs root"),
]

UNDOABLE = [step for step in STEPS if step.can_undo]
ONWARDS = [step for step in STEPS if not step.can_undo]


def master_words(merging: Merging) -> list[str]:
    """With what our master daemon was started."""
    pid = merging.ours.pid("ganeti-masterd")
    return Path(f"/proc/{pid}/cmdline").read_text().split("\0")


def check_merged(merging: Merging) -> None:
    """Everything that there was is there, and runs if it ran."""
    ours = merging.ours
    everyone = [node.name for one in (ours, *merging.others) for node in one.cluster.nodes]
    assert ours.names("node") == set(everyone)
    rows = ours.ok("gnt-instance", "list", "--no-headers", "-o", "name,status").lines
    domains = [one.cluster.domain for one in (ours, *merging.others)]
    expected = {f"up.{domain}": "running" for domain in domains}
    expected |= {f"down.{domain}": "ADMIN_down" for domain in domains}
    assert dict(row.split() for row in rows) == expected
    ours.ok("gnt-cluster", "verify", timeout_s=120)
    uuid = ours.node(1).paths.authority_certificate.read_bytes()
    for one in merging.others:
        for node in one.cluster.nodes:
            assert node.paths.authority_certificate.read_bytes() == uuid
            assert not (node.paths.root_ssh / "authorized_keys").exists()
            assert not node.paths.watcher_pause.exists()
    assert not ours.node(1).paths.watcher_pause.exists()
    assert "--no-voting" not in master_words(merging)
    left = [path for path in ours.node(1).paths.merge.rglob("*") if path.is_file()]
    assert {path.suffix for path in left} == {".backup"}
    assert all(path.parent.parent == ours.node(1).paths.merge for path in left)


@pytest.mark.timeout(600)
@pytest.mark.requirement("S33", "S34", "S35", "S36", "S37", "S38", "S43", "S44", "S45")
def test_a_cluster_is_merged_although_the_merge_was_killed() -> None:
    with clusters_to_merge(1, 1) as merging:
        merging.cut("Replacing the local configuration by the merged one")
        (theirs,) = merging.others
        node = theirs.node(1)
        keys = (node.paths.root_ssh / "authorized_keys").read_text()
        assert keys.count("ganeti-cluster-merge-") == keys.count("\n") == 1
        assert theirs.run("ganeti-watcher").status == 0  # it exits at once, and starts nothing
        agent = Agent(node.paths, Daemons(node.paths, environment=node.environment()))
        assert agent.running_daemons() == []
        assert list(node.paths.fake_hypervisor.glob("*.json")) == []
        merging.run()
        check_merged(merging)


@pytest.mark.soak
@pytest.mark.timeout(1200)
def test_a_plan_changes_nothing_and_a_merge_under_way_takes_no_other_clusters() -> None:
    with clusters_to_merge(1, 1) as merging:
        clusters = (merging.ours, *merging.others)
        before = [picture(one) for one in clusters]
        said = merging.run("--dry-run", *merging.contacts)
        assert "Afterwards: 2 nodes, 4 instances." in said
        assert [picture(one) for one in clusters] == before
        merging.cut(UNDOABLE[0].title)
        assert "is in progress" in merging.run("elsewhere.example.com", status=1)
        merging.run("--rollback")
        assert [picture(one) for one in clusters] == before
        assert "no merge is in progress" in merging.run("--rollback", status=1)
        said = merging.run("--force", *merging.contacts)
        assert "--no-voting --yes-do-it" in said
        check_merged(merging)


@pytest.fixture(scope="module")
def three() -> Iterator[Merging]:
    with clusters_to_merge(2, 2, 1) as merging:
        yield merging


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.requirement("S33", "S46", "S47")
@pytest.mark.parametrize("step", UNDOABLE, ids=lambda step: step.name)
def test_killed_in_any_step_before_a_node_leaves_all_three_are_what_they_were(
    three: Merging, step: Step
) -> None:
    clusters = (three.ours, *three.others)
    before = [picture(one) for one in clusters]
    three.cut(step.title)
    three.run("--rollback")
    for old, one in zip(before, clusters, strict=True):
        assert picture(one) == old
        one.ok("gnt-cluster", "verify", timeout_s=120)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.requirement("S33", "S42", "S44", "S45", "S46", "S48")
def test_three_clusters_in_namespaces_become_one_although_it_is_killed_in_each_later_step() -> None:
    with clusters_to_merge(2, 2, 1, options=["--netns"]) as merging, joined_networks(merging):
        merging.cut(ONWARDS[0].title)
        assert {"--no-voting", "--yes-do-it"} <= set(master_words(merging))
        assert "cannot be rolled back" in merging.run("--rollback", status=1)
        for step in ONWARDS[1:]:
            merging.cut(step.title, is_new=False)
        merging.run()
        check_merged(merging)
