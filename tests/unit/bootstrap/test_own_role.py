"""What a node of each role may hold and run, and making that true (`ganeti.base.roles`)."""

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from ganeti import ssconf
from ganeti.base.certificate_facts import node_identity
from ganeti.base.errors import HostError
from ganeti.base.paths import Paths
from ganeti.base.pidfile import identity_of
from ganeti.base.roles import Role, forbidden_daemons, forbidden_files, held_files
from ganeti.base.state_kinds import ETCD_SERVER
from ganeti.bootstrap.daemons import (
    CONFD,
    MASTERD,
    MODULES,
    NODED,
    RAPI,
    Daemons,
    DaemonStatus,
)
from ganeti.bootstrap.own_role import (
    GRACE_S,
    end_confd_copy,
    enforce_own_role,
    enforce_role,
    own_role,
)
from ganeti.model.objects import NodeUuid
from ganeti.store.etcd.files import EtcdFiles
from ganeti.store.register import Accepted, Promise, Register, RegisterFile, encode_register
from tests.support.node_certificates import Authority

NAME = "node1.example.com"
OTHER = "22222222-2222-4222-8222-222222222222"
SECRETS = (
    "ca.key",
    "hmac.key",
    "hmac.key.former",
    "cluster-domain-secret",
    "rapi.pem",
    "rapi_users",
    "rapi_openid.yaml",
    "state.db",
    "state.db-wal",
    "state.db.aside-3-4",
    "state.room",
    "archive.db",
    "archive.db-wal",
    "state-backend.json",
)
COPY = ("node-hmac.key", "confd.db", "confd.db-wal", "confd.db-shm")
"""What a node has that answers confd queries from a copy."""


class FakeDaemons(Daemons):
    """Daemons that run until they are stopped."""

    def __init__(self, paths: Paths, running: Sequence[str]) -> None:
        super().__init__(paths)
        self.running = list(running)

    def status(self, name: str) -> DaemonStatus:
        return DaemonStatus(name, identity_of(os.getpid()) if name in self.running else None)

    async def stop(self, name: str) -> None:
        self.running.remove(name)


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    """A node that was a candidate long ago: it has everything that a candidate may have."""
    made = Paths(tmp_path)
    for directory in (made.data, made.run, EtcdFiles(made).data):
        directory.mkdir(parents=True)
    Authority().equip(made, NAME)
    for name in SECRETS:
        (made.data / name).write_text("secret")
    os.utime(made.authority_key, (0, 0))
    return made


def own_uuid(paths: Paths) -> NodeUuid:
    return NodeUuid(node_identity(paths.node_certificate.read_bytes())[0])


def is_told(
    paths: Paths,
    *,
    candidate: str = OTHER,
    offline: str = "",
    position: int = 5,
    confd_on_all: bool = False,
) -> None:
    values = {
        "master_candidates_certs": f"{candidate}={'ab' * 32}" if candidate else "",
        "confd_on_all_nodes": str(confd_on_all),
    }
    ssconf.write_set(paths, position, {**values, "offline_nodes": offline})


@pytest.mark.requirement("G23", "A57")
@pytest.mark.parametrize("role", list(Role))
async def test_node_of_a_role_matches_the_table(paths: Paths, role: Role) -> None:
    daemons = FakeDaemons(paths, list(MODULES))
    kept = {path.name for path in paths.data.iterdir()}
    done = await enforce_role(paths, daemons, role)
    left = {path.name for path in held_files(paths)}
    if role in (Role.MASTER, Role.CANDIDATE):
        assert done == []
    if role in (Role.MASTER, Role.CANDIDATE, Role.OFFLINE):
        assert left == {*SECRETS, "etcd"}
    else:
        assert left == set()
        assert kept - {path.name for path in paths.data.iterdir()} == {*SECRETS, "etcd"}
        assert any("archive.db" in one for one in done)
    if role in (Role.REGULAR, Role.DRAINED, Role.OFFLINE):
        assert not {CONFD, RAPI, MASTERD, ETCD_SERVER.daemon} & set(daemons.running)
        assert NODED in daemons.running
    assert forbidden_files(paths, role, confd_on_all=False) == []
    assert await enforce_role(paths, daemons, role) == []


def test_master_may_run_everything() -> None:
    assert forbidden_daemons(Role.MASTER, confd_on_all=False) == []


def answers_from_copy(paths: Paths) -> FakeDaemons:
    """The node has both a candidate's files and a copy; its confd runs."""
    for name in COPY:
        (paths.data / name).write_text("copy")
    return FakeDaemons(paths, (CONFD,))


