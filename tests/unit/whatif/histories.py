"""A made-up history: a node with four instances fails; two are recovered, one has no room, one is not protected."""

from msgspec.structs import replace

from ganeti.model.objects import Instance
from ganeti.whatif.history import (
    GuestChange,
    GuestState,
    History,
    JobRecord,
    NodeChange,
    OpRecord,
)
from ganeti.whatif.source import Source
from ganeti.whatif.sources import file_source

START_S = 2.0
TEXT = """\
default|uuid-of-default|preferred||

node1|16384|512|12288|102400|92160|8|M|uuid-of-default|1||N|0|1|1
node2|16384|512|15872|102400|97280|8|N|uuid-of-default|1||N|0|1|1

web1|512|1024|1|running|Y|node1||sharedfile||1
web2|512|1024|1|running|Y|node1||sharedfile||1
web3|15900|1024|1|running|Y|node1||sharedfile||1
web4|512|1024|1|running|Y|node1||sharedfile||1

"""


def source() -> Source:
    """web1 to web3 are protected."""
    found = file_source(TEXT.encode())
    objects = tuple(
        replace(one, beparams={**one.beparams, "recovery": "failover"})
        if isinstance(one, Instance) and one.name != "web4"
        else one
        for one in found.objects
    )
    return Source(found.kind, found.name, objects, found.sizes, found.notes)


def _failover(number: int, name: str, began: float, *, error: str = "") -> JobRecord:
    status = "error" if error else "success"
    end = began + (1.0 if error else 5.0)
    op = OpRecord(
        f"INSTANCE_FAILOVER({name})", status, began + 0.5, began + 1.0, end, error, bool(error)
    )
    return JobRecord(number, status, began, (op,), end)


def history() -> History:
    one = source()
    made = History(ended=600.0, before=one.objects, after=one.objects,
                   down=frozenset({"node1"}))  # fmt: skip
    for name in ("web1", "web2", "web3", "web4"):
        made.guests.append(GuestChange(-60.0, name, "node1", GuestState.UP))
        made.guests.append(GuestChange(100.0, name, "node1", GuestState.DOWN))
    for at, state in (
        (100, "failed"),
        (106, "suspect"),
        (110, "fencing"),
        (130, "fenced"),
        (131, "offline"),
    ):
        made.nodes.append(NodeChange(float(at), "node1", state))
    made.masters += [(-60.0, "node1"), (100.0, ""), (108.0, "node2")]
    made.jobs += [
        _failover(1, "web1", 132.0),
        _failover(2, "web2", 140.0),
        _failover(
            3, "web3", 132.0, error="no node has enough memory: node2: 540 MiB of memory short"
        ),
    ]
    for name, starts in (("web1", 137.0), ("web2", 145.0)):
        made.guests.append(GuestChange(starts, name, "node2", GuestState.STARTS, START_S))
        made.guests.append(GuestChange(starts + 20.0, name, "node2", GuestState.UP))
    return made
