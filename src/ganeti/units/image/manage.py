"""Changes of images, their copies, and their removal."""

from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from ganeti.base.errors import ErrorCode, InputError, PrereqError
from ganeti.base.identifiers import is_absolute_path, plain_name
from ganeti.config.resolve import resolve_image, resolve_node
from ganeti.config.snapshot import Snapshot
from ganeti.config.transaction import Draft
from ganeti.jobs.executor import Change, Outcome
from ganeti.locking.levels import Level, Mode
from ganeti.locking.requests import LockRequest, lock
from ganeti.model.image_source import OVA
from ganeti.model.objects import Image, Node
from ganeti.model.opcodes.image import (
    OpImageCopy,
    OpImageExport,
    OpImageRemove,
    OpImageRename,
    OpImageSetParams,
)
from ganeti.rpc.procedures.images import IMAGE_WRITE, ImageFileArgs
from ganeti.units.base import LogicalUnit
from ganeti.units.context import UnitContext
from ganeti.units.image.content import copy_image, holders, wrong_parts
from ganeti.units.image.importing import with_params
from ganeti.units.node_choice import check_online
from ganeti.units.telling import showing
from ganeti.units.undo.transfers import RemoveImageCopy


class LUImageSetParams(LogicalUnit[OpImageSetParams, Change]):
    """Change the description and the hints of an image."""

    def check_arguments(self) -> None:
        op = self.op
        given = (op.description, op.disk_size, op.firmware, op.cloud_init)
        if all(one is None for one in given):
            raise InputError("nothing to change: pass at least one option", "options")

    def declare_locks(self, snapshot: Snapshot) -> list[LockRequest]:
        return [lock(Level.IMAGE, resolve_image(snapshot, self.op.image_name).uuid)]

    async def check_prereq(self, ctx: UnitContext) -> Change:
        uuid = resolve_image(ctx.snapshot, self.op.image_name).uuid

        def change(draft: Draft) -> None:
            draft.put(with_params(draft.images[uuid], self.op))

        ctx.check_change(change)
        return change

    async def execute(self, ctx: UnitContext, plan: Change) -> Outcome:
        return Outcome(change=plan)


class LUImageRename(LogicalUnit[OpImageRename, Change]):
    """Give an image another name; its copies are found by its UUID."""

    def check_arguments(self) -> None:
        plain_name(self.op.new_name, "new_name")

    def declare_locks(self, snapshot: Snapshot) -> list[LockRequest]:
        return [lock(Level.IMAGE, resolve_image(snapshot, self.op.image_name).uuid)]

    async def check_prereq(self, ctx: UnitContext) -> Change:
        uuid = resolve_image(ctx.snapshot, self.op.image_name).uuid
        ctx.config.reservations.take_image(ctx.job_id, self.op.new_name)

        def change(draft: Draft) -> None:
            draft.put(replace(draft.images[uuid], name=self.op.new_name))

        ctx.check_change(change)
        return change

    async def execute(self, ctx: UnitContext, plan: Change) -> Outcome:
        return Outcome(self.op.new_name, change=plan)


class LUImageRemove(LogicalUnit[OpImageRemove, Image]):
    """Remove an image from the configuration, and then its copies; the lock waits for jobs that use it."""

    def declare_locks(self, snapshot: Snapshot) -> list[LockRequest]:
        image = resolve_image(snapshot, self.op.image_name)
        return [lock(Level.NODE, image.nodes, Mode.SHARED), lock(Level.IMAGE, image.uuid)]

    async def check_prereq(self, ctx: UnitContext) -> Image:
        return resolve_image(ctx.snapshot, self.op.image_name)

    async def execute(self, ctx: UnitContext, plan: Image) -> Outcome:
        copies = [
            RemoveImageCopy(node=node, image=plan.uuid, directory=plan.directory)
            for node in plan.nodes
        ]
        async with ctx.undo_log() as undo:
            ctx.step(f"removing image {plan.name} and all its copies")
            undo.commit(lambda draft: draft.remove(draft.images[plan.uuid]), then=copies)
        return Outcome()


