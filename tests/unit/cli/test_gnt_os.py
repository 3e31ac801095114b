from typing import Any

import pytest

from ganeti.cli.gnt_os import table
from tests.unit.cli.fake_master import FakeMaster, Run


@pytest.mark.requirement("S121")
def test_each_variant_has_a_line(master: FakeMaster, run: Run) -> None:
    rows: list[Any] = [["tiny", ["a", "b"]], ["plain", []]]
    master.job(result=rows)
    assert run(table, "list") == (0, "Name\ntiny+a\ntiny+b\nplain\n", "")
    [op] = master.args_of("SubmitJob")[0]
    assert op["output_fields"] == ["name", "variants"]


def test_headings_can_be_left_out(master: FakeMaster, run: Run) -> None:
    master.job(result=[["tiny", ["a"]]])
    assert run(table, "list", "--no-headers")[1] == "tiny+a\n"


def test_diagnose_explains_why_not(master: FakeMaster, run: Run) -> None:
    status = {
        "node1": [["/srv/ganeti/os/tiny", True, "", ["a"], [], [20], True]],
        "node2": [["/srv/ganeti/os/tiny", False, "no create script", [], [], [], True]],
        "node3": [],
    }
    master.job(result=[["tiny", False, "1.0", ["not usable on node2"], status, True, False]])
    code, out, _err = run(table, "diagnose")
    assert code == 1
    assert out == (
        "OS: tiny [global status: invalid] [version: 1.0] [hidden]\n"
        "  Problem: not usable on node2\n"
        "  Node: node1, status: valid, path: /srv/ganeti/os/tiny [API versions: 20] [variants: a]\n"
        "  Node: node2, status: invalid, path: /srv/ganeti/os/tiny (no create script)\n"
        "  Node: node3, status: missing\n"
        "\n"
    )


def test_info_shows_parameters(master: FakeMaster, run: Run) -> None:
    row = ["tiny", True, False, True, "1.0", [20], ["a"], [["size", "how large"]],
           {"tiny": {"size": "9"}}, {"tiny+a": {"kvm": {"acpi": False}}}]  # fmt: skip
    master.job(result=[row])
    code, out, _err = run(table, "show", "tiny")
    assert code == 0
    assert out == (
        "tiny:\n"
        "  - valid: True\n"
        "  - hidden: False\n"
        "  - blacklisted: True\n"
        "  - OS version: 1.0\n"
        "  - API versions:\n"
        "    - 20\n"
        "  - variants:\n"
        "    - a\n"
        "  - parameters:\n"
        "    - size: how large\n"
        "  - cluster's OS parameters:\n"
        "    tiny: \n"
        "      size: 9\n"
        "  - cluster's hypervisor parameters:\n"
        "    tiny+a: \n"
        "      kvm: \n"
        "        acpi: False\n"
        "\n"
    )


def test_a_missing_definition_is_an_error(master: FakeMaster, run: Run) -> None:
    master.job(result=[])
    code, _out, err = run(table, "diagnose", "nosuch")
    assert code == 1
    assert "unknown_entity" in err


@pytest.mark.requirement("S151", "S154")
@pytest.mark.parametrize(
    ("words", "fields"),
    [
        (
            ["-O", "size=9,colour=red", "tiny"],
            {"osparams": {"tiny": {"size": "9", "colour": "red"}}},
        ),
        (["-O", "-size", "tiny+a"], {"osparams": {"tiny+a": {"size": None}}}),
        (
            ["-H", "kvm:acpi=false", "-H", "kvm:-vhost_net", "tiny"],
            {"os_hvp": {"tiny": {"kvm": {"acpi": "false", "vhost_net": None}}}},
        ),
        (["-H", "yes", "tiny"], {"hidden_os": [["add", "tiny"]]}),
        (
            ["--hidden=yes", "--blacklisted", "no", "later"],
            {"hidden_os": [["add", "later"]], "blacklisted_os": [["remove", "later"]]},
        ),
    ],
)
def test_modify_sets_what_the_cluster_has_for_an_os(
    master: FakeMaster, run: Run, words: list[str], fields: dict[str, Any]
) -> None:
    master.job(result=None)
    assert run(table, "modify", *words) == (0, "", "")
    [op] = master.args_of("SubmitJob")[0]
    assert op["OP_ID"] == "OP_CLUSTER_SET_PARAMS"
    names = ("osparams", "os_hvp", "hidden_os", "blacklisted_os")
    assert {name: op[name] for name in names if op.get(name) is not None} == fields


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["tiny"], "nothing to change: pass at least one option"),
        (["-O", "size", "tiny"], "osparams.size: needs a value"),
        (["-H", "acpi=false", "tiny"], "must be NAME:key=value"),
    ],
)
def test_an_empty_modification_is_refused(
    master: FakeMaster, run: Run, words: list[str], text: str
) -> None:
    code, _out, err = run(table, "modify", *words)
    assert code == 1
    assert text in err
    assert master.requests == []
