"""Options made from the fields of opcodes, and opcodes made of what was given."""

import argparse
from typing import Any

import pytest

from ganeti.cli.command import Command, PartSource, parser_of
from ganeti.cli.opcode_options import OpOptions
from ganeti.cli.option import Option
from ganeti.model.opcodes.instance import OpInstanceCreate, OpInstanceShutdown
from ganeti.model.opcodes.moving import OpInstanceMove


def parsed(source: PartSource, *words: str) -> argparse.Namespace:
    def command(_args: argparse.Namespace) -> int:
        """Do it."""
        return 0

    return parser_of("gnt-test", Command("do", command, (source,))).parse_args(words)


CREATE = OpOptions("instance.OpInstanceCreate")


@pytest.mark.parametrize(
    ("words", "given"),
    [
        ([], {}),
        (["--no-start"], {"start": False}),
        (["--name-check"], {"name_check": True}),
        (["--no-name-check"], {"name_check": False}),
        (["-I", "hail", "--tags=a,b"], {"iallocator": "hail", "tags": ["a", "b"]}),
        (["-B", "memory=1g,-vcpus"], {"beparams": {"memory": 1024, "vcpus": None}}),
        (["-O", "a=1", "--os-parameters=b=2"], {"osparams": {"a": "1", "b": "2"}}),
    ],
)
def test_only_what_is_given_is_reported(words: list[str], given: dict[str, Any]) -> None:
    assert CREATE.given(parsed(CREATE, *words)) == given


def test_the_rest_of_an_opcode_has_its_own_defaults() -> None:
    args = parsed(CREATE, "-t", "file")
    args.instance_name = "a.example.com"  # an argument of the field's name
    wanted = OpInstanceCreate(instance_name="a.example.com", disk_template="file", pnode="node1")
    assert CREATE.opcode(args, pnode="node1") == wanted


def test_an_option_of_a_field_that_must_be_there_must_be_given(
    capsys: pytest.CaptureFixture[str],
) -> None:
    source = OpOptions("moving.OpInstanceMove")
    with pytest.raises(SystemExit):
        parsed(source)
    assert "-n/--node/--target-node" in capsys.readouterr().err
    op = source.opcode(parsed(source, "-n", "node2"), instance_name="a")
    assert op == OpInstanceMove(instance_name="a", target_node="node2")


def test_a_command_may_have_options_of_its_own_in_place_of_some() -> None:
    source = OpOptions("instance.OpInstanceShutdown", without=("timeout",))
    assert {flag for one in source.parts() if isinstance(one, Option) for flag in one.flags} == {
        "--ignore-offline",
        "--no-remember",
    }
    args = parsed(source, "--ignore-offline")
    args.timeout = 5
    wanted = OpInstanceShutdown(instance_name="a", ignore_offline_nodes=True)
    assert source.opcode(args, instance_name="a") == wanted
