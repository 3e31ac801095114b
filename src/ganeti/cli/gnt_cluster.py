"""gnt-cluster: the cluster as a whole."""

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from ganeti import __version__
from ganeti.base.errors import GanetiError, InputError, NotMaster
from ganeti.base.paths import Paths, hostname
from ganeti.base.state_kinds import EMBEDDED, STATE_KINDS
from ganeti.base.terminal import say
from ganeti.cli.cluster_audit import add_audit_command
from ganeti.cli.cluster_backup import add_backup_commands
from ganeti.cli.cluster_changes import add_change_commands
from ganeti.cli.cluster_console import add_console_commands
from ganeti.cli.cluster_crypto import add_crypto_commands
from ganeti.cli.cluster_disks import add_size_commands
from ganeti.cli.cluster_doctor import add_doctor_commands
from ganeti.cli.cluster_nodes import add_node_commands
from ganeti.cli.cluster_placement import add_placement_commands
from ganeti.cli.cluster_recovery import add_recovery_commands
from ganeti.cli.cluster_takeover import add_takeover_commands
from ganeti.cli.cluster_users import add_user_commands
from ganeti.cli.cluster_webhooks import add_webhook_commands
from ganeti.cli.command import EXIT_FAILURE, EXIT_USAGE, option
from ganeti.cli.declared import program
from ganeti.cli.errors import NeedsConfirmation
from ganeti.cli.ispecs_commands import add_cluster_command
from ganeti.cli.jobs import run_job, run_opcode, wait_for_result
from ganeti.cli.mirrors import add_cluster_commands as add_disk_commands
from ganeti.cli.objects import described, shown
from ganeti.cli.opcode_options import OpOptions
from ganeti.cli.options import JOB_OPTIONS, JSON, QUERY_JOB_OPTIONS, VERBOSE
from ganeti.cli.output import format_time, print_json, print_tree
from ganeti.cli.policy_options import policy_tree
from ganeti.cli.rolling_reboot import add_reboot_commands
from ganeti.cli.settings import add_settings_command
from ganeti.cli.state_options import STATE_OPTIONS, external_servers
from ganeti.cli.surveys import add_overview_command
from ganeti.cli.tags import add_tag_commands
from ganeti.clients.fields import with_aliases
from ganeti.clients.luxi import LuxiClient
from ganeti.model.fields import Form
from ganeti.model.operation import Argument
from ganeti.model.uid_ranges import FormatUidPool

TAKE_OVER_LIMIT_S = 90.0
PING_LIMIT_S = 10.0

table = program("gnt-cluster", "Create, show, verify and destroy a cluster.")

INIT = OpOptions("cluster.OpClusterSetParams", without=("add_uids", "remove_uids"))


@table.command(
    "init",
    Argument("cluster_name", "name of the cluster: a host name that is not the name of a node", nargs="?"),
    INIT,
    option("--master-ip", metavar="ADDRESS",
           help="address of the cluster; default: the address of its name"),
    option("--primary-ip", metavar="ADDRESS",
           help="address of this node; default: the address of its name"),
    option("-s", "--secondary-ip", metavar="ADDRESS",
           help="address of this node for replication of disks"),
    option("--node-port", dest="port", type=int, metavar="PORT", help="port of this node's node daemon (1811)"),
    *STATE_OPTIONS,
    option("--primary-ip-version", type=int, choices=(4, 6),
           help="ignored; the primary address determines the family"),
    option("--yes", dest="is_sure", action="store_true", help="never ask; require the name of the cluster"),
    option("--no-etc-hosts", action="store_true", help="ignored; kept for compatibility with Ganeti 3"),
    option("--no-ssh-init", action="store_true", help="ignored; kept for compatibility with Ganeti 3"),
    VERBOSE,
)  # fmt: skip
def init(args: argparse.Namespace) -> int:
    """Create a cluster with this node as its master.

    On a terminal and without a name, the command asks for the settings that the command line leaves open, with
    defaults from this host, and for the first user of the web console. It then shows the command line that creates the
    same cluster without questions. With a name, with --yes, or without a terminal it never asks.

    The command starts the node daemon and the master daemon. If a step fails, the command undoes all steps.
    """
    if args.cluster_name is not None:
        code = _create(args)
        if sys.stdout.isatty():
            say(_NEXT)
        return code
    if args.is_sure or not (sys.stdin.isatty() and sys.stdout.isatty()):
        what = "the following arguments are required: cluster_name"
        say(f"gnt-cluster init: error: {what}", file=sys.stderr)
        return EXIT_USAGE
    from ganeti.cli.init_questions import Interview, ask_on_terminal, this_host

    say("This command creates a cluster. An empty answer takes the value in brackets; Ctrl-C ends.")
    interview = Interview(this_host(), ask_on_terminal, say)
    interview.fill(args)
    administrator = interview.administrator()
    if not interview.is_confirmed():
        raise NeedsConfirmation("Not confirmed; nothing was changed.")
    code = _create(args)
    lines = [interview.command(args)]
    if administrator:
        lines.append(f"gnt-cluster add-user --options=write {administrator}")
        _add_administrator(args, administrator)
    say("\nThe cluster is ready. The same without questions:", *lines, sep="\n  ")
    say(_NEXT)
    return code


