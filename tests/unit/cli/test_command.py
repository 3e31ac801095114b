import argparse
import shutil
import subprocess
import sys

import msgspec
import pytest

from ganeti.base.errors import (
    ErrorCode,
    ExecError,
    GanetiError,
    JobQueueDrained,
    NotMaster,
    PrereqError,
)
from ganeti.cli import manual
from ganeti.cli.command import CommandTable, option, run_guarded
from ganeti.cli.command_index import index, index_text
from ganeti.cli.dashed_values import joined
from ganeti.cli.declared import INDEX
from ganeti.cli.errors import JobSubmitted, NeedsConfirmation, format_error
from ganeti.clients.luxi import NotClusterNodeError
from ganeti.model.fields import fields_of
from ganeti.model.opcode_table import OPCODES
from ganeti.model.operation import Argument
from tests.unit.cli.fake_master import Run

table = CommandTable("gnt-test", "For tests.")
seen: list[tuple[object, ...]] = []


@table.command(
    "add",
    Argument("name", "a name"),
    option("-n", "--node", metavar="NODE", help="a node"),
    option("--no-install", action="store_true", help="no install"),
    option("--disk", action="append", help="a disk"),
    aliases=("make",),
)
def add(args: argparse.Namespace) -> int:
    """Add something.

    And a second paragraph.
    """
    seen.append((args.command, args.name, args.node, args.no_install, args.disk))
    return 3


def test_options_may_be_abbreviated_and_stand_between_arguments(run: Run) -> None:
    words = ["make", "-n", "n1", "--disk", "0", "web1", "--no-inst", "--disk=1"]
    assert run(table, *words)[0] == 3
    assert seen.pop() == ("add", "web1", "n1", True, ["0", "1"])


@pytest.mark.parametrize(
    ("words", "node", "disks"),
    [
        (["--disk", "-1:remove"], None, ["-1:remove"]),
        (["--dis", "-1:add,size=1g", "--disk", "0"], None, ["-1:add,size=1g", "0"]),
        (["-n", "-size"], "-size", None),
        (["-n", "-size=a=b c"], "-size=a=b c", None),
        (["--node=-k", "--no-install"], "-k", None),
    ],
)
def test_a_value_may_begin_with_a_dash(
    run: Run, words: list[str], node: str | None, disks: list[str] | None
) -> None:
    assert run(table, "add", "web1", *words)[0] == 3
    assert seen.pop() == ("add", "web1", node, "--no-install" in words, disks)
    assert run(table, "add", *words, "web1")[0] == 3
    assert seen.pop() == ("add", "web1", node, "--no-install" in words, disks)


