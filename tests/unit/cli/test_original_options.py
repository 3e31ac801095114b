"""Each command and option of Ganeti's own commands is one of ours, or has a reason why not."""

from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from ganeti.cli.manual import table_of
from ganeti.cli.option import Option

DECLARED = Path(__file__).with_name("original_options.txt")
GONE = "(command)"

EXCEPTIONS: dict[str, list[str]] = {
    "nodes are joined and reached by keys of their daemons, and no ssh key is handed out": [
        "gnt-cluster init --ssh-key-*",
        "gnt-cluster renew-crypto --ssh-key-*",
        "gnt-node add --force-join",
    ],
    "stated use of hypervisors and disks is kept by nobody, and was used by nothing": [
        "gnt-* --disk-state",
        "gnt-* --hypervisor-state",
    ],
    "older spelling of --ipolicy-bounds-specs and --ipolicy-std-specs": [
        "gnt-cluster init --specs-*"
    ],
    "the operating system has one way to do it": [
        "gnt-cluster modify --modify-etc-hosts",
    ],
    "free space is not written over by a helper guest, and no guest installs another": [
        "gnt-cluster * --install-image",
        "gnt-cluster * --zeroing-image",
        "gnt-instance add --helper-*-timeout",
        "gnt-backup import --helper-*-timeout",
        "gnt-backup export --zero*",
    ],
    "guests have no channel to their node's metadata daemon": [
        "gnt-cluster modify --instance-communication-network",
        "gnt-instance * --communication",
        "gnt-instance * -c",
        "gnt-debug metad (command)",
    ],
    "compression is chosen with each transfer, from a fixed list": [
        "gnt-backup export --transport-compression",
    ],
    "a parameter of the hypervisor says it (user_shutdown)": ["gnt-cluster * --user-shutdown"],
    "Gluster is not supported": ["gnt-cluster init --gluster-storage-dir"],
    "numbers are shown in one way": ["gnt-* --roman"],
    "instances that are only planned are for later": [
        "gnt-instance add --commit",
        "gnt-instance add --forthcoming",
    ],
    "packages are upgraded node by node, and the state is brought along at the start": [
        "gnt-cluster upgrade (command)"
    ],
    "nothing is asked there": ["gnt-cluster redist-conf --yes-do-it"],
    "offline nodes never count as voters": ["gnt-cluster master-failover --ignore-offline-nodes"],
    "the channel to the node daemons is the primary network": [
        "gnt-cluster copyfile --use-replication-network"
    ],
    "powering a node changes no role": ["gnt-node power --auto-promote"],
    "a secondary node is named": [
        "gnt-instance modify --iallocator",
        "gnt-instance modify -I",
        "gnt-instance modify --file-driver",
    ],
    "private parameters are an instance's own": ["gnt-os modify --os-parameters-private"],
    "the file of opcodes says it": [
        "gnt-debug submit-job --dry-run",
        "gnt-debug submit-job --op-repeat",
        "gnt-debug submit-job --priority",
        "gnt-debug submit-job --timing-stats",
        "gnt-debug submit-job --verbose",
        "gnt-debug submit-job -v",
    ],
    "no job is submitted with it": [
        "gnt-instance console --priority",
        "gnt-debug test-jobqueue --priority",
    ],
    "watch(1) repeats it": ["gnt-debug locks --interval"],
}
"""Why something is not there -> patterns of `program command option`."""


def declared() -> Iterator[tuple[str, str, list[str]]]:
    """Program, command, its options."""
    for line in DECLARED.read_text().splitlines()[1:]:
        head, colon, words = line.partition(":")
        if colon:
            program, command = head.split()
            yield program, command, words.split()


def takes_value(option: Option) -> bool:
    return option.settings.get("action", "store") in ("store", "append")


def missing() -> list[str]:
    """What they have and we have not, as `program command option`."""
    found = []
    for program, command, words in declared():
        ours = table_of(program).find(command)
        if ours is None:
            found.append(f"{program} {command} {GONE}")
            continue
        flags = {flag: option for option in ours.options for flag in option.flags}
        for word in words:
            for flag in word.rstrip("=").split("|"):
                known = flags.get(flag)
                # -F may stand before or after its filter; theirs takes it as an argument.
                if known is None or (
                    takes_value(known) is not word.endswith("=")
                    and known.settings.get("nargs") != "?"
                ):
                    found.append(f"{program} {command} {flag}")
    return found


def test_each_option_of_upstream_is_there_or_has_a_reason_why_not() -> None:
    patterns = [pattern for group in EXCEPTIONS.values() for pattern in group]
    lost = missing()
    assert [one for one in lost if not any(fnmatchcase(one, each) for each in patterns)] == []
    assert [each for each in patterns if not any(fnmatchcase(one, each) for one in lost)] == []


def test_each_alias_of_upstream_is_there() -> None:
    lines = [line.split() for line in DECLARED.read_text().splitlines()[1:] if " = " in line]
    assert len(lines) > 8
    for program, alias, _, command in lines:
        table = table_of(program)
        assert table.find(alias) is table.find(command), f"{program} {alias}"


@pytest.mark.parametrize("program", ["gnt-cluster", "gnt-instance", "gnt-node", "gnt-job"])
def test_every_command_takes_a_reason_and_a_debug_level(program: str) -> None:
    for command in table_of(program).commands.values():
        flags = {flag for option in command.options for flag in option.flags}
        assert {"--reason", "--debug", "-d"} <= flags, f"{program} {command.name}"
