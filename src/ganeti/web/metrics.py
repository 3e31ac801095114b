"""`/metrics` and `/metrics/usage` in the text format of Prometheus.

The former has figures of the master and of this server, the latter those of guests and nodes.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ganeti.model.figures import FIGURES, GUEST_MEMORY, Figure
from ganeti.web.application import Text
from ganeti.web.operations import Call

CONTENT_TYPE = "text/plain"
INSTANCES_LIMIT = 2000
"""The bound of series; Prometheus needs some 3 KiB of memory for each."""
_MIB = 1024 * 1024
_GAUGES = {
    "queue": ("jobs", "state", "jobs of the queue, and requests that wait for updates of jobs"),
    "locks": ("locks", "state", "jobs that hold or wait for locks, and locks"),
    "store": ("store", "count", "transactions and syncs of the state store since it was opened"),
    "instances": ("instances", "admin_state", "instances by their desired state"),
    "nodes": ("nodes", "state", "nodes"),
    "recovery_nodes": ("recovery_nodes", "state", "nodes by the state of automatic recovery"),
    "recovery_instances": (
        "recovery_instances",
        "state",
        "protected instances by the state of their recovery",
    ),
}
_PLAIN = {
    "drained": "whether the queue refuses jobs",
    "degraded": "whether an acknowledged write has one copy only",
    "position": "the position of the state",
    "epoch": "the epoch of the master",
    "groups": "node groups",
    "recovery_alarms": "failures that automatic recovery leaves to an administrator",
    "recovery_unarmed_nodes": "watched nodes without an armed watchdog",
}


async def metrics(call: Call) -> Text:
    """Return all figures."""
    found: Mapping[str, Any] = await call.services.master.ask("QueryFigures")
    lines = [
        *_of_master(found),
        *_of_schedules(found.get("schedules") or {}),
        *_of_webhooks(found.get("webhooks") or {}),
        *_of_calls(found.get("calls") or {}),
        *_of_server(call),
    ]
    return Text("\n".join(lines) + "\n", CONTENT_TYPE)


async def usage(call: Call) -> Text:
    """Return the present figures of nodes, and of the first `INSTANCES_LIMIT` instances that run."""
    names = [f"usage.{one.name}" for one in FIGURES]
    of_nodes = [name for name in names if name != f"usage.{GUEST_MEMORY.name}"]
    asked = ["name", *of_nodes, "ndp/memory_goal"]
    nodes = await call.services.master.ask("QueryNodes", [], asked, False)
    instances = await call.services.master.ask(
        "QueryInstances", [], ["name", "pnode", *names], False
    )
    running = [row for row in instances if any(one is not None for one in row[2:])]
    shown = running[:INSTANCES_LIMIT]
    lines = [*_head("usage_instances_omitted", "running instances beyond the limit of this page")]
    lines.append(f"ganeti_usage_instances_omitted {len(running) - len(shown)}")
    by_name = [one for one in FIGURES if one is not GUEST_MEMORY]
    lines += _usage("node", by_name, [(f'node="{_escaped(row[0])}"', row[1:-1]) for row in nodes])
    labels = [
        (f'instance="{_escaped(row[0])}",node="{_escaped(row[1])}"', row[2:]) for row in shown
    ]
    lines += _usage("instance", FIGURES, labels)
    lines += await _memory_goals(call, {row[0]: row[-1] for row in nodes if row[-1]})
    return Text("\n".join(lines) + "\n", CONTENT_TYPE)


async def _memory_goals(call: Call, goals: Mapping[str, int]) -> list[str]:
    """Return what nodes keep free, in MiB, and what guests have given for it; no node is asked without a goal."""
    lines = [*_head("node_memory_goal_bytes", "memory that the node keeps free (memory_goal)")]
    lines += [
        f'ganeti_node_memory_goal_bytes{{node="{_escaped(node)}"}} {goal * _MIB}'
        for node, goal in sorted(goals.items())
    ]
    given = "instance_memory_given_bytes"
    lines += _head(given, "memory that the guest has given for the goal of its node")
    if not goals:
        return lines
    asked = ["name", "pnode", "oper_ram", "oper_ram_before"]
    rows = await call.services.master.ask("QueryInstances", [], asked, False)
    lowered = [row for row in rows if row[1] in goals and row[2] and row[3]]
    for name, node, now, before in lowered[:INSTANCES_LIMIT]:
        labels = f'instance="{_escaped(name)}",node="{_escaped(node)}"'
        lines.append(f"ganeti_{given}{{{labels}}} {max(0, before - now) * _MIB}")
    return lines


def _usage(
    kind: str, figures: Sequence[Figure], rows: Sequence[tuple[str, Sequence[Any]]]
) -> Iterator[str]:
    """Return a metric for each figure; an unknown value has no line."""
    for index, one in enumerate(figures):
        name, factor = f"{kind}_{one.metric}", 1 if one.is_rate else _MIB
        yield from _head(name, one.doc.replace(" in MiB", "").lower())
        for labels, values in rows:
            if values[index] is not None:
                yield f"ganeti_{name}{{{labels}}} {_number(values[index] * factor)}"


def _of_master(found: Mapping[str, Any]) -> Iterator[str]:
    for key, (name, label, text) in _GAUGES.items():
        yield from _head(name, text)
        for of, value in sorted((found.get(key) or {}).items()):
            yield f'ganeti_{name}{{{label}="{_escaped(of)}"}} {_number(value)}'
    for name, text in _PLAIN.items():
        yield from _head(name, text)
        yield f"ganeti_{name} {_number(found.get(name, 0))}"


def _of_schedules(schedules: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Return the figures of schedules; the last backups of the first `INSTANCES_LIMIT` instances."""
    labels = {name: f'schedule="{_escaped(name)}"' for name in sorted(schedules)}
    yield from _head("backup_failures_total", "failed jobs of schedules of backups", "counter")
    for name, label in labels.items():
        yield f"ganeti_backup_failures_total{{{label}}} {_number(schedules[name]['failures'])}"
    yield from _head("backup_instances", "instances by the state of their scheduled backups")
    for name, label in labels.items():
        for state, count in sorted(schedules[name]["states"].items()):
            of = f'{label},state="{_escaped(state)}"'
            yield f"ganeti_backup_instances{{{of}}} {_number(count)}"
    last = [
        (f'{label},instance="{_escaped(instance)}"', at)
        for name, label in labels.items()
        for instance, at in sorted(schedules[name]["last"].items())
    ]
    yield from _head("backup_instances_omitted", "last backups beyond the limit of this page")
    yield f"ganeti_backup_instances_omitted {max(len(last) - INSTANCES_LIMIT, 0)}"
    text = "time of the last good scheduled backup; 0: none"
    yield from _head("backup_last_success_timestamp_seconds", text)
    for label, at in last[:INSTANCES_LIMIT]:
        # As a whole number: the precision of other figures is some seconds here.
        yield f"ganeti_backup_last_success_timestamp_seconds{{{label}}} {int(at)}"