_NEXT = """To add a host, run this on it, and then this on the master, with the token that the host prints:
  ganeti-node-join
  gnt-node add --token-stdin HOST"""


def _add_administrator(args: argparse.Namespace, name: str) -> None:
    """Add a user with all rights; the cluster stays if that fails."""
    from ganeti.cli.cluster_users import add_user

    more = {"user_name": name, "options": "write", "token": False, "is_json": False}
    try:
        add_user(argparse.Namespace(**{**vars(args), **more}))
    except InputError as err:
        say(f"The user {name} was not added: {err.message}.", file=sys.stderr)


def _create(args: argparse.Namespace) -> int:
    """Create the cluster of the command line."""
    import asyncio

    from ganeti.base.addresses import own_address
    from ganeti.bootstrap.init import InitOptions, init_cluster
    from ganeti.model.opcodes.cluster import OpClusterPostInit

    name = hostname()
    given = {
        word: value
        for word in ("secondary_ip", "master_ip", "port")
        if (value := getattr(args, word)) is not None
    }
    options = InitOptions(
        cluster_name=args.cluster_name,
        node_name=name,
        primary_ip=args.primary_ip or own_address(name, "--primary-ip"),
        params=INIT.given(args),
        **{"master_ip": _resolved(args.cluster_name), **given, **_state_of(args)},
    )
    asyncio.run(init_cluster(options, paths=Paths.from_environment()))
    args.verbose = 0
    run_opcode(OpClusterPostInit(), args)
    return 0


def _state_of(args: argparse.Namespace) -> dict[str, Any]:
    """Return the back end of the state and its servers; InputError if options contradict each other."""
    details = (args.state_urls, args.state_authority, args.state_credentials)
    kind = args.state or EMBEDDED
    if STATE_KINDS[kind].server is None and any(details):
        raise InputError(
            f"the back end {kind!r} has no servers; name a back end that has servers with --state",
            "--state-urls",
        )
    return {"state": kind, "external": external_servers(args)}


def _resolved(name: str) -> str | None:
    import socket

    try:
        return str(socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)[0][4][0])
    except OSError:
        return None


