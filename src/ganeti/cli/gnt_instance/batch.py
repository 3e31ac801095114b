"""gnt-instance batch-create."""

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ganeti.base.errors import GanetiError, InputError
from ganeti.cli.command import EXIT_FAILURE, Argument
from ganeti.cli.gnt_instance.table import table
from ganeti.cli.jobs import (
    print_ids,
    run_jobs,
    submit_many,
    wait_for_result,
    with_job_options,
)
from ganeti.cli.many_jobs import wait_for_all
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
    Instances without pnode are placed together, by one request to --iallocator, else to the cluster's
    default allocator. Each instance is a job of its own; those that were made stay if others fail.
    """
    ops = [_opcode(number, value) for number, value in enumerate(_definitions(args.file))]
    unplaced = [op for op in ops if not op.pnode and not op.iallocator]
    with LuxiClient() as client:
        if not unplaced:
            done = run_jobs(client, [(op.instance_name, op) for op in ops], args)
            return 0 if done else EXIT_FAILURE
        return _placed_together(client, unplaced, [op for op in ops if op not in unplaced], args)


def _placed_together(
    client: LuxiClient, unplaced: list[Any], others: list[Any], args: argparse.Namespace
) -> int:
    """Submit one job that places the first ones, and jobs for the others, all under one key (F16)."""
    from ganeti.model.opcodes.placing import OpInstanceMultiAlloc

    together = OpInstanceMultiAlloc(instances=unplaced, iallocator=args.iallocator)
    jobs = [[with_job_options(op, args)] for op in (together, *others)]
    (is_accepted, what), *own = submit_many(client, jobs)
    print_ids([int(one) for good, one in [(is_accepted, what), *own] if good], args)
    submitted = list(own)
    status = 0
    if is_accepted:
        try:
            (result,) = wait_for_result(client, int(what))
        except GanetiError as err:
            print(f"No instance was placed: {err.message}", file=sys.stderr)
            status = EXIT_FAILURE
        else:
            submitted = [*result.get("jobs", ()), *own]
            status = _show_places(result)
    else:
        print(f"Failed to submit the job that places instances: {what}", file=sys.stderr)
        status = EXIT_FAILURE
    return max(status, wait_for_all(client, submitted)) if submitted else status


def _show_places(result: dict[str, Any]) -> int:
    """Say who has no place; in a dry run also where the others would be."""
    for name in result["failed"]:
        print(f"There is no place for {name}.", file=sys.stderr)
    for one in result["allocatable"]:
        if not isinstance(one, str):
            name, nodes = one
            print(f"{name} would be on {', '.join(nodes)}.")
    return EXIT_FAILURE if result["failed"] else 0


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


def _opcode(number: int, value: Any) -> Any:
    """The opcode of one definition; InputError names what is wrong with it."""
    from ganeti.model.opcodes import parse_opcode

    where = f"instances[{number}]"
    if not isinstance(value, dict):
        raise InputError("must be an object", where)
    given = {**value, "OP_ID": "OP_INSTANCE_CREATE"}
    op: OpCode = parse_opcode(given, what=where)
    return op
