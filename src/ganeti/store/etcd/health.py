"""The problems of each etcd server, from its own reports; needs no quorum."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ganeti.base.errors import ProtocolError
from ganeti.store.etcd.gateway import Gateway, GatewayError
from ganeti.store.etcd.messages import StatusAnswer

LAG_ENTRIES = 1_000
"""Number of entries that a server may lag behind the others while all are asked at the same time."""
NEARLY_FULL = 0.9
_FULL, _DAMAGED, _ALONE = "NOSPACE", "CORRUPT", "no leader"

Seen = Mapping[str, StatusAnswer | str]
"""URL -> the status of the server there, or why it did not answer."""


@dataclass(frozen=True)
class ServerProblem:
    """A problem of a server."""

    text: str
    is_error: bool = True


async def look(gateway: Gateway, urls: Iterable[str]) -> Seen:
    """Ask all servers at the same time."""

    async def ask(url: str) -> StatusAnswer | str:
        try:
            return await gateway.status(url)
        except (GatewayError, ProtocolError) as err:
            return err.message

    wanted = list(dict.fromkeys(urls))
    return dict(zip(wanted, await asyncio.gather(*map(ask, wanted)), strict=True))


def server_problems(seen: Seen, url: str, quota_bytes: int = 0) -> Sequence[ServerProblem]:
    """Return the problems of one server, compared with the others; `quota_bytes` 0: unknown."""
    status = seen[url]
    if isinstance(status, str):
        return (ServerProblem(f"does not answer: {status}"),)
    found: list[ServerProblem] = []
    said = " ".join(status.errors)
    if _FULL in said:
        found.append(
            ServerProblem("is out of space: its quota is used up, and nothing can be written")
        )
    elif quota_bytes and status.dbSize > NEARLY_FULL * quota_bytes:
        used = f"{status.dbSize >> 20} of {quota_bytes >> 20} MiB"
        found.append(ServerProblem(f"is nearly full: {used}", is_error=False))
    if _DAMAGED in said:
        found.append(ServerProblem("reports that its data is damaged"))
    if not status.leader or _ALONE in said:
        found.append(ServerProblem("has no connection to a majority of the others"))
    lag = _greatest(seen) - status.raftIndex
    if lag > LAG_ENTRIES:
        found.append(ServerProblem(f"lags: it has {lag} entries fewer than another server"))
    if status.isLearner:
        found.append(ServerProblem("has no vote yet", is_error=False))
    return found


def successor(seen: Seen, own: str) -> int:
    """Return the member that should lead etcd instead of the server at `own`.

    0 if that server does not lead, or no other one is well.
    """
    status = seen[own]
    if isinstance(status, str) or not status.leader or status.leader != status.header.member_id:
        return 0
    well = [
        one
        for url, one in seen.items()
        if url != own and not isinstance(one, str) and not server_problems(seen, url)
    ]
    return max(well, key=lambda one: one.raftIndex).header.member_id if well else 0


def _greatest(seen: Seen) -> int:
    return max((one.raftIndex for one in seen.values() if not isinstance(one, str)), default=0)
