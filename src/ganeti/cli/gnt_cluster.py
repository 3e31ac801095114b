"""gnt-cluster: the cluster as a whole."""

import argparse
import sys
from typing import Any, NoReturn

from ganeti import __version__
from ganeti.base.errors import GanetiError, InputError, NotMaster
from ganeti.base.paths import Paths, hostname
from ganeti.base.terminal import say
from ganeti.cli.cluster_backup import add_backup_commands
from ganeti.cli.cluster_changes import ALLOCATOR_PARAMS, UID_POOL, add_change_commands
from ganeti.cli.cluster_placement import add_placement_commands
from ganeti.cli.command import EXIT_FAILURE, Argument, CommandTable, option
from ganeti.cli.errors import NeedsConfirmation
from ganeti.cli.ispecs_commands import add_cluster_command
from ganeti.cli.jobs import run_job, wait_for_result
from ganeti.cli.key_values import merged_key_values, named_key_values
from ganeti.cli.options import JOB_OPTIONS, QUERY_JOB_OPTIONS, VERBOSE
from ganeti.cli.output import format_time, print_tree
from ganeti.cli.policy_options import POLICY_OPTIONS, policy_of
from ganeti.cli.state_options import STATE_OPTIONS
from ganeti.cli.tags import add_tag_commands
from ganeti.clients.luxi import LuxiClient
from ganeti.uidpool import FormatUidPool, ParseUidPool

TAKE_OVER_LIMIT_S = 90.0
PING_LIMIT_S = 10.0

table = CommandTable("gnt-cluster", "Makes, describes, checks and ends a cluster.")

_OPTIONAL_INIT = {
    # option of the command -> field of bootstrap's InitOptions, where the name is given to it
    "master_netdev": "master_netdev",
    "master_netmask": "master_netmask",
    "mac_prefix": "mac_prefix",
    "candidate_pool_size": "candidate_pool_size",
    "default_iallocator": "default_iallocator",
    "file_storage_dir": "file_storage_dir",
    "shared_file_storage_dir": "shared_file_storage_dir",
    "secondary_ip": "secondary_ip",
    "master_ip": "master_ip",
    "node_port": "port",
}


@table.command(
    "init",
    Argument("cluster_name", "name of the cluster: a host name, not that of a node"),
    option("--enabled-hypervisors", metavar="NAME,...", help="hypervisors; the first is the default"),
    option("-H", "--hypervisor-parameters", "--hypervisor-params", dest="hvparams",
           action="append", metavar="HYPERVISOR:k=v,...",
           help="hypervisor parameters of the cluster; may be repeated"),
    option("-B", "--backend-parameters", dest="beparams", action="append", metavar="k=v,...",
           help="backend parameters of the cluster, as memory=512m,vcpus=1"),
    option("-N", "--nic-parameters", dest="nicparams", action="append", metavar="k=v,...",
           help="NIC parameters of the cluster, as mode=bridged,link=br0"),
    option("-D", "--disk-parameters", dest="diskparams", action="append",
           metavar="TEMPLATE:k=v,...",
           help="parameters of a disk template, as plain:stripes=2; may be repeated"),
    option("--enabled-disk-templates", metavar="NAME,...",
           help="disk templates; the first is the default"),
    option("-I", "--default-iallocator", metavar="NAME", completion="iallocator",
           help="allocators that choose nodes where a command names none, tried in order, as"
           " mine,hail, and others for one kind of request, as hail/relocate=mine; hail without;"
           " '' for none"),
    ALLOCATOR_PARAMS,
    *POLICY_OPTIONS,
    option("--file-storage-dir", metavar="DIRECTORY", help="where disks are kept as files"),
    option("--shared-file-storage-dir", metavar="DIRECTORY",
           help="where disks are kept as files that all nodes see"),
    option("-m", "--mac-prefix", metavar="XX:XX:XX", help="first bytes of new MAC addresses"),
    option("--master-netdev", metavar="DEVICE", help="interface of the cluster's address"),
    option("--master-netmask", type=int, metavar="BITS", help="its netmask"),
    option("--master-ip", metavar="ADDRESS",
           help="the cluster's own address; without it, what its name resolves to"),
    option("--primary-ip", metavar="ADDRESS",
           help="address of this node; without it, what its name resolves to"),
    option("-s", "--secondary-ip", metavar="ADDRESS",
           help="address of this node for replication of disks"),
    option("--node-port", type=int, metavar="PORT", help="port of this node's node daemon (1811)"),
    option("-C", "--candidate-pool-size", type=int, metavar="N",
           help="how many nodes are kept as master candidates"),
    UID_POOL,
    *STATE_OPTIONS,
    option("--primary-ip-version", type=int, choices=(4, 6),
           help="family of primary addresses; accepted, the address says it"),
    option("--no-etc-hosts", action="store_true", help="accepted: /etc/hosts is never changed"),
    option("--no-ssh-init", action="store_true", help="accepted: ssh is never set up"),
    VERBOSE,
)  # fmt: skip
def init(args: argparse.Namespace) -> int:
    """Make a cluster of this node, which becomes its master.

    The node daemon and the master daemon are started. If a step fails, nothing remains.
    """
    import asyncio

    from ganeti.base.addresses import own_address
    from ganeti.bootstrap.init import InitOptions, init_cluster
    from ganeti.model.opcodes.cluster import OpClusterPostInit

    name = hostname()
    given: dict[str, Any] = {
        field: getattr(args, word)
        for word, field in _OPTIONAL_INIT.items()
        if getattr(args, word) is not None
    }
    for word in ("enabled_hypervisors", "enabled_disk_templates"):
        if getattr(args, word) is not None:
            given[word] = tuple(getattr(args, word).split(","))
    if args.hvparams:
        given["hvparams"] = named_key_values(args.hvparams, "hvparams")
    if args.uid_pool is not None:
        given["uid_pool"] = ParseUidPool(args.uid_pool)
    given["default_iallocator_params"] = merged_key_values(
        args.allocator_params, "default_iallocator_params"
    )
    given["ipolicy"] = policy_of(args)
    given["beparams"] = _backend_bounds(args.beparams)
    given["nicparams"] = merged_key_values(args.nicparams, "nicparams")
    given["diskparams"] = named_key_values(args.diskparams, "diskparams")
    given.update(_state_of(args))
    options = InitOptions(
        cluster_name=args.cluster_name,
        node_name=name,
        primary_ip=args.primary_ip or own_address(name, "--primary-ip"),
        **{"master_ip": _resolved(args.cluster_name), **given},
    )
    asyncio.run(init_cluster(options, paths=Paths.from_environment()))
    args.verbose = 0
    with LuxiClient() as client:
        run_job(client, OpClusterPostInit(), args)
    return 0


