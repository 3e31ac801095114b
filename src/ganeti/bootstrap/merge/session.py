"""One run of `ganeti-cluster-merge`: contact, plan, then the steps, forward or back."""

import argparse
import asyncio
import contextlib
import getpass
import os
import secrets
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

from ganeti.base.clock import SystemClock
from ganeti.base.errors import ErrorCode, GanetiError, InputError, PrereqError
from ganeti.base.files import exclusive_file
from ganeti.base.paths import Paths
from ganeti.base.state_kinds import EMBEDDED
from ganeti.base.terminal import say
from ganeti.bootstrap.daemons import Daemons, daemon_environment
from ganeti.bootstrap.merge import journal as journals
from ganeti.bootstrap.merge.agent import Agent
from ganeti.bootstrap.merge.journal import ClusterRecord, Journal, MergeChoices, NodeRecord
from ganeti.bootstrap.merge.left_out import leave_out, said_of_left_out
from ganeti.bootstrap.merge.messages import Action, HostFacts, Request
from ganeti.bootstrap.merge.own import OwnMaster
from ganeti.bootstrap.merge.remote import Remote, Ssh, make_key, own_key
from ganeti.bootstrap.merge.states import Opened, opened, opened_original, planned
from ganeti.bootstrap.merge.steps import (
    Merge,
    MergingNode,
    check_return,
    go_on,
    outlook,
    roll_back,
)
from ganeti.bootstrap.merge.together import together
from ganeti.config.merging.plan import MergeOptions, MergePlan, SameName, parse_choices
from ganeti.model.hypervisor_params import HYPERVISOR_PARAMS
from ganeti.upstream.choices import Choices, parse_hypervisors, parse_names

EXIT_CONFIRMATION = 13


async def merge_clusters(args: argparse.Namespace, paths: Paths) -> int:
    """Run the command with its options; return the exit code."""
    if not paths.state.exists():
        raise PrereqError(
            (
                "this host does not hold the state of a cluster: run the command on the master "
                "of the cluster that remains"
            ),
            ErrorCode.WRONG_STATE,
        )
    with exclusive_file(paths.merge_lock) as is_ours:
        if not is_ours:
            raise PrereqError("another merge command is running", ErrorCode.TEMP_NO_RESOURCES)
        journal = journals.load(paths.merge)
        if journal is None:
            _forget(paths)  # the rest of a run that was killed before it began
        contacts = [one.contact for one in journal.clusters] if journal else args.clusters
        _check_fits(args, journal)
        if journal and args.dry_run:
            return _say_outlook(journal, back=args.rollback)
        if journal:
            for name in args.without:
                leave_out(journal, name)
        async with _session(args, paths, contacts) as session:
            if journal and args.rollback:
                return await _roll_back(session, journal)
            if journal:
                say(f"Continuing the merge of {', '.join(contacts)}.")
            else:
                journal = await _begin(session, args)
            return await _go_on(session, journal) if journal else 0


def _check_fits(args: argparse.Namespace, journal: Journal | None) -> None:
    """Refuse options that contradict the merge in progress, or require one where there is none."""
    if journal is None:
        if args.rollback:
            raise PrereqError("no merge is in progress", ErrorCode.WRONG_STATE)
        if args.without:
            raise InputError("needs a merge that is in progress", "--without")
        return
    contacts = [one.contact for one in journal.clusters]
    if args.clusters and args.clusters != contacts:
        raise PrereqError(
            f"a merge of {', '.join(contacts)} is in progress: run the command without CLUSTER to continue, or with"
            " --rollback",
            ErrorCode.WRONG_STATE,
        )


def _say_outlook(journal: Journal, *, back: bool) -> int:
    if back:
        check_return(journal)
    say(f"A merge of {', '.join(one.contact for one in journal.clusters)} is in progress.")
    for line in outlook(journal, back=back):
        say(f"  {line}")
    return 0


@contextlib.asynccontextmanager
async def _session(
    args: argparse.Namespace, paths: Paths, contacts: Sequence[str]
) -> AsyncIterator["Session"]:
    session = Session(paths, _passwords(args, contacts))
    try:
        yield session
    finally:
        await session.close()


