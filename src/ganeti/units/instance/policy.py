"""Instance policies, for instances that exist."""

from collections.abc import Mapping
from typing import Any

from ganeti.base.errors import ErrorCode, PrereqError
from ganeti.config.fill import filled_ipolicy
from ganeti.config.snapshot import Snapshot
from ganeti.model.objects import Instance
from ganeti.placement.policy import policy_violations
from ganeti.units.context import UnitContext
from ganeti.units.demand import Demand
from ganeti.units.instance.access import primary_node


def policy_breaches(snapshot: Snapshot, instance: Instance, policy: Mapping[str, Any]) -> list[str]:
    """What of an instance a policy forbids, a sentence each."""
    return policy_violations(policy, Demand.of(snapshot.cluster, instance).size())


def check_instance_policy(ctx: UnitContext, instance: Instance, *, ignore: bool) -> None:
    """Refuse what the policy of its node's group forbids; with `ignore` only say it."""
    snapshot = ctx.snapshot
    group = snapshot.groups[primary_node(ctx, instance).group]
    policy = filled_ipolicy(snapshot.cluster, group)
    wrong = "; ".join(policy_breaches(snapshot, instance, policy))
    if not wrong:
        return
    what = f"instance {instance.name} violates the policy of group {group.name}: {wrong}"
    if not ignore:
        raise PrereqError(f"{what} (--ignore-ipolicy overrides)", ErrorCode.WRONG_INPUT)
    ctx.warn(what)
