"""The check of the user that an instance's process runs as, without any node."""

from ganeti.base.errors import ErrorCode, PrereqError
from ganeti.config.fill import filled_hvparams
from ganeti.model.confinement import confinement_problems
from ganeti.model.objects import Instance
from ganeti.units.context import UnitContext


def check_confinement(ctx: UnitContext, instance: Instance) -> None:
    """Refuse a user without a name, a name without use, and a pool without ids."""
    cluster = ctx.snapshot.cluster
    hvparams = filled_hvparams(cluster, instance)
    if found := confinement_problems(hvparams, has_pool=bool(cluster.uid_pool)):
        raise PrereqError(f"hvparams.{'; '.join(found)}", ErrorCode.WRONG_INPUT)
