"""The boot of a backup in a throw-away guest."""

from dataclasses import dataclass
from typing import Any

from ganeti.base.errors import ExecError, InputError
from ganeti.config.fill import cluster_hvparams, instance_spec
from ganeti.config.snapshot import Snapshot
from ganeti.jobs.executor import Outcome
from ganeti.locking.requests import LockRequest
from ganeti.model.hypervisor_params import HYPERVISOR_PARAMS, check_hypervisor_params
from ganeti.model.instance_spec import InstanceSpec
from ganeti.model.opcodes.drills import OpBackupDrill
from ganeti.model.param_checks import check_backend_params
from ganeti.model.params import BACKEND_DEFAULTS, Params
from ganeti.protocols.export_description import parse_description
from ganeti.rpc.procedures.backup_keys import BackupKeys
from ganeti.rpc.procedures.backups import BACKUP_INFO, PointInfo, PointOf
from ganeti.rpc.procedures.drills import BACKUP_DRILL, DrillArgs
from ganeti.units.backup.keys import keys_to_read
from ganeti.units.backup.named import OnName
from ganeti.units.backup.points import Place, check_place, check_point_name, only_place
from ganeti.units.context import UnitContext
from ganeti.units.node_choice import check_online
from ganeti.units.telling import showing

LEAST_MEMORY, MOST_MEMORY = 64, 1 << 20
LONGEST_S = 24 * 3600
LONGEST_TEXT = 200


@dataclass(frozen=True)
class Machine:
    """What boots the backup; memory in MiB."""

    hypervisor: str
    hvparams: Params
    memory: int
    vcpus: int

    @classmethod
    def of(cls, spec: InstanceSpec) -> "Machine":
        return cls(spec.hypervisor, spec.hvparams, spec.memory, spec.vcpus)


@dataclass(frozen=True)
class DrillPlan:
    """The backup, and its machine."""

    place: Place
    point: PointInfo
    machine: Machine
    keys: BackupKeys


def check_expected(text: str, field: str) -> None:
    """Refuse a text that no console shows."""
    if not text.isprintable() or not text.strip() or len(text) > LONGEST_TEXT:
        raise InputError(f"must be one line of at most {LONGEST_TEXT} printable characters", field)


class LUBackupDrill(OnName[OpBackupDrill, DrillPlan]):
    """Boot a backup; the node ends the guest with the program that watches it."""

    def check_arguments(self) -> None:
        super().check_arguments()
        op = self.op
        check_place(op)
        check_point_name(op.point)
        if op.memory is not None and not LEAST_MEMORY <= op.memory <= MOST_MEMORY:
            raise InputError(f"must be from {LEAST_MEMORY} to {MOST_MEMORY} MiB", "memory")
        if not 1 <= op.timeout <= LONGEST_S:
            raise InputError(f"must be from 1 to {LONGEST_S} seconds", "timeout")
        check_expected(op.expect, "expect")

    def declare_locks(self, snapshot: Snapshot) -> list[LockRequest]:
        """Not that of the instance, which works on meanwhile: what is open of a backup stays readable."""
        _instance, nodes = super().declare_locks(snapshot)
        return [nodes]

    async def check_prereq(self, ctx: UnitContext) -> DrillPlan:
        self.check_uuid(ctx.snapshot)
        place = await only_place(ctx, self.op, self.name)
        check_online(place.node)
        point = place.find(self.op.point)
        keys = keys_to_read(ctx.snapshot, point, allow_unencrypted=self.op.allow_unencrypted)
        instance = ctx.snapshot.instance_by_name(self.name)
        if instance is not None and instance.uuid == point.instance_uuid:
            machine = Machine.of(instance_spec(ctx.snapshot, instance))
        else:
            where = PointOf(**_fields(place), keys=keys, point=point.point)
            content = await ctx.call(place.node, BACKUP_INFO, where)
            machine = described_machine(ctx.snapshot, content.description)
        return DrillPlan(place, point, machine, keys)

    async def execute(self, ctx: UnitContext, plan: DrillPlan) -> Outcome:
        op, machine, point = self.op, plan.machine, plan.point.point
        args = DrillArgs(
            **_fields(plan.place),
            keys=plan.keys,
            point=point,
            hypervisor=machine.hypervisor,
            hvparams=machine.hvparams,
            vcpus=machine.vcpus,
            memory=op.memory or machine.memory,
            less_memory=op.memory is None,
            expect=op.expect,
            agent=op.agent,
            timeout_s=float(op.timeout),
        )
        ctx.step(f"booting backup {point} of {self.name} in {plan.place.words}")
        async with showing(ctx, plan.place.node, f"backup {point}"):
            found = await ctx.call(plan.place.node, BACKUP_DRILL, args)
        if found.unrecorded:
            ctx.warn(f"the result is not recorded: {found.unrecorded}")
        if found.problem:
            for line in found.lines:
                ctx.log(f"   {line}")
            # A guest that shows something may be well, and wait for nothing else.
            hint = "; if it is well, pass another text (--expect)" if found.lines else ""
            raise ExecError(
                f"backup {point} of {self.name} in {plan.place.words} did not pass: {found.problem}{hint}"
            )
        return Outcome(
            {
                "point": point,
                "seen": found.seen,
                "seconds": found.seconds,
                "lines": found.lines,
                "memory": found.memory,
                "accelerator": found.accelerator,
            }
        )


def _fields(place: Place) -> dict[str, Any]:
    return {"target": place.target, "instance_name": place.instance}


def described_machine(snapshot: Snapshot, description: str) -> Machine:
    """Return the machine of an instance that does not exist any more. Its description is not trusted.

    So the cluster has the parameters that reach beyond the guest. InputError names a value that is not possible.
    """
    said, cluster = parse_description(description), snapshot.cluster
    hypervisor = said.hypervisor or cluster.enabled_hypervisors[0]
    if hypervisor not in cluster.enabled_hypervisors:
        raise InputError(f"{hypervisor!r:.40} is not enabled in the cluster", "hypervisor")
    known = HYPERVISOR_PARAMS[hypervisor]
    given = {
        name: value
        for name, value in said.hvparams.items()
        if name in known and not known[name].touches_host and value != "None"
    }
    own = check_hypervisor_params(hypervisor, given, of_instance=False, field="hvparams")
    sizes = {name: said.beparams[name] for name in ("maxmem", "vcpus") if name in said.beparams}
    backend = {**BACKEND_DEFAULTS, **cluster.beparams.get("default", {}), **check_backend_params(sizes, "beparams")}  # fmt: skip
    return Machine(
        hypervisor,
        {**cluster_hvparams(cluster, hypervisor, said.os), **own},
        int(backend["maxmem"]),
        int(backend["vcpus"]),
    )