def _passwords(args: argparse.Namespace, contacts: Sequence[str]) -> Callable[[str], str]:
    """Return the source of root's passwords; lines of standard input are in the order of `contacts`."""
    lines: list[str] = []

    def from_input(contact: str) -> str:
        number = contacts.index(contact)
        while len(lines) <= number:
            line = sys.stdin.readline()
            if not line:
                raise InputError(f"no password for {contact} on standard input", "password")
            lines.append(line.rstrip("\n"))
        return lines[number]

    def from_terminal(contact: str) -> str:
        try:
            return getpass.getpass(f"root's password on {contact}: ")
        except EOFError:
            raise InputError(
                "standard input is not a terminal: pass --password-stdin", "password"
            ) from None

    return from_input if args.password_stdin else from_terminal


class Session:
    """The connections of one run."""

    def __init__(self, paths: Paths, password: Callable[[str], str]) -> None:
        self.paths, self._password = paths, password
        self._clusters: dict[str, Ssh] = {}
        self._remotes: dict[tuple[str, str], Remote] = {}
        self._asking = asyncio.Lock()
        """One at a time.

        People answer one question after the other, and standard input has one line for each.
        """

    def ssh(self, contact: str, choices: MergeChoices) -> Ssh:
        """Return the connector of a cluster's nodes.

        One for each cluster, so that its password is requested once.
        """
        found = self._clusters.get(contact)
        if found is None:

            async def ask(_host: str) -> str:
                async with self._asking:
                    return await asyncio.to_thread(self._password, contact)

            found = self._clusters[contact] = Ssh(self.paths, choices, ask)
            if own_key(self.paths).exists():
                found.add_key(own_key(self.paths).read_text())
        return found

    def add_key(self) -> None:
        """Let this run reconnect with the key of the merge after a broken connection."""
        for one in self._clusters.values():
            one.add_key(own_key(self.paths).read_text())

    async def reach(self, contact: str, address: str, choices: MergeChoices) -> Remote:
        """Return the connection to a node, made now or before."""
        key = (contact, address)
        found = self._remotes.get(key)
        if found is None or found.is_lost:
            found = self._remotes[key] = await self.ssh(contact, choices)(address)
        return found

    async def close(self) -> None:
        for one in self._remotes.values():
            await one.close()


# Start


async def _begin(session: Session, args: argparse.Namespace) -> Journal | None:
    """Contact the clusters, show the plan, write the journal; return None if only the plan was requested."""
    if not args.clusters:
        raise InputError("name the clusters to merge (no merge is in progress)", "clusters")
    choices = _choices(args)
    options, _ = merge_options(choices), import_choices(choices)
    own = Agent(session.paths, Daemons(session.paths))
    facts = await asyncio.to_thread(own.facts)
    check_cluster(facts, "this cluster", facts)
    clusters = [await _contact(session, one, choices, facts) for one in args.clusters]
    check_apart(clusters)
    await _say_plan(session, own, clusters, choices, options)
    if args.dry_run:
        return None
    _check_meant(args, clusters)
    public = make_key(session.paths)
    session.add_key()
    journal = Journal(
        id=secrets.token_hex(4),
        choices=choices,
        clusters=clusters,
        public_key=public,
        path=str(session.paths.merge / journals.FILE),
    )
    journal.save()
    return journal


class _NotConfirmed(PrereqError):
    exit_code = EXIT_CONFIRMATION

    def __init__(self, message: str) -> None:
        super().__init__(message, ErrorCode.WRONG_STATE)


def _choices(args: argparse.Namespace) -> MergeChoices:
    if args.shutdown_timeout < 0:
        raise InputError("must not be negative", "--shutdown-timeout")
    if not 0 < args.ssh_port < 1 << 16:
        raise InputError(f"{args.ssh_port} is not a port number", "--ssh-port")
    return MergeChoices(
        parameters=args.parameters,
        groups=args.groups,
        networks=args.networks,
        group_names=_names(args.group, "--group"),
        network_names=_names(args.network, "--network"),
        keep_unknown=args.keep_unknown,
        renames=tuple(args.rename),
        hypervisors=tuple(args.hypervisor),
        shutdown_timeout=args.shutdown_timeout,
        ssh_port=args.ssh_port,
        key_types=tuple(filter(None, args.key_types.split(","))),
        known_hosts=str(Path(args.known_hosts).absolute()) if args.known_hosts else "",
        check_host_key=args.check_host_key,
    )


