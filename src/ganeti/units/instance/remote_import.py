"""The destination's part of a move from another cluster: it receives disks, and keeps them only if all are complete."""

import asyncio
from dataclasses import dataclass, field

from ganeti.base.domain_secret import (
    check_handshake,
    check_not_expired,
    sign_certificate,
    sign_disk,
    verified_certificate,
)
from ganeti.base.errors import ExecError, InputError
from ganeti.base.identifiers import host_name
from ganeti.config.fill import instance_spec, os_facts
from ganeti.jobs.undo_log import UndoLog
from ganeti.model.compression import check_compression
from ganeti.model.objects import Instance, Node
from ganeti.model.opcodes.instance import OpInstanceCreate
from ganeti.model.progress import Progress
from ganeti.rpc.procedures.streams import (
    STREAM_RECEIVE,
    STREAM_STATUS,
    DiskEnd,
    ReceiveArgs,
    StreamArgs,
)
from ganeti.units.context import UnitContext
from ganeti.units.instance.disks import copies_open
from ganeti.units.instance.image_disks import has_images
from ganeti.units.instance.install import scripts_of
from ganeti.units.telling import (
    FIRST_PROGRESS_S,
    LOOK_EVERY_S,
    MIB,
    PROGRESS_EVERY_S,
    Pace,
    ScriptWatch,
    telling,
)
from ganeti.units.transfers import make_end, secret_of_others
from ganeti.units.undo.step import Step
from ganeti.units.undo.transfers import ConfirmStream, EndStream

REMOTE_IMPORT = "remote-import"
STARTUP_S = 600
"""The default time for the source to begin."""
STARTUP_LIMIT_S = 6 * 3600
POLL_S = 2.0
_FIELDS = ("source_handshake", "source_x509_ca", "source_instance_name")


@dataclass(frozen=True)
class RemoteSource:
    """The instance in the other cluster, and the way in which its data is read."""

    name: str
    certificate: str
    by_script: bool
    renames: bool


@dataclass
class _Waiting:
    """The streams of one move, and the steps after the commit."""

    streams: list[StreamArgs] = field(default_factory=list)
    watches: list[ScriptWatch] = field(default_factory=list)
    addresses: list[list[int | str]] = field(default_factory=list)


def check_remote_import_arguments(op: OpInstanceCreate) -> None:
    """Refuse fields of moves without a move, and moves without these fields."""
    for name in _FIELDS:
        if op.mode != REMOTE_IMPORT and getattr(op, name) is not None:
            raise InputError(f"only with mode {REMOTE_IMPORT}", name)
        if op.mode == REMOTE_IMPORT and getattr(op, name) is None:
            raise InputError("is needed for a move from another cluster", name)
    if op.mode == REMOTE_IMPORT:
        check_compression(op.compress)
        host_name(op.source_instance_name or "", "source_instance_name")
        if op.no_install:
            raise InputError("has no effect: a move never runs the OS create script", "no_install")
        if not 0 <= (op.helper_startup_timeout or 0) <= STARTUP_LIMIT_S:
            raise InputError(
                f"must be from 0 to {STARTUP_LIMIT_S} seconds", "helper_startup_timeout"
            )


def check_source(ctx: UnitContext, op: OpInstanceCreate) -> str:
    """Return the certificate of the source, if that cluster shares our secret (S213)."""
    secret = secret_of_others(ctx)
    check_handshake(secret, op.source_handshake)
    certificate = verified_certificate(secret, op.source_x509_ca or "")
    check_not_expired(certificate, ctx.now)
    return certificate


async def plan_remote_import(
    ctx: UnitContext, op: OpInstanceCreate, instance: Instance, certificate: str, node: Node
) -> RemoteSource:
    """Return how the data will be read; the source announces its form, and both must match."""
    scripts = await scripts_of(ctx, node, op.os_type or "")
    by_script = "import" in scripts and not has_images(instance.disks)
    return RemoteSource(str(op.source_instance_name), certificate, by_script, "rename" in scripts)


async def receive_disks(
    ctx: UnitContext,
    undo: UndoLog,
    instance: Instance,
    source: RemoteSource,
    *,
    op: OpInstanceCreate,
    osparams: dict[str, str],
) -> list[Step]:
    """Wait for all disks; return the steps that let the source's jobs end, once this is committed (G14)."""
    node, secret = ctx.snapshot.nodes[instance.primary_node], ctx.services.domain_secret()
    end = await make_end(ctx, undo, instance.name, node)
    waiting = _Waiting()
    async with copies_open(ctx, instance):
        for index, disk in enumerate(instance.disks):
            token = ctx.ids.token()
            stream = StreamArgs(instance_name=instance.name, token=token, receives=True)
            await undo.push(
                EndStream(node=node.uuid, instance=instance.name, token=token, receives=True)
            )
            if source.by_script:
                watch = ScriptWatch(ctx, node, ctx.next_key, f"disk {index}: ")
                waiting.watches.append(watch)
            args = ReceiveArgs(
                instance_name=instance.name,
                token=token,
                key_name=end.key_name,
                peer=source.certificate,
                address=node.primary_ip,
                size=disk.size * MIB,
                limit=(2 if source.by_script else 1) * disk.size * MIB,
                unpack=op.compress,
                hold=True,
                wait_s=op.helper_startup_timeout or STARTUP_S,
                disk=DiskEnd(
                    instance=instance_spec(ctx.snapshot, instance),
                    index=index,
                    os=instance.os if source.by_script else "",
                    osparams=osparams if source.by_script else {},
                    facts=os_facts(ctx.snapshot, instance),
                    debug=int(op.debug_level > 0),
                ),
            )
            port = (await ctx.call(node, STREAM_RECEIVE, args)).port
            waiting.streams.append(stream)
            waiting.addresses.append(sign_disk(secret, index, node.primary_ip, port, token))
        said = {"disks": waiting.addresses, "x509_ca": sign_certificate(secret, end.certificate)}
        with ctx.run.interruptible():
            ctx.run.log(said, REMOTE_IMPORT)
            async with telling(ctx, LOOK_EVERY_S, *(one.tell for one in waiting.watches)):
                await _all_received(ctx, node, waiting.streams)
    return [
        ConfirmStream(node=node.uuid, instance=instance.name, token=stream.token)
        for stream in waiting.streams
    ]


async def _all_received(ctx: UnitContext, node: Node, streams: list[StreamArgs]) -> None:
    """Return when the node has every disk synced; ExecError if a disk fails, JobCanceled if the job is cancelled."""
    left, loop = dict(enumerate(streams)), asyncio.get_running_loop()
    paces = [Pace(f"disk {index}", loop.time()) for index in left]
    show_at = loop.time() + FIRST_PROGRESS_S
    while left:
        ctx.run.check_canceled()
        for index, stream in list(left.items()):
            found = await ctx.call(node, STREAM_STATUS, stream)
            if found.result is not None:
                ctx.info(f"disk {index}: {found.result.data_bytes // MIB} MiB received")
                del left[index]
            elif not found.running:
                why = found.error or "the receiving program has ended"
                raise ExecError(f"disk {index} was not received: {why}")
            elif found.done and loop.time() >= show_at:
                come = Progress(done=found.done, total=found.total)
                words, bar = paces[index].step(come, loop.time())
                ctx.info(words)
                ctx.run.progress(bar)
        if loop.time() >= show_at:
            show_at = loop.time() + PROGRESS_EVERY_S
        if left:
            await asyncio.sleep(POLL_S)
    ctx.run.progress(None)
