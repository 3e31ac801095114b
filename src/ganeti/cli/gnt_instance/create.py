"""gnt-instance add and clone."""

import argparse
import sys
from typing import TYPE_CHECKING, Any

from ganeti.base.errors import InputError
from ganeti.base.sizes import parse_mib
from ganeti.base.terminal import say
from ganeti.cli.command import option
from ganeti.cli.gnt_instance.table import table
from ganeti.cli.jobs import run_opcode
from ganeti.cli.key_values import backend_params, disk_requests, name_and_values, nic_requests
from ganeti.cli.opcode_options import OpOptions
from ganeti.cli.options import JOB_OPTIONS
from ganeti.model.compression import COMPRESSIONS, NONE
from ganeti.model.operation import INSTANCE, Argument

if TYPE_CHECKING:  # Lists do not need opcodes and start faster without them.
    from ganeti.model.opcodes.base import DiskRequest, NicRequest
    from ganeti.model.opcodes.instance import OpInstanceCreate


@table.command(
    "add",
    INSTANCE,
    OpOptions("instance.OpInstanceCreate"),
    option("-n", "--node", metavar="NODE[:SECONDARY]", completion="node",
           help="primary node, and the secondary node of mirrored disks"),
    option("-s", "--os-size", dest="os_size", metavar="SIZE", help="size of the only disk"),
    option("--swap-size", dest="swap_size", metavar="SIZE",
           help="size of a second disk; deprecated, use --disk"),
    option("-m", "--memory", "--mem", dest="memory", metavar="SIZE",
           help="memory; deprecated, use -B memory="),
    option("--no-nics", "--no-nic", dest="without_nics", action="store_true",
           help="create no network interfaces"),
    option("-H", "--hypervisor-parameters", "--hypervisor", dest="hypervisor",
           metavar="HYPERVISOR[:k=v,...]", help="hypervisor and its parameters"),
    *JOB_OPTIONS,
)  # fmt: skip
def add(args: argparse.Namespace) -> int:
    """Create an instance: choose its nodes, create its disks, install it and start it.

    With --image the disks get the content of an image of the cluster. The default disks are those of the image, and a
    small one with settings for cloud-init if the system of the image reads them. The OS is then image: its parameters
    ssh_key, user_data, user_data_file and dns (-O) are settings for cloud-init, beside the name and the addresses of
    the instance. With another OS (-o) only the disks are written. The node gets a copy of the image first if it has
    none.

    A disk with format=qcow2 (templates file and sharedfile) is an image that grows with the data of the guest.
    Snapshots, moves to other storage while the guest runs, and restores with --live need format=raw; 'gnt-instance
    modify -t file -e format=raw' converts the disks of a stopped instance.

    If --node is not given, the allocator (--iallocator; default: the cluster's) chooses the nodes.
    The domain of the cluster's name is appended to a name without a dot.
    """
    result = run_opcode(create_opcode(args), args)
    if args.dry_run:
        chosen = result["nodes"] if isinstance(result, dict) else result
        say(f"The instance would be on: {', '.join(chosen)}")
    return 0