def _state_of(args: argparse.Namespace) -> dict[str, Any]:
    """What keeps the state; InputError where options contradict each other."""
    from ganeti.bootstrap.etcd import ExternalEtcd

    details = (args.state_urls, args.state_authority, args.state_credentials)
    if args.state != "etcd" and any(details):
        raise InputError("says where an etcd is: give --state=etcd with it", "--state-urls")
    if not args.state_urls:
        return {"state": args.state or "embedded"}
    external = ExternalEtcd(
        tuple(args.state_urls.split(",")), args.state_authority or "", args.state_credentials or ""
    )
    return {"state": args.state, "external_etcd": external}


def _resolved(name: str) -> str | None:
    import socket

    try:
        return str(socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)[0][4][0])
    except OSError:
        return None


def _backend_bounds(texts: list[str] | None) -> dict[str, Any]:
    """Backend parameters with `memory` as both its bounds."""
    from ganeti.cli.key_values import backend_params

    found = backend_params(texts)
    memory = found.pop("memory", None)
    return found if memory is None else {"minmem": memory, "maxmem": memory, **found}


@table.command(
    "destroy",
    option("--yes-do-it", dest="is_sure", action="store_true", help="confirm that it is meant"),
    *QUERY_JOB_OPTIONS,
)
def destroy(args: argparse.Namespace) -> int:
    """End the cluster: only its master may be left, and no instance.

    The daemons of this node are stopped, and its keys and state are removed.
    """
    import asyncio

    from ganeti.bootstrap.daemons import Daemons
    from ganeti.bootstrap.destroy import destroy as destroy_cluster
    from ganeti.model.opcodes.cluster import OpClusterDestroy

    with LuxiClient() as client:
        run_job(client, OpClusterDestroy(), args)
    paths = Paths.from_environment()
    asyncio.run(destroy_cluster(paths, Daemons(paths)))
    return 0


@table.command("info", VERBOSE, aliases=("show",))
def info(args: argparse.Namespace) -> int:
    """Show the cluster and its parameters."""
    del args
    with LuxiClient() as client:
        found = client.cluster_info()
    print_tree(_described(found))
    return 0


