"""gnt-storage."""

from ganeti.cli.gnt_storage import table
from tests.unit.cli.fake_master import FakeMaster, Run

STATUS = {
    "node1": [["/srv/shelf", True, "", [["pool", "Where"]]]],
    "node2": [["/srv/shelf", False, "script grow is missing", []]],
}


def test_parameters_of_a_provider_are_shown(master: FakeMaster, run: Run) -> None:
    master.job(result=[["shelf", {"default": True}, [["pool", "Where it lies"]]]])
    code, out, _err = run(table, "info")
    assert code == 0
    assert "  - Valid for nodegroups: default" in out
    assert "      - pool: Where it lies" in out


def test_diagnosis_reports_where_a_provider_is_not_usable(master: FakeMaster, run: Run) -> None:
    master.job(result=[["shelf", STATUS, {"default": False}]])
    code, out, _err = run(table, "diagnose", "shelf")
    assert code == 1
    assert "Provider: shelf [global status: invalid]" in out
    assert "Node: node2, status: invalid, path: /srv/shelf (script grow is missing)" in out
    assert "Not usable in all nodes of: default" in out


def test_a_provider_that_no_node_has_is_an_error(master: FakeMaster, run: Run) -> None:
    master.job(result=[])
    code, _out, err = run(table, "info", "nosuch")
    assert code != 0
    assert "provider nosuch does not exist on any node" in err
