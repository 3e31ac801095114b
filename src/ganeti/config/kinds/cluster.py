"""The cluster itself."""

from collections.abc import Iterator

from ganeti.base.errors import ErrorCode
from ganeti.base.identifiers import host_name
from ganeti.config.kinds.kind import Kind, Problem, name_problems
from ganeti.config.view import View
from ganeti.model.objects import Cluster


def _problems(view: View, cluster: Cluster) -> Iterator[Problem]:
    yield from name_problems(host_name, cluster.name, "cluster name")
    master = view.nodes.get(cluster.master_node)
    if master is None:
        yield ErrorCode.UNKNOWN_ENTITY, f"the master node {cluster.master_node} does not exist"
    elif master.offline:
        yield ErrorCode.WRONG_STATE, f"the master node {master.name} is marked offline"
    elif not master.master_candidate:
        yield ErrorCode.WRONG_STATE, f"the master node {master.name} is not a master candidate"


CLUSTER = Kind("cluster", Cluster, problems=_problems)
