"""move-instance: move instances to another cluster that has the same domain secret (S203)."""

import argparse
import contextlib
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from getpass import getpass
from types import FrameType
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, Self

from ganeti.base.errors import ErrorCode, ExecError, GanetiError, InputError, PrereqError
from ganeti.base.terminal import Parser, say
from ganeti.cli.command import run_guarded
from ganeti.cli.key_values import (
    backend_params,
    merged_key_values,
    numbered,
    texts,
)
from ganeti.cli.remote_clusters import (
    FINAL,
    REST_PORT,
    RemoteCluster,
    RestAccess,
    connect,
    password_in,
)
from ganeti.model.compression import COMPRESSIONS, NONE
from ganeti.model.instance_view import NicView

if TYPE_CHECKING:  # slow to import
    from ganeti.model.opcodes import OpCode
    from ganeti.model.opcodes.backup import OpBackupExport
    from ganeti.model.opcodes.base import NicRequest

PROG = "move-instance"
WAITED_FOR = "remote-import"
_LINKED = ("mode", "link", "vlan")
_FOR_ONE = (
    "--dest-instance-name",
    "--net",
    "--backend-parameters",
    "--hypervisor-parameters",
    "--os-parameters",
)
_NIC_KEYS = ("mac", "ip", *_LINKED, "name", "network")
_NOT_IMPORTED = "were not imported successfully"
"""A warning of upstream's job, which succeeds nevertheless."""
LOOK_S = 0.1
"""Seconds after which an interrupt is noticed."""


@dataclass(frozen=True)
class Changes:
    """Values that replace those of the source; None stands for the defaults of the destination."""

    nics: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    """Interfaces by number."""
    hvparams: Mapping[str, Any] = field(default_factory=dict)
    beparams: Mapping[str, Any] = field(default_factory=dict)
    osparams: Mapping[str, str] = field(default_factory=dict)


class MoveOptions(NamedTuple):
    """The differences between the instance at the source and at the destination."""

    keep_source: bool = False
    dest_name: str | None = None
    node: str | None = None
    iallocator: str | None = None
    disk_template: str | None = None
    compress: str = "none"
    start: bool = True
    changes: Changes = Changes()


def move(
    source: RemoteCluster,
    target: RemoteCluster,
    name: str,
    options: MoveOptions,
    tell: Callable[[str], None],
    *,
    is_stopped: Callable[[], bool] = lambda: False,
) -> None:
    """Move one instance; ExecError or the error of a cluster if the instance remains at the source.

    `is_stopped` returns True if no further step may begin.
    """
    from ganeti.model.opcodes.backup import OpBackupExport, OpBackupPrepare
    from ganeti.model.opcodes.instance import OpInstanceQueryData, OpInstanceRemove

    described = _run(source, OpInstanceQueryData(instances=[name], static=True))
    if len(described) != 1:
        raise PrereqError(f"instance {name} does not exist", ErrorCode.UNKNOWN_ENTITY)
    instance = next(iter(described.values()))
    options = options._replace(start=options.start and instance["config_state"] == "up")
    prepared = _run(source, OpBackupPrepare(instance_name=instance["name"], mode="remote"))
    tell("waiting for the destination to be ready")
    try:
        job = target.submit(import_opcode(instance, prepared, options))
        export = OpBackupExport(
            instance_name=instance["name"],
            mode="remote",
            x509_key_name=prepared["x509_key_name"],
            compress=options.compress,
            remove_instance=not options.keep_source,
        )
        says_all = _sent(source, target, job, export, tell, is_stopped=is_stopped)
    except GanetiError:
        _abandon(source, instance["name"], prepared)
        raise
    tell("waiting for the destination to finish")
    entries = [entry for news in target.watch(job) for entry in news.entries]
    target.result(job)
    if not says_all:
        if any(isinstance(said, str) and _NOT_IMPORTED in said for _kind, said in entries):
            raise ExecError(
                f"job {job} of the destination did not import every disk; the instance is kept, down, at the source:"
                " remove the one at the destination, and move it again"
            )
        if not options.keep_source:
            _run(source, OpInstanceRemove(instance_name=instance["name"]))
    tell("moved" + (", and kept, down, at the source" if options.keep_source else ""))


