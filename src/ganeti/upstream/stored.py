"""Import and export of the common part of every object."""

from collections.abc import Mapping
from typing import Any

from ganeti.base.errors import InputError
from ganeti.base.identifiers import is_uuid, tag_text
from ganeti.model.job_filter import JobFilter
from ganeti.model.objects import Cluster, DetachedDisk, Image, Instance, Network, Node, NodeGroup
from ganeti.model.param import Param
from ganeti.model.params import Params
from ganeti.model.stored import Stored
from ganeti.upstream.choices import Reading
from ganeti.upstream.forms import Document
from ganeti.upstream.report import Judge

KIND_WORDS: dict[type[Stored], str] = {
    Cluster: "clusters",
    NodeGroup: "groups",
    Node: "nodes",
    Network: "networks",
    Instance: "instances",
    DetachedDisk: "detached disks",
    Image: "images",
    JobFilter: "filters",
}
"""The names of types in a report."""
STORED = {"uuid", "serial_no", "ctime", "mtime", "tags"}


def read_stored(reading: Reading, what: str, given: Document) -> dict[str, Any]:
    """Return UUID, serial number and times."""
    uuid = given.get("uuid")
    if not isinstance(uuid, str) or not is_uuid(uuid):
        reading.refuse(what, "uuid", f"{uuid!r:.60} is not a UUID")
    serial = given.get("serial_no")
    return {
        "uuid": str(uuid),
        "serial_no": serial if isinstance(serial, int) and serial > 0 else 1,
        "ctime": _time(given.get("ctime")),
        "mtime": _time(given.get("mtime")),
    }


def _time(given: Any) -> float:
    return float(given) if isinstance(given, int | float) else 0.0


def read_tags(reading: Reading, what: str, given: Document) -> tuple[str, ...]:
    """Return tags, in alphabetical order."""
    found = set()
    for tag in given.get("tags") or ():
        try:
            found.add(tag_text(str(tag), "tags"))
        except InputError as err:
            reading.unknown(what, "tags", err.message)
    return tuple(sorted(found))


def written_params(
    judge: Judge, what: str, field: str, known: Mapping[str, Param], given: Params
) -> Params:
    """Return parameters without those that upstream does not have, which are reported."""
    found = {}
    for name, value in given.items():
        if known[name].is_upstream:
            found[name] = value
        else:
            judge.keep(
                what, f"{field}.{name}", f"upstream Ganeti has no such parameter; it was {value!r}"
            )
    return found


def written_stored(thing: Stored) -> Document:
    """Return UUID, serial number, times, tags."""
    return {
        "uuid": thing.uuid,
        "serial_no": thing.serial_no,
        "ctime": thing.ctime,
        "mtime": thing.mtime,
        "tags": sorted(thing.tags),
    }
