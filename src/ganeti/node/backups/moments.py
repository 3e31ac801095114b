"""Answers calls that show the disks of running guests as they were at one moment."""

from collections.abc import Mapping
from dataclasses import dataclass

from ganeti.base.errors import HypervisorError, InputError
from ganeti.base.identifiers import plain_name
from ganeti.hypervisor.abilities import ShowsMoments
from ganeti.hypervisor.interface import Hypervisor, options_of
from ganeti.node.instance_locks import InstanceLocks
from ganeti.rpc.calls import Call, Handlers
from ganeti.rpc.procedures.backups import MOMENT_BEGIN, MOMENT_END, MomentArgs, MomentBegun
from ganeti.rpc.procedures.form import Nothing


def handlers(hypervisors: Mapping[str, Hypervisor], locks: InstanceLocks) -> Handlers:
    """Return the handlers, which wait for the instance's lock."""
    calls = _Moments(hypervisors, locks)
    return {MOMENT_BEGIN.name: calls.begin, MOMENT_END.name: calls.end}


@dataclass(frozen=True)
class _Moments:
    hypervisors: Mapping[str, Hypervisor]
    locks: InstanceLocks

    def _of(self, args: MomentArgs) -> ShowsMoments | None:
        for name in filter(None, (args.base, args.bitmap)):
            if plain_name(name, "bitmap") != name:
                raise InputError("is not the name of a bitmap", "bitmap")
        return options_of(self.hypervisors, args.instance.hypervisor).moments

    async def begin(self, args: MomentArgs, _call: Call) -> MomentBegun:
        moments = self._of(args)
        if moments is None:
            raise HypervisorError(
                f"disks of hypervisor {args.instance.hypervisor} cannot be copied while the guest runs; run:"
                f" gnt-instance shutdown {args.instance.name}"
            )
        async with self.locks.of(args.instance.name):
            found = await moments.begin(
                args.instance, base=args.base, bitmap=args.bitmap, limit_s=args.limit_s
            )
        return MomentBegun(
            consistency=found.consistency,
            socket=str(found.socket),
            has_changes=found.has_changes,
        )

    async def end(self, args: MomentArgs, _call: Call) -> Nothing:
        moments = self._of(args)
        if moments is not None:
            async with self.locks.of(args.instance.name):
                await moments.end(args.instance, base=args.base, bitmap=args.bitmap, keep=args.keep)
        return Nothing()
