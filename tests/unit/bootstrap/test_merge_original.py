"""What a node of a cluster of the original does for a merge, and what its configuration becomes."""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from ganeti import __version__
from ganeti.base.errors import HostError, InputError, PrereqError
from ganeti.base.paths import Paths, hostname
from ganeti.base.process import Completed
from ganeti.bootstrap.daemons import Daemons
from ganeti.bootstrap.merge.agent import Agent
from ganeti.bootstrap.merge.messages import Action, HostFacts, Request
from ganeti.bootstrap.merge.on_node import agent_of
from ganeti.bootstrap.merge.original import OriginalAgent, unfinished
from ganeti.bootstrap.merge.states import Opened, opened_original, planned
from ganeti.bootstrap.take_node import Node
from ganeti.config.merging.plan import Choice, MergeOptions, SameName, Severity
from ganeti.upstream.choices import Choices
from tests.unit.config.merging_clusters import cluster
from tests.unit.upstream import sample

FACTS = HostFacts(cluster="theirs", uuid="2", version="3.0.2", state="embedded", nodes=[], instances=[],
              running=[], jobs=[])  # fmt: skip
pytestmark = pytest.mark.requirement("G28")


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    """A node of the original, its master."""
    found = Paths(tmp_path)
    (found.data / "queue").mkdir(parents=True)
    found.run.mkdir(parents=True)
    (found.data / "config.data").write_text(json.dumps(sample.document()))
    (found.data / "ssconf_cluster_name").write_text("cluster.example.com\n")
    (found.data / "ssconf_master_node").write_text(f"{hostname()}\n")
    (found.data / "cluster-domain-secret").write_text("theirs\n")
    return found


class Starter:
    """The original's program that starts daemons: notes what it is told, and pretends that they run."""

    def __init__(self, paths: Paths, *fail: str) -> None:
        self.paths, self.fail, self.calls = paths, fail, list[list[str]]()

    async def __call__(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float = 60.0,
        stdin: bytes | None = None,
        env: Mapping[str, str] | None = None,
        check: bool = True,
    ) -> Completed:
        del timeout_s, stdin, check
        assert env is not None
        assert "PATH" in env
        self.calls.append(list(argv[1:]))
        if argv[2] not in self.fail:
            (self.paths.run / f"{argv[2]}.pid").write_text(f"{os.getpid()}\n")
        return Completed(tuple(argv), 0, b"", b"")


def agent(paths: Paths, starter: Starter | None = None) -> OriginalAgent:
    node = Node(paths)
    program = paths.root / "daemon-util"
    program.touch()
    return OriginalAgent(paths, node, starter=program, runs=starter or Starter(paths))


