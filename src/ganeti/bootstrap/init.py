"""`gnt-cluster init`: creates the first node of a new cluster completely, or leaves no trace.

Each step records its undo action before it acts. At the end the node daemon and the master run, and
the master answers.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from ganeti import ssconf, uidpool
from ganeti.base import certificates, tls
from ganeti.base.addresses import is_address
from ganeti.base.clock import Clock, SystemClock
from ganeti.base.errors import GanetiError, HostError, InputError
from ganeti.base.files import write_atomically
from ganeti.base.identifiers import host_name, plain_name
from ganeti.base.ids import IdSource, RandomIds
from ganeti.base.paths import NODED_PORT, Paths
from ganeti.base.state_kinds import EMBEDDED, STATE_KINDS, ExternalServers
from ganeti.bootstrap.daemons import CONFD, MASTERD, NODED, Daemons
from ganeti.bootstrap.destroy import forget_cluster, prepared
from ganeti.bootstrap.membership import (
    allow_storage,
    check_not_member,
    make_directories,
    make_storage_directories,
    remove_made,
    write_identity,
)
from ganeti.bootstrap.renew_files import make_first_files
from ganeti.clients.luxi_async import AsyncLuxiClient
from ganeti.confd.keys import keep_key, new_key
from ganeti.config.cluster_params import changed_cluster, check_cluster_request
from ganeti.config.config import Config
from ganeti.config.ssconf_writer import ssconf_values
from ganeti.config.transaction import put_row
from ganeti.model import wire
from ganeti.model.cluster_params import CLUSTER_PARAMS
from ganeti.model.hypervisors import HYPERVISORS
from ganeti.model.objects import Cluster, GroupUuid, Node, NodeGroup, NodeUuid
from ganeti.model.opcodes.cluster import OpClusterSetParams
from ganeti.model.params import Params
from ganeti.model.stored import Stored
from ganeti.store.backend import become_master
from ganeti.store.backends import Founding, back_end, open_alone
from ganeti.store.interface import (
    MAX_OPERATIONS,
    MAX_TRANSACTION_BYTES,
    Identity,
    Put,
    Transaction,
)
from ganeti.store.settings import StateSettings, keep_state_settings

ANSWER_LIMIT_S = 30.0
HOW_TO_LEAVE = (
    "'gnt-cluster destroy' ends a cluster whose master runs; 'node-cleanup --yes-do-it' removes the remains of a"
    " cluster, also of one that was never completed"
)


@dataclass(frozen=True, kw_only=True)
class InitOptions:
    """The administrator's options for the new cluster; all else can be changed later."""

    cluster_name: str
    node_name: str
    primary_ip: str
    secondary_ip: str | None = None
    port: int = NODED_PORT
    master_ip: str | None = None
    """Address of the cluster's name; '' for the master's own."""
    group_name: str = "default"
    params: Params = field(default_factory=dict)
    """Cluster parameters in the form of `gnt-cluster modify`; the others have their defaults."""
    state: str = EMBEDDED
    """The kind of back end (`STATE_KINDS`)."""
    external: ExternalServers | None = None
    """The location of the state, if it is on servers that the candidates do not run."""


@dataclass(frozen=True)
class NewCluster:
    """The new cluster."""

    cluster_uuid: str
    node_uuid: str
    fingerprint: str


@dataclass
class InitContext:
    """Data that the steps of `gnt-cluster init` share."""

    options: InitOptions
    paths: Paths
    clock: Clock
    ids: IdSource
    daemons: Daemons
    undo: AsyncExitStack
    cluster: Cluster
    node_uuid: NodeUuid
    first: "FirstState"
    certificate: bytes = b""

    @property
    def directories(self) -> tuple[str, str]:
        """Return the directories of file-based disks."""
        return self.cluster.file_storage_dir, self.cluster.shared_file_storage_dir


@dataclass(frozen=True)
class FirstState:
    """The first content of the cluster's state."""

    objects: "Callable[[InitContext], Sequence[Stored]]"
    """Returns the first objects of the configuration, once the node has its certificate."""
    last_job: int = 0
    """Job ids begin above it."""


Step = Callable[[InitContext], Awaitable[None]]


async def make_node_directories(new: InitContext) -> None:
    """Create the directories of the daemons, and those of file-based disks."""
    made = list[Path]()
    new.undo.callback(remove_made, made)
    make_directories(new.paths, made)
    make_storage_directories(new.paths, *new.directories, made)


