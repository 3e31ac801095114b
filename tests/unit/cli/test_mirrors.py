"""The commands about mirrored disks: the choice of a copy is confirmed, and states have their commands."""

import pytest

from ganeti.cli.gnt_instance.show import _mirror
from ganeti.cli.manual import table_of
from tests.unit.cli.fake_master import FakeMaster, Run


@pytest.mark.requirement("G13")
def test_choosing_a_copy_is_confirmed(master: FakeMaster, run: Run) -> None:
    table = table_of("gnt-instance")
    code, _, err = run(table, "repair-disks", "--keep=node2", "web1")
    assert code != 0
    assert (
        "Keep the copy of web1 on node2, and discard the writes that only the other copy has?"
        in err
    )
    master.job(result={"jobs": []})
    assert run(table, "repair-disks", "--keep=node2", "-f", "web1")[0] == 0
    [op] = master.args_of("SubmitJob")[0]
    assert (op["OP_ID"], op["keep"]) == ("OP_INSTANCE_REPAIR", "node2")


@pytest.mark.parametrize(("status", "wanted"), [("closed", 0), ("stale", 1), ("split-brain", 1)])
def test_the_exit_code_reports_whether_disks_are_ok(
    master: FakeMaster, run: Run, status: str, wanted: int
) -> None:
    row = {"disk": 0, "node": "node1", "status": status, "percent": None, "seconds_left": None}
    master.job(result=[{**row, "problem": "", "state": "words"}])
    code, out, _ = run(table_of("gnt-instance"), "disk-status", "web1")
    assert code == wanted
    assert status in out


def test_info_shows_the_state_of_a_mirror_and_its_repair() -> None:
    told = {"state": "stale", "problem": "disk/0 is stale: why", "repair": "gnt-instance x"}
    assert _mirror(told) == [
        ("state of the mirror", "disk/0 is stale: why"),
        ("repair", "gnt-instance x"),
    ]
    assert _mirror({"state": "ok", "problem": None, "repair": None}) == [
        ("state of the mirror", "ok")
    ]
    assert _mirror(None) == []
