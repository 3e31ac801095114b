"""Copies of a disk's data to another disk, of the same or another instance, on any node, while the guest is down."""

from dataclasses import dataclass, field

from msgspec.structs import replace

from ganeti.base.errors import RpcFailed
from ganeti.jobs.undo_log import UndoLog
from ganeti.model.instance_spec import DiskSpec, InstanceSpec
from ganeti.model.objects import Node
from ganeti.rpc.headers import UNKNOWN_PROCEDURE
from ganeti.rpc.procedures.streams import STREAM_COPY, CopyArgs, DiskEnd
from ganeti.units.context import UnitContext
from ganeti.units.telling import MIB, showing
from ganeti.units.transfers import Load, Route, carry, make_route, report
from ganeti.units.undo.transfers import EndStream


@dataclass
class DiskCopies:
    """Copies of disks to those of `instance` while it is down; the undo log ends them, and drops them after a commit.

    Two nodes connect directly, with keys for these copies only. A single node moves the data itself; both disks are
    open.
    """

    ctx: UnitContext
    undo: UndoLog
    instance: InstanceSpec
    source: Node
    target: Node
    compress: str = "none"
    origin: InstanceSpec | None = None
    """The instance of the source's disks; None: the same."""
    rate: int = 0
    """Limit of the data from node to node in bytes a second; 0: none."""
    _route: Route | None = field(default=None, init=False)

    async def copy(self, old: DiskSpec, new: DiskSpec) -> None:
        """Copy a disk of the source to one of the target; returns once the data is synced."""
        if self.source.uuid == self.target.uuid:
            try:
                await self._copy_within(old, new)
            except RpcFailed as err:
                if err.wire_error != UNKNOWN_PROCEDURE:
                    raise
            else:
                return
        # A node of the previous version can only connect to itself; this code goes with the next release.
        await self._carry(old, new)

    async def _carry(self, old: DiskSpec, new: DiskSpec) -> None:
        ctx, spec = self.ctx, self.instance
        if self._route is None:
            self._route = await make_route(ctx, self.undo, spec.name, self.source, self.target)
        # Other disks of the instance may be missing.
        source, target = (
            DiskEnd(instance=replace(of, disks=(one,)), index=0)
            for of, one in ((self.origin or spec, old), (spec, new))
        )
        size, what = old.size * MIB, f"disk {old.index}"
        load = Load(
            what,
            size,
            size,
            source,
            target,
            pack=self.compress,
            unpack=self.compress,
            rate=self.rate,
        )
        await carry(ctx, self.undo, self._route, load)

    async def _copy_within(self, old: DiskSpec, new: DiskSpec) -> None:
        ctx, name, token = self.ctx, self.instance.name, self.ctx.ids.token()
        step = EndStream(node=self.source.uuid, instance=name, token=token, receives=False)
        await self.undo.push(step, also_after=True)
        args, what = (
            CopyArgs(instance_name=name, token=token, source=old, target=new),
            f"disk {old.index}",
        )
        async with showing(ctx, self.source, what):
            report(ctx, what, await ctx.call(self.source, STREAM_COPY, args))