async def make_identity(new: InitContext) -> None:
    """Create the authority, and the key and certificate of this node."""
    new.undo.callback(forget_cluster, new.paths, keep=prepared(new.paths))
    now = new.clock.time()
    authority_key, key = certificates.new_key(), certificates.new_key()
    authority = certificates.new_authority(
        authority_key, new.options.cluster_name, new.cluster.uuid, now
    )
    new.certificate = certificates.sign_node(
        authority,
        authority_key,
        certificates.signing_request(key, new.options.node_name),
        node_uuid=new.node_uuid,
        node_name=new.options.node_name,
        now=now,
    )
    write_atomically(new.paths.authority_key, authority_key, mode=0o600)
    keep_key(new.paths, new_key())
    write_identity(new.paths, key, new.certificate, authority)


async def begin_state(new: InitContext) -> None:
    """Create the location of the state, and start its servers."""
    kind, server = new.options.state, STATE_KINDS[new.options.state].server

    async def start_server() -> None:
        if server is not None:
            new.undo.push_async_callback(new.daemons.stop, server.daemon)
            await new.daemons.start(server.daemon)

    settings = await back_end(kind).create_state(
        Founding(
            kind,
            new.paths,
            Identity(new.cluster.uuid, new.node_uuid),
            new.options.primary_ip,
            new.clock.time(),
            start_server,
            new.options.external,
        )
    )
    if settings != StateSettings():
        keep_state_settings(new.paths, settings)


async def make_state(new: InitContext) -> None:
    """Create the register, the first rows of the configuration, and the files derived from them."""
    node = NodeUuid(new.node_uuid)
    store = await open_alone(new.paths, Identity(new.cluster.uuid, node))
    try:
        lease = await become_master(store)
        for rows in _batches(put_row(thing) for thing in new.first.objects(new)):
            await store.commit(lease, Transaction(rows))
        if new.first.last_job:
            await store.raise_job_id_ceiling(lease, new.first.last_job)
        config = await Config.load(store, lease, new.clock, new.ids)
    finally:
        await store.close()
    ssconf.write_set(new.paths, config.snapshot.position, ssconf_values(config.snapshot))


async def make_shared_files(new: InitContext) -> None:
    """Create the domain secret and the certificate of the REST interface, which all candidates will share."""
    make_first_files(new.paths, new.clock.time())


async def make_storage_list(new: InitContext) -> None:
    """Write this node's list of allowed storage directories, unless the administrator has written one."""
    allow_storage(new.paths, list(new.directories))


async def start_node_daemon(new: InitContext) -> None:
    """Start the node daemon, on this node's address."""
    new.undo.push_async_callback(new.daemons.stop, NODED)
    options = new.options
    words = ["--bind-address", options.primary_ip, "--port", str(options.port)]
    await new.daemons.start(NODED, words)


async def start_master(new: InitContext) -> None:
    """Start the master daemon; return once it serves."""
    new.undo.push_async_callback(new.daemons.stop, MASTERD)
    await new.daemons.start(MASTERD)
    await answers(new.paths)


async def start_confd(new: InitContext) -> None:
    """Start confd, where candidates run it."""
    if new.daemons.has_confd:
        new.undo.push_async_callback(new.daemons.stop, CONFD)
        await new.daemons.start(CONFD)


STEPS: tuple[Step, ...] = (
    make_node_directories,
    make_identity,
    begin_state,
    make_state,
    make_shared_files,
    make_storage_list,
    start_node_daemon,
    start_master,
    start_confd,
)


async def init_cluster(
    options: InitOptions,
    *,
    paths: Paths,
    daemons: Daemons | None = None,
    clock: Clock | None = None,
    ids: IdSource | None = None,
    steps: Sequence[Step] = STEPS,
) -> NewCluster:
    """Create a cluster on this node; after any error nothing of it remains (but log files).

    PrereqError if the options are wrong or the node is in a cluster, HostError if a step failed.
    """
    check_options(options)
    check_not_member(paths, HOW_TO_LEAVE)
    ids, clock = ids or RandomIds(), clock or SystemClock()
    cluster_uuid, node_uuid = ids.uuid(), NodeUuid(ids.uuid())
    return await run_steps(
        options,
        first_cluster(options, cluster_uuid, node_uuid, clock.time()),
        FirstState(first_objects),
        paths=paths,
        daemons=daemons or Daemons(paths),
        clock=clock,
        ids=ids,
        steps=steps,
    )


async def run_steps(
    options: InitOptions,
    cluster: Cluster,
    first: FirstState,
    *,
    paths: Paths,
    daemons: Daemons,
    clock: Clock,
    ids: IdSource,
    steps: Sequence[Step],
) -> NewCluster:
    """Run the steps.

    After any error nothing of the cluster remains (but log files). HostError if one failed.
    """
    async with AsyncExitStack() as undo:
        new = InitContext(
            options=options,
            paths=paths,
            clock=clock,
            ids=ids,
            daemons=daemons,
            undo=undo,
            cluster=cluster,
            node_uuid=cluster.master_node,
            first=first,
        )
        try:
            for step in steps:
                await step(new)
        except OSError as err:
            what = f"cannot write {err.filename}: {err.strerror}" if err.filename else str(err)
            raise HostError(f"the cluster was not created: {what}") from err
        undo.pop_all()
    return NewCluster(new.cluster.uuid, new.node_uuid, tls.fingerprint(new.certificate))


