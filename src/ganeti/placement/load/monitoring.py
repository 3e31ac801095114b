"""Loads from the reports of monitoring daemons (S181).

A file is an array of objects, one for each node: `node`, and `reports`, a list of report objects with `name` and
`data`. Of `cpu-avg-load` only `data.cpu_total` is used: the node's load, distributed by processors over its running
instances and the node. Of `xen-cpu-avg-load` the load of each instance is used.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import msgspec

from ganeti.base.errors import InputError
from ganeti.model.data_collectors import CPU_LOAD, XEN_CPU_LOAD
from ganeti.placement.description import RUNNING, SWITCHED_OFF, Cluster

_FIELD = "mond-data"
_NO_LOADS = (1.0, 1.0, 1.0, 1.0)

Reports = Mapping[str, Sequence[Mapping[str, Any]]]
"""Report objects by node."""


def reports_by_node(text: bytes) -> dict[str, list[Any]]:
    """Return the reports of a file; InputError if it is malformed."""
    try:
        found = msgspec.json.decode(text)
    except msgspec.DecodeError as err:
        _refuse(f"is not JSON: {err}")
    if not isinstance(found, list):
        _refuse("must be an array")
    by_node: dict[str, list[Any]] = {}
    for number, one in enumerate(found):
        if not isinstance(one, dict) or not isinstance(one.get("node"), str):
            _refuse(f"[{number}] has no node")
        reports = one.get("reports", [])
        if not isinstance(reports, list) or not all(isinstance(each, dict) for each in reports):
            _refuse(f"[{number}].reports must be an array of objects")
        by_node.setdefault(one["node"], []).extend(reports)
    return by_node


def node_loads(reports: Reports) -> dict[str, float]:
    """Return the processor load of each node that reports one; InputError if a report is malformed."""
    return {
        node: _load(data.get("cpu_total"), f"{CPU_LOAD} of {node}: data.cpu_total")
        for node, data in _data(reports, CPU_LOAD).items()
    }


def domain_loads(reports: Reports) -> dict[str, dict[str, float]]:
    """Return, by node that reports any, the processor load of each of its instances; InputError."""
    return {
        node: {
            name: _load(value, f"{XEN_CPU_LOAD} of {node}: {name:.80}")
            for name, value in data.items()
        }
        for node, data in _data(reports, XEN_CPU_LOAD).items()
    }


def _data(reports: Reports, name: str) -> dict[str, Mapping[str, Any]]:
    """Return the data of one collector by node; a collector that failed has no data."""
    found: dict[str, Mapping[str, Any]] = {}
    for node, every in reports.items():
        for report in every:
            if report.get("name") == name:
                data = report.get("data")
                if not isinstance(data, dict):
                    _refuse(f"{name} of {node}: data must be an object")
                if "error" not in data:
                    found[node] = data
    return found


def _load(value: Any, what: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
        _refuse(f"{what} must be a number that is not negative")
    return float(value)


def with_loads(cluster: Cluster, loads: Mapping[str, float]) -> Cluster:
    """Return the cluster with processor loads of the instances on the nodes that reported; the rest is unchanged."""
    processors = {node.name: node.node_cpus for node in cluster.nodes}
    for one in cluster.instances:
        if one.status != SWITCHED_OFF:
            processors[one.primary] = processors.get(one.primary, 0.0) + one.vcpus
    running = [one for one in cluster.instances if one.status in RUNNING]
    each = {node: loads[node] / processors[node] for node in loads if processors.get(node)}
    nodes = [
        msgspec.structs.replace(node, own_load=each[node.name] * node.node_cpus)
        if node.name in each
        else node
        for node in cluster.nodes
    ]
    return _with_processor_loads(
        msgspec.structs.replace(cluster, nodes=nodes),
        {one.name: each[one.primary] * one.vcpus for one in running if one.primary in each},
    )


def with_domain_loads(cluster: Cluster, loads: Mapping[str, Mapping[str, float]]) -> Cluster:
    """Return the cluster with each processor load that an instance's primary node reported; the rest is unchanged."""
    return _with_processor_loads(
        cluster,
        {
            one.name: loads[one.primary][one.name]
            for one in cluster.instances
            if one.name in loads.get(one.primary, {})
        },
    )


def _with_processor_loads(cluster: Cluster, loads: Mapping[str, float]) -> Cluster:
    utilisation = dict(cluster.utilisation)
    for name, load in loads.items():
        _cpu, memory, disk, net = utilisation.get(name, _NO_LOADS)
        utilisation[name] = (load, memory, disk, net)
    return msgspec.structs.replace(cluster, utilisation=utilisation)


def _refuse(message: str) -> NoReturn:
    raise InputError(message, _FIELD)
