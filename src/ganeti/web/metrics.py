"""`/metrics`: figures of the master and of this server in the text format of Prometheus."""

from collections.abc import Iterator, Mapping
from typing import Any

from ganeti.web.application import Text
from ganeti.web.operations import Call

CONTENT_TYPE = "text/plain"
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
    lines = [*_of_master(found), *_of_calls(found.get("calls") or {}), *_of_server(call)]
    return Text("\n".join(lines) + "\n", CONTENT_TYPE)


def _of_master(found: Mapping[str, Any]) -> Iterator[str]:
    for key, (name, label, text) in _GAUGES.items():
        yield from _head(name, text)
        for of, value in sorted((found.get(key) or {}).items()):
            yield f'ganeti_{name}{{{label}="{_escaped(of)}"}} {_number(value)}'
    for name, text in _PLAIN.items():
        yield from _head(name, text)
        yield f"ganeti_{name} {_number(found.get(name, 0))}"


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
