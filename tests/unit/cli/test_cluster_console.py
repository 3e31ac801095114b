"""gnt-cluster console-link."""

import json

import pytest

from ganeti.cli.gnt_cluster import table as gnt_cluster
from tests.unit.cli.fake_master import FakeMaster, Run


@pytest.fixture(autouse=True)
def _cluster(master: FakeMaster) -> None:
    master.replies["MakeLoginLink"] = "word"
    master.replies["QueryClusterInfo"] = {"name": "no.such.host.invalid", "master_ip": "192.0.2.1"}


def test_link_has_the_secret_behind_the_hash_and_the_role_write(
    master: FakeMaster, run: Run
) -> None:
    code, out, _ = run(gnt_cluster, "console-link")
    assert code == 0
    assert out == "https://192.0.2.1:5080/ui/#login=word\n"
    assert master.args_of("MakeLoginLink") == ["", "write", 600]


def test_link_for_a_user_has_no_role(master: FakeMaster, run: Run) -> None:
    master.replies["QueryClusterInfo"]["master_ip"] = "2001:db8::1"
    words = ("--user", "anna", "--life", "1h", "--port", "5081", "--json")
    _, out, _ = run(gnt_cluster, "console-link", *words)
    assert json.loads(out) == {
        "address": "https://[2001:db8::1]:5081/ui/#login=word", "life_s": 3600, "user": "anna",
    }  # fmt: skip
    assert master.args_of("MakeLoginLink") == ["anna", "", 3600]


def test_user_and_role_exclude_each_other(master: FakeMaster, run: Run) -> None:
    code, _, err = run(gnt_cluster, "console-link", "--user", "anna", "--role", "read")
    assert code != 0
    assert "exclude each other" in err
    assert master.methods() == []
