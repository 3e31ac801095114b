"""gnt-instance add and remove."""

import argparse
import sys
from typing import TYPE_CHECKING, Any

from ganeti.base.errors import InputError
from ganeti.base.sizes import parse_mib
from ganeti.base.terminal import say
from ganeti.cli.command import option
from ganeti.cli.gnt_instance.table import table
from ganeti.cli.jobs import run_job
from ganeti.cli.key_values import (
    backend_params,
    disk_requests,
    merged_key_values,
    name_and_values,
    nic_requests,
    split_words,
)
from ganeti.cli.options import (
    FORCE,
    IALLOCATOR,
    IGNORE_IPOLICY,
    INSTANCE,
    JOB_OPTIONS,
    SHUTDOWN_TIMEOUT,
)
from ganeti.clients.luxi import LuxiClient

if TYPE_CHECKING:  # lists do not need opcodes, and start faster
    from ganeti.model.opcodes.base import DiskRequest, NicRequest
    from ganeti.model.opcodes.instance import OpInstanceCreate


HIDDEN_PARAMETERS = (
    option("--os-parameters-private", dest="osparams_private", action="append",
           metavar="k=v,...", help="the same; never shown again"),
    option("--os-parameters-secret", dest="osparams_secret", action="append",
           metavar="k=v,...", help="the same; never stored"),
)  # fmt: skip
FORCE_VARIANT = option(
    "--force-variant",
    action="store_true",
    help="take a variant that the OS definition does not list",
)


@table.command(
    "add",
    INSTANCE,
    option("-t", "--disk-template", dest="disk_template", metavar="TEMPLATE",
           help="how the disks are kept: diskless, file, sharedfile; the cluster's first without"),
    option("-n", "--node", metavar="NODE", completion="node", help="node that is to run it"),
    IALLOCATOR,
    option("-o", "--os-type", dest="os_type", metavar="OS[+VARIANT]", completion="os",
           help="OS definition to install from"),
    option("--disk", action="append", metavar="N:size=SIZE,...",
           help="disk N, with size and perhaps mode=ro, name; may be repeated"),
    option("-s", "--os-size", dest="os_size", metavar="SIZE", help="size of the only disk"),
    option("--swap-size", dest="swap_size", metavar="SIZE",
           help="size of a second disk; old form, use --disk"),
    option("-m", "--memory", "--mem", dest="memory", metavar="SIZE",
           help="memory; old form, use -B memory="),
    option("--net", action="append", metavar="N:k=v,...",
           help="network interface N with mac, ip, mode, link, vlan, name; may be repeated"),
    option("--no-nics", "--no-nic", dest="no_nics", action="store_true",
           help="no network interface"),
    option("-B", "--backend-parameters", dest="beparams", action="append", metavar="k=v,...",
           help="backend parameters, as memory=512m,vcpus=2"),
    option("-H", "--hypervisor-parameters", "--hypervisor", dest="hypervisor",
           metavar="HYPERVISOR[:k=v,...]", help="hypervisor and its parameters"),
    option("-O", "--os-parameters", dest="osparams", action="append", metavar="k=v,...",
           help="parameters of the OS definition"),
    *HIDDEN_PARAMETERS,
    option("--no-start", dest="start", action="store_false", help="leave it down"),
    option("--no-install", dest="no_install", action="store_true",
           help="do not run the OS create script; implies --no-start"),
    FORCE_VARIANT,
    option("--no-wait-for-sync", dest="wait_for_sync", action="store_false",
           help="accepted, without effect: no disk is mirrored"),
    option("--ip-check", dest="ip_check", action="store_true",
           help="refuse if the name's address answers already"),
    option("--no-ip-check", dest="ip_check", action="store_false", help="the default"),
    option("--name-check", dest="name_check", action="store_true",
           help="refuse if the name does not resolve"),
    option("--no-name-check", dest="name_check", action="store_false", help="the default"),
    option("--no-conflicts-check", dest="conflicts_check", action="store_false",
           help="accepted, without effect: there are no networks to compare with"),
    option("--file-storage-dir", dest="file_storage_dir", metavar="NAME",
           help="subdirectory for disks in files"),
    option("--file-driver", dest="file_driver", metavar="DRIVER", help="accepted: loop, blktap"),
    option("--tags", metavar="TAG,...", default="", help="tags"),
    option("-g", "--node-group", dest="group", metavar="GROUP",
           help="node group in which an allocator may choose"),
    option("--opportunistic-locking", action="store_true",
           help="accepted, without effect: an allocation waits for no node"),
    option("--explain", action="store_true",
           help="say of each node that is not chosen why; with --dry-run nothing is made"),
    IGNORE_IPOLICY,
    *JOB_OPTIONS,
)  # fmt: skip
def add(args: argparse.Namespace) -> int:
    """Make a new instance: place it, make its disks, install and start it.

    Without --node an allocator chooses: the one of --iallocator, else the cluster's default.
    A name without a dot is completed by the domain of the cluster's name.
    """
    op = create_opcode(args)
    with LuxiClient() as client:
        result = run_job(client, op, args)
    if args.dry_run:
        chosen = result["nodes"] if isinstance(result, dict) else result
        say(f"The instance would be on: {', '.join(chosen)}")
    return 0