_OF_WEBHOOKS = {
    "requests": (
        "webhook_requests_total",
        "requests of webhooks since the master began",
        "counter",
    ),
    "events": (
        "webhook_events_total",
        "events that receivers of webhooks have accepted",
        "counter",
    ),
    "failures": ("webhook_failures_total", "failed requests of webhooks", "counter"),
    "gaps": ("webhook_gaps", "how often a webhook has lost events", "gauge"),
    "failing": ("webhook_failing", "whether the last request of a webhook has failed", "gauge"),
}


def _of_webhooks(webhooks: Mapping[str, Mapping[str, int]]) -> Iterator[str]:
    for figure, (name, text, kind) in _OF_WEBHOOKS.items():
        yield from _head(name, text, kind)
        for webhook, one in sorted(webhooks.items()):
            yield f'ganeti_{name}{{webhook="{_escaped(webhook)}"}} {_number(one[figure])}'


def _of_calls(calls: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    yield from _head("rpc_seconds", "duration of calls to nodes", "histogram")
    for name, one in sorted(calls.items()):
        total, label = 0, f'procedure="{_escaped(name)}"'
        bounds = [*map(str, one["bounds_s"]), "+Inf"]
        for bound, count in zip(bounds, one["counts"], strict=True):
            total += int(count)
            yield f'ganeti_rpc_seconds_bucket{{{label},le="{bound}"}} {total}'
        yield f"ganeti_rpc_seconds_sum{{{label}}} {_number(one['total_s'])}"
        yield f"ganeti_rpc_seconds_count{{{label}}} {total}"
    yield from _head("rpc_failures_total", "calls to nodes without an answer", "counter")
    for name, one in sorted(calls.items()):
        yield f'ganeti_rpc_failures_total{{procedure="{_escaped(name)}"}} {_number(one["failed"])}'


def _of_server(call: Call) -> Iterator[str]:
    services = call.services
    yield from _head("rest_requests_total", "answered requests", "counter")
    for (method, status), count in sorted(services.requests.items()):
        labels = f'method="{_escaped(method)}",status="{status}"'
        yield f"ganeti_rest_requests_total{{{labels}}} {count}"
    yield from _head("rest_connections", "clients of the REST server")
    yield f"ganeti_rest_connections {services.connections()}"
    yield from _head("rest_subscribers", "clients that listen to events")
    yield f"ganeti_rest_subscribers {services.events.subscribers if services.events else 0}"


def _head(name: str, text: str, kind: str = "gauge") -> Iterator[str]:
    yield f"# HELP ganeti_{name} {text}"
    yield f"# TYPE ganeti_{name} {kind}"


def _escaped(text: object) -> str:
    return str(text).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: object) -> str:
    return format(value, ".10g") if isinstance(value, float) else str(int(str(value)))