def _described(found: dict[str, Any]) -> list[tuple[str, Any]]:
    enabled = found["enabled_hypervisors"]
    return [
        ("Cluster name", found["name"]),
        ("Cluster UUID", found["uuid"]),
        ("Creation time", format_time(found["ctime"])),
        ("Modification time", format_time(found["mtime"])),
        ("Master node", found["master"]),
        ("State", _redundancy(found)),
        ("State kept by", _kept(found.get("state") or {})),
        ("Architecture (this node)", f"{found['architecture'][0]} ({found['architecture'][1]})"),
        ("Tags", _joined(found["tags"])),
        ("Default hypervisor", found["default_hypervisor"]),
        ("Enabled hypervisors", ", ".join(enabled)),
        ("Hypervisor parameters", {name: _sorted(found["hvparams"][name]) for name in enabled}),
        ("OS-specific hypervisor parameters", found["os_hvp"]),
        ("OS parameters", found["osparams"]),
        ("Hidden OSes", ", ".join(found["hidden_os"])),
        ("Blacklisted OSes", ", ".join(found["blacklisted_os"])),
        (
            "Cluster parameters",
            [
                ("candidate pool size", found["candidate_pool_size"]),
                ("maximal number of jobs running simultaneously", found["max_running_jobs"]),
                ("mac prefix", found["mac_prefix"]),
                ("master ip", found.get("master_ip", "")),
                ("master netdev", found["master_netdev"]),
                ("master netmask", found["master_netmask"]),
                ("file storage path", found["file_storage_dir"]),
                ("shared file storage path", found["shared_file_storage_dir"]),
                ("default instance allocator", found["default_iallocator"]),
                (
                    "parameters of the host for REST users",
                    ", ".join(found.get("remote_hvparams", [])),
                ),
                ("uid pool", FormatUidPool(found["uid_pool"])),
                ("data collectors", _collectors(found)),
                ("primary ip version", found["primary_ip_version"]),
                ("OS search path", ", ".join(map(str, Paths().os_search_path))),
                ("enabled disk templates", ", ".join(found["enabled_disk_templates"])),
            ],
        ),
        ("Default node parameters", _sorted(found["ndparams"])),
        ("Default instance parameters", {k: _sorted(v) for k, v in found["beparams"].items()}),
        ("Default nic parameters", {k: _sorted(v) for k, v in found["nicparams"].items()}),
        ("Default disk parameters", {k: _sorted(v) for k, v in found["diskparams"].items()}),
        ("Instance policy - limits for instances", _policy(found["ipolicy"])),
    ]


def _collectors(found: dict[str, Any]) -> list[tuple[str, str]]:
    intervals = found.get("data_collector_interval", {})
    return [
        (name, f"{'on' if active else 'off'}, every {intervals[name] / 1e6:g} s")
        for name, active in found.get("enabled_data_collectors", {}).items()
        if name in intervals
    ]


def _redundancy(found: dict[str, Any]) -> str:
    return "degraded: held by the master alone" if found.get("degraded") else "safe"


def _kept(state: dict[str, Any]) -> str:
    kind = {"embedded": "the candidates", "etcd": "etcd"}.get(state.get("kind", ""), "")
    where = ", ".join(state.get("holders", [])) or "on other hosts"
    return f"{kind} ({where})" if kind else "unknown"


def _joined(words: list[str]) -> str:
    return ", ".join(sorted(words)) or "(none)"


def _sorted(params: dict[str, Any]) -> dict[str, Any]:
    return dict(sorted(params.items()))


def _policy(policy: dict[str, Any]) -> list[tuple[str, Any]]:
    bounds = [
        [("max", _spec(pair["max"])), ("min", _spec(pair["min"]))] for pair in policy["minmax"]
    ]
    return [
        ("bounds specs", bounds),
        ("std", _spec(policy["std"])),
        ("allowed disk templates", ", ".join(policy["disk-templates"])),
        ("vcpu-ratio", policy["vcpu-ratio"]),
        ("spindle-ratio", policy["spindle-ratio"]),
    ]


def _spec(spec: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in sorted(spec.items()))


@table.command("version")
def version(args: argparse.Namespace) -> int:
    """Show versions of the software and its interfaces."""
    del args
    with LuxiClient() as client:
        found = client.cluster_info()
    say(f"Software version: {found['software_version']}")
    say(f"Internode protocol: {found['protocol_version']}")
    say(f"Configuration format: {found['config_version']}")
    say(f"OS api version: {found['os_api_version']}")
    say(f"Export interface: {found['export_version']}")
    say(f"VCS version: {found['vcs_version']}")
    if found["software_version"] != __version__:
        say(f"This command: {__version__}")
    return 0


@table.command("getmaster")
def getmaster(args: argparse.Namespace) -> int:
    """Show which node is the master, from what this node knows."""
    del args
    from ganeti.clients.luxi import NotClusterNodeError, ssconf_value

    name = ssconf_value(Paths.from_environment(), "master_node")
    if name is None:
        raise NotClusterNodeError(f"this host ({hostname()}) is not part of a cluster")
    say(name)
    return 0