@pytest.mark.parametrize(
    "words", [["--disk", "-n", "n1", "web1"], ["web1", "--disk"], ["web1", "-n", "--disk=0"]]
)
def test_an_option_is_not_taken_for_the_value_that_is_missing(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        table.run(["add", *words])
    assert ended.value.code == 2
    assert "expected one argument" in capsys.readouterr().err


def test_what_follows_two_dashes_stays_as_it_is() -> None:
    words = ["--disk", "0", "--", "--disk", "-1:remove"]
    assert joined(words, table.commands["add"].options) == words


def test_without_a_command_the_list_is_shown(run: Run) -> None:
    code, out, err = run(table)
    assert (code, out) == (1, "")
    assert "add  Add something." in err


def test_an_unknown_command_is_usage_and_exit_code_1(run: Run) -> None:
    code, out, err = run(table, "nosuch")
    assert (code, out) == (1, "")
    assert "no command 'nosuch'" in err
    assert "Usage: gnt-test" in err


def test_wrong_options_are_exit_code_2_and_a_wrong_number_of_arguments_1(run: Run) -> None:
    assert run(table, "add", "--nosuch", "x")[0] == 2
    assert run(table, "add", "x", "y", "--nosuch")[0] == 2
    assert run(table, "add")[0] == 1
    assert run(table, "add", "x", "y")[0] == 1


def test_help_and_version(run: Run) -> None:
    assert run(table, "--help")[0] == 0
    assert run(table, "--version")[1].startswith("gnt-test (ganeti) 4.0.0")
    code, out, _err = run(table, "add", "--help")
    assert code == 0
    assert "And a second paragraph." in out


@pytest.mark.parametrize(
    ("err", "code", "text"),
    [
        (
            PrereqError("there is no node x", ErrorCode.UNKNOWN_ENTITY),
            1,
            (
                "Failure: prerequisites not met for this operation:\n"
                "error type: unknown_entity, error details:\nthere is no node x"
            ),
        ),
        (ExecError("broke"), 1, "Failure: command execution error:\nbroke"),
        (NotMaster("not here"), 11, "Failure: not the master node:\nnot here"),
        (NotClusterNodeError("no cluster"), 5, "Failure: no cluster"),
        (NeedsConfirmation("sure?"), 13, "Failure: sure?"),
        (GanetiError("hm"), 1, "Failure: hm"),
        (JobSubmitted([1]), 0, ""),
    ],
)
def test_errors_have_their_form_and_exit_code(
    err: GanetiError, code: int, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> int:
        raise err

    assert run_guarded(fail) == code
    assert capsys.readouterr().err == (f"{text}\n" if text else "")


def test_a_drained_queue_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    assert "drained" in format_error(JobQueueDrained("x"))


def test_an_interrupt_is_no_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    def stop() -> int:
        raise KeyboardInterrupt

    assert run_guarded(stop) == 1
    assert "Interrupted" in capsys.readouterr().err


def test_a_reader_that_goes_away_is_no_traceback() -> None:
    program = (
        "import sys\nfrom ganeti.cli.command import run_guarded\n"
        "def work():\n    print('x' * 1000000)\n    return 0\n"
        "sys.exit(run_guarded(work))\n"
    )
    words = [sys.executable, "-c", program]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        child.stdout.close()
        assert child.stderr.read() == b""
        assert child.wait() == 1


# --- every program ---


@pytest.mark.parametrize("prog", manual.PROGRAMS)
def test_every_option_and_argument_is_explained(prog: str) -> None:
    for command in manual.table_of(prog).commands.values():
        assert command.summary.endswith((".", ":")), command.name
        helps = [one.help for one in command.arguments] + [one.help for one in command.options]
        assert all(text.strip() for text in helps), command.name


@pytest.mark.parametrize("prog", manual.PROGRAMS)
def test_every_command_can_show_its_help(prog: str, run: Run) -> None:
    one = manual.table_of(prog)
    for name, command in one.commands.items():
        code, out, err = run(one, name, "--help")
        assert (code, err) == (0, "")
        for flag in (flag for part in command.options for flag in part.flags):
            assert flag in out


@pytest.mark.parametrize("prog", manual.PROGRAMS)
def test_the_completion_is_a_script_and_knows_all(run: Run, prog: str) -> None:
    one = manual.table_of(prog)
    _code, script, _err = run(one, "--generate-completion")
    subprocess.run(["bash", "-n"], input=script.encode(), check=True)
    for name, command in one.commands.items():
        assert name in script
        assert all(flag in script for part in command.options for flag in part.flags)


@pytest.mark.parametrize("prog", manual.PROGRAMS)
def test_the_completion_for_zsh_knows_all(run: Run, prog: str) -> None:
    one = manual.table_of(prog)
    _code, script, _err = run(one, "--generate-completion=zsh")
    if zsh := shutil.which("zsh"):
        subprocess.run([zsh, "-n"], input=script.encode(), check=True)
    # Quotes and brackets have the same form in bash, but for what only zsh has.
    lines = script.replace('${(f)"$(${=names} 2>/dev/null)"}', "$names")
    subprocess.run(["bash", "-n"], input=lines.encode(), check=True)
    for name, command in one.commands.items():
        assert f"'{name}:" in script
        assert all(flag in script for part in command.options for flag in part.flags)


def test_only_shells_that_are_known_have_completion(run: Run) -> None:
    code, out, _err = run(table, "--generate-completion=zsh")
    assert (code, out.splitlines()[0]) == (0, "#compdef gnt-test")
    assert run(table, "--generate-completion=fish")[0] == 1


@pytest.mark.parametrize("prog", manual.PROGRAMS)
def test_aliases_lead_to_their_commands(prog: str) -> None:
    one = manual.table_of(prog)
    for command in one.commands.values():
        for alias in command.aliases:
            assert one.find(alias) is command
            assert alias not in one.commands


def test_index_of_commands_agrees_with_the_declarations() -> None:
    assert INDEX.read_text() == index_text(), "run make generated"


def test_declared_command_has_an_argument_for_each_field_that_needs_one() -> None:
    for kind in OPCODES.values():
        if kind.cli and not kind.cli.on_many:
            given = {one.name for one in kind.cli.arguments} | fields_of(kind).keys()
            needed = {one.name for one in msgspec.structs.fields(kind) if one.required}
            assert needed <= given, kind


def test_declared_commands_belong_to_programs_that_exist() -> None:
    assert index().keys() <= set(manual.PROGRAMS)


HEAVY = (
    "msgspec",
    "inspect",
    "asyncio",
    "aiohttp",
    "cryptography",
    "rich",
    "numpy",
    "sqlite3",
    "ssl",
)


@pytest.mark.parametrize("prog", manual.PROGRAMS)
def test_commands_start_without_heavy_libraries(prog: str) -> None:
    module = manual.module_of(prog)
    program = f"import sys, {module}; print(*[n for n in {HEAVY!r} if n in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == ""