def _sent(
    source: RemoteCluster,
    target: RemoteCluster,
    job: int,
    export: "OpBackupExport",
    tell: Callable[[str], None],
    *,
    is_stopped: Callable[[], bool],
) -> bool:
    """Send the disks to the destination's job; return True if that job confirms every disk (upstream's does not)."""
    from msgspec.structs import replace

    try:
        info = _waited_for(target, job, is_stopped)
        says_all = not _is_upstream(info["x509_ca"])
        tell("sending the disks")
        export = replace(
            export,
            target_node=info["disks"],
            destination_x509_ca=info["x509_ca"],
            remove_instance=says_all and export.remove_instance,
        )
        # It succeeds only after the destination has every disk and the entry (G14), except at upstream's clusters.
        _run(source, export)
    except GanetiError:
        # It would wait for long; cancelling does not undo a commit.
        with contextlib.suppress(GanetiError):
            target.cancel(job)
        raise
    return says_all


def _is_upstream(signed: str) -> bool:
    """Return True if the certificate of a destination is upstream's, which never confirms that it has every disk."""
    from ganeti.base.certificates import is_upstream
    from ganeti.base.domain_secret import verified_certificate

    try:
        return is_upstream(verified_certificate(None, signed).encode("ascii"), time.time())
    except InputError:  # the source refuses it
        return False


def _abandon(source: RemoteCluster, name: str, prepared: Mapping[str, Any]) -> None:
    """Remove the source's key of a failed move (S241); upstream's servers keep their key for a day.

    The job waits for an export that may still run, so this function does not wait for the job.
    """
    from ganeti.model.opcodes.backup import OpBackupAbandon

    with contextlib.suppress(GanetiError):
        source.submit(OpBackupAbandon(instance_name=name, x509_key_name=prepared["x509_key_name"]))


def import_opcode(
    instance: Mapping[str, Any], prepared: Mapping[str, Any], options: MoveOptions
) -> "OpCode":
    """Return the opcode that creates the instance at the destination."""
    from ganeti.model.opcodes.base import DiskRequest
    from ganeti.model.opcodes.instance import OpInstanceCreate

    primary, _, secondary = (options.node or "").partition(":")
    changes = options.changes
    return OpInstanceCreate(
        instance_name=options.dest_name or instance["name"],
        mode=WAITED_FOR,
        disk_template=options.disk_template or instance["disk_template"],
        disks=[
            DiskRequest(size=disk["size"], mode=disk["mode"], name=disk["name"])
            for disk in instance["disks"]
        ],
        nics=_nics(instance, options),
        os_type=instance["os"] or None,
        osparams={**instance["os_instance"], **changes.osparams},
        hypervisor=instance["hypervisor"],
        hvparams=_changed(instance["hv_instance"], changes.hvparams),
        beparams=_changed(instance["be_instance"], changes.beparams),
        tags=list(instance.get("tags", ())),  # Upstream does not report them.
        pnode=primary or None,
        snode=secondary or None,
        iallocator=options.iallocator,
        start=options.start,
        compress=options.compress,
        source_handshake=prepared["handshake"],
        source_x509_ca=prepared["x509_ca"],
        source_instance_name=instance["name"],
    )


def _changed(own: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in {**own, **changes}.items() if value is not None}


def _nics(instance: Mapping[str, Any], options: MoveOptions) -> "list[NicRequest]":
    from ganeti.model.opcodes.base import NicRequest

    changes = options.changes.nics
    nics = [NicView(*values) for values in instance["nics"]]
    if extra := sorted(changes.keys() - set(range(len(nics)))):
        raise InputError(
            f"interface {extra[0]} does not exist: the instance has {len(nics)} network interfaces,"
            " and a move cannot add interfaces",
            "--net",
        )
    renamed = options.dest_name not in (None, instance["name"])
    wanted = []
    for number, nic in enumerate(nics):
        change = changes.get(number, {})
        own = {key: getattr(nic, key) for key in ("ip", "name")}
        own["mac"] = "auto" if renamed else nic.mac
        # A network implies mode, link and VLAN, so each of the two replaces the other.
        if "network" not in change and nic.network and not change.keys() & set(_LINKED):
            own["network"] = nic.network_name
        elif "network" not in change and not nic.network:
            own |= {key: getattr(nic, key) for key in _LINKED}
        wanted.append(NicRequest(**_changed(own, change)))
    return wanted


def _run(cluster: RemoteCluster, op: "OpCode") -> Any:
    job = cluster.submit(op)
    for _news in cluster.watch(job):
        pass
    return cluster.result(job)


def _waited_for(
    target: RemoteCluster, job: int, is_stopped: Callable[[], bool]
) -> Mapping[str, Any]:
    """Return the addresses where the destination waits for the disks, once it reports them."""
    for news in target.watch(job):
        if is_stopped():
            raise ExecError("interrupted before anything was sent")
        for kind, content in news.entries:
            if kind == WAITED_FOR and isinstance(content, dict):
                return content
        if news.status in FINAL:
            break
    target.result(job)
    raise ExecError(f"job {job} of the destination did not report its addresses for the disks")


