"""What is wrong with each of etcd's servers, as they say themselves; it needs no quorum."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ganeti.base.errors import ProtocolError
from ganeti.store.etcd.gateway import Gateway, GatewayError
from ganeti.store.etcd.messages import StatusAnswer

LAG_ENTRIES = 1_000
"""How many entries a server may be behind the others while they are asked one beside the other."""
NEARLY_FULL = 0.9
_FULL, _DAMAGED, _ALONE = "NOSPACE", "CORRUPT", "no leader"

Seen = Mapping[str, StatusAnswer | str]
"""URL -> what the server there says, or why it says nothing."""


@dataclass(frozen=True)
class Trouble:
    """One thing that is wrong with a server."""

    text: str
    is_error: bool = True


async def look(gateway: Gateway, urls: Iterable[str]) -> Seen:
    """Ask all at once."""

    async def ask(url: str) -> StatusAnswer | str:
        try:
            return await gateway.status(url)
        except (GatewayError, ProtocolError) as err:
            return err.message

    wanted = list(dict.fromkeys(urls))
    return dict(zip(wanted, await asyncio.gather(*map(ask, wanted)), strict=True))


def troubles(seen: Seen, url: str, quota_bytes: int = 0) -> Sequence[Trouble]:
    """Of one server, beside the others; `quota_bytes` 0: it is not known."""
    status = seen[url]
    if isinstance(status, str):
        return (Trouble(f"does not answer: {status}"),)
    found: list[Trouble] = []
    said = " ".join(status.errors)
    if _FULL in said:
        found.append(Trouble("is out of space: its quota is used up, and nothing can be written"))
    elif quota_bytes and status.dbSize > NEARLY_FULL * quota_bytes:
        used = f"{status.dbSize >> 20} of {quota_bytes >> 20} MiB"
        found.append(Trouble(f"is nearly full: {used}", is_error=False))
    if _DAMAGED in said:
        found.append(Trouble("says that its data is damaged"))
    if not status.leader or _ALONE in said:
        found.append(Trouble("has no connection to a majority of the others"))
    lag = _greatest(seen) - status.raftIndex
    if lag > LAG_ENTRIES:
        found.append(Trouble(f"lags: it has {lag} entries less than another one"))
    if status.isLearner:
        found.append(Trouble("has no vote yet", is_error=False))
    return found


def _greatest(seen: Seen) -> int:
    return max((one.raftIndex for one in seen.values() if not isinstance(one, str)), default=0)
