"""Checks a request to change the cluster's parameters, and computes the result. Pure."""

from collections.abc import Mapping
from ipaddress import ip_address
from typing import Any

from ganeti.base.errors import InputError
from ganeti.model.cluster_params import CLUSTER_PARAMS, UNKNOWN_PARAMS
from ganeti.model.cluster_values import at_most
from ganeti.model.objects import Cluster
from ganeti.model.opcodes.cluster import OpClusterSetParams
from ganeti.model.uid_ranges import AddToUidPool, RemoveFromUidPool


def given_params(op: OpClusterSetParams) -> dict[str, Any]:
    """Return the parameters that a request names, with their requested values."""
    return {name: given for name in CLUSTER_PARAMS if (given := getattr(op, name)) is not None}


def check_cluster_request(op: OpClusterSetParams) -> None:
    """Refuse values that no cluster can have; InputError names the field."""
    for one in UNKNOWN_PARAMS:
        if one.request and getattr(op, one.request) not in (None, [], {}):
            raise InputError("this implementation does not support it", one.request)
    for name, given in given_params(op).items():
        if check := CLUSTER_PARAMS[name].check:
            check(given, name)


def changed_cluster(cluster: Cluster, op: OpClusterSetParams) -> dict[str, Any]:
    """Return the fields of the cluster that change, with their new values."""
    new: dict[str, Any] = {
        name: CLUSTER_PARAMS[name].change(getattr(cluster, name), given, name)
        for name, given in given_params(op).items()
    }
    if op.master_netmask is not None and cluster.master_ip:
        at_most(ip_address(cluster.master_ip).max_prefixlen)(op.master_netmask, "master_netmask")
    new |= _uid_pool(cluster, op, new)
    return {name: value for name, value in new.items() if value != getattr(cluster, name)}


def _uid_pool(cluster: Cluster, op: OpClusterSetParams, new: Mapping[str, Any]) -> dict[str, Any]:
    """Return the pool, overwritten or not, with ids added, then with ids removed (S106)."""
    pool = new.get("uid_pool", cluster.uid_pool)
    if op.add_uids:
        pool = AddToUidPool(pool, op.add_uids)
    if op.remove_uids:
        pool = RemoveFromUidPool(pool, op.remove_uids)
    return {"uid_pool": tuple(pool)}
