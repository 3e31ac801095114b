"""Instance policies: the one check for all operations that create, change or move an instance."""

from collections.abc import Sequence

from ganeti.base.errors import ErrorCode, PrereqError
from ganeti.config.fill import filled_ipolicy, is_exclusive
from ganeti.model.objects import Cluster, Instance, NodeGroup
from ganeti.placement.policy import policy_violations
from ganeti.units.context import UnitContext
from ganeti.units.demand import Demand
from ganeti.units.instance.access import primary_node


def policy_breaches(cluster: Cluster, group: NodeGroup | None, instance: Instance) -> list[str]:
    """Return the violations of a group's policy (None: the cluster's) by an instance, a sentence each."""
    size = Demand.of(cluster, instance).size(exclusive=is_exclusive(cluster, group))
    return policy_violations(filled_ipolicy(cluster, group), size)


def check_instance_policy(
    ctx: UnitContext, instance: Instance, *, ignore: bool, groups: Sequence[NodeGroup] = ()
) -> None:
    """Refuse what the policies of all `groups` forbid (S235); with `ignore` only warn.

    The default is the group of the instance's node.
    """
    snapshot = ctx.snapshot
    wrong = []
    for group in groups or (snapshot.groups[primary_node(ctx, instance).group],):
        found = policy_breaches(snapshot.cluster, group, instance)
        if not found:
            return
        wrong.append(f"violates the policy of group {group.name}: {'; '.join(found)}")
    what = f"instance {instance.name} {', and it '.join(wrong)}"
    if not ignore:
        raise PrereqError(f"{what} (--ignore-ipolicy overrides)", ErrorCode.WRONG_INPUT)
    ctx.warn(what)
