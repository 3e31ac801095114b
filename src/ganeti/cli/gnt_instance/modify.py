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
from ganeti.cli.jobs import run_job
from ganeti.cli.key_values import (
    backend_params,
    key_values,
    merged_key_values,
    os_params,
    split_words,
)
from ganeti.cli.options import FORCE, IGNORE_IPOLICY, INSTANCE, JOB_OPTIONS
from ganeti.clients.luxi import LuxiClient

ACTIONS = ("add", "modify", "remove")
_INDEX = re.compile(r"-?[0-9]{1,9}", re.ASCII)
_LAST = -1


@table.command(
    "modify",
    INSTANCE,
    option("-B", "--backend-parameters", dest="beparams", action="append", metavar="k=v,...",
           help="backend parameters, as memory=512m,vcpus=2; 'default' takes the cluster's"),
    option("-H", "--hypervisor-parameters", dest="hvparams", action="append", metavar="k=v,...",
           help="hypervisor parameters; 'default' takes the cluster's"),
    option("-O", "--os-parameters", dest="osparams", action="append", metavar="k=v,...",
           help="parameters of the OS definition; -k takes one away"),
    option("--os-parameters-private", dest="osparams_private", action="append",
           metavar="k=v,...", help="the same; never shown again"),
    option("--clear-os-parameters", dest="clear_osparams", action="store_true",
           help="take all OS parameters of the instance away first"),
    option("--clear-os-parameters-private", dest="clear_osparams_private", action="store_true",
           help="take all private ones away first"),
    option("--remove-os-parameters", dest="remove_osparams", metavar="k,...",
           help="take these OS parameters away"),
    option("--remove-os-parameters-private", dest="remove_osparams_private", metavar="k,...",
           help="take these private ones away"),
    option("-o", "--os-type", dest="os_name", metavar="OS[+VARIANT]", completion="os",
           help="OS definition, for the next installation"),
    option("--force-variant", action="store_true",
           help="take a variant that the OS definition does not list"),
    option("--disk", action="append", metavar="[N:]ACTION[,k=v,...]",
           help="add:size=SIZE, N:add,size=SIZE, N:remove, N:mode=ro; may be repeated"),
    option("--net", action="append", metavar="[N:]ACTION[,k=v,...]",
           help="add, N:add,link=br1, N:remove, N:link=br1; may be repeated"),
    option("-m", "--runtime-memory", dest="runtime_mem", metavar="SIZE",
           help="memory of the running guest, by ballooning"),
    option("--offline", dest="offline", action="store_true", default=None,
           help="mark it offline: it is not started, and its memory is not counted"),
    option("--online", dest="offline", action="store_false", help="take that mark away"),
    option("--hotplug", action="store_true",
           help="change the running guest at once, or fail"),
    option("--hotplug-if-possible", dest="hotplug_if_possible", action="store_true",
           help="change the running guest at once where that is possible; the default"),
    option("--no-hotplug", dest="no_hotplug", action="store_true",
           help="change the running guest at its next start only"),
    option("--file-storage-dir", dest="file_storage_dir", metavar="NAME",
           help="subdirectory for new disks in files"),
    option("--no-wait-for-sync", dest="wait_for_sync", action="store_false",
           help="accepted, without effect: no disk is mirrored"),
    option("--no-conflicts-check", dest="conflicts_check", action="store_false",
           help="accepted, without effect: there are no networks to compare with"),
    FORCE,
    IGNORE_IPOLICY,
    *JOB_OPTIONS,
)  # fmt: skip
def modify(args: argparse.Namespace) -> int:
    """Change an instance: parameters, disks, network interfaces, the running guest's memory.

    Disks and interfaces are named by index, name or UUID; -1 (as in --disk -1:remove) is the last
    one, and the place behind it for add. Several changes are carried out in order.
    The CD of a running guest is changed at once (-H cdrom_image_path=FILE), and taken out by an empty
    value; a guest that was started with 'empty' has a drive for one.
    A disk that is removed is lost, so that is asked about first. --force leaves the question out, and
    the node is not asked whether it could run and install the result.
    """
    from ganeti.model.opcodes.instance_changes import OpInstanceSetParams

    if args.no_hotplug and (args.hotplug or args.hotplug_if_possible):
        raise InputError("cannot be given beside --hotplug", "--no-hotplug")
    op = OpInstanceSetParams(
        instance_name=args.instance_name,
        beparams=backend_params(args.beparams),
        hvparams=merged_key_values(args.hvparams, "hvparams"),
        osparams=os_params(args.osparams, "osparams"),
        osparams_private=os_params(args.osparams_private, "osparams_private"),
        clear_osparams=args.clear_osparams,
        clear_osparams_private=args.clear_osparams_private,
        remove_osparams=_names(args.remove_osparams),
        remove_osparams_private=_names(args.remove_osparams_private),
        os_name=args.os_name,
        force_variant=args.force_variant,
        disks=device_changes(args.disk, "disks"),
        nics=device_changes(args.net, "nics"),
        runtime_mem=parse_mib(args.runtime_mem, "runtime_mem") if args.runtime_mem else None,
        offline=args.offline,
        hotplug=args.hotplug,
        hotplug_if_possible=not (args.hotplug or args.no_hotplug),
        file_storage_dir=args.file_storage_dir,
        wait_for_sync=args.wait_for_sync,
        conflicts_check=args.conflicts_check,
        force=args.force,
        ignore_ipolicy=args.ignore_ipolicy,
    )
    with LuxiClient() as client:
        changes = run_job(client, op, args)
    if changes:
        say(f"Modified instance {args.instance_name}")
    for name, value in changes or ():
        say(f" - {name:<5} -> {value}")
    return 0


def device_changes(texts: Sequence[str] | None, field: str) -> list[list[Any]]:
    """`--disk` and `--net`: `[action, identifier, parameters]` each; InputError."""
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
    identifier: int | str = int(first) if _INDEX.fullmatch(first) else first
    return [actions[0] if actions else "modify", identifier, params]


def _device_params(text: str, field: str) -> dict[str, Any]:
    params = key_values(text, field)
    if isinstance(size := params.get("size"), str):
        params["size"] = parse_mib(size, f"{field}.size")
    return params


def _names(text: str | None) -> list[str] | None:
    return split_words(text) if text else None