@dataclass(frozen=True)
class CopyPlan:
    """An image, and the nodes that shall have it."""

    image: Image
    nodes: tuple[Node, ...]


class LUImageCopy(LogicalUnit[OpImageCopy, CopyPlan]):
    """Give nodes correct copies of an image."""

    def check_arguments(self) -> None:
        if not self.op.nodes:
            raise InputError("name at least one node", "nodes")

    def _plan(self, snapshot: Snapshot) -> CopyPlan:
        image = resolve_image(snapshot, self.op.image_name)
        nodes = {
            node.uuid: node for name in self.op.nodes for node in (resolve_node(snapshot, name),)
        }
        return CopyPlan(image, tuple(nodes.values()))

    def declare_locks(self, snapshot: Snapshot) -> list[LockRequest]:
        plan = self._plan(snapshot)
        nodes = {*plan.image.nodes, *(node.uuid for node in plan.nodes)}
        return [lock(Level.NODE, nodes, Mode.SHARED), lock(Level.IMAGE, plan.image.uuid)]

    async def check_prereq(self, ctx: UnitContext) -> CopyPlan:
        plan = self._plan(ctx.snapshot)
        for node in plan.nodes:
            check_online(node)
        return plan

    async def execute(self, ctx: UnitContext, plan: CopyPlan) -> Outcome:
        """Replace wrong copies one by one; a new copy is a source for the next one."""
        new = []
        for node in plan.nodes:
            image = ctx.snapshot.images[plan.image.uuid]
            if node.uuid in image.nodes:
                ctx.step(f"reading the copy on {node.name}")
                wrong = await wrong_parts(ctx, image, node)
                if not wrong:
                    ctx.info(f"the copy on {node.name} is correct")
                    continue
                ctx.warn(f"the copy on {node.name} is damaged: {'; '.join(wrong)}")
            await copy_image(ctx, image, node)
            new.append(node.name)
        return Outcome(new)

    def dry_run_result(self, ctx: UnitContext, plan: CopyPlan) -> Any:
        del ctx
        return [node.name for node in plan.nodes if node.uuid not in plan.image.nodes]


class LUImageExport(LogicalUnit[OpImageExport, CopyPlan]):
    """Write an image to a new file of a node."""

    def check_arguments(self) -> None:
        if not is_absolute_path(self.op.path):
            raise InputError("must be an absolute path on the node, without '..'", "path")

    def declare_locks(self, snapshot: Snapshot) -> list[LockRequest]:
        image = resolve_image(snapshot, self.op.image_name)
        return [
            lock(Level.NODE, image.nodes, Mode.SHARED),
            lock(Level.IMAGE, image.uuid, Mode.SHARED),
        ]

    async def check_prereq(self, ctx: UnitContext) -> CopyPlan:
        op = self.op
        image = resolve_image(ctx.snapshot, op.image_name)
        if len(image.disks) > 1 and op.target_format != OVA:
            raise PrereqError(
                f"image {image.name} has {len(image.disks)} disks, so it can only become an OVA"
                " (--format=ova)",
                ErrorCode.WRONG_INPUT,
            )
        nodes = holders(ctx, image)
        if op.node is not None:
            wanted = resolve_node(ctx.snapshot, op.node)
            nodes = [node for node in nodes if node.uuid == wanted.uuid]
        master = ctx.snapshot.cluster.master_node
        nodes.sort(key=lambda node: node.uuid != master)
        if not nodes:
            raise PrereqError(
                f"image {image.name} is not on {op.node or 'a node that is online'}; copy it first: gnt-image copy"
                f" {image.name} NODE",
                ErrorCode.WRONG_INPUT,
            )
        return CopyPlan(image, (nodes[0],))

    async def execute(self, ctx: UnitContext, plan: CopyPlan) -> Outcome:
        op, (node,) = self.op, plan.nodes
        ctx.step(f"writing image {plan.image.name} to {op.path} on {node.name}")
        args = ImageFileArgs(
            export=plan.image.directory, path=op.path, format=op.target_format, name=plan.image.name
        )
        async with showing(ctx, node, op.path):
            await ctx.call(node, IMAGE_WRITE, args)
        return Outcome(f"{node.name}:{op.path}")
