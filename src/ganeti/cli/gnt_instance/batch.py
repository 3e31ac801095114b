"""gnt-instance batch-create."""

import argparse
import sys
from typing import TYPE_CHECKING, Any

from ganeti.base.errors import InputError
from ganeti.base.terminal import say
from ganeti.cli.command import EXIT_FAILURE
from ganeti.cli.gnt_instance.table import table
from ganeti.cli.input_file import read_json
from ganeti.cli.jobs import run_job, run_jobs
from ganeti.cli.many_jobs import wait_for_all
from ganeti.cli.opcode_options import OpOptions
from ganeti.cli.options import JOB_OPTIONS
from ganeti.clients.luxi import LuxiClient
from ganeti.model.operation import Argument

if TYPE_CHECKING:  # Lists do not need opcodes and start faster without them.
    from ganeti.model.opcodes import OpCode


@table.command(
    "batch-create",
    Argument("file", "file with the definitions of the instances, as JSON", completion="file"),
    OpOptions("placing.OpInstanceMultiAlloc", without=("opportunistic_locking",)),
    *JOB_OPTIONS,
)
def batch_create(args: argparse.Namespace) -> int:
    """Create all instances that a file describes.

    The file holds a list of JSON objects, one for each instance. Their keys are the fields of the opcode
    OP_INSTANCE_CREATE. Required keys are instance_name and disk_template. Other keys are, for example, disks
    (a list of objects with size in MiB), nics (a list of objects with link, ip, mode, mac), os_type,
    hypervisor, hvparams, beparams, pnode, tags, no_install and start. If a key is unknown, the command creates
    nothing. The allocator (--iallocator; default: the cluster's) places instances without pnode. If no
    instance names a node, one request to the allocator places all instances.
    Each instance is created by a separate job; if a job fails, the other instances remain.
    """
    definitions = _definitions(args.file)
    ops = [_opcode(number, value, args.iallocator) for number, value in enumerate(definitions)]
    with LuxiClient() as client:
        if all(_is_open(one) for one in definitions) and _has_allocator(client, args):
            return _all_together(client, definitions, args)
        done = run_jobs(client, [(op.instance_name, op) for op in ops], args)
    return 0 if done else EXIT_FAILURE


def _is_open(value: dict[str, Any]) -> bool:
    """Return True if one request for all instances can place this instance."""
    return not any(value.get(name) for name in ("pnode", "iallocator", "osparams_secret"))


def _has_allocator(client: LuxiClient, args: argparse.Namespace) -> bool:
    return bool(args.iallocator or client.cluster_info().get("default_iallocator"))


def _all_together(client: LuxiClient, definitions: list[Any], args: argparse.Namespace) -> int:
    """SearchResult all instances by one request to the allocator, and follow the jobs that create them."""
    from ganeti.model.opcodes.placing import OpInstanceMultiAlloc

    requests: list[Any] = [_opcode(number, one, None) for number, one in enumerate(definitions)]
    op = OpInstanceMultiAlloc(instances=requests, iallocator=args.iallocator)
    result = run_job(client, op, args)
    failed = result["failed"]
    if args.dry_run:
        for name, node in result["nodes"].items():
            say(f"{name} would be on {node}")
        status = 0
    else:
        status = wait_for_all(client, result["jobs"])
    for name in failed:
        say(f"Instance {name} cannot be placed on any node", file=sys.stderr)
    return EXIT_FAILURE if failed else status


def _definitions(name: str) -> list[Any]:
    found = read_json(name, "must be a JSON list of instances")
    if not isinstance(found, list) or not found:
        raise InputError("must be a list with at least one instance", name)
    return found


def _opcode(number: int, value: Any, allocator: str | None) -> Any:
    """Return the opcode of one definition; InputError describes an invalid definition."""
    from ganeti.model.opcode_table import parse_opcode

    where = f"instances[{number}]"
    if not isinstance(value, dict):
        raise InputError("must be an object", where)
    given = {**value, "OP_ID": "OP_INSTANCE_CREATE"}
    if allocator and not given.get("pnode") and not given.get("iallocator"):
        given["iallocator"] = allocator
    op: OpCode = parse_opcode(given, what=where)
    return op