@table.command(
    "destroy",
    option(
        "--yes-do-it",
        "--ya-rly",
        dest="is_sure",
        action="store_true",
        help="confirm the operation",
    ),
    *QUERY_JOB_OPTIONS,
)
def destroy(args: argparse.Namespace) -> int:
    """Destroy the cluster. It must have no instances and no nodes besides the master.

    The command stops the daemons of this node and removes its keys and state.
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


@table.command("info", VERBOSE, JSON, aliases=("show",))
def info(args: argparse.Namespace) -> int:
    """Show the cluster and its parameters."""
    with LuxiClient() as client:
        found = client.cluster_info()
    if args.is_json:
        return print_json(with_aliases(found))
    print_tree(_described(found))
    return 0


def _described(found: dict[str, Any]) -> list[tuple[str, Any]]:
    from ganeti.model.cluster_params import CLUSTER_PARAMS

    enabled = found["enabled_hypervisors"]
    found = {**found, "hvparams": {name: found["hvparams"][name] for name in enabled}}
    general: list[tuple[str, Any]] = []
    lines = described(_INFO, found)
    for name, param in CLUSTER_PARAMS.items():
        if param.is_general and not general:
            lines.append(("Cluster parameters", general))
        if param.heading and (key := param.info or name) in found:
            shown = _SHOWN.get(param.field.form, _plain)(found[key], found)
            (general if param.is_general else lines).append((param.heading, shown))
    # Scripts expect these lines at their positions.
    general.insert(_BEHIND_MAC_PREFIX, ("master ip", found.get("master_ip", "")))
    general[-1:-1] = [
        ("primary ip version", found["primary_ip_version"]),
        ("OS search path", ", ".join(map(str, Paths().os_search_path))),
        ("iallocator search path", ", ".join(map(str, Paths().iallocator_search_path))),
    ]
    return lines


def _plain(value: Any, _found: dict[str, Any]) -> Any:
    return ", ".join(value) if isinstance(value, list) else value


def _sorted(value: dict[str, Any], found: dict[str, Any]) -> dict[str, Any]:
    """Return parameters sorted by name; nested parameters are sorted at each level."""
    if any(isinstance(one, dict) for one in value.values()):
        return {name: _sorted(one, found) for name, one in value.items()}
    return dict(sorted(value.items()))


def _collectors(value: dict[str, bool], found: dict[str, Any]) -> list[tuple[str, str]]:
    intervals = found.get("data_collector_interval", {})
    return [
        (name, f"{'on' if active else 'off'}, every {intervals[name] / 1e6:g} s")
        for name, active in value.items()
        if name in intervals
    ]


_SHOWN: dict[Form, Callable[[Any, dict[str, Any]], Any]] = {
    Form.NAMED: _sorted,
    Form.KEY_VALUES: _sorted,
    Form.BACKEND: _sorted,
    Form.UIDS: lambda ranges, _found: FormatUidPool(ranges),
    Form.SWITCHES: _collectors,
    Form.POLICY: lambda policy, _found: policy_tree(policy),
}
_BEHIND_MAC_PREFIX = 3


def _state_store_text(state: dict[str, Any] | None) -> str:
    state = state or {}
    kind = STATE_KINDS.get(state.get("kind", ""))
    where = ", ".join(state.get("holders", [])) or "on other hosts"
    return f"{kind.title} ({where})" if kind else "unknown"


_INFO = (
    shown("Cluster name", "name"),
    shown("Cluster UUID", "uuid"),
    shown("Creation time", "ctime", value=format_time),
    shown("Modification time", "mtime", value=format_time),
    shown("Master node", "master"),
    shown("State", "degraded",
          value=lambda degraded: "degraded: held by the master alone" if degraded else "safe"),
    shown("State kept by", "state", value=_state_store_text),
    shown("Architecture (this node)", "architecture", value=lambda one: f"{one[0]} ({one[1]})"),
    shown("Tags", "tags", value=lambda tags: ", ".join(sorted(tags)) or "(none)"),
    shown("Default hypervisor", "default_hypervisor"),
)  # fmt: skip


@table.command("version", JSON)
def version(args: argparse.Namespace) -> int:
    """Show versions of the software and its interfaces."""
    with LuxiClient() as client:
        found = client.cluster_info()
    if args.is_json:
        return print_json(
            {**{name: found[name] for name in _VERSIONS}, "command_version": __version__}
        )
    say(f"Software version: {found['software_version']}")
    say(f"Internode protocol: {found['protocol_version']}")
    say(f"Configuration format: {found['config_version']}")
    say(f"OS api version: {found['os_api_version']}")
    say(f"Export interface: {found['export_version']}")
    say(f"VCS version: {found['vcs_version']}")
    if found["software_version"] != __version__:
        say(f"This command: {__version__}")
    return 0


_VERSIONS = (
    *("software_version", "protocol_version", "config_version", "os_api_version"),
    *("export_version", "vcs_version"),
)


@table.command("getmaster", JSON)
def getmaster(args: argparse.Namespace) -> int:
    """Show the name of the master, as recorded on this node."""
    from ganeti.clients.luxi import NotClusterNodeError, ssconf_value

    name = ssconf_value(Paths.from_environment(), "master_node")
    if name is None:
        raise NotClusterNodeError(f"this host ({hostname()}) is not part of a cluster")
    if args.is_json:
        return print_json({"master": name})
    say(name)
    return 0


@table.command(
    "master-failover",
    option("--no-voting", action="store_true",
           help="become the master without a majority; changes that only other candidates hold may be lost"),
    option("--yes-do-it", dest="is_sure", action="store_true", help="confirm --no-voting"),
    aliases=("masterfailover",),
)  # fmt: skip
def master_failover(args: argparse.Namespace) -> int:
    """Make this node the master. It must be a master candidate.

    If the present master answers, it hands its role over. Otherwise a majority of the nodes must vote for
    this node. A node votes only after ten seconds without contact to a master. If the failover fails, the
    command lists the nodes that did not agree and their reasons, and exits with code 1.

    A master made with `--no-voting` is degraded until a majority of the nodes has registered it. Candidates
    drop changes that diverge from its state, and preserve them in a file. `gnt-cluster verify` describes
    these preserved changes.
    """
    if args.no_voting and not args.is_sure:
        raise NeedsConfirmation(
            "Without a vote, changes that only other nodes hold may be lost,"
            " and an old master keeps running until it contacts this node; pass --yes-do-it to confirm."
        )
    import asyncio

    from ganeti.bootstrap.daemons import MASTERD, Daemons

    paths = Paths.from_environment()
    if not paths.authority_key.exists():
        raise NotMaster(f"this node ({hostname()}) is not a master candidate")
    asyncio.run(Daemons(paths).start(MASTERD))
    with LuxiClient(timeout_s=TAKE_OVER_LIMIT_S) as client:
        for line in client.call("MasterFailover", args.no_voting):
            say(line)
    return 0


@table.command("master-ping")
def master_ping(args: argparse.Namespace) -> int:
    """Check that the master serves requests; exit with 0 if it does, with 11 on other nodes.

    The command prints a warning on standard error if the master is degraded: only the master holds the state,
    or the master was forced and a majority of the nodes has not registered it yet.
    """
    del args
    with LuxiClient(timeout_s=PING_LIMIT_S) as client:
        client.config_values("cluster_name")
        if client.is_degraded:
            say("degraded: what is written now may be lost with the master", file=sys.stderr)
    return 0


@table.command(
    "verify",
    OpOptions("cluster.OpClusterVerify"),
    option("--no-nplus1-mem", dest="skip_memory", action="store_true",
           help="skip the N+1 memory check"),
    JSON,
    *JOB_OPTIONS,
)  # fmt: skip
def verify(args: argparse.Namespace) -> int:
    """Check the configuration, the nodes and the instances; exit with 1 if there is an error.

    Each node of a group also connects to the other ones: in a group of more than 100 nodes to 50 to 100 of them.
    With --json, the command prints the findings of all jobs at the end, each with severity, code, kind and name of
    the object, text and job. A code is null unless --error-codes is given.
    """
    op = args.op.opcode(
        args, skip_checks=["nplusone_mem"] if args.skip_memory else [], verbose=args.verbose > 0
    )
    with LuxiClient() as client:
        result = run_job(client, op, args)
        ids = [int(what) for is_accepted, what in result["jobs"] if is_accepted]
        has_all = len(ids) == len(result["jobs"])
        if args.is_json:
            return _verify_as_json(client, ids, has_all=has_all)
        say(f"Submitted jobs {', '.join(map(str, ids))}")
        is_well = [_is_well(client, job_id) for job_id in ids]
    return 0 if has_all and all(is_well) else EXIT_FAILURE


def _is_well(client: LuxiClient, job_id: int) -> bool:
    say(f"Waiting for job {job_id} ...", flush=True)
    try:
        return all(wait_for_result(client, job_id))
    except GanetiError as err:
        say(f"Job {job_id} failed: {err.message}")
        return False


def _verify_as_json(client: LuxiClient, ids: Sequence[int], *, has_all: bool) -> int:
    """Print the findings of the jobs as `GET /2/overview` shows them, and what became of each job."""
    from ganeti.model.verify_lines import parsed_finding

    jobs, findings, is_well = [], [], has_all
    for job_id in ids:
        error = None
        try:
            is_well = all(wait_for_result(client, job_id, is_quiet=True)) and is_well
        except GanetiError as err:
            error, is_well = err.message, False
        jobs.append({"id": job_id, "error": error})
        row = client.query_jobs([job_id], ["oplog"])[0]
        lines = (line for log in (row[0] if row else None) or () for *_head, line in log)
        found = filter(None, (parsed_finding(str(line)) for line in lines))
        findings += [{**one, "job": job_id} for one in found]
    errors = sum(one["severity"] == "error" for one in findings)
    print_json({
        "is_successful": is_well,
        "errors": errors,
        "warnings": len(findings) - errors,
        "findings": findings,
        "jobs": jobs,
    })  # fmt: skip
    return 0 if is_well else EXIT_FAILURE


@table.command(
    "queue",
    Argument("action", "drain, undrain or info"),
    JSON,
)
def queue(args: argparse.Namespace) -> int:
    """Refuse new jobs (drain), accept them again (undrain), or show the drain flag (info)."""
    with LuxiClient() as client:
        if args.action in ("drain", "undrain"):
            client.call("SetDrainFlag", args.action == "drain")
        elif args.action == "info":
            is_drained = client.config_values("drain_flag")[0]
            if args.is_json:
                return print_json({"is_drained": is_drained})
            say(f"The drain flag is {'set' if is_drained else 'unset'}")
        else:
            raise InputError(f"{args.action!r:.40} must be drain, undrain or info", "action")
    return 0


add_change_commands(table)
add_crypto_commands(table)
add_placement_commands(table)
add_recovery_commands(table)
add_doctor_commands(table)
add_console_commands(table)
add_user_commands(table)
add_webhook_commands(table)
add_overview_command(table)
add_settings_command(table)
add_size_commands(table)
add_backup_commands(table)
add_disk_commands(table)
add_cluster_command(table)
add_node_commands(table)
add_reboot_commands(table)
add_audit_command(table)
add_takeover_commands(table)
add_tag_commands(table, "cluster")


def main() -> NoReturn:
    """Run the program."""
    table.main()