@table.command(
    "master-failover",
    option("--no-voting", action="store_true",
           help="become the master without a majority; what only others have may be lost"),
    option("--yes-do-it", dest="is_sure", action="store_true", help="confirm --no-voting"),
)  # fmt: skip
def master_failover(args: argparse.Namespace) -> int:
    """Make this node, a master candidate, the master.

    A master that answers agrees and gives everything over; else a majority of the nodes must vote
    for it, once they have heard no master for ten seconds. Where that fails, the command says who did
    not agree and why (exit code 1).

    A master made with `--no-voting` is degraded until a majority of the nodes has registered it. What
    others had written meanwhile is dropped and kept aside there; `gnt-cluster verify` says what that has.
    """
    if args.no_voting and not args.is_sure:
        raise NeedsConfirmation(
            "Without a vote, what only other nodes have may be lost, and an old master that still"
            " runs goes on until it meets this one; give --yes-do-it if it is meant."
        )
    import asyncio

    from ganeti.bootstrap.daemons import MASTERD, Daemons

    paths = Paths.from_environment()
    if not paths.authority_key.exists():
        raise NotMaster(f"this node ({hostname()}) is no master candidate")
    asyncio.run(Daemons(paths).start(MASTERD))
    with LuxiClient(timeout_s=TAKE_OVER_LIMIT_S) as client:
        for line in client.call("MasterFailover", args.no_voting):
            say(line)
    return 0


@table.command("master-ping")
def master_ping(args: argparse.Namespace) -> int:
    """Ask the master of this node whether it serves; exit code 0 if it does, 11 on another node.

    Says so on standard error if the master alone holds the state, or was forced and no majority of the
    nodes has registered it yet (degraded).
    """
    del args
    with LuxiClient(timeout_s=PING_LIMIT_S) as client:
        client.config_values("cluster_name")
        if client.is_degraded:
            say("degraded: what is written now may be lost with the master", file=sys.stderr)
    return 0


@table.command(
    "verify",
    option("--error-codes", action="store_true", help="begin findings with their codes"),
    option("--ignore-errors", action="append", metavar="CODE",
           help="show this finding as a warning; may be repeated"),
    option("--no-nplus1-mem", dest="skip_memory", action="store_true",
           help="do not ask whether memory suffices if a node fails"),
    option("--node-group", dest="group", metavar="GROUP", help="check one group only"),
    option("--debug-simulate-errors", dest="simulate", action="store_true",
           help="report an error that is none, to test those who read it"),
    option("--verify-ssh-clutter", dest="clutter", action="store_true",
           help="accepted: no ssh keys are kept"),
    *JOB_OPTIONS,
)  # fmt: skip
def verify(args: argparse.Namespace) -> int:
    """Check the configuration, the nodes and the instances; exit code 1 if something is wrong."""
    from ganeti.model.opcodes.cluster import OpClusterVerify

    op = OpClusterVerify(
        debug_simulate_errors=args.simulate,
        error_codes=args.error_codes,
        skip_checks=["nplusone_mem"] if args.skip_memory else [],
        ignore_errors=args.ignore_errors or [],
        verbose=args.verbose > 0,
        group_name=args.group,
        verify_clutter=args.clutter,
    )
    with LuxiClient() as client:
        result = run_job(client, op, args)
        jobs = [(bool(done), what) for done, what in result["jobs"]]
        ids = [int(what) for done, what in jobs if done]
        say(f"Submitted jobs {', '.join(map(str, ids))}")
        all_well = len(ids) == len(jobs)
        for job_id in ids:
            say(f"Waiting for job {job_id} ...", flush=True)
            try:
                all_well = all(wait_for_result(client, job_id)) and all_well
            except GanetiError as err:
                say(f"Job {job_id} failed: {err.message}")
                all_well = False
    return 0 if all_well else EXIT_FAILURE


@table.command(
    "queue",
    Argument("action", "drain, undrain or info"),
)
def queue(args: argparse.Namespace) -> int:
    """Refuse new jobs (drain), take them again (undrain), or show which (info)."""
    with LuxiClient() as client:
        if args.action in ("drain", "undrain"):
            client.call("SetDrainFlag", args.action == "drain")
        elif args.action == "info":
            is_drained = client.config_values("drain_flag")[0]
            say(f"The drain flag is {'set' if is_drained else 'unset'}")
        else:
            raise InputError(f"{args.action!r:.40} must be drain, undrain or info", "action")
    return 0


add_change_commands(table)
add_placement_commands(table)
add_backup_commands(table)
add_cluster_command(table)
add_tag_commands(table, "cluster")


def main() -> NoReturn:
    """The program."""
    table.main()