@pytest.mark.requirement("S238", "G23")
@pytest.mark.parametrize("role", list(Role))
@pytest.mark.parametrize("confd_on_all", [True, False])
async def test_only_nodes_that_are_not_candidates_hold_a_copy_and_only_by_option(
    paths: Paths, role: Role, *, confd_on_all: bool
) -> None:
    daemons = answers_from_copy(paths)
    is_told(paths, confd_on_all=confd_on_all)
    done = await enforce_role(paths, daemons, role)
    left = {path.name for path in held_files(paths)} & set(COPY)
    keeps = confd_on_all and role in (Role.REGULAR, Role.DRAINED)
    assert left == (set(COPY) if keeps else set())
    # Of a process that has an earlier role's files open only a stopped one forgets them.
    assert daemons.running == []
    assert any(one.startswith(f"{CONFD} was stopped") for one in done)
    assert await enforce_role(paths, daemons, role) == []
    allowed = CONFD not in forbidden_daemons(role, confd_on_all=confd_on_all)
    assert allowed == (keeps or role in (Role.MASTER, Role.CANDIDATE))


@pytest.mark.requirement("S238")
async def test_confd_with_an_allowed_copy_keeps_running(paths: Paths) -> None:
    await enforce_role(paths, FakeDaemons(paths, ()), Role.REGULAR)
    daemons = answers_from_copy(paths)
    is_told(paths, confd_on_all=True)
    assert await enforce_role(paths, daemons, Role.REGULAR) == []
    assert await end_confd_copy(paths, daemons) == []
    assert daemons.running == [CONFD]


@pytest.mark.requirement("S238")
async def test_copy_goes_when_the_option_ends_and_what_candidates_have_stays(paths: Paths) -> None:
    daemons = answers_from_copy(paths)
    assert await end_confd_copy(paths, daemons) == []  # nothing says what this node is
    is_told(paths)
    done = await end_confd_copy(paths, daemons)
    assert len(done) == 1 + len(COPY)
    assert daemons.running == []
    assert {path.name for path in held_files(paths)} == {*SECRETS, "etcd"}


@pytest.mark.requirement("S238")
async def test_copy_stays_while_confd_cannot_be_stopped_and_goes_the_next_time(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemons = answers_from_copy(paths)
    is_told(paths)

    async def refuse(_name: str) -> None:
        raise HostError("it does not end")

    with monkeypatch.context() as patched:
        patched.setattr(daemons, "stop", refuse)
        with pytest.raises(HostError, match="does not end"):
            await end_confd_copy(paths, daemons)
    assert paths.own_confd_key.exists()
    with monkeypatch.context() as patched:

        def fail(path: Path, **_options: bool) -> None:
            raise OSError(5, "Input/output error", str(path))

        patched.setattr(Path, "unlink", fail)
        with pytest.raises(HostError, match=r"node-hmac\.key: Input/output error"):
            await end_confd_copy(paths, daemons)
    assert await end_confd_copy(paths, daemons)
    assert not paths.own_confd_key.exists()


async def test_role_is_read_from_the_latest_facts(paths: Paths) -> None:
    assert own_role(paths) is None
    is_told(paths, candidate="")
    assert own_role(paths) is None
    is_told(paths, offline=NAME)
    assert own_role(paths) is Role.OFFLINE
    is_told(paths)
    assert own_role(paths) is Role.REGULAR
    is_told(paths, candidate=own_uuid(paths))
    assert own_role(paths) is Role.CANDIDATE


@pytest.mark.requirement("G23")
async def test_node_that_learns_that_it_is_not_a_candidate_cleans_itself(paths: Paths) -> None:
    is_told(paths)
    daemons = FakeDaemons(paths, (MASTERD, CONFD, NODED))
    done = await enforce_own_role(paths, daemons)
    assert any("ca.key was removed" in one for one in done)
    assert daemons.running == [NODED]
    assert held_files(paths) == []


@pytest.mark.parametrize("why", ["new key", "was the master last", "no facts", "candidate"])
async def test_what_may_belong_to_a_newer_role_stays(paths: Paths, why: str) -> None:
    if why != "no facts":
        is_told(paths, candidate=own_uuid(paths) if why == "candidate" else OTHER)
    if why == "new key":
        os.utime(paths.authority_key)
    if why == "was the master last":
        own = own_uuid(paths)
        accepted = Accepted(4, 0, own, frozenset((own,)), 0)
        register = Register("cluster", Promise(4, own), accepted)
        paths.register.write_bytes(encode_register(register))
    assert await enforce_own_role(paths, FakeDaemons(paths, ())) == []
    # SQLite removes a log that is none.
    left = {path.name for path in held_files(paths)} | {"state.db-wal"}
    assert left == {*SECRETS, "etcd"}
    assert GRACE_S > 600


async def test_former_master_that_has_met_another_is_cleaned(paths: Paths) -> None:
    own = own_uuid(paths)
    accepted = Accepted(4, 0, own, frozenset((own,)), 0)
    register = Register("cluster", Promise(5, NodeUuid(OTHER)), accepted)
    paths.register.write_bytes(encode_register(register))
    assert RegisterFile(paths.register).read() == register
    is_told(paths)
    assert await enforce_own_role(paths, FakeDaemons(paths, ())) != []
