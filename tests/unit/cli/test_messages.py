"""What commands print for the mistakes that users make most."""

from pathlib import Path

import pytest

from ganeti.cli import input_file
from ganeti.cli.manual import table_of
from tests.unit.cli.fake_master import FakeMaster, Run


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("gnt-instance lst", "there is no command 'lst'; did you mean list?"),
        ("gnt-instance list --no-haeders", "unrecognized arguments: --no-haeders; did you mean --no-headers?"),
        ("gnt-instance add -t file --disk 0:siez=1g -o tiny web1", "unknown key 'siez'; did you mean size?"),
        ("gnt-instance add -t file --net 0:linc=br0 -o tiny web1", "unknown key 'linc'; did you mean link?"),
        ("gnt-instance grow-disk web1 0 -10m", "'-10m' is negative, but disks cannot shrink"),
        ("gnt-instance startup", "no instances are selected; pass names, or select by --all"),
        ("gnt-instance startup --all web1", "--all: accepts no names"),
        ("gnt-group modify default", "nothing to change: pass at least one option"),
        ("gnt-cluster modify", "nothing to change: pass at least one option"),
        ("gnt-node add-tags node1 ''", "a tag cannot be empty"),
        ("gnt-node add-tags node1", "no tag was passed"),
        ("gnt-debug submit-job /nosuch", "/nosuch: does not exist"),
    ],
)  # fmt: skip
def test_mistake_is_named_with_what_to_do(run: Run, line: str, message: str) -> None:
    program, *words = line.replace("''", "'").split()
    code, _out, err = run(table_of(program), *(word.strip("'") for word in words))
    assert code in (1, 2)
    assert message in " ".join(err.split())


def test_file_of_opcodes_that_is_no_json_is_named(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "job"
    path.write_text("root:x:0\n")
    code, _out, err = run(table_of("gnt-debug"), "submit-job", str(path))
    assert code == 1
    assert f"{path}: is not JSON (" in err
    path.write_bytes(b"\xff\xfe")
    assert "is not UTF-8 text" in run(table_of("gnt-debug"), "submit-job", str(path))[2]


@pytest.mark.parametrize(
    ("status", "why"),
    [
        (None, "the job does not exist"),
        ("running", "the job is running, not finished"),
        ("success", "the job is already archived"),
    ],
)
def test_job_that_cannot_be_archived_explains_why(
    master: FakeMaster, run: Run, status: str | None, why: str
) -> None:
    master.replies["ArchiveJob"] = False
    master.replies["QueryJobs"] = [[status]]
    code, _out, err = run(table_of("gnt-job"), "archive", "9")
    assert code == 1
    assert f"Job 9 was not archived: {why}" in err


def test_changed_parameters_of_a_group_are_lines_of_their_own(master: FakeMaster, run: Run) -> None:
    master.job(result=[["ndparams", {"spindle_count": 3}], ["ipolicy", {"vcpu-ratio": None}]])
    code, out, _err = run(table_of("gnt-group"), "modify", "--alloc-policy=preferred", "default")
    assert code == 0
    assert out.splitlines()[-2:] == [
        " - ndparams/spindle_count -> 3",
        " - ipolicy/vcpu-ratio -> default",
    ]


def offline(master: FakeMaster, *, runs: bool) -> None:
    master.replies["QueryNodes"] = [["node2.example.com"]]
    cells = [[[0, "web1"], [0, runs]], [[0, "web2"], [0, False]]]
    master.replies["Query"] = {"fields": [], "data": cells}
    master.job(result=[["offline", True]])


class Terminal:
    """A standard input at which a person answers."""

    def __init__(self, answer: str) -> None:
        self.answer = answer

    def isatty(self) -> bool:
        return True

    def readline(self) -> str:
        return self.answer


@pytest.mark.requirement("F29")
@pytest.mark.parametrize(("answer", "status"), [("y\n", 0), ("n\n", 13)])
def test_node_with_running_instances_is_marked_offline_only_if_that_is_meant(
    master: FakeMaster, run: Run, monkeypatch: pytest.MonkeyPatch, answer: str, status: int
) -> None:
    offline(master, runs=True)
    monkeypatch.setattr("sys.stdin", Terminal(answer))
    code, out, _err = run(table_of("gnt-node"), "modify", "--offline=yes", "node2")
    assert code == status
    assert "1 instances run on node2.example.com (web1)" in out
    assert ("SubmitJob" in master.methods()) is (status == 0)


@pytest.mark.parametrize("words", [["--force"], []])
def test_node_without_running_instances_or_with_force_is_marked_offline_unasked(
    master: FakeMaster, run: Run, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    offline(master, runs=bool(words))
    monkeypatch.setattr("sys.stdin", Terminal("n\n"))
    assert run(table_of("gnt-node"), "modify", "--offline=yes", *words, "node2")[0] == 0


@pytest.mark.parametrize(
    "line",
    [
        "gnt-debug submit-job /dev/zero",
        "gnt-instance batch-create /dev/zero",
        "gnt-node add-tags --from=/dev/zero node1",
    ],
)
def test_file_without_end_is_refused_before_it_fills_the_memory(
    run: Run, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    monkeypatch.setattr(input_file.read_input, "__defaults__", (1 << 20,))
    program, *words = line.split()
    code, _out, err = run(table_of(program), *words)
    assert code == 1
    assert "/dev/zero: is larger than 1 MiB" in " ".join(err.split())