def create_opcode(args: argparse.Namespace) -> "OpInstanceCreate":
    """The opcode that the options mean; InputError."""
    from ganeti.model.opcodes.instance import OpInstanceCreate

    primary, _, secondary = (args.node or "").partition(":")
    hypervisor, hvparams = (
        name_and_values(args.hypervisor, "hypervisor") if args.hypervisor else (None, {})
    )
    return OpInstanceCreate(
        instance_name=args.instance_name,
        disk_template=args.disk_template,
        disks=wanted_disks(args),
        nics=wanted_nics(args),
        os_type=args.os_type,
        pnode=primary or None,
        snode=secondary or None,
        iallocator=args.iallocator,
        hypervisor=hypervisor,
        hvparams=hvparams,
        beparams=_beparams(args),
        osparams=texts(args.osparams, "osparams"),
        osparams_private=texts(args.osparams_private, "osparams_private"),
        osparams_secret=texts(args.osparams_secret, "osparams_secret"),
        file_driver=args.file_driver,
        file_storage_dir=args.file_storage_dir,
        start=args.start and not args.no_install,
        no_install=args.no_install,
        force_variant=args.force_variant,
        wait_for_sync=args.wait_for_sync,
        ip_check=args.ip_check,
        name_check=args.name_check,
        conflicts_check=args.conflicts_check,
        ignore_ipolicy=args.ignore_ipolicy,
        opportunistic_locking=args.opportunistic_locking,
        group_name=args.group,
        explain=args.explain,
        tags=[tag for tag in split_words(args.tags) if tag],
    )


def wanted_disks(args: argparse.Namespace) -> "list[DiskRequest]":
    """`--disk`, or the sizes of the old options (X24)."""
    from ganeti.model.opcodes.base import DiskRequest

    sizes = [size for size in (args.os_size, args.swap_size) if size]
    if not sizes:
        return disk_requests(args.disk)
    if args.disk:
        raise InputError("cannot be given beside -s or --swap-size", "--disk")
    if not args.os_size:
        raise InputError("needs the first disk's size, as -s 10g", "--swap-size")
    if args.swap_size:
        _deprecated("--swap-size", "--disk 1:size=SIZE")
    return [DiskRequest(size=parse_mib(size, "disks")) for size in sizes]


def wanted_nics(args: argparse.Namespace) -> "list[NicRequest]":
    """One interface with the cluster's parameters where nothing else is said."""
    from ganeti.model.opcodes.base import NicRequest

    if args.no_nics:
        if args.net:
            raise InputError("cannot be given beside --no-nics", "--net")
        return []
    return nic_requests(args.net) if args.net else [NicRequest()]


def _beparams(args: argparse.Namespace) -> dict[str, Any]:
    found = backend_params(args.beparams)
    if args.memory:
        _deprecated("-m", "-B memory=SIZE")
        found.setdefault("memory", parse_mib(args.memory, "memory"))
    return found


def _deprecated(old: str, new: str) -> None:
    say(f"Warning: {old} is an old form of {new}", file=sys.stderr)


def texts(given: list[str] | None, field: str) -> dict[str, str]:
    """Parameters of an OS, which are all texts."""
    found = merged_key_values(given, field)
    for name, value in found.items():
        if not isinstance(value, str):
            raise InputError("needs a value, as in name=value", f"{field}.{name}")
    return found


@table.command(
    "remove",
    INSTANCE,
    FORCE,
    option("--ignore-failures", dest="ignore_failures", action="store_true",
           help="go on where a node does not answer or a disk cannot be removed"),
    SHUTDOWN_TIMEOUT,
    *JOB_OPTIONS,
)  # fmt: skip
def remove(args: argparse.Namespace) -> int:
    """Shut an instance down and remove it with its disks."""
    from ganeti.model.opcodes.instance import OpInstanceRemove

    with LuxiClient() as client:
        name = client.rows("Instances", [args.instance_name], ["name"])[0][0]
        op = OpInstanceRemove(
            instance_name=name,
            ignore_failures=args.ignore_failures,
            shutdown_timeout=args.shutdown_timeout,
        )
        run_job(client, op, args)
    return 0
