"""Answers the call that boots a backup; the work is done by a program of the node (`drill.py`)."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass

from msgspec.structs import replace

from ganeti import uidpool
from ganeti.base.errors import HypervisorError
from ganeti.base.identifiers import host_name
from ganeti.base.paths import Paths
from ganeti.hypervisor.interface import Hypervisor, options_of
from ganeti.model import wire
from ganeti.node.backups import drill
from ganeti.node.backups.directory import entered, path_of
from ganeti.node.backups.key_pipe import VARIABLE, packed
from ganeti.node.program_reports import reported
from ganeti.node.tasks import Tasks
from ganeti.protocols.backup_manifest import check_point
from ganeti.rpc.calls import Call, Handlers
from ganeti.rpc.procedures.backup_keys import NO_BACKUP_KEYS
from ganeti.rpc.procedures.drills import BACKUP_DRILL, DrillArgs, DrillResult


def handlers(paths: Paths, tasks: Tasks, hypervisors: Mapping[str, Hypervisor]) -> Handlers:
    """Return the handler."""
    return {BACKUP_DRILL.name: _Drills(paths, tasks, hypervisors).drill}


@dataclass(frozen=True)
class _Drills:
    paths: Paths
    tasks: Tasks
    hypervisors: Mapping[str, Hypervisor]

    async def drill(self, args: DrillArgs, call: Call) -> DrillResult:
        host_name(args.instance_name, "instance_name")
        check_point(args.point)
        with entered(self.paths, args.target, args.instance_name):
            directory = path_of(self.paths, args.target, args.instance_name)
        boots = options_of(self.hypervisors, args.hypervisor).drills
        if boots is None:
            raise HypervisorError(f"hypervisor {args.hypervisor} cannot boot a backup")
        equipment = await boots.equipment(args.hvparams)
        order = drill.DrillOrder(
            args=replace(args, keys=NO_BACKUP_KEYS),
            directory=str(directory),
            root=str(self.paths.root),
            locks=str(uidpool.lock_directory(self.paths)),
            program=equipment.program,
            accelerator=equipment.accelerator,
            device=equipment.device,
        )
        argv = [sys.executable, "-m", drill.__name__, wire.encode(order).decode()]
        secret = (VARIABLE, packed(args.keys))
        said = await reported(self.paths, self.tasks, call, argv, secret=secret)
        return wire.decode(said, DrillResult, what="the result of a drill")
