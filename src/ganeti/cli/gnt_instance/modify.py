"""gnt-instance modify."""

import argparse
import re
from collections.abc import Sequence
from typing import Any

from ganeti.base.errors import InputError
from ganeti.base.sizes import parse_mib
from ganeti.base.terminal import say
from ganeti.cli.command import option
from ganeti.cli.gnt_instance.table import table
from ganeti.cli.jobs import run_given
from ganeti.cli.key_values import key_values
from ganeti.cli.opcode_options import OpOptions
from ganeti.cli.options import FORCE, JOB_OPTIONS
from ganeti.model.operation import INSTANCE

ACTIONS = ("add", "attach", "modify", "remove", "detach")
_INDEX = r"-?[0-9]{1,9}"
_LAST = -1


@table.command(
    "modify",
    INSTANCE,
    OpOptions("instance_changes.OpInstanceSetParams"),
    option("--disk", action="append", metavar="[N:]ACTION[,k=v,...]",
           help="add:size=SIZE, N:add,size=SIZE, N:remove, N:mode=ro, N:detach, N:attach,name=NAME; may be repeated"),
    option("--net", action="append", metavar="[N:]ACTION[,k=v,...]",
           help="add, N:add,link=br1, N:remove, N:link=br1; may be repeated"),
    option("--offline", dest="offline", action="store_true", default=None,
           help="mark the instance offline: it cannot start, and its memory is not reserved"),
    option("--online", dest="offline", action="store_false", help="remove the offline mark"),
    option("--no-hotplug", dest="no_hotplug", action="store_true",
           help="change the running guest at its next start only"),
    FORCE,
    *JOB_OPTIONS,
)  # fmt: skip
def modify(args: argparse.Namespace) -> int:
    """Change an instance: parameters, disks, network interfaces, the running guest's processors and memory.

    Disks and interfaces are identified by index, name or UUID. The index -1 (as in --disk -1:remove) is the
    last device; for add it is the position after the last device. Changes are made in the given order.

    -H cdrom_image_path=FILE changes the CD of a running guest at once; an empty value ejects it. A
    guest that was started with the value 'empty' has an empty drive.

    -B vcpus=N also changes the processors of a running guest, up to the hypervisor parameter max_vcpus of
    its start. Processors of its start remain until the next one. A guest whose system does not use new
    processors by itself needs: echo 1 >/sys/devices/system/cpu/cpuN/online

    -B maxmem=SIZE also changes the memory of a running guest, up to the hypervisor parameter max_memory of
    its start. Less memory needs --hotplug. The guest needs a driver of virtio-mem to get more memory than
    at its start (Linux 5.8), and must use it at once (for example kernel argument memhp_default_state=online).

    A detached disk keeps its data and belongs to no instance. It can be attached, by name or UUID, to an
    instance on the same nodes. 'gnt-cluster verify' lists detached disks.

    -t moves all disks to another disk template, to another volume group (-t plain -e vg=GROUP) or pool of Ceph (-t
    rbd -e pool=POOL), or to another directory (-t file --file-storage-dir NAME). A running guest continues
    meanwhile: it is paused for a moment when it gets its new disks, and --bandwidth limits the copying. 'gnt-job
    cancel --kill' ends the move and keeps the old disks. Between two providers of external storage (ext), disks
    move only while the instance is down; so do disks with format=qcow2, and -e format=FORMAT converts them.

    Removing a disk destroys its data, so the command asks for confirmation. --force skips the prompt and
    the check that the node can run and install the changed instance.
    """
    if args.no_hotplug and (args.hotplug or args.hotplug_if_possible):
        raise InputError("cannot be used with --hotplug", "--no-hotplug")
    changes = run_given(
        args,
        disks=device_changes(args.disk, "disks"),
        nics=device_changes(args.net, "nics"),
        hotplug_if_possible=not (args.hotplug or args.no_hotplug),
    )
    if changes:
        say(f"Modified instance {args.instance_name}")
    for name, value in changes or ():
        say(f" - {name:<5} -> {value}")
    return 0


def device_changes(texts: Sequence[str] | None, field: str) -> list[list[Any]]:
    """Return `[action, identifier, parameters]` for each `--disk` or `--net`; raise InputError."""
    return [_device_change(text, f"{field}[{at}]") for at, text in enumerate(texts or ())]


def _device_change(text: str, field: str) -> list[Any]:
    first, _, rest = text.partition(":")
    if first in ACTIONS:
        return [first, _LAST, _device_params(rest, field)]
    if not first or "=" in first:
        raise InputError(f"{text!r:.60} must be [N:]ACTION[,key=value,…]", field)
    params = _device_params(rest, field)
    actions = [name for name in ACTIONS if params.get(name) is True]
    if len(actions) > 1:
        raise InputError(f"cannot be both {actions[0]} and {actions[1]}", field)
    for name in actions:
        del params[name]
    identifier: int | str = int(first) if re.fullmatch(_INDEX, first) else first
    return [actions[0] if actions else "modify", identifier, params]


def _device_params(text: str, field: str) -> dict[str, Any]:
    params = key_values(text, field)
    if isinstance(size := params.get("size"), str):
        params["size"] = parse_mib(size, f"{field}.size")
    return params