def _names(given: Sequence[str], option: str) -> dict[str, str]:
    names = {}
    for text in given:
        old, equals, new = text.partition("=")
        if not old or not equals or not new:
            raise InputError(f"{text!r:.80} must be NAME=NEW", option)
        names[old] = new
    return names


def merge_options(choices: MergeChoices) -> MergeOptions:
    """Return the options of the merge; InputError."""
    default, by_part = parse_choices(choices.parameters)
    return MergeOptions(
        default=default,
        choices=by_part,
        groups=SameName(choices.groups),
        networks=SameName(choices.networks),
        group_names=choices.group_names,
        network_names=choices.network_names,
    )


def import_choices(choices: MergeChoices) -> Choices:
    """Return the options for clusters of upstream Ganeti; InputError."""
    return Choices(
        keep_unknown=choices.keep_unknown,
        names=parse_names(choices.renames),
        hypervisors=parse_hypervisors(choices.hypervisors, HYPERVISOR_PARAMS),
    )


async def _contact(
    session: Session, contact: str, choices: MergeChoices, ours: HostFacts
) -> ClusterRecord:
    """Reach a cluster's master and all its nodes that are online; PrereqError."""
    master = await session.reach(contact, contact, choices)
    facts = (await master.call(Request(action=Action.FACTS))).facts
    if facts is None:
        raise PrereqError(f"{contact} does not report its cluster", ErrorCode.ENVIRONMENT)
    check_cluster(facts, contact, ours)
    key = (await master.call(Request(action=Action.SSH_KEY, names=list(choices.key_types)))).text
    if key:
        session.ssh(contact, choices).add_key(key)
    nodes = [
        NodeRecord(name=node.name, address=node.address, is_master=node.master)
        for node in facts.nodes
        if not node.offline
    ]
    try:
        await together(nodes, lambda node: session.reach(contact, node.address, choices))
    except GanetiError as err:
        raise PrereqError(
            f"{err.message} (the merge ignores a node that is down if its cluster marks it offline: 'gnt-node modify"
            " --offline=yes NODE')",
            ErrorCode.ENVIRONMENT,
        ) from err
    return ClusterRecord(
        contact=contact,
        name=facts.cluster,
        uuid=facts.uuid,
        original=facts.original,
        nodes=nodes,
    )


def check_cluster(facts: HostFacts, contact: str, ours: HostFacts) -> None:
    """Raise PrereqError if a cluster cannot be merged in its present state."""
    why = ""
    if facts is not ours and facts.uuid == ours.uuid:
        why = "it is this cluster"
    elif facts.version != ours.version:
        why = (
            f"it runs version {facts.version}, the local cluster {ours.version}; upgrade one of "
            "them first"
        )
    elif facts.state != EMBEDDED:
        why = (
            f"its state is in {facts.state}; run 'gnt-cluster modify --state={EMBEDDED}' there first, and back"
            " again after the merge"
        )
    elif facts.jobs:
        why = (
            f"{len(facts.jobs)} jobs have not ended there, for example {facts.jobs[0]}; wait for "
            "them"
        )
    if why:
        raise PrereqError(f"{contact} ({facts.cluster}): {why}", ErrorCode.WRONG_STATE)


def check_apart(clusters: Sequence[ClusterRecord]) -> None:
    """Raise PrereqError if one cluster is named twice."""
    found: dict[str, ClusterRecord] = {}
    for one in clusters:
        if (other := found.setdefault(one.uuid, one)) is not one:
            raise PrereqError(
                f"{other.contact} and {one.contact} are the same cluster, {one.name}: name it once",
                ErrorCode.WRONG_INPUT,
            )


