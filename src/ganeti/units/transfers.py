"""Transfer of disks from one node to another, which connect directly, or within a node."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ganeti.base.errors import RpcFailed
from ganeti.jobs.undo_log import UndoLog
from ganeti.model.compression import COMPRESSIONS
from ganeti.model.objects import Node
from ganeti.rpc.headers import UNKNOWN_PROCEDURE
from ganeti.rpc.procedures.streams import (
    STREAM_RECEIVE,
    STREAM_SEND,
    STREAM_WITHIN,
    TRANSFER_KEY_CREATE,
    DiskEnd,
    DumpEnd,
    EndArgs,
    PointEnd,
    ReceiveArgs,
    SendArgs,
    StreamResult,
    SumsEnd,
    TransferKeyArgs,
    WithinArgs,
)
from ganeti.units.context import UnitContext
from ganeti.units.telling import LOOK_EVERY_S, MIB, ScriptWatch, showing, telling
from ganeti.units.undo.transfers import EndStream, RemoveTransferKey

End = DiskEnd | DumpEnd | PointEnd | SumsEnd
"""What is read or written."""
SLACK = 64 * MIB
"""The factor by which the output of a script may exceed the disk."""
SILENCE_S = 600.0
RAW_SILENCE_S = 30.0
"""The limit without output of an end: one that runs a script, and one that only reads or writes a disk."""


@dataclass(frozen=True)
class NodeKey:
    """One node, with a key for this transfer only."""

    node: Node
    key_name: str = ""
    """'': none was made, because both ends are on one node."""
    certificate: str = ""


@dataclass(frozen=True)
class Load:
    """One disk's data: its source and its target, sizes in bytes, and its compression."""

    what: str
    size: int
    limit: int
    source: End
    target: End
    pack: str = "none"
    unpack: str = "none"
    sha256: str = ""
    """The required digest of the data; '': any."""
    digests: bool = False
    """Return the digest of the data."""
    rate: int = 0
    """Limit of the data in bytes a second; 0: none."""

    @property
    def is_raw(self) -> bool:
        """True if a disk is copied to a disk without a script."""
        return all(isinstance(one, DiskEnd) and not one.os for one in (self.source, self.target))

    @property
    def is_plain(self) -> bool:
        """True if no script, no dump, no compression and no digest is involved."""
        both = (self.source, self.target)
        is_other = any(
            isinstance(one, DumpEnd) or (isinstance(one, DiskEnd) and one.os) for one in both
        )
        return not (is_other or self.digests or self.sha256) and self.pack == self.unpack == "none"


@dataclass
class Route:
    """A transfer from one node to another, or within a node, for the disks of one instance."""

    instance_name: str
    source: NodeKey
    target: NodeKey

    @property
    def is_within(self) -> bool:
        """True if both ends are on one node."""
        return self.source.node.uuid == self.target.node.uuid


def secret_of_others(ctx: UnitContext) -> str | None:
    """Return the data that another cluster needs, for `base.domain_secret`.

    None for transfers in the cluster (S207).
    """
    if not ctx.snapshot.cluster.check_domain_signatures:
        return None
    return ctx.services.domain_secret()


async def make_end(
    ctx: UnitContext, undo: UndoLog, instance_name: str, node: Node, *, stays: bool = False
) -> NodeKey:
    """Make a key on a node; the undo log removes it, after a commit only unless it `stays`."""
    name = f"x509-{ctx.ids.token()}"
    step = RemoveTransferKey(node=node.uuid, instance=instance_name, key_name=name)
    await undo.push(step, also_after=not stays)
    args = TransferKeyArgs(instance_name=instance_name, key_name=name)
    made = await ctx.call(node, TRANSFER_KEY_CREATE, args)
    return NodeKey(node, name, made.certificate)


async def make_route(
    ctx: UnitContext, undo: UndoLog, instance_name: str, source: Node, target: Node
) -> Route:
    """Make keys on both nodes, which trust only each other by them; none yet for a route within a node."""
    if source.uuid == target.uuid:
        return Route(instance_name, NodeKey(source), NodeKey(target))
    ends = [await make_end(ctx, undo, instance_name, node) for node in (source, target)]
    return Route(instance_name, ends[0], ends[1])


