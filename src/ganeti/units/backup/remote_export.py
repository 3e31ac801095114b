"""The source's part of a move to another cluster: it sends its disks and is changed only if all succeeds."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address

from ganeti.base.domain_secret import (
    check_not_expired,
    is_signed,
    verified_certificate,
    verified_disk,
)
from ganeti.base.errors import InputError
from ganeti.config.fill import instance_spec, os_facts
from ganeti.model.objects import Instance, Node
from ganeti.model.opcodes.backup import OpBackupExport
from ganeti.rpc.procedures.streams import STREAM_SEND, DiskEnd, SendArgs
from ganeti.units.context import UnitContext
from ganeti.units.instance.access import check_not_migrating, is_running, primary_node
from ganeti.units.instance.install import exports_by_script, osparams_with
from ganeti.units.instance.power import run_again, shut_down_source
from ganeti.units.instance.snapshot_checks import check_no_snapshots
from ganeti.units.mirrors.opening import disks_ready
from ganeti.units.node_choice import check_online
from ganeti.units.telling import LOOK_EVERY_S, MIB, ScriptWatch, showing, telling
from ganeti.units.transfers import secret_of_others
from ganeti.units.undo.transfers import EndStream, RemoveTransferKey

PORTS = range(1, 65536)


@dataclass(frozen=True)
class RemotePlan:
    """The data to send, and the receiver of each disk: address, port, token."""

    instance: Instance
    source: Node
    was_running: bool
    by_script: bool
    key_name: str
    certificate: str
    disks: tuple[tuple[str, int, str], ...]
    osparams: dict[str, str] = field(repr=False)


def check_remote_arguments(op: OpBackupExport) -> None:
    """Refuse options that no move accepts."""
    if not isinstance(op.target_node, list):
        raise InputError("must be the addresses that the other cluster returned", "target_node")
    if op.target_node_uuid is not None:
        raise InputError("is only for exports within the cluster", "target_node_uuid")
    for name in ("x509_key_name", "destination_x509_ca"):
        if getattr(op, name) is None:
            raise InputError("is needed for a move to another cluster", name)
    if not op.shutdown:
        raise InputError("an instance must be down while it moves to another cluster", "shutdown")


async def plan_remote(ctx: UnitContext, op: OpBackupExport, instance: Instance) -> RemotePlan:
    """Verify the signatures of all data from the other cluster (S215)."""
    check_not_migrating(instance)
    check_no_snapshots(instance, "moved to another cluster", "they would stay here")
    source = primary_node(ctx, instance)
    check_online(source)
    secret = secret_of_others(ctx)
    key_name = verified_key_name(secret, op.x509_key_name)
    certificate = verified_certificate(secret, op.destination_x509_ca or "")
    check_not_expired(certificate, ctx.now)
    assert isinstance(op.target_node, list)  # noqa: S101 - checked before
    if len(op.target_node) != len(instance.disks):
        raise InputError(
            f"the instance has {len(instance.disks)} disks, but the other cluster expects {len(op.target_node)}",
            "target_node",
        )
    disks = tuple(
        _checked(index, *verified_disk(secret, index, info))
        for index, info in enumerate(op.target_node)
    )
    was_running = await is_running(ctx, source, instance)
    by_script = await exports_by_script(ctx, source, instance)
    osparams = osparams_with(ctx, instance)
    return RemotePlan(
        instance, source, was_running, by_script, key_name, certificate, disks, osparams
    )


def verified_key_name(secret: str | None, signed: Sequence[object] | None) -> str:
    """Return the name of a transfer's key if this cluster has signed it; InputError."""
    match signed:
        case [str() as key_name, str() as claimed, str() as salt]:
            pass
        case _:
            raise InputError("must be a name, a digest and a salt", "x509_key_name")
    if not is_signed(secret, key_name, claimed, salt):
        raise InputError("is not signed with the cluster domain secret", "x509_key_name")
    return key_name


def _checked(index: int, host: str, port: int, token: str) -> tuple[str, int, str]:
    try:
        ip_address(host)
    except ValueError as err:
        raise InputError("is not an IP address", f"target_node[{index}]") from err
    if port not in PORTS or not token:
        raise InputError("has no port or no token", f"target_node[{index}]")
    return host, port, token


async def send_all(ctx: UnitContext, op: OpBackupExport, plan: RemotePlan) -> None:
    """Send every disk; return when the other cluster has all of them and the instance's entry.

    After any failure the instance is unchanged, and runs again if it ran before.
    """
    instance, name = plan.instance, plan.instance.name
    try:
        async with ctx.undo_log() as undo:
            key = RemoveTransferKey(node=plan.source.uuid, instance=name, key_name=plan.key_name)
            await undo.push(key, also_after=True)
            for _host, _port, token in plan.disks:
                end = EndStream(node=plan.source.uuid, instance=name, token=token, receives=False)
                await undo.push(end, also_after=True)
            if plan.was_running:
                await shut_down_source(ctx, instance, plan.source, op.shutdown_timeout)
            async with disks_ready(ctx, instance):
                await _send_together(ctx, op, plan)
            undo.commit()
    except BaseException:
        if plan.was_running:
            await run_again(ctx, instance)
        raise


async def _send_together(ctx: UnitContext, op: OpBackupExport, plan: RemotePlan) -> None:
    """Send all disks at once: the other cluster confirms none before it has all (G14)."""
    tasks = [
        asyncio.create_task(
            _send(ctx, op, plan, index), name=f"disk {index} of {plan.instance.name}"
        )
        for index in range(len(plan.disks))
    ]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _send(ctx: UnitContext, op: OpBackupExport, plan: RemotePlan, index: int) -> None:
    spec = instance_spec(ctx.snapshot, plan.instance)
    host, port, token = plan.disks[index]
    size = spec.disks[index].size * MIB
    ctx.step(f"sending disk {index} ({spec.disks[index].size} MiB) to {host}")
    order = SendArgs(
        instance_name=spec.name,
        token=token,
        key_name=plan.key_name,
        peer=plan.certificate,
        address=host,
        port=port,
        size=size,
        pack=op.compress,
        disk=DiskEnd(
            instance=spec,
            index=index,
            os=plan.instance.os if plan.by_script else "",
            osparams=plan.osparams if plan.by_script else {},
            facts=os_facts(ctx.snapshot, plan.instance),
            debug=int(op.debug_level > 0),
        ),
    )
    tell: Sequence[ScriptWatch] = (
        (ScriptWatch(ctx, plan.source, ctx.next_key, f"disk {index}: "),) if plan.by_script else ()
    )
    async with (
        showing(ctx, plan.source, f"disk {index}"),
        telling(ctx, LOOK_EVERY_S, *(one.tell for one in tell)),
    ):
        sent = await ctx.call(plan.source, STREAM_SEND, order)
    ctx.info(f"disk {index}: {sent.data_bytes // MIB} MiB in {sent.seconds:.1f} s")