async def _say_plan(
    session: Session,
    own: Agent,
    clusters: Sequence[ClusterRecord],
    choices: MergeChoices,
    options: MergeOptions,
) -> None:
    """Show the effect on the present configurations; PrereqError if they cannot be merged."""
    ours = opened(await asyncio.to_thread(own.backup))

    async def theirs(cluster: ClusterRecord) -> Opened:
        remote = await session.reach(cluster.contact, cluster.contact, choices)
        data = (await remote.call(Request(action=Action.BACKUP))).data
        return opened_original(data, import_choices(choices)) if cluster.original else opened(data)

    plan = planned(ours, await together(clusters, theirs), options)
    for line in described(plan, clusters):
        say(line)
    if plan.errors:
        raise PrereqError(
            f"errors to resolve first: {len(plan.errors)}; nothing was changed",
            ErrorCode.WRONG_STATE,
        )


def described(plan: MergePlan, clusters: Sequence[ClusterRecord]) -> list[str]:
    """Return the plan as lines of text."""
    lines = [f"Into {plan.cluster.name}:"]
    for cluster in clusters:
        nodes = ", ".join(node.name for node in cluster.nodes)
        whose = f"Ganeti {cluster.original}, " if cluster.original else ""
        lines.append(f"  {cluster.name}: {whose}{len(cluster.nodes)} nodes ({nodes})")
    lines += [f"  {finding}" for finding in plan.findings]
    lines.append(
        f"Afterwards: {len(plan.snapshot.nodes)} nodes, {len(plan.snapshot.instances)} instances."
    )
    return lines


def _check_meant(args: argparse.Namespace, clusters: Sequence[ClusterRecord]) -> None:
    """Ask for a confirmation; exit code 13 without one."""
    if args.force:
        return
    names = ", ".join(one.name for one in clusters)
    if not sys.stdin.isatty():
        raise _NotConfirmed(f"Standard input is not a terminal: pass --force to stop {names}.")
    say(f"Stop all instances of {names} and merge?", "y/[n]: ", end="", flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise _NotConfirmed("Nothing was changed.")


# Continue and roll back


def _merge_of(session: Session, journal: Journal) -> Merge:
    paths = session.paths

    async def reach(place: MergingNode) -> Remote:
        return await session.reach(place.cluster.contact, place.node.address, journal.choices)

    return Merge(
        paths=paths,
        own=OwnMaster(paths, SystemClock()),
        clock=SystemClock(),
        journal=journal,
        options=merge_options(journal.choices),
        choices=import_choices(journal.choices),
        reach=reach,
        run=_run,
        say=lambda text: say(text, flush=True),
    )


async def _run(words: Sequence[str], stdin: str | None) -> int:
    say(f"# {' '.join(words)}", flush=True)
    process = await asyncio.create_subprocess_exec(
        *words,
        stdin=asyncio.subprocess.DEVNULL if stdin is None else asyncio.subprocess.PIPE,
        env=daemon_environment(os.environ),
    )
    await process.communicate(None if stdin is None else stdin.encode())
    return process.returncode or 0


async def _go_on(session: Session, journal: Journal) -> int:
    merge = _merge_of(session, journal)
    try:
        await go_on(merge)
    finally:
        if not journal.begun:  # all was rolled back
            _forget(session.paths)
    kept = _keep_backups(session.paths, journal)
    _forget(session.paths)
    say("The clusters are merged.")
    for line in said_of_left_out(merge, back=False):
        say(line)
    say(
        f"The former states of the clusters are in {kept}. They hold secrets: remove the directory when the merged cluster works."
    )
    return 0


async def _roll_back(session: Session, journal: Journal) -> int:
    merge = _merge_of(session, journal)
    await roll_back(merge)
    _forget(session.paths)
    say("The merge is rolled back; all clusters are unchanged.")
    for line in said_of_left_out(merge, back=True):
        say(line)
    return 0


def _keep_backups(paths: Paths, journal: Journal) -> Path:
    """Move the backups of the former states where no later merge changes them."""
    kept = paths.merge / journal.id
    kept.mkdir(mode=0o700, exist_ok=True)
    for path in paths.merge.glob("*.backup"):
        path.rename(kept / path.name)
    return kept


def _forget(paths: Paths) -> None:
    """Remove the files of a merge; only states of finished merges remain."""
    with contextlib.suppress(FileNotFoundError):
        for path in paths.merge.iterdir():
            if not path.is_dir():
                path.unlink()
    with contextlib.suppress(OSError):
        paths.merge.rmdir()
