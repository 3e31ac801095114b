"""Instance policies: the one check that every operation makes which creates, changes or moves an instance."""

from collections.abc import Mapping, Sequence
from typing import Any

from ganeti.base.errors import ErrorCode, PrereqError
from ganeti.config.fill import filled_ipolicy
from ganeti.config.snapshot import Snapshot
from ganeti.model.objects import Instance, NodeGroup
from ganeti.placement.policy import policy_violations
from ganeti.units.context import UnitContext
from ganeti.units.demand import Demand
from ganeti.units.instance.access import primary_node


def policy_breaches(snapshot: Snapshot, instance: Instance, policy: Mapping[str, Any]) -> list[str]:
    """What of an instance a policy forbids, a sentence each."""
    return policy_violations(policy, Demand.of(snapshot.cluster, instance).size())


def check_instance_policy(
    ctx: UnitContext, instance: Instance, *, ignore: bool, groups: Sequence[NodeGroup] = ()
) -> None:
    """Refuse what the policies of all `groups` forbid (S235), with `ignore` only say it.

    Without groups it is the group of the instance's node.
    """
    snapshot = ctx.snapshot
    wrong = []
    for group in groups or (snapshot.groups[primary_node(ctx, instance).group],):
        found = policy_breaches(snapshot, instance, filled_ipolicy(snapshot.cluster, group))
        if not found:
            return
        wrong.append(f"violates the policy of group {group.name}: {'; '.join(found)}")
    what = f"instance {instance.name} {', and it '.join(wrong)}"
    if not ignore:
        raise PrereqError(f"{what} (--ignore-ipolicy overrides)", ErrorCode.WRONG_INPUT)
    ctx.warn(what)
