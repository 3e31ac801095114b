"""All operations of the REST interface."""

from functools import cache

from ganeti.model import wire
from ganeti.model.names import EVENT_KINDS
from ganeti.model.opcode_table import OPCODES
from ganeti.model.operation import Parameter, Right, Value
from ganeti.web.application import Streamed, Text
from ganeti.web.event_stream import stream
from ganeti.web.lists import Encoded, tagged
from ganeti.web.metrics import metrics, usage
from ganeti.web.openapi import PAGE, PAGE_HEADERS, document
from ganeti.web.operations import Call, Operation, operations_of, read
from ganeti.web.resources import (
    accounts,
    backup_keys,
    backups,
    cluster,
    consoles,
    groups,
    history,
    images,
    instances,
    jobs,
    networks,
    nodes,
    schedules,
    session,
    settings,
    simulations,
    webhooks,
)


async def _events(call: Call) -> Streamed:
    return Streamed(lambda request: stream(call, request))


@cache
def _whole_document() -> bytes:
    return wire.encode(document(OPERATIONS))


async def _document(_call: Call) -> Encoded:
    return tagged(_whole_document())


async def _page(_call: Call) -> Text:
    return Text(PAGE, "text/html", PAGE_HEADERS)


OPERATIONS: tuple[Operation, ...] = (
    *cluster.OPERATIONS,
    *accounts.OPERATIONS,
    *nodes.OPERATIONS,
    *instances.OPERATIONS,
    *groups.OPERATIONS,
    *networks.OPERATIONS,
    *images.OPERATIONS,
    *schedules.OPERATIONS,
    *backup_keys.OPERATIONS,
    *webhooks.OPERATIONS,
    *jobs.OPERATIONS,
    *session.OPERATIONS,
    *consoles.OPERATIONS,
    *history.OPERATIONS,
    *settings.OPERATIONS,
    *backups.OPERATIONS,
    *simulations.OPERATIONS,
    *operations_of(OPCODES.values(), {**nodes.BODIES, **instances.BODIES}),
    read("/2/events", "events", "Follow changes of the cluster as server-sent events", _events,
         Parameter("after", Value.TEXT, "only events after this number, like Last-Event-ID"),
         Parameter("kinds", Value.TEXT, f"kinds of events, separated by commas: {', '.join(EVENT_KINDS)}"),
         right=Right.READ, result="events", is_open=True),
    read("/2/openapi.json", "openapi", "Return this document", _document, is_open=True),
    read("/2/docs", "docs", "Return a page that shows the document", _page, result="page", is_open=True),
    read("/metrics", "metrics", "Return figures for Prometheus", metrics, right=Right.READ, result="text"),
    read("/metrics/usage", "metrics_usage", "Return the figures of guests and nodes for Prometheus", usage,
         right=Right.READ, result="text"),
)  # fmt: skip
