"""Loads from the reports of monitoring daemons, as a file has them (S181).

An array of objects, one for each node: `node`, and `reports`, a list of report objects with `name` and
`data`. Only `cpu-avg-load` counts: `data.cpu_total`, the node's load, is spread over its running instances by their processors.
"""

from collections.abc import Mapping
from typing import Any, NoReturn

import msgspec

from ganeti.base.errors import InputError
from ganeti.placement.description import RUNNING, Cluster

CPU_REPORT = "cpu-avg-load"
_FIELD = "mond-data"


def node_loads(text: bytes) -> dict[str, float]:
    """Processor load by node; InputError."""
    try:
        found = msgspec.json.decode(text)
    except msgspec.DecodeError as err:
        _refuse(f"is not JSON: {err}")
    if not isinstance(found, list):
        _refuse("is not an array")
    loads = {}
    for number, one in enumerate(found):
        if not isinstance(one, dict) or not isinstance(one.get("node"), str):
            _refuse(f"[{number}] has no node")
        reports = one.get("reports", [])
        if not isinstance(reports, list) or not all(isinstance(each, dict) for each in reports):
            _refuse(f"[{number}].reports is not an array of objects")
        for report in reports:
            if report.get("name") == CPU_REPORT:
                loads[one["node"]] = _total(report.get("data"), number)
    return loads


def _total(data: Any, number: int) -> float:
    total = data.get("cpu_total") if isinstance(data, dict) else None
    if isinstance(total, bool) or not isinstance(total, int | float) or total < 0:
        _refuse(f"[{number}]: the report {CPU_REPORT} has no data.cpu_total")
    return float(total)


def with_loads(cluster: Cluster, loads: Mapping[str, float]) -> Cluster:
    """The cluster with processor loads of the instances on the nodes that reported; the rest stays."""
    processors: dict[str, float] = {}
    running = [one for one in cluster.instances if one.status in RUNNING]
    for one in running:
        processors[one.primary] = processors.get(one.primary, 0.0) + one.vcpus
    utilisation = dict(cluster.utilisation)
    for one in running:
        if one.primary in loads and processors[one.primary]:
            share = loads[one.primary] * one.vcpus / processors[one.primary]
            _cpu, memory, disk, net = utilisation.get(one.name, (1.0, 1.0, 1.0, 1.0))
            utilisation[one.name] = (share, memory, disk, net)
    return msgspec.structs.replace(cluster, utilisation=utilisation)


def _refuse(message: str) -> NoReturn:
    raise InputError(message, _FIELD)
