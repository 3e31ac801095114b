"""The incremental backups that nodes have."""

from typing import Any

from ganeti.model.names import ResultStatus
from ganeti.model.operation import Right
from ganeti.web.operations import Call, Operation, read
from ganeti.web.resources.instances import INSTANCE
from ganeti.web.scope import visible

FIELDS = (
    "node", "target", "instance", "backup", "ctime", "parent", "consistency", "disk_size", "stored", "proof", "checked",
    "drilled", "failure", "problem",
)  # fmt: skip
"""Of a backup; sizes in MiB. `problem` says why its manifest is unusable."""
_NORMAL = ResultStatus.NORMAL.value
_OFFLINE = ResultStatus.OFFLINE.value


async def _all(call: Call) -> dict[str, Any]:
    points, silent, offline = await _points(call)
    names = list(dict.fromkeys(one["instance"] for one in points))
    shown = set(await visible(call, names))
    return _answer([one for one in points if one["instance"] in shown], silent, offline)


async def _of_instance(call: Call) -> dict[str, Any]:
    points, silent, offline = await _points(call)
    return _answer([one for one in points if one["instance"] == call.items[0]], silent, offline)


async def _points(call: Call) -> tuple[list[dict[str, Any]], list[str], list[str]]:
    """Return all backups, and the nodes that did not answer in time and those that are offline, by name."""
    found = await call.services.master.ask("Query", "backup", list(FIELDS), None)
    points, silent, offline = list[dict[str, Any]](), list[str](), list[str]()
    for cells in found["data"]:
        row = dict(zip(FIELDS, cells, strict=True))
        if row["backup"][0] == _NORMAL:
            points.append(
                {
                    name: value if status == _NORMAL else None
                    for name, (status, value) in row.items()
                }
            )
        else:
            (offline if row["backup"][0] == _OFFLINE else silent).append(row["node"][1])
    return points, silent, offline


def _answer(points: list[dict[str, Any]], silent: list[str], offline: list[str]) -> dict[str, Any]:
    return {"points": points, "silent": silent, "offline": offline}


OPERATIONS: tuple[Operation, ...] = (
    read("/2/backups", "backups", "Return the backups on all nodes, and the nodes that did not answer", _all,
         right=Right.READ, is_open=True),
    read(f"{INSTANCE}/backups", "instances_name_backups",
         "Return the backups of an instance, and the nodes that did not answer", _of_instance, right=Right.READ),
)  # fmt: skip