def parser() -> argparse.ArgumentParser:
    """The command line."""
    found = Parser(
        prog=PROG,
        description="Move instances to another cluster that has the same domain secret. An instance is down during its move."
        " The source removes it only after the destination has verified all disks and recorded the instance."
        " If a step fails, the instance remains at the source.",
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
            help=f"file with the {cluster}'s certificate itself, or with the authorities that signed it{otherwise}",
        )
        found.add_argument(
            f"--{short}-username",
            metavar="USER",
            help=f"user of the {cluster}'s REST server{otherwise}",
        )
        found.add_argument(
            f"--{short}-password-file",
            metavar="FILE",
            help=f"file with the password of this user in one line{otherwise}",
        )
    _add_target_options(found)
    return found


def _add_target_options(found: argparse.ArgumentParser) -> None:
    for names, value, meaning in (
        ("--dest-instance-name", "NAME", "name at the destination, for one instance"),
        ("--dest-primary-node", "NODE", "target node"),
        ("--dest-secondary-node", "NODE", "node for the second copy of mirrored disks"),
        ("-I --iallocator", "NAME", "allocator that chooses the nodes"),
        ("--dest-disk-template", "TEMPLATE", "disk template at the destination"),
    ):
        found.add_argument(*names.split(), metavar=value, help=meaning)
    for names, value, meaning in (
        ("--net", "N:k=v,...", "change interface N: mac, ip, network, mode, link, vlan or name"),
        ("-B --backend-parameters", "k=v,...", "changed backend parameters"),
        ("-H --hypervisor-parameters", "k=v,...", "changed hypervisor parameters"),
        ("-O --os-parameters", "k=v,...", "changed parameters of the OS definition"),
    ):
        found.add_argument(
            *names.split(), action="append", metavar=value, help=f"{meaning}, for one instance"
        )
    found.add_argument(
        "-p", "--parallel", type=int, default=1, metavar="N", help="number of concurrent moves"
    )
    found.add_argument(
        "--compress",
        choices=tuple(COMPRESSIONS),
        default=NONE,
        help="compress the data during the transfer",
    )
    for name, meaning in (
        ("--keep-source-instance", "keep the instance at the source, where it is down"),
        ("--no-start", "do not start the instance at the destination"),
    ):
        found.add_argument(name, action="store_true", help=meaning)
    unused = "ignored; kept for compatibility with Ganeti 3"
    found.add_argument("--opportunistic-tries", type=int, metavar="N", help=unused)
    found.add_argument("--opportunistic-delay", type=int, metavar="SECONDS", help="the same")
    for names in ("-v --verbose", "-d --debug"):
        found.add_argument(
            *names.split(),
            action="store_true",
            help="ignored; the program always reports every step",
        )


def run(argv: Sequence[str]) -> int:
    """Move all named instances; return 0 if all moves succeeded."""
    args = parser().parse_args(argv)
    options = _options(args)
    source, target = _clusters(args)

    stop = threading.Event()

    def one(name: str) -> bool:
        try:
            if stop.is_set():
                raise ExecError("interrupted before the move began")
            move(
                source,
                target,
                name,
                options,
                lambda text: say(f"{name}: {text}", flush=True),
                is_stopped=stop.is_set,
            )
        except GanetiError as err:
            say(f"{name}: was not moved: {err}", file=sys.stderr)
            return False
        return True

    return 0 if _in_threads(one, args.instances, args.parallel, stop) else 1


class _Interrupts:
    """Counter of interrupts; the signal handler only counts."""

    def __init__(self) -> None:
        self.count = 0

    def __enter__(self) -> Self:
        self._before = signal.signal(signal.SIGINT, self._counted)
        return self

    def __exit__(self, *_error: object) -> None:
        signal.signal(signal.SIGINT, self._before)

    def _counted(self, _number: int, _frame: FrameType | None) -> None:
        self.count += 1


