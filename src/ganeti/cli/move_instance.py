"""move-instance: instances go from one cluster to another that shares its domain secret (S203)."""

import argparse
import itertools
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from ganeti.base.errors import ErrorCode, ExecError, GanetiError, InputError, PrereqError
from ganeti.base.terminal import Parser, say
from ganeti.cli.cluster_doors import FINAL, REST_PORT, Door, RestAccess, door, password_in
from ganeti.cli.command import run_guarded
from ganeti.model.instance_view import NicView

if TYPE_CHECKING:  # slow to import
    from ganeti.model.opcodes import OpCode

PROG = "move-instance"
WAITED_FOR = "remote-import"
COMPRESSIONS = ("none", "gzip", "gzip-fast", "gzip-slow", "zstd", "lz4")


class Wishes(NamedTuple):
    """What may be another way at the destination."""

    keep_source: bool = False
    dest_name: str | None = None
    node: str | None = None
    iallocator: str | None = None
    disk_template: str | None = None
    compress: str = "none"
    start: bool = True


def move(
    source: Door, target: Door, name: str, wishes: Wishes, tell: Callable[[str], None]
) -> None:
    """Move one instance; ExecError or what a cluster said if it stays where it was."""
    from ganeti.model.opcodes.backup import OpBackupExport, OpBackupPrepare
    from ganeti.model.opcodes.instance import OpInstanceQueryData

    described = _run(source, OpInstanceQueryData(instances=[name], static=True))
    if len(described) != 1:
        raise PrereqError(f"there is no instance {name}", ErrorCode.UNKNOWN_ENTITY)
    instance = next(iter(described.values()))
    was_up = instance["config_state"] == "up"
    prepared = _run(source, OpBackupPrepare(instance_name=instance["name"], mode="remote"))
    tell("waiting for the destination to be ready")
    job = target.submit(
        import_opcode(instance, prepared, wishes._replace(start=wishes.start and was_up))
    )
    info = _waited_for(target, job)
    tell("sending the disks")
    export = OpBackupExport(
        instance_name=instance["name"],
        mode="remote",
        target_node=info["disks"],
        x509_key_name=prepared["x509_key_name"],
        destination_x509_ca=info["x509_ca"],
        compress=wishes.compress,
        remove_instance=not wishes.keep_source,
    )
    # It succeeds only after the destination has every disk and its entry (G14).
    _run(source, export)
    tell("waiting for the destination to finish")
    for _news in target.watch(job):
        pass
    target.result(job)
    tell("moved" + (", and kept, down, at the source" if wishes.keep_source else ""))


def import_opcode(
    instance: Mapping[str, Any], prepared: Mapping[str, Any], wishes: Wishes
) -> "OpCode":
    """The instance as the destination is to have it."""
    from ganeti.model.opcodes.base import DiskRequest, NicRequest
    from ganeti.model.opcodes.instance import OpInstanceCreate

    primary, _, secondary = (wishes.node or "").partition(":")
    name = wishes.dest_name or instance["name"]
    renamed = name != instance["name"]
    return OpInstanceCreate(
        instance_name=name,
        mode=WAITED_FOR,
        disk_template=wishes.disk_template or instance["disk_template"],
        disks=[
            DiskRequest(size=disk["size"], mode=disk["mode"], name=disk["name"])
            for disk in instance["disks"]
        ],
        nics=[
            NicRequest(
                mac="auto" if renamed else nic.mac,
                ip=nic.ip,
                name=nic.name,
                network=nic.network_name,
                **(
                    {}
                    if nic.network
                    else {key: getattr(nic, key) for key in ("mode", "link", "vlan")}
                ),
            )
            for nic in itertools.starmap(NicView, instance["nics"])
        ],
        os_type=instance["os"] or None,
        osparams=instance["os_instance"],
        hypervisor=instance["hypervisor"],
        hvparams=instance["hv_instance"],
        beparams=instance["be_instance"],
        tags=list(instance["tags"]),
        pnode=primary or None,
        snode=secondary or None,
        iallocator=wishes.iallocator,
        start=wishes.start,
        compress=wishes.compress,
        source_handshake=prepared["handshake"],
        source_x509_ca=prepared["x509_ca"],
        source_instance_name=instance["name"],
    )


def _run(cluster: Door, op: "OpCode") -> Any:
    job = cluster.submit(op)
    for _news in cluster.watch(job):
        pass
    return cluster.result(job)


def _waited_for(target: Door, job: int) -> Mapping[str, Any]:
    """Where the destination waits for the disks, once it says so."""
    for news in target.watch(job):
        for kind, content in news.entries:
            if kind == WAITED_FOR and isinstance(content, dict):
                return content
        if news.status in FINAL:
            break
    target.result(job)
    raise ExecError(f"job {job} of the destination never said where it waits for the disks")


