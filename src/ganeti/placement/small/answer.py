"""Allocations in small clusters, answered as `answers` does."""

from typing import Any

from ganeti.base.errors import PrereqError
from ganeti.placement.description import Cluster
from ganeti.placement.load.message import wanted_instance
from ganeti.placement.places import Rules, accepted, describe_choice
from ganeti.placement.small.cluster import Small
from ganeti.placement.small.search import Search


def quick_answer(cluster: Cluster, request: dict[str, Any], rules: Rules) -> dict[str, Any] | None:
    """Answer a successful allocation in a small cluster of one group; None if the arrays must answer."""
    is_plain = request.get("type") == "allocate" and not request.keys() & _LIMITS
    if not is_plain or rules.only_nodes is not None or len(cluster.groups) != 1:
        return None
    small = Small.described(cluster)
    if small is None or cluster.groups[0].alloc_policy == "unallocable":
        return None
    try:
        wanted = wanted_instance(request)
    except PrereqError:
        return None
    if wanted.networks or wanted.tags:
        return None
    small.admit(wanted)
    if small.amounts[-1].is_shared:
        return None
    open_ = [not offline for offline in small.offline]
    if sum(open_) < wanted.nodes_needed:
        return None
    place, _scores = Search(small, open_, rules).run()
    if not place.nodes:
        return None
    names = [small.nodes[node].name for node in place.nodes]
    return accepted(describe_choice(small, place, [place]), names)


_LIMITS = {"group_name", "restrict-to-nodes"}
