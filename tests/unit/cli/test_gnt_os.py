from typing import Any

from ganeti.cli.gnt_os import table
from tests.unit.cli.fake_master import FakeMaster, Run


def test_each_variant_has_a_line(master: FakeMaster, run: Run) -> None:
    rows: list[Any] = [["tiny", ["a", "b"], True], ["plain", [], True], ["broken", ["x"], False]]
    master.job(result=rows)
    assert run(table, "list") == (0, "Name\ntiny+a\ntiny+b\nplain\n", "")
    [op] = master.args_of("SubmitJob")[0]
    assert op["output_fields"] == ["name", "variants", "valid"]


def test_headings_can_be_left_out(master: FakeMaster, run: Run) -> None:
    master.job(result=[["tiny", ["a"], True]])
    assert run(table, "list", "--no-headers")[1] == "tiny+a\n"


def test_diagnose_says_why_not(master: FakeMaster, run: Run) -> None:
    status = {
        "node1": [["/srv/ganeti/os/tiny", True, "", ["a"], [], [20]]],
        "node2": [["/srv/ganeti/os/tiny", False, "no create script", [], [], []]],
        "node3": [],
    }
    master.job(result=[["tiny", False, status]])
    code, out, _err = run(table, "diagnose")
    assert code == 1
    assert out == (
        "OS: tiny [global status: invalid]\n"
        "  Node: node1, status: valid, path: /srv/ganeti/os/tiny [API versions: 20] [variants: a]\n"
        "  Node: node2, status: invalid, path: /srv/ganeti/os/tiny (no create script)\n"
        "  Node: node3, status: missing\n"
        "\n"
    )


def test_info_shows_parameters(master: FakeMaster, run: Run) -> None:
    master.job(result=[["tiny", True, ["a"], [["size", "how large"]], [20]]])
    code, out, _err = run(table, "show", "tiny")
    assert code == 0
    assert out == (
        "tiny: \n"
        "  valid: True\n"
        "  variants: \n"
        "    - a\n"
        "  parameters: \n"
        "    size: how large\n"
        "  API versions: \n"
        "    - 20\n"
    )


def test_a_definition_that_nobody_has_is_an_error(master: FakeMaster, run: Run) -> None:
    master.job(result=[])
    code, _out, err = run(table, "diagnose", "nosuch")
    assert code == 1
    assert "unknown_entity" in err