def parser() -> argparse.ArgumentParser:
    """The command line."""
    found = Parser(
        prog=PROG,
        description="Moves instances to another cluster that has the same domain secret. An instance is down"
        " meanwhile. The source lets go of it only when the destination has all of its disks, verified, and"
        " its entry; if anything fails it is where it was.",
    )
    where = "name of the {} cluster's REST server, or the path of its master's socket"
    found.add_argument("source", help=where.format("source"))
    found.add_argument("destination", help=where.format("destination"))
    found.add_argument("instances", nargs="+", help="names of instances")
    for short, cluster, otherwise in (
        ("src", "source", ""),
        ("dest", "destination", "; the source's without it"),
    ):
        default = f"; {REST_PORT} without it" if short == "src" else otherwise
        found.add_argument(
            f"--{short}-rapi-port",
            type=int,
            metavar="PORT",
            help=f"port of the {cluster}'s REST server{default}",
        )
        found.add_argument(
            f"--{short}-ca-file",
            metavar="FILE",
            help=f"certificates that its certificate is checked with{otherwise}",
        )
        found.add_argument(f"--{short}-username", metavar="USER", help=f"user there{otherwise}")
        found.add_argument(
            f"--{short}-password-file",
            metavar="FILE",
            help=f"file with one line, that user's password{otherwise}",
        )
    found.add_argument(
        "-p", "--parallel", type=int, default=1, metavar="N", help="move so many at once"
    )
    found.add_argument(
        "--keep-source-instance", action="store_true", help="leave it, down, at the source"
    )
    found.add_argument(
        "--dest-instance-name", metavar="NAME", help="another name, for one instance"
    )
    found.add_argument("--dest-primary-node", metavar="NODE", help="node that is to run it")
    found.add_argument("--dest-secondary-node", metavar="NODE", help="node that has a copy of it")
    found.add_argument("--iallocator", metavar="NAME", help="allocator that chooses the nodes")
    found.add_argument(
        "--dest-disk-template", metavar="TEMPLATE", help="how its disks are kept there"
    )
    found.add_argument(
        "--compress", choices=COMPRESSIONS, default="none", help="compress the data on its way"
    )
    found.add_argument("--no-start", action="store_true", help="leave it down at the destination")
    return found


def run(argv: Sequence[str]) -> int:
    """Move all that are named; 0 if every one was."""
    args = parser().parse_args(argv)
    if args.dest_instance_name and len(args.instances) > 1:
        raise InputError("is for one instance", "--dest-instance-name")
    if args.dest_secondary_node and not args.dest_primary_node:
        raise InputError("needs --dest-primary-node", "--dest-secondary-node")
    if not 1 <= args.parallel <= 64:  # noqa: PLR2004 - threads, each with two jobs
        raise InputError("must be from 1 to 64", "--parallel")
    nodes = [one for one in (args.dest_primary_node, args.dest_secondary_node) if one]
    wishes = Wishes(
        keep_source=args.keep_source_instance,
        dest_name=args.dest_instance_name,
        node=":".join(nodes) or None,
        iallocator=args.iallocator,
        disk_template=args.dest_disk_template,
        compress=args.compress,
        start=not args.no_start,
    )
    source, target = _doors(args)

    def one(name: str) -> bool:
        try:
            move(source, target, name, wishes, lambda text: say(f"{name}: {text}", flush=True))
        except GanetiError as err:
            say(f"{name}: was not moved: {err}", file=sys.stderr)
            return False
        return True

    with ThreadPoolExecutor(args.parallel) as pool:
        return 0 if all(list(pool.map(one, args.instances))) else 1


def _doors(args: argparse.Namespace) -> tuple[Door, Door]:
    """Both clusters; what is not said of the destination's REST server is as the source's."""
    port = REST_PORT if args.src_rapi_port is None else args.src_rapi_port
    source = RestAccess(
        port,
        args.src_ca_file or "",
        args.src_username or "",
        _password(args.src_password_file, "--src-password-file"),
    )
    target = RestAccess(
        port if args.dest_rapi_port is None else args.dest_rapi_port,
        args.dest_ca_file or source.ca_file,
        args.dest_username or source.username,
        _password(args.dest_password_file, "--dest-password-file") or source.password,
    )
    for access, option in ((source, "--src-rapi-port"), (target, "--dest-rapi-port")):
        if not 1 <= access.port <= 65535:  # noqa: PLR2004 - ports
            raise InputError("must be from 1 to 65535", option)
    return door(args.source, source), door(args.destination, target)


def _password(name: str | None, option: str) -> str:
    return password_in(name, option) if name else ""


def main() -> NoReturn:
    """The program."""
    sys.exit(run_guarded(lambda: run(sys.argv[1:])))
