"""gnt-instance batch-create."""

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ganeti.base.errors import InputError
from ganeti.cli.command import EXIT_FAILURE, Argument
from ganeti.cli.gnt_instance.table import table
from ganeti.cli.jobs import run_jobs
from ganeti.cli.options import IALLOCATOR, JOB_OPTIONS
from ganeti.clients.luxi import LuxiClient

if TYPE_CHECKING:  # lists do not need opcodes, and start faster
    from ganeti.model.opcodes import OpCode


@table.command(
    "batch-create",
    Argument("file", "the instances, as JSON", completion="file"),
    IALLOCATOR,
    *JOB_OPTIONS,
)
def batch_create(args: argparse.Namespace) -> int:
    """Make the instances that a file describes, all at once.

    The file holds a list of objects, one for each instance. Their keys are those of the opcode
    OP_INSTANCE_CREATE: instance_name and disk_template, and for example disks (a list of objects with
    size in MiB), nics (a list of objects with link, ip, mode, mac), os_type, hypervisor, hvparams,
    beparams, pnode, tags, no_install, start. An unknown key is an error, and nothing is made then.
    Instances without pnode are placed by --iallocator, else by the cluster's default allocator.
    Each instance is a job of its own; those that were made stay if others fail.
    """
    ops = [
        _opcode(number, value, args.iallocator)
        for number, value in enumerate(_definitions(args.file))
    ]
    with LuxiClient() as client:
        done = run_jobs(client, [(op.instance_name, op) for op in ops], args)
    return 0 if done else EXIT_FAILURE


def _definitions(name: str) -> list[Any]:
    try:
        found = json.loads(Path(name).read_text("utf-8"))
    except OSError as err:
        raise InputError(f"cannot be read: {err.strerror}", name) from err
    except (ValueError, RecursionError) as err:
        raise InputError(f"is not JSON: {err}", name) from err
    if not isinstance(found, list) or not found:
        raise InputError("must be a list with at least one instance", name)
    return found


def _opcode(number: int, value: Any, allocator: str | None) -> Any:
    """The opcode of one definition; InputError names what is wrong with it."""
    from ganeti.model.opcodes import parse_opcode

    where = f"instances[{number}]"
    if not isinstance(value, dict):
        raise InputError("must be an object", where)
    given = {**value, "OP_ID": "OP_INSTANCE_CREATE"}
    if allocator and not given.get("pnode") and not given.get("iallocator"):
        given["iallocator"] = allocator
    op: OpCode = parse_opcode(given, what=where)
    return op