@table.command(
    "clone",
    INSTANCE,
    Argument("new_name", "name of the clone"),
    OpOptions(
        "instance.OpInstanceCreate",
        without=("start", "no_install", "force_variant", "osparams_secret", "image"),
    ),
    option("-n", "--node", metavar="NODE[:SECONDARY]", completion="node",
           help="primary node, and the secondary node of mirrored disks"),
    option("-H", "--hypervisor-parameters", "--hypervisor", dest="hypervisor",
           metavar="HYPERVISOR[:k=v,...]", help="hypervisor and its parameters"),
    option("--no-nics", "--no-nic", dest="no_nics", action="store_true",
           help="create no network interfaces, even if the source has some"),
    option("--start", dest="start", action="store_true", help="start the clone"),
    option("--compress", dest="compress", choices=tuple(COMPRESSIONS), default=NONE,
           help="compress the data between nodes"),
    *JOB_OPTIONS,
)  # fmt: skip
def clone(args: argparse.Namespace) -> int:
    """Create an instance with the disks and the settings of another one, and leave it down.

    A running guest continues. Its disks are copied as they are at one moment; an agent in the guest
    (use_guest_agent) first freezes the file systems, otherwise the clone starts as after a loss of power. This needs
    a guest of KVM whose disks are all writable.

    Options override the source's disks, network interfaces, OS, parameters and tags. Disks may be larger than
    those of the source, and of another template. If neither --node nor an allocator (--iallocator; default: the
    cluster's) chooses the nodes, the clone is on the nodes of the source. On the same node, disks in files on XFS or
    btrfs share their blocks with those of the source at first.

    The clone has a new UUID, new MAC addresses, a new address from the pool of its network, its own display port,
    and empty NVRAM and TPM. Other addresses are not copied. The rename script of the OS sets the name in the
    cloned system. OS image writes new settings for cloud-init, whose instance-id has changed: cloud-init then makes
    new ssh host keys at the first start. The machine-id is the system's own: prepare a source with an empty
    /etc/machine-id, or remove it in the clone.
    """
    op = _clone_opcode(args)
    result = run_opcode(op, args)
    if args.dry_run:
        chosen = result["nodes"] if isinstance(result, dict) else result
        say(f"The instance would be on: {', '.join(chosen)}")
    return 0


def _clone_opcode(args: argparse.Namespace) -> "OpInstanceCreate":
    primary, _, secondary = (args.node or "").partition(":")
    hypervisor = name_and_values(args.hypervisor, "hypervisor") if args.hypervisor else (None, {})
    op: OpInstanceCreate = args.op.opcode(
        args,
        instance_name=args.new_name,
        mode="clone",
        src_instance=args.instance_name,
        pnode=primary or None,
        snode=secondary or None,
        hypervisor=hypervisor[0],
        hvparams=hypervisor[1],
        start=args.start,
    )
    return op


def create_opcode(args: argparse.Namespace) -> "OpInstanceCreate":
    """Return the opcode for the options; raise InputError."""
    primary, _, secondary = (args.node or "").partition(":")
    hypervisor, hvparams = (
        name_and_values(args.hypervisor, "hypervisor") if args.hypervisor else (None, {})
    )
    op: OpInstanceCreate = args.op.opcode(
        args,
        disks=wanted_disks(args),
        nics=wanted_nics(args),
        pnode=primary or None,
        snode=secondary or None,
        hypervisor=hypervisor,
        hvparams=hvparams,
        beparams=_beparams(args),
        no_nics=bool(args.image and args.without_nics),
        **({"start": False} if args.no_install else {}),
    )
    return op


def wanted_disks(args: argparse.Namespace) -> "list[DiskRequest]":
    """Return the disks of `--disk`, or of the old options for sizes (X24)."""
    from ganeti.model.opcodes.base import DiskRequest

    sizes = [size for size in (args.os_size, args.swap_size) if size]
    if not sizes:
        return disk_requests(args.disks)
    if args.disks:
        raise InputError("cannot be used with -s or --swap-size", "--disk")
    if not args.os_size:
        raise InputError("needs the size of the first disk, for example -s 10g", "--swap-size")
    if args.swap_size:
        _deprecated("--swap-size", "--disk 1:size=SIZE")
    return [DiskRequest(size=parse_mib(size, "disks")) for size in sizes]


def wanted_nics(args: argparse.Namespace) -> "list[NicRequest]":
    """Return the interfaces; by default one interface with the cluster's parameters, or those of the image."""
    from ganeti.model.opcodes.base import NicRequest

    if args.without_nics:
        if args.nics:
            raise InputError("cannot be used with --no-nics", "--net")
        return []
    if args.nics or args.image:
        return nic_requests(args.nics)
    return [NicRequest()]


def _beparams(args: argparse.Namespace) -> dict[str, Any]:
    found = backend_params(args.beparams)
    if args.memory:
        _deprecated("-m", "-B memory=SIZE")
        found.setdefault("memory", parse_mib(args.memory, "memory"))
    return found


def _deprecated(old: str, new: str) -> None:
    say(f"Warning: {old} is an old form of {new}", file=sys.stderr)
