from pathlib import Path

import pytest

from ganeti import __version__, ssconf
from ganeti.base import certificates
from ganeti.base.paths import Paths
from ganeti.base.pidfile import holding_pid_file, pid_file
from ganeti.bootstrap.daemons import MASTERD
from ganeti.node.voter import VoterFacts

OWN = "11111111-1111-4111-8111-111111111111"
OTHER = "22222222-2222-4222-8222-222222222222"
NAME = "node1.example.com"


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    made = Paths(tmp_path)
    made.data.mkdir(parents=True)
    authority_key, key = certificates.new_key(), certificates.new_key()
    authority = certificates.new_authority(authority_key, "cluster", "uuid", 0.0)
    request = certificates.signing_request(key, NAME)
    certificate = certificates.sign_node(
        authority, authority_key, request, node_uuid=OWN, node_name=NAME, now=0.0
    )
    made.node_certificate.parent.mkdir(parents=True, exist_ok=True)
    made.node_certificate.write_bytes(certificate)
    return made


def write(paths: Paths, candidate: str, offline: str = "") -> None:
    certs = f"{candidate}={'ab' * 32}"
    ssconf.write_set(paths, 1, {"master_candidates_certs": certs, "offline_nodes": offline})


@pytest.mark.parametrize(
    ("candidate", "offline", "heard", "role", "capable"),
    [
        (OWN, "", OTHER, "candidate", True),
        (OWN, "", OWN, "master", True),
        (OTHER, "", OTHER, "regular", False),
        (OTHER, NAME, "", "offline", False),
    ],
)
def test_node_reports_its_role(
    paths: Paths, candidate: str, offline: str, heard: str, role: str, capable: bool
) -> None:
    write(paths, candidate, offline)
    paths.authority_key.write_text("key")
    voter = VoterFacts(paths)(heard)
    assert (voter.role, voter.master_capable, voter.software) == (role, capable, __version__)
    assert voter.tail is None


def test_a_candidate_without_the_key_is_not_capable(paths: Paths) -> None:
    write(paths, OWN)
    assert not VoterFacts(paths)("").master_capable


def test_node_without_facts_reports_the_known_ones(paths: Paths) -> None:
    assert VoterFacts(paths)("").role == ""
    paths.node_certificate.write_text("nonsense")
    voter = VoterFacts(paths)("")
    assert (voter.role, voter.master_capable, voter.last_job_id) == ("", False, 0)


def test_node_says_that_no_master_daemon_runs_only_while_its_pid_file_is_free(paths: Paths) -> None:
    paths.run.mkdir(parents=True)
    assert not VoterFacts(paths)("").has_master_daemon
    with holding_pid_file(pid_file(paths.run, MASTERD), MASTERD):
        assert VoterFacts(paths)("").has_master_daemon
    assert not VoterFacts(paths)("").has_master_daemon
