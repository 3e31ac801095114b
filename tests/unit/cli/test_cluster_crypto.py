"""gnt-cluster renew-crypto and rename: what is refused, what is written here, what is sent."""

from pathlib import Path
from typing import Any

import pytest

from ganeti import ssconf
from ganeti.base.paths import Paths
from ganeti.base.pidfile import ProcessIdentity
from ganeti.bootstrap.daemons import RAPI, Daemons, DaemonStatus
from ganeti.cli.gnt_cluster import table
from tests.unit.cli.fake_master import FakeMaster, Run


@pytest.fixture
def paths(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Paths:
    """The master's own files."""
    root = tmp_path / "root"
    monkeypatch.setenv("GANETI_ROOTDIR", str(root))
    made = Paths(root)
    made.data.mkdir(parents=True)
    ssconf.write_set(made, 1, {"cluster_name": "cluster.example.com", "master_ip": "192.0.2.7"})
    return made


def operations(master: FakeMaster) -> list[dict[str, Any]]:
    return [args[0][0] for method, args in master.requests if method == "SubmitJob"]


@pytest.mark.requirement("F39")
def test_what_nodes_have_is_renewed_by_a_job_and_late_ones_make_it_a_failure(
    master: FakeMaster, run: Run
) -> None:
    words = ("renew-crypto", "--force", "--new-cluster-certificate", "--new-confd-hmac-key")
    master.job(result=[])
    assert run(table, *words)[0] == 0
    master.job(result=["node2.example.com"])
    assert run(table, *words)[0] == 1
    first, second = operations(master)
    assert first["cluster_certificate"] is first["confd_key"] is True
    assert not first.get("node_certificates")
    assert first["OP_ID"] == second["OP_ID"] == "OP_CLUSTER_RENEW_CRYPTO"


@pytest.mark.requirement("F39", "S51", "S206")
def test_files_of_the_master_are_written_here_and_given_to_the_others(
    master: FakeMaster, run: Run, paths: Paths
) -> None:
    master.replies["QueryClusterInfo"] = {"name": "cluster.example.com"}
    master.job()
    words = ("--new-rapi-certificate", "--new-spice-certificate", "--new-cluster-domain-secret")
    code, out, _err = run(table, "renew-crypto", "--force", *words)
    assert code == 0
    written = (paths.rapi_certificate, paths.spice_certificate, paths.cluster_domain_secret)
    assert all(path.stat().st_mode & 0o777 == 0o600 and str(path) in out for path in written)
    assert paths.cluster_domain_secret.read_text().strip() not in out
    assert [op["OP_ID"] for op in operations(master)] == ["OP_CLUSTER_REDIST_CONF"]


@pytest.mark.requirement("S225")
@pytest.mark.parametrize(
    ("word", "restarted"),
    [("--new-rapi-certificate", [RAPI]), ("--new-cluster-domain-secret", [])],
)
def test_rest_clients_find_the_new_certificate_when_the_command_ends(
    master: FakeMaster, run: Run, paths: Paths, monkeypatch: pytest.MonkeyPatch,
    word: str, restarted: list[str],
) -> None:  # fmt: skip
    async def restart(_self: Daemons, name: str) -> None:
        assert len(operations(master)) == 1
        found.append(name)

    found: list[str] = []
    serves = DaemonStatus(RAPI, ProcessIdentity(1, 1))
    monkeypatch.setattr(Daemons, "status", lambda _self, _name: serves)
    monkeypatch.setattr(Daemons, "restart", restart)
    master.replies["QueryClusterInfo"] = {"name": "cluster.example.com"}
    master.job()
    assert run(table, "renew-crypto", "--force", word)[0] == 0
    assert found == restarted


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--force"], 1, "nothing to renew: pass at least one option"),
        (["--new-node-certificates"], 13, "--force"),
        (
            ["--force", "--new-rapi-certificate", "--rapi-certificate=x"],
            1,
            "create a new one or pass a file",
        ),
        (["--force", "--spice-certificate=x"], 1, "must be passed together"),
        (["--force", "--cluster-domain-secret=/nowhere"], 1, "/nowhere"),
    ],
    ids=str,
)
def test_what_is_refused_writes_and_sends_nothing(
    master: FakeMaster, run: Run, paths: Paths, words: list[str], code: int, said: str
) -> None:
    master.replies["QueryClusterInfo"] = {"name": "cluster.example.com"}
    before = sorted(paths.data.iterdir())
    found, _out, err = run(table, "renew-crypto", *words)
    assert (found, said in err) == (code, True)
    assert operations(master) == []
    assert sorted(paths.data.iterdir()) == before


def test_the_cluster_gets_another_name_only_if_that_is_meant(master: FakeMaster, run: Run) -> None:
    master.job()
    assert run(table, "rename", "other.example.com")[0] == 13
    words = ("rename", "--force", "--master-ip", "192.0.2.9", "other.example.com")
    assert run(table, *words)[0] == 0
    (op,) = operations(master)
    wanted = {"OP_ID": "OP_CLUSTER_RENAME", "name": "other.example.com", "ip": "192.0.2.9"}
    assert wanted.items() <= op.items()