def _batches(rows: Iterable[Put]) -> Iterator[tuple[Put, ...]]:
    """Yield rows in transactions of a size that the store accepts."""
    batch: list[Put] = []
    size = 0
    for row in rows:
        size += len(row.value)
        if batch and (len(batch) == MAX_OPERATIONS or size > MAX_TRANSACTION_BYTES // 2):
            yield tuple(batch)
            batch, size = [], len(row.value)
        batch.append(row)
    yield tuple(batch)


def first_objects(new: InitContext) -> tuple[Cluster, NodeGroup, Node]:
    """Return the configuration of a cluster of one node."""
    options, now = new.options, new.clock.time()
    group = NodeGroup(uuid=GroupUuid(new.ids.uuid()), ctime=now, mtime=now, name=options.group_name)
    node = Node(
        uuid=new.node_uuid,
        ctime=now,
        mtime=now,
        name=options.node_name,
        primary_ip=options.primary_ip,
        secondary_ip=options.secondary_ip or options.primary_ip,
        group=group.uuid,
        certificate=tls.fingerprint(new.certificate),
        port=options.port,
        master_candidate=True,
    )
    return new.cluster, group, node


def check_options(options: InitOptions) -> None:
    """Raise InputError for a wrong option."""
    for text, where in ((options.cluster_name, "cluster_name"), (options.node_name, "node_name")):
        if host_name(text, where) != text:
            raise InputError(f"the name {text!r} must be in lower case", where)
    if options.cluster_name == options.node_name:
        raise InputError("the cluster needs a name of its own, not the node's", "cluster_name")
    check_addresses(options)
    if options.state not in STATE_KINDS:
        raise InputError(f"{options.state!r:.40} is not a state back end", "state")
    if options.external is not None:
        options.external.check()
    plain_name(options.group_name, "group_name")
    cluster = first_cluster(options, "", NodeUuid(""), now=0.0)
    if problems := uidpool.host_conflicts(cluster.uid_pool):
        raise InputError(f"on this node {'; '.join(problems)}", "uid_pool")


async def answers(paths: Paths, limit_s: float = ANSWER_LIMIT_S) -> None:
    """Return when the master of this node answers; HostError if it does not in time."""
    why = "it does not listen"
    loop = asyncio.get_running_loop()
    end = loop.time() + limit_s
    while loop.time() < end:
        try:
            async with asyncio.timeout(limit_s):
                client = await AsyncLuxiClient.connect(paths.luxi_socket)
                try:
                    await client.call("QueryClusterInfo")
                finally:
                    await client.close()
        except (OSError, TimeoutError, GanetiError) as err:
            why = str(err) or type(err).__name__
            await asyncio.sleep(0.05)
        else:
            return
    raise HostError(f"the master does not answer at {paths.luxi_socket}: {why}; see {paths.log}")


def check_addresses(options: InitOptions) -> None:
    """Raise InputError for an invalid address or port of the node."""
    for text, where in (
        (options.primary_ip, "primary_ip"),
        (options.secondary_ip, "secondary_ip"),
        (options.master_ip, "master_ip"),
    ):
        if text is not None and not is_address(text):
            raise InputError(f"{text!r:.60} is not an IP address", where)
    if not 0 < options.port < 1 << 16:
        raise InputError(f"{options.port} is not a port number", "port")


def first_cluster(options: InitOptions, uuid: str, master: NodeUuid, now: float) -> Cluster:
    """Return the cluster with the options, by the rules of `gnt-cluster modify`; InputError."""
    cluster = Cluster(
        uuid=uuid,
        ctime=now,
        mtime=now,
        name=options.cluster_name,
        master_node=master,
        master_ip=options.master_ip or options.primary_ip,
    )
    first = {
        name: param.initial for name, param in CLUSTER_PARAMS.items() if param.initial is not None
    }
    params = {**first, **options.params}
    if params.get("uid_pool"):
        # If a pool of user ids exists, guests use it, unless the administrator decides otherwise.
        enabled = params.get("enabled_hypervisors", cluster.enabled_hypervisors)
        given = params.get("hvparams", {})
        rows = (HYPERVISORS[name] for name in enabled if name in HYPERVISORS)
        first = {row.name: row.with_uid_pool for row in rows if row.with_uid_pool}
        own = {name: {**layer, **given.get(name, {})} for name, layer in first.items()}
        params["hvparams"] = {**given, **own}
    op: OpClusterSetParams = wire.convert(params, OpClusterSetParams, what="options")
    check_cluster_request(op)
    return msgspec.structs.replace(cluster, **changed_cluster(cluster, op))
