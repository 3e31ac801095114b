"""Loads for the placement commands from the nodes' monitoring daemons (`--mond`), or from a file of their reports."""

import argparse
import json
import sys
import urllib.request
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ganeti.base.errors import ErrorCode, PrereqError
from ganeti.base.paths import MOND_PORT
from ganeti.base.terminal import say
from ganeti.clients.luxi import LuxiClient
from ganeti.model.data_collectors import CPU_LOAD, XEN_CPU_LOAD

if TYPE_CHECKING:  # msgspec takes longer to load than `--help` may
    from ganeti.placement.description import Cluster

TIMEOUT_S = 10.0
REPORT_LIMIT = 4 * 1024 * 1024
"""Bytes of one report."""
AT_ONCE = 32
YES = "yes"


def monitored(cluster: "Cluster", args: argparse.Namespace, given: bytes | None) -> "Cluster":
    """Return the cluster with the loads of the reports; `given` is the file of `--mond-data`. InputError, PrereqError.

    A collector is used only if every online node has its data; otherwise the nodes without data would look idle.
    """
    from ganeti.placement.load.monitoring import (
        domain_loads,
        node_loads,
        reports_by_node,
        with_domain_loads,
        with_loads,
    )

    if given is None and getattr(args, "mond", "no") != YES:
        return cluster
    wanted = [CPU_LOAD, *([XEN_CPU_LOAD] if getattr(args, "mond_xen", False) else [])]
    live = [node.name for node in cluster.nodes if not node.offline]
    reports = _asked(live, wanted, args) if given is None else reports_by_node(given)
    loads = node_loads(reports)
    if _is_whole(CPU_LOAD, [node for node in live if node not in loads], args):
        cluster = with_loads(cluster, loads)
    if XEN_CPU_LOAD in wanted:
        domains = domain_loads(reports)
        if _is_whole(XEN_CPU_LOAD, [node for node in live if node not in domains], args):
            cluster = with_domain_loads(cluster, domains)
    return cluster


def _is_whole(collector: str, missing: Sequence[str], args: argparse.Namespace) -> bool:
    """Return True if all nodes reported; PrereqError if the reports are required."""
    if missing:
        say(
            f"{_some(missing)} did not report {collector}: this collector is ignored.",
            file=sys.stderr,
        )
        if getattr(args, "mond_required", False):
            raise PrereqError("required monitoring data is missing", ErrorCode.ENVIRONMENT)
    return not missing


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(names[:5])
    return shown if len(names) <= 5 else f"{shown} and {len(names) - 5} more"  # noqa: PLR2004


def _asked(
    nodes: Sequence[str], collectors: Sequence[str], args: argparse.Namespace
) -> dict[str, list[Any]]:
    """Return the report of each node's daemon; a node that does not answer has no report."""
    from concurrent.futures import ThreadPoolExecutor

    addresses = _addresses(args)

    def ask(node: str) -> list[Any]:
        found = []
        for collector in collectors:
            try:
                found.append(_report(addresses.get(node, node), collector))
            except (OSError, ValueError, TypeError) as err:
                what = f"the monitoring daemon of {node} does not report {collector}: {err}"
                say(what, file=sys.stderr)
        return found

    with ThreadPoolExecutor(AT_ONCE) as threads:
        return dict(zip(nodes, threads.map(ask, nodes), strict=True))


def _addresses(args: argparse.Namespace) -> Mapping[str, str]:
    """Return primary addresses by node name if they are known or the master answers; otherwise the names are used."""
    if (known := getattr(args, "addresses", None)) is not None:
        return dict(known)
    if getattr(args, "luxi", None) is None:
        return {}
    with LuxiClient() as client:
        rows = client.query("node", ["name", "pip"])["data"]
    return {name[1]: pip[1] for name, pip in rows if pip[0] == 0}


def _report(address: str, collector: str) -> Any:
    host = f"[{address}]" if ":" in address else address
    url = f"http://{host}:{MOND_PORT}/1/report/default/{collector}"
    # Requests go to the nodes directly, without a proxy of the environment.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(url, timeout=TIMEOUT_S) as answer:
        text = answer.read(REPORT_LIMIT + 1)
    if len(text) > REPORT_LIMIT:
        raise ValueError(f"the report has more than {REPORT_LIMIT} bytes")
    report = json.loads(text)
    if not isinstance(report, dict):
        raise TypeError("the answer is not a report")
    return report