@pytest.fixture
def all_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever has a pid file runs."""

    def running(node: Node) -> list[str]:
        pids = sorted(path.stem for path in node.paths.run.glob("ganeti-*.pid"))
        return [pid.removeprefix("ganeti-") for pid in pids]

    monkeypatch.setattr(Node, "running", running)


def test_it_is_recognised_until_it_has_joined(paths: Paths, tmp_path: Path) -> None:
    assert type(agent_of(paths)) is OriginalAgent
    (paths.data / "original").mkdir()
    (paths.data / "ssconf_cluster_name").rename(paths.data / "original" / "ssconf_cluster_name")
    assert type(agent_of(paths)) is OriginalAgent
    paths.node_certificate.write_text("x")
    assert type(agent_of(paths)) is Agent
    assert type(agent_of(Paths(tmp_path / "elsewhere"))) is Agent


def test_facts_tell_both_versions_and_what_could_not_be_taken_back_is_refused(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Agent, "facts", lambda _self: FACTS)
    found = agent(paths).facts()
    assert (found.version, found.original) == (__version__, "3.0.2")
    gone = OriginalAgent(paths, Node(paths), starter=paths.root / "gone")
    with pytest.raises(PrereqError, match=r"'ganeti-takeover' on each .* 'gnt-cluster import'"):
        gone.facts()


async def test_its_state_is_its_file_once_daemons_and_jobs_have_ended(
    paths: Paths, all_run: None
) -> None:
    jobs = {3: ["success", "error"], 4: ["success", "queued"], 11: ["running"], 5: ["canceled"]}
    for number, states in jobs.items():
        text = json.dumps({"id": number, "ops": [{"status": state} for state in states]})
        (paths.data / "queue" / f"job-{number}").write_text(text)
    (paths.data / "queue" / "job-12").write_text("damaged")
    assert unfinished(paths.data / "queue") == [4, 11, 12]
    with pytest.raises(PrereqError, match="jobs have not ended: 4, 11, 12"):
        await agent(paths).state()
    for number in (4, 11, 12):
        (paths.data / "queue" / f"job-{number}").unlink()
    assert json.loads(await agent(paths).state()) == sample.document()
    (paths.run / "ganeti-luxid.pid").touch()
    with pytest.raises(PrereqError, match="still running: luxid"):
        await agent(paths).state()


async def test_its_daemons_are_started_by_its_own_program_the_node_daemon_first(
    paths: Paths, all_run: None
) -> None:
    starter = Starter(paths, "ganeti-rapi")
    one = agent(paths, starter)
    await one.start_daemons(["ganeti-luxid", "ganeti-noded"])
    assert starter.calls == [["start", "ganeti-noded"], ["start", "ganeti-luxid"]]
    await one.start_daemons(["ganeti-luxid"])  # runs
    assert len(starter.calls) == 2
    with pytest.raises(HostError, match="ganeti-rapi ended during the start"):
        await one.start_daemons(["ganeti-rapi"])
    with pytest.raises(InputError, match="unknown daemons: ganeti-masterd2"):
        await one.start_daemons(["ganeti-masterd2"])


async def test_files_are_moved_with_the_watcher_paused_and_no_daemon_running(
    paths: Paths,
) -> None:
    paths.watcher_pause.write_text("2000000000\n")
    for _ in range(2):
        await agent(paths).answer(Request(action=Action.TAKE))
        assert paths.watcher_pause.read_text() == "2000000000\n"
        assert (paths.data / "original" / "ssconf_cluster_name").exists()
        assert not (paths.data / "cluster-domain-secret").exists()
    paths.node_certificate.write_text("x")
    await Agent(paths, Daemons(paths)).answer(
        Request(action=Action.TAKE)
    )  # it has joined: nothing is left


@pytest.mark.requirement("S40", "S41", "S49")
def test_upstream_configuration_is_merged_like_any_other() -> None:
    mine = Opened(cluster(1), (), 40)
    theirs = opened_original(sample.encoded(sample.document()), Choices(keep_unknown=True))
    assert not theirs.unfinished
    options = MergeOptions(default=Choice.OURS, groups=SameName.RENAME, networks=SameName.RENAME)
    plan = planned(mine, [theirs], options)
    assert not plan.errors, plan.errors
    assert any(one.severity is Severity.NOTE and "gluster" in one.text for one in plan.findings)
    (disk,) = (
        disk
        for one in plan.snapshot.instances.values()
        for disk in one.disks
        if disk.uuid == sample.DISK
    )
    assert disk.imported
    assert disk.logical_id != (11002,)
    for uuid in sample.NODES:
        node = plan.snapshot.nodes[uuid]
        assert (node.master_candidate, node.offline) == (False, True)


def test_what_an_import_refuses_stops_the_merge() -> None:
    theirs = opened_original(sample.encoded(sample.document()), Choices())
    plan = planned(Opened(cluster(1), (), 40), [theirs], MergeOptions(default=Choice.OURS))
    refused = [one.text for one in plan.errors if "--keep-unknown omits it" in one.text]
    assert refused
    assert {one.cluster for one in plan.errors} == {"cluster.example.com"}
