"""Simulations: what would happen to this cluster (`gnt-whatif`)."""

from http import HTTPStatus
from typing import Any

import msgspec

from ganeti.model import wire
from ganeti.model.operation import Right
from ganeti.protocols.simulation_requests import Request
from ganeti.web.application import Text
from ganeti.web.operations import Call, Operation, read
from ganeti.web.refusals import Refusal
from ganeti.web.simulations import Simulation

REPORT_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; sandbox; frame-ancestors 'self'",
}
"""The report has styles and pictures of its own, and neither scripts nor other addresses."""
_SCHEMA = msgspec.json.schema_components([Request])[1]["Request"]
_PATH = "/2/whatif"
_ONE = "/2/whatif/{simulation}"


def _shown(one: Simulation, *, with_report: bool) -> dict[str, Any]:
    found = {
        "id": one.id,
        "name": str(one.request.scenario.get("name", "")),
        "state": one.state,
        "began": one.began,
        "ended": one.ended,
        "seeds": one.request.seeds,
        "done": one.done,
        "error": one.error,
    }
    if with_report:
        report = one.report
        found["report"] = msgspec.Raw(report.encode()) if report else None
    return found


async def _begin(call: Call) -> dict[str, Any]:
    request: Request = wire.convert(call.object_body(), Request, what="body")
    return _shown(await call.services.simulations.begin(call.user.name, request), with_report=False)


async def _list(call: Call) -> list[dict[str, Any]]:
    own = call.services.simulations.of(call.user.name)
    return [_shown(one, with_report=False) for one in own]


def _found(call: Call) -> Simulation:
    return call.services.simulations.find(call.user.name, call.items[0])


async def _one(call: Call) -> dict[str, Any]:
    return _shown(_found(call), with_report=True)


async def _report(call: Call) -> Text:
    one = _found(call)
    if not one.html:
        why = one.error or "it is still running"
        raise Refusal(HTTPStatus.CONFLICT, f"simulation {one.id} has no report: {why}")
    return Text(one.html, "text/html", REPORT_HEADERS)


async def _remove(call: Call) -> None:
    await call.services.simulations.remove(_found(call))


OPERATIONS: tuple[Operation, ...] = (
    Operation("POST", _PATH, "whatif", "Simulate a scenario on a copy of the cluster", Right.READ, _begin,
              body_schema=_SCHEMA, result="object"),
    read(_PATH, "whatif", "List the simulations of the user", _list, right=Right.READ, result="list"),
    read(_ONE, "whatif_name", "Return a simulation, with its report after its end", _one, right=Right.READ),
    read(f"{_ONE}/report", "whatif_name_report", "Return the report of a simulation as a page with pictures", _report,
         right=Right.READ, result="page"),
    Operation("DELETE", _ONE, "whatif_name", "End and remove a simulation", Right.READ, _remove),
)  # fmt: skip