async def carry(
    ctx: UnitContext, undo: UndoLog, route: Route, load: Load, *, token: str = ""
) -> StreamResult:
    """Transfer one disk; return when the target has it synced and both have the same digest.

    `token` names the transfer; the default is a new one.
    """
    name, token = route.instance_name, token or ctx.ids.token()
    for end, receives in ((route.target, True), (route.source, False)):
        step = EndStream(node=end.node.uuid, instance=name, token=token, receives=receives)
        await undo.push(step, also_after=True)
    if route.is_within and load.is_plain:
        try:
            return await _carry_within(ctx, route, load, token)
        except RpcFailed as err:
            if err.wire_error != UNKNOWN_PROCEDURE:
                raise
        # A node of the previous version can only connect to itself; this code goes with the next release.
    await _make_keys(ctx, undo, route)
    watches: list[ScriptWatch] = []
    watches += _watch(ctx, route.target.node, load.target)
    address = route.target.node.secondary_ip
    silence_s = RAW_SILENCE_S if load.is_raw else SILENCE_S
    wanted = ReceiveArgs(
        instance_name=name,
        token=token,
        key_name=route.target.key_name,
        peer=route.source.certificate,
        address=address,
        size=load.size,
        limit=load.limit,
        unpack=load.unpack,
        sha256=load.sha256,
        silence_s=silence_s,
        **_field(load.target),
    )
    listening = await ctx.call(route.target.node, STREAM_RECEIVE, wanted)
    watches += _watch(ctx, route.source.node, load.source)
    packer = COMPRESSIONS[load.pack]
    order = SendArgs(
        instance_name=name,
        token=token,
        key_name=route.source.key_name,
        peer=route.target.certificate,
        address=address,
        port=listening.port,
        size=load.size,
        pack=load.pack,
        digests=load.digests,
        deflates=listening.inflates and load.pack == load.unpack and bool(packer and packer.level),
        sealed=listening.sealed,
        rate=load.rate,
        silence_s=silence_s,
        **_field(load.source),
    )
    try:
        async with (
            showing(ctx, route.source.node, load.what),
            telling(ctx, LOOK_EVERY_S, *(one.tell for one in watches)),
        ):
            sent = await ctx.call(route.source.node, STREAM_SEND, order)
    finally:
        for watch in watches:
            await watch.tell()
    report(ctx, load.what, sent)
    return sent


async def _make_keys(ctx: UnitContext, undo: UndoLog, route: Route) -> None:
    """Make the keys that a route within a node has not yet."""
    if not route.source.key_name:
        node, name = route.source.node, route.instance_name
        route.source, route.target = [await make_end(ctx, undo, name, node) for _ in range(2)]


async def _carry_within(ctx: UnitContext, route: Route, load: Load, token: str) -> StreamResult:
    """Let one program of the node move the data, without a connection."""
    node = route.source.node
    args = WithinArgs(
        instance_name=route.instance_name,
        token=token,
        source=EndArgs(**_field(load.source)),
        target=EndArgs(**_field(load.target)),
        size=load.size,
        limit=load.limit,
        rate=load.rate,
    )
    async with showing(ctx, node, load.what):
        sent = await ctx.call(node, STREAM_WITHIN, args)
    report(ctx, load.what, sent)
    return sent


def report(ctx: UnitContext, what: str, sent: StreamResult) -> None:
    """Log the amount of moved data, and the rate."""
    rate = sent.data_bytes / MIB / max(sent.seconds, 0.001)
    ctx.info(f"{what}: {sent.data_bytes // MIB} MiB in {sent.seconds:.1f} s ({rate:.0f} MiB/s)")


def _watch(ctx: UnitContext, node: Node, end: End) -> Sequence[ScriptWatch]:
    """Return the watch of this end's script, if it has one; its call is the next."""
    if not isinstance(end, DiskEnd) or not end.os:
        return ()
    return (ScriptWatch(ctx, node, ctx.next_key),)


def _field(end: End) -> dict[str, Any]:
    """Return the field of an order for its end."""
    names = {DiskEnd: "disk", DumpEnd: "dump", PointEnd: "point", SumsEnd: "sums"}
    return {names[type(end)]: end}