def _in_threads(
    work: Callable[[str], bool], names: Sequence[str], most: int, stop: threading.Event
) -> bool:
    """Return whether the work on each name succeeded. An interrupt sets `stop`; a second one exits at once."""
    left: queue.SimpleQueue[str] = queue.SimpleQueue()
    for name in names:
        left.put(name)
    ended: queue.SimpleQueue[bool] = queue.SimpleQueue()

    def work_on() -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                name, is_well = left.get_nowait(), False
                try:
                    is_well = work(name)
                except Exception as err:  # noqa: BLE001 - a cluster may answer anything; others are moved on
                    what = f"a cluster sent an invalid answer ({type(err).__name__}: {err})"
                    say(f"{name}: was not moved: {what}", file=sys.stderr)
                finally:
                    ended.put(is_well)

    done: list[bool] = []
    with _Interrupts() as interrupts:
        for _ in names[:most]:
            # The interpreter does not wait for them at its end, and an interrupted `join` would mark them as ended.
            threading.Thread(target=work_on, daemon=True).start()
        while len(done) < len(names):
            with contextlib.suppress(queue.Empty):
                done.append(ended.get(timeout=LOOK_S))
            if interrupts.count > 1:
                raise KeyboardInterrupt
            if interrupts.count and not stop.is_set():
                stop.set()
                say(
                    "Interrupted: no further moves begin; waiting for transfers in progress. A second interrupt exits at once.",
                    file=sys.stderr,
                    flush=True,
                )
    return all(done)


def _options(args: argparse.Namespace) -> MoveOptions:
    changes = Changes(
        nics={
            number: _nic(values, number) for number, values in numbered(args.net, "nics").items()
        },
        hvparams={
            name: None if value == "default" else value
            for name, value in merged_key_values(args.hypervisor_parameters, "hvparams").items()
        },
        beparams=backend_params(args.backend_parameters),
        osparams=texts(args.os_parameters, "osparams"),
    )
    if len(args.instances) > 1:
        for option in _FOR_ONE:
            if getattr(args, option.removeprefix("--").replace("-", "_")):
                raise InputError("is only for one instance", option)
    if args.dest_secondary_node and not args.dest_primary_node:
        raise InputError("needs --dest-primary-node", "--dest-secondary-node")
    if args.dest_primary_node and args.iallocator:
        raise InputError("pass a node or an allocator, not both", "--iallocator")
    if not 1 <= args.parallel <= 64:  # noqa: PLR2004 - threads, each with two jobs
        raise InputError("must be from 1 to 64", "--parallel")
    nodes = [one for one in (args.dest_primary_node, args.dest_secondary_node) if one]
    return MoveOptions(
        keep_source=args.keep_source_instance,
        dest_name=args.dest_instance_name,
        node=":".join(nodes) or None,
        iallocator=args.iallocator,
        disk_template=args.dest_disk_template,
        compress=args.compress,
        start=not args.no_start,
        changes=changes,
    )


def _nic(values: Mapping[str, Any], number: int) -> dict[str, str | None]:
    """Return the changes of an interface; `none` removes a value."""
    found: dict[str, str | None] = {}
    for key, value in values.items():
        if key not in _NIC_KEYS:
            known = ", ".join(_NIC_KEYS)
            raise InputError(f"unknown key {key}; the keys are {known}", f"nics[{number}]")
        if isinstance(value, bool):
            raise InputError("needs a value", f"nics[{number}].{key}")
        found[key] = None if value == "none" else value
    return found


def _clusters(args: argparse.Namespace) -> tuple[RemoteCluster, RemoteCluster]:
    """Return both clusters; options of the destination's REST server default to those of the source."""
    port = REST_PORT if args.src_rapi_port is None else args.src_rapi_port
    user = args.src_username or ""
    source = RestAccess(
        port,
        args.src_ca_file or "",
        user,
        _password(args.src_password_file, "--src-password-file", user, args.source),
    )
    other = args.dest_username or ""
    target = RestAccess(
        port if args.dest_rapi_port is None else args.dest_rapi_port,
        args.dest_ca_file or source.ca_file,
        other or user,
        _password(args.dest_password_file, "--dest-password-file", other, args.destination)
        or source.password,
    )
    for access, option in ((source, "--src-rapi-port"), (target, "--dest-rapi-port")):
        if not 1 <= access.port <= 65535:  # noqa: PLR2004 - ports
            raise InputError("must be from 1 to 65535", option)
    return connect(args.source, source), connect(args.destination, target)


def _password(file: str | None, option: str, user: str, where: str) -> str:
    """Return the password from the file, or from the terminal if a user is named; otherwise ''."""
    if file:
        return password_in(file, option)
    if user and not where.startswith("/") and sys.stdin.isatty():
        return getpass(f"Password of {user} at {where}: ")
    return ""


def main() -> NoReturn:
    """Run the program."""
    sys.exit(run_guarded(lambda: run(sys.argv[1:])))
