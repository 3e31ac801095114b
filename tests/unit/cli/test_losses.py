import io
from pathlib import Path
from typing import Any

import pytest

import ganeti.cli
from ganeti.cli.command import CommandTable
from ganeti.cli.gnt_backup import table as gnt_backup
from ganeti.cli.gnt_cluster import table as gnt_cluster
from ganeti.cli.gnt_image import table as gnt_image
from ganeti.cli.gnt_instance.table import table as gnt_instance
from ganeti.cli.gnt_node import table as gnt_node
from ganeti.model.opcode_table import OPCODES
from tests.unit.cli.fake_master import FakeMaster, Run


@pytest.fixture(autouse=True)
def nobody_to_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO())


@pytest.mark.requirement("G12")
def test_opcode_that_changes_something_declares_either_a_loss_or_why_there_is_none() -> None:
    changing = [kind for kind in OPCODES.values() if kind.host_changing]
    assert [one.op_id() for one in changing if bool(one.loss) is bool(one.no_loss)] == []
    reading = [kind for kind in OPCODES.values() if not kind.host_changing]
    assert [one.op_id() for one in reading if one.loss or one.no_loss] == []


DESTROYING: dict[str, list[tuple[CommandTable, str, str]]] = {
    "OP_CLUSTER_DESTROY": [(gnt_cluster, "destroy", "--yes-do-it")],
    "OP_IMAGE_REMOVE": [(gnt_image, "remove box", "--force")],
    "OP_INSTANCE_REMOVE": [(gnt_instance, "remove web1", "--force")],
    "OP_INSTANCE_REINSTALL": [(gnt_instance, "reinstall web1", "--force")],
    "OP_INSTANCE_SET_PARAMS": [
        (gnt_instance, "modify --disk 0:remove web1", "--force"),
        (gnt_instance, "modify --disk remove -B vcpus=2 web1", "--force"),
        (gnt_instance, "modify --disk add:size=1g --disk data:remove web1", "--force"),
    ],
    "OP_INSTANCE_RECREATE_DISKS": [
        (gnt_instance, "recreate-disks -n node2 web1", "--force"),
        (gnt_instance, "recreate-disks -I hail web1", "--force"),
    ],
    "OP_BACKUP_RESTORE": [(gnt_backup, "restore web1", "--force")],
    "OP_BACKUP_KEY_RETIRE": [(gnt_backup, "key retire 0123456789abcdef --force", "--yes-do-it")],
    "OP_INSTANCE_SNAPSHOT_ROLLBACK": [(gnt_instance, "snapshot rollback web1 s1", "--force")],
    "OP_INSTANCE_SNAPSHOT_REMOVE": [(gnt_instance, "snapshot remove web1 s1", "--force")],
    "OP_INSTANCE_REPAIR": [(gnt_instance, "repair-disks --keep=node2 web1", "--force")],
    "OP_OOB_COMMAND": [
        (gnt_node, "power off node2", "--force"),
        (gnt_node, "power cycle --all", "--force"),
    ],
    "OP_REPAIR_NODE_STORAGE": [
        (gnt_node, "repair-storage --ignore-consistency node1 lvm-vg xenvg", "--force")
    ],
    "OP_NODE_FENCE_TEST": [(gnt_node, "fence-test --off node2", "--force")],
    "OP_NODE_FENCED": [(gnt_node, "fenced --confirm node2", "--force")],
    "OP_NODE_POWERCYCLE": [(gnt_node, "powercycle node2", "--force")],
}
"""Command lines that destroy something, and the option without which nothing happens."""
COMMAND_LINES = [
    pytest.param(kind, *line, id=line[1]) for kind, lines in DESTROYING.items() for line in lines
]


def test_every_destroying_opcode_has_a_command_line_here() -> None:
    assert DESTROYING.keys() == {name for name, kind in OPCODES.items() if kind.loss}


def _answer(master: FakeMaster) -> None:
    master.job(result=[])
    master.replies["QueryInstances"] = [["web1"]]


def _submitted(master: FakeMaster) -> list[Any]:
    return [
        op["OP_ID"]
        for method, args in master.requests
        if method in ("SubmitJob", "SubmitManyJobs")
        for op in (args[0] if method == "SubmitJob" else [op for job in args[0] for op in job])
    ]


@pytest.mark.requirement("G12")
@pytest.mark.parametrize(("kind", "program", "words", "sure"), COMMAND_LINES)
def test_what_destroys_data_is_refused_without_a_terminal(
    master: FakeMaster,
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    program: CommandTable,
    words: str,
    sure: str,
) -> None:
    async def destroy(*_args: Any) -> None:
        pass

    monkeypatch.setattr("ganeti.bootstrap.destroy.destroy", destroy)
    _answer(master)
    code, _out, err = run(program, *words.split())
    loss = OPCODES[kind].loss
    assert loss is not None
    if loss.terminal_only:
        assert (code, _submitted(master)) == (0, [kind])
        return
    assert (code, _submitted(master)) == (13, [])
    assert sure in err
    assert run(program, *words.split(), sure)[0] == 0
    assert _submitted(master) == [kind]


@pytest.mark.requirement("G12")
def test_several_reinstallations_need_a_confirmation_of_their_own(
    master: FakeMaster, run: Run
) -> None:
    _answer(master)
    master.replies["QueryInstances"] = [["web1"], ["web2"]]
    code, _out, err = run(gnt_instance, "reinstall", "--force", "web1", "web2")
    assert (code, _submitted(master)) == (13, [])
    assert "--force-multiple" in err


def test_a_change_that_removes_no_disk_asks_nothing(master: FakeMaster, run: Run) -> None:
    _answer(master)
    words = "modify --disk 0:mode=ro --net 0:remove --disk add:size=1g web1"
    assert run(gnt_instance, *words.split())[0] == 0
    assert run(gnt_instance, "recreate-disks", "web1")[0] == 0
    assert len(_submitted(master)) == 2


def test_the_answer_on_a_terminal_decides(
    master: FakeMaster, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    _answer(master)
    for said, code in (("n\n", 13), ("\n", 13), ("", 13), ("y\n", 0)):
        monkeypatch.setattr("sys.stdin", Terminal(said))
        found, out, _err = run(gnt_instance, "modify", "--disk", "-1:remove", "web1")
        assert found == code
        assert out.startswith("Remove from web1 disk the last one, and all data on it? y/[n]: ")
    assert _submitted(master) == ["OP_INSTANCE_SET_PARAMS"]


SUBMIT_THEMSELVES = {
    "burnin.py": "instances that it has made itself, by their tag",
    "gnt_debug.py": "what an administrator wrote down as opcodes",
    "harep.py": "a tag of the administrator is the answer: reinstall allows it to make lost disks anew",
    "hbal.py": "migrations and failovers",
    "hsqueeze.py": "migrations, tags, and roles of nodes",
    "jobs.py": "it asks",
}
"""Modules that submit jobs without the question, and what."""


def test_no_command_goes_past_the_question() -> None:
    folder = Path(ganeti.cli.__file__).parent
    submitting = {
        path.name
        for path in folder.rglob("*.py")
        if "submit_many" in (text := path.read_text()) or "import submit" in text
    }
    assert submitting == SUBMIT_THEMSELVES.keys()
