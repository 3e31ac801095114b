"""The candidates' etcd servers as the master sees them: who lost its data, and what verify is told."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from ganeti.base.paths import Paths
from ganeti.daemons.candidate_resources import open_servers
from ganeti.rpc.calls import Call
from ganeti.rpc.procedures.form import Nothing
from ganeti.rpc.procedures.mastership import CANDIDATE_READ, CandidateReport
from ganeti.store.etcd.files import EtcdFiles
from ganeti.store.etcd.gateway import NotSent
from ganeti.store.etcd.messages import EtcdMember, MembersAnswer, StatusAnswer
from ganeti.store.etcd.servers import LEAST_FREE_BYTES
from ganeti.store.etcd.settings import (
    ServerSettings,
    client_url,
    has_data,
    keep_server_settings,
    note_begun,
    peer_url,
    server_settings,
)
from ganeti.store.settings import StateSettings, keep_state_settings
from tests.support.fake_rpc import FakeRpc
from tests.unit.config.sample import NODES, sample_node

NODE_LIST = [sample_node(number) for number in (1, 2, 3)]
GOOD = CandidateReport(has_data=True, free_bytes=1 << 40)
LOST = CandidateReport(has_data=False, free_bytes=1 << 40)


class Etcd:
    """As much of a gateway as is asked here: members, and what each says."""

    def __init__(self) -> None:
        self.listed = [
            EtcdMember(
                ID=number,
                name=node.uuid,
                peerURLs=(peer_url(node.primary_ip),),
                clientURLs=(client_url(node.primary_ip),),
            )
            for number, node in enumerate(NODE_LIST, 1)
        ]
        self.endpoints = tuple(client_url(node.primary_ip) for node in NODE_LIST)
        self.down: set[str] = set()

    async def members(self) -> MembersAnswer:
        return MembersAnswer(members=tuple(self.listed))

    async def status(self, url: str) -> StatusAnswer:
        if url in self.down:
            raise NotSent("connection refused")
        return StatusAnswer(leader=1, raftIndex=10)

    async def remove_member(self, number: int) -> None:
        self.listed = [member for member in self.listed if number != member.ID]

    async def add_member(self, url: str, *, as_learner: bool) -> MembersAnswer:
        assert as_learner
        self.listed.append(EtcdMember(ID=99, peerURLs=(url,), isLearner=True))
        return await self.members()


class Candidates:
    def __init__(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **settings: Any) -> None:
        self.etcd = Etcd()
        self.reports = {node.name: GOOD for node in NODE_LIST}
        paths = Paths(tmp_path)
        paths.data.mkdir(parents=True)
        paths.authority_key.write_text("-----BEGIN")
        keep_state_settings(
            paths, StateSettings(kind="etcd", endpoints=self.etcd.endpoints, **settings)
        )
        monkeypatch.setattr("ganeti.store.etcd.opening.open_gateway", lambda *_: self.etcd)

        def handlers(name: str) -> dict[str, Any]:
            async def read(_args: Nothing, _call: Call) -> CandidateReport:
                return self.reports[name]

            return {CANDIDATE_READ.name: read}

        self.rpc = FakeRpc({node.name: handlers(node.name) for node in NODE_LIST})
        self.servers = open_servers(paths, "cluster", self.rpc)

    async def faults(self) -> list[tuple[str, str, bool]]:
        found = await self.servers.faults(NODE_LIST)
        return [(fault.node, fault.text, fault.is_error) for fault in found]


@pytest.fixture
def candidates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Candidates:
    return Candidates(tmp_path, monkeypatch)


@pytest.mark.requirement("G22")
async def test_healthy_servers_give_verify_no_fault(candidates: Candidates) -> None:
    assert await candidates.faults() == []


@pytest.mark.requirement("G22")
async def test_a_server_that_is_down_full_or_no_member_is_named_with_what_helps(
    candidates: Candidates,
) -> None:
    one, two, three = (node.name for node in NODE_LIST)
    candidates.etcd.down.add(candidates.etcd.endpoints[0])
    candidates.reports[two] = CandidateReport(has_data=True, free_bytes=LEAST_FREE_BYTES - 1)
    await candidates.etcd.remove_member(3)
    down, full, none = await candidates.faults()
    assert (down[0], down[2]) == (one, True)
    assert "does not answer: connection refused" in down[1]
    assert f"--master-candidate=no --auto-promote {one}" in down[1]
    assert (full[0], full[2]) == (two, True)
    assert "out of space: 127 MiB are free" in full[1]
    assert (none[0], none[2]) == (three, False)
    assert "not a member" in none[1]


@pytest.mark.requirement("G22")
async def test_a_member_that_lost_its_data_comes_back_as_another_one(
    candidates: Candidates,
) -> None:
    two = NODE_LIST[1]
    assert await candidates.servers.lost(NODE_LIST) == frozenset()
    candidates.reports[two.name] = LOST
    assert await candidates.servers.lost(NODE_LIST) == {two.uuid}
    ((name, text, is_error),) = await candidates.faults()
    assert (name, is_error) == (two.name, True)
    assert "data of its etcd server is lost" in text
    place = await candidates.servers.admit(two)
    assert [member.ID for member in candidates.etcd.listed] == [1, 3, 99]
    settings = msgspec.json.decode(place.server, type=ServerSettings)
    assert not settings.is_new
    assert f"{two.uuid}={peer_url(two.primary_ip)}" in settings.initial_cluster
    # One that has not begun yet is not taken for one that has lost something.
    assert await candidates.servers.lost(NODE_LIST) == frozenset()
    await candidates.servers.admit(two)
    assert [member.ID for member in candidates.etcd.listed] == [1, 3, 99]


async def test_a_node_that_does_not_answer_is_not_taken_for_one_without_data(
    candidates: Candidates,
) -> None:
    candidates.reports[NODE_LIST[0].name] = LOST
    del candidates.rpc.nodes[NODE_LIST[0].name]
    assert await candidates.servers.lost(NODE_LIST) == frozenset()


async def test_external_servers_are_named_by_their_addresses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    candidates = Candidates(tmp_path, monkeypatch, is_managed=False)
    candidates.etcd.down.add(candidates.etcd.endpoints[1])
    candidates.reports[NODE_LIST[0].name] = LOST
    ((name, text, is_error),) = await candidates.faults()
    assert (name, is_error) == ("", True)
    assert f"etcd at {candidates.etcd.endpoints[1]} does not answer" in text
    assert await candidates.servers.lost(NODE_LIST) == frozenset()


def test_a_server_without_its_data_takes_new_settings_and_one_with_them_keeps_its_own(
    tmp_path: Path,
) -> None:
    paths = Paths(tmp_path)
    paths.data.mkdir(parents=True)

    def settings(initial: str) -> ServerSettings:
        return ServerSettings(
            name=NODES[0], cluster_uuid="c", address="192.0.2.1", initial_cluster=initial,
            is_new=True,
        )  # fmt: skip

    keep_server_settings(paths, settings("first"))
    note_begun(paths)
    assert server_settings(paths) == settings("first")
    (EtcdFiles(paths).data / "member" / "wal").mkdir(parents=True)
    note_begun(paths)
    assert server_settings(paths) == msgspec.structs.replace(settings("first"), has_begun=True)
    keep_server_settings(paths, settings("second"))
    assert server_settings(paths) == msgspec.structs.replace(settings("first"), has_begun=True)
    (EtcdFiles(paths).data / "member" / "wal").rmdir()
    assert not has_data(paths)
    keep_server_settings(paths, settings("third"))
    assert server_settings(paths) == settings("third")
    assert not EtcdFiles(paths).data.exists()


@pytest.mark.virtual_time
async def test_new_member_gets_its_vote_although_no_server_answers_for_a_moment(
    candidates: Candidates, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = NODE_LIST[2]
    learner = msgspec.structs.replace(candidates.etcd.listed[2], isLearner=True)
    candidates.etcd.listed[2] = learner
    usual = candidates.etcd.members
    answers = iter([NotSent("connection refused"), NotSent("connection refused"), None])
    promoted: list[int] = []

    async def members() -> MembersAnswer:
        if error := next(answers):
            raise error
        return await usual()

    async def promote_member(number: int) -> None:
        promoted.append(number)

    monkeypatch.setattr(candidates.etcd, "members", members)
    monkeypatch.setattr(candidates.etcd, "promote_member", promote_member, raising=False)
    await candidates.servers.settle(node)
    assert promoted == [learner.ID]
