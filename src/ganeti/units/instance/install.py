"""Scripts of OS definitions on an instance's node: the common part of creation and reinstallation."""

from collections.abc import Mapping
from typing import TypeVar

import msgspec

from ganeti.base.errors import ErrorCode, PrereqError, RpcError, RpcFailed
from ganeti.config.fill import filled_osparams, instance_spec, os_facts
from ganeti.model.objects import Instance, Node
from ganeti.rpc.procedures.form import Nothing, Procedure
from ganeti.rpc.procedures.programs import (
    OS_CREATE,
    OS_DIAGNOSE,
    OS_VALIDATE,
    OsCreateArgs,
    OsValidateArgs,
    OsVerified,
    ScriptResult,
)
from ganeti.units.context import UnitContext
from ganeti.units.instance.image_disks import has_images
from ganeti.units.telling import LOOK_EVERY_S, ScriptWatch, telling

A = TypeVar("A", bound=msgspec.Struct)


def osparams_with(
    ctx: UnitContext, instance: Instance, *given: Mapping[str, str] | None
) -> dict[str, str]:
    """Return the OS parameters of an instance, with those for one run; later layers win."""
    together = {**filled_osparams(ctx.snapshot.cluster, instance), **instance.osparams_private}
    for params in given:
        together |= params or {}
    return together


async def check_os(
    ctx: UnitContext, node: Node, os: str, osparams: dict[str, str], *, force_variant: bool
) -> None:
    """Refuse an OS or parameters that the node's definition does not accept; log what its verify script prints."""
    check = OsValidateArgs(os=os, osparams=osparams, force_variant=force_variant)
    try:
        verified = await ctx.call(node, OS_VALIDATE, check)
    except RpcFailed as err:
        raise PrereqError(str(err), ErrorCode.WRONG_INPUT) from err
    except RpcError as err:
        raise PrereqError(str(err), ErrorCode.ENVIRONMENT) from err
    show_verified(ctx, os, verified)


def show_verified(ctx: UnitContext, os: str, verified: OsVerified) -> None:
    """Log the output of a definition's verify script about accepted parameters (S243)."""
    for line in verified.said.splitlines():
        ctx.info(f"verify script of OS {os}: {line}")


async def install_os(
    ctx: UnitContext,
    node: Node,
    instance: Instance,
    osparams: dict[str, str],
    *,
    force_variant: bool,
    debug_level: int,
    reinstall: bool = False,
) -> None:
    """Run the create script, and log the end of its output.

    If this raises, the caller removes the disks of a new instance; those of a reinstalled instance are kept.
    """
    args = OsCreateArgs(
        instance=instance_spec(ctx.snapshot, instance),
        os=instance.os,
        osparams=osparams,
        facts=os_facts(ctx.snapshot, instance),
        debug=int(debug_level > 0),
        force_variant=force_variant,
        reinstall=reinstall,
    )
    await run_script(ctx, node, OS_CREATE, args)


async def run_script(
    ctx: UnitContext, node: Node, procedure: Procedure[A, ScriptResult], args: A
) -> None:
    """Run a script; output of a long script is logged while it runs, that of a short one at its end."""
    watch = ScriptWatch(ctx, node, ctx.next_key)
    async with telling(ctx, LOOK_EVERY_S, watch.tell):
        done = await ctx.call(node, procedure, args)
    if watch.offset:
        await watch.tell()
    else:
        show_tail(ctx, done)


async def scripts_of(ctx: UnitContext, node: Node, os: str) -> frozenset[str]:
    """Return the scripts of a node's OS definition; none if it has no usable definition."""
    name = os.partition("+")[0]
    found = await ctx.call(node, OS_DIAGNOSE, Nothing()) if name else []
    infos = [info for info in found if info.name == name and not info.problem]
    return frozenset(infos[0].scripts) if infos else frozenset()


async def exports_by_script(ctx: UnitContext, node: Node, instance: Instance) -> bool:
    """Return whether a script of its OS reads the disks of an instance for an export."""
    has_script = "export" in await scripts_of(ctx, node, instance.os)
    if instance.disks and not (has_script and not has_images(instance.disks)):
        why = (
            "a disk is an image"
            if has_script
            else f"OS {instance.os or '(none)'} has no script export"
        )
        ctx.info(f"{why}: disks are copied as they are")
        return False
    return has_script


def show_tail(ctx: UnitContext, done: ScriptResult) -> None:
    """Write the output of a script to the job's log."""
    for line in done.tail.splitlines():
        ctx.log(f"   {line}")
