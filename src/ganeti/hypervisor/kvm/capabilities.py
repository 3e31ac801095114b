"""The migration capabilities of QEMU: those that this driver requires, and those of `migration_caps`."""

from collections.abc import Sequence

from ganeti.base.errors import HypervisorError
from ganeti.hypervisor.kvm.monitor import Ask

NEEDED = {"late-block-activate": True, "auto-converge": True}
ALLOWED = frozenset(
    ("auto-converge", "compress", "events", "multifd", "validate-uuid", "xbzrle", "zero-blocks")
)
"""The allowed names in `migration_caps`.

QEMU's others would break promises of a migration here: that the source can resume the guest until the target may
continue (`postcopy-ram`, `release-ram`, `return-path`, `x-colo`), its disks (`block`, `x-ignore-shared`), or its
encryption (`rdma-pin-all`, `zero-copy-send`).
"""
_APART = (("compress", "multifd"), ("compress", "xbzrle"), ("multifd", "xbzrle"))


def names(migration_caps: str) -> tuple[str, ...]:
    """The parts of the parameter."""
    return tuple(migration_caps.split(":")) if migration_caps else ()


def capability_problems(migration_caps: str) -> list[str]:
    """Return the faults of the parameter, a sentence each that names it first."""
    wanted = names(migration_caps)
    found = [
        f"migration_caps: {name} cannot be used; allowed are {', '.join(sorted(ALLOWED))}"
        for name in wanted
        if name not in ALLOWED
    ]
    return found + [
        f"migration_caps: {one} and {other} cannot be used together"
        for one, other in _APART
        if one in wanted and other in wanted
    ]


async def set_capabilities(
    ask: Ask, *, further: Sequence[str] = (), pauses: bool = False, bitmaps: bool = True
) -> None:
    """Set all capabilities at one end, independent of earlier attempts. HypervisorError if this QEMU lacks one.

    With `bitmaps`, those of backups go with the guest: the next backup need not compare its disks.
    """
    known = {str(one["capability"]) for one in await ask("query-migrate-capabilities")}
    if absent := sorted(set(further) - known):
        raise HypervisorError(
            f"migration_caps: this QEMU does not support {', '.join(absent)}; remove it"
        )
    states = {name: name in further for name in sorted(ALLOWED & known)}
    states |= {**NEEDED, "pause-before-switchover": pauses, "dirty-bitmaps": bitmaps}
    wanted = [{"capability": name, "state": state} for name, state in states.items()]
    await ask("migrate-set-capabilities", {"capabilities": wanted})
