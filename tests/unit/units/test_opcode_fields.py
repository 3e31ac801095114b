"""Every field of an opcode is read by the master, or it is known why not."""

import ast
from functools import cache
from importlib import import_module
from pathlib import Path

import msgspec
import pytest

import ganeti
from ganeti.cli.command import CommandTable
from ganeti.model.cluster_params import CLUSTER_PARAMS, UNKNOWN_PARAMS
from ganeti.model.opcode_table import OPCODES
from ganeti.model.opcodes.base import OpCode

NOT_READ = {
    "comment": "is for whoever reads the job",
    "helper_shutdown_timeout": "the source stops its guest by its own time",
    "ignore_hvversions": "versions are not compared; QEMU refuses what does not fit",
    "opportunistic_locking": "allocations lock no node alone",
    "ssh_key_bits": "no node has keys for ssh from the cluster",
    "ssh_key_type": "no node has keys for ssh from the cluster",
    "source_shutdown_timeout": "the source stops its guest by its own time",
}
"""Fields that nothing on the master reads by name, and why."""
WITHOUT_EFFECT = {
    *("ignore_hvversions", "opportunistic_locking"),
}
"""Those of them that commands offer."""
IGNORED_BY_COMMANDS = {
    *("no_etc_hosts", "no_node_setup", "no_ssh_init", "new_ssh_keys", "verify_clutter"),
    *("max_tracked_jobs", "show_all"),
}
"""Options of commands that no opcode has."""

_SOURCE = Path(ganeti.__file__).parent
_READERS = ("units", "config", "jobs", "query", "api", "layouts")


@cache
def _names_read() -> frozenset[str]:
    """Every name that the master's code reads of something, or has as a text."""
    found = set()
    for folder in _READERS:
        for path in (_SOURCE / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Attribute):
                    found.add(node.attr)
                elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                    found.add(node.value)
    return frozenset(found)


def test_every_field_is_read_by_the_master_or_has_its_reason() -> None:
    kinds: list[type[OpCode]] = [OpCode, *OPCODES.values()]
    fields = {field.name for kind in kinds for field in msgspec.structs.fields(kind)}
    # The master reads these by their tables.
    by_table = CLUSTER_PARAMS.keys() | {one.request for one in UNKNOWN_PARAMS}
    assert fields - by_table - _names_read() == NOT_READ.keys()


@pytest.mark.parametrize(
    "program", ["cluster", "node", "instance", "group", "network", "os", "job"]
)
def test_a_command_reports_what_has_no_effect(program: str) -> None:
    module = import_module(f"ganeti.cli.gnt_{program}")
    if program == "instance":
        module = import_module("ganeti.cli.gnt_instance.table")
        import_module("ganeti.cli.gnt_instance")
    table: CommandTable = module.table
    for command in table.commands.values():
        for option in command.options:
            dest = option.settings.get("dest") or option.flags[-1].strip("-").replace("-", "_")
            says_so = option.help == "ignored; kept for compatibility with Ganeti 3"
            expected = dest in WITHOUT_EFFECT | IGNORED_BY_COMMANDS
            assert says_so == expected, f"{command.name} {option.flags}"
