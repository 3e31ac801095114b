"""A REST server in this process, before a master with a small cluster; asked by hand-made HTTP over TLS."""

import asyncio
import base64
import contextlib
import json
import os
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any

from ganeti.api.luxi_server import LuxiServer
from ganeti.base.certificates import for_rest, new_key
from ganeti.base.clock import SystemClock
from ganeti.base.http_server import HttpServer, Limits, serving
from ganeti.images.uploads import UploadDirectory
from ganeti.web.application import Application
from ganeti.web.audit import Audit
from ganeti.web.events import EventHub
from ganeti.web.logins import Logins
from ganeti.web.master import MasterConnections
from ganeti.web.openid_provider import OpenId
from ganeti.web.resources.every import OPERATIONS
from ganeti.web.scope import allowed
from ganeti.web.server import rest_server, tls_context
from ganeti.web.services import Services
from ganeti.web.sessions import Sessions
from ganeti.web.simulations import Simulations
from ganeti.web.ui_files import UiFiles
from ganeti.web.uploads import Uploads
from ganeti.web.users import Users
from tests.unit.api.masters import Master

REFUSING = (
    "sh",
    "-c",
    """read -r request; echo '{"refused": "no simulations in this test"}'; read -r end""",
)
"""The program of simulations, for tests that need none."""
ADMIN, READER, OPERATOR, GUEST, TENANT = "admin", "reader", "operator", "guest", "tenant"
USERS = """\
# who may do what
admin secret write
reader secret read
operator secret operator
guest secret
tenant secret write,name=web1*
"""


@cache
def certificate_text() -> bytes:
    key = new_key()
    return key + for_rest(key, ["localhost"], ["127.0.0.1"], time.time())


@dataclass
class Answer:
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def explain(self) -> str:
        return str(self.json["explain"])


@dataclass
class RestRig:
    """The server, the master behind it, and a client."""

    master: Master
    server: HttpServer
    services: Services
    users: Path
    audit: Path
    port: int
    context: ssl.SSLContext
    hub: EventHub
    known_users: Users
    writers: list[asyncio.StreamWriter] = field(default_factory=list)
    _kept: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection, closed at the end of the test."""
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", self.port, ssl=self.context, limit=2**25
        )
        self.writers.append(writer)
        return reader, writer

    async def raw(self, data: bytes) -> bytes:
        """Everything that comes back for these bytes, until the server hangs up."""
        reader, writer = await self.connect()
        writer.write(data)
        found = b""
        with contextlib.suppress(ConnectionError):
            await writer.drain()
            async with asyncio.timeout(20):
                found = await reader.read()
        writer.close()
        return found

    async def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        user: str | None = ADMIN,
        headers: dict[str, str] | None = None,
        data: bytes | None = None,
    ) -> Answer:
        """One request, on the connection of the one before where the server has kept it."""
        content = data if data is not None else b"" if body is None else json.dumps(body).encode()
        if self._kept is None or self._kept[0].at_eof():
            self._kept = await self.connect()
        reader, writer = self._kept
        writer.write(request(method, path, content, user, headers or {}))
        async with asyncio.timeout(20):
            head = await reader.readuntil(b"\r\n\r\n")
            answer = parsed(head)
            answer.body = await reader.readexactly(int(answer.headers.get("content-length", 0)))
        if answer.headers.get("connection") == "close":
            writer.close()
            self._kept = None
        return answer


class EventReader:
    """What a client of `/2/events` makes of them: jobs and what has become of them; it may die at any moment."""

    def __init__(self, last: str) -> None:
        self.last = last
        self.jobs: dict[int, str] = {}
        self._anew: dict[int, str] | None = None
        self.numbers: list[tuple[int, ...]] = []

    def cut_off(self) -> None:
        """Forget what was not complete."""
        self._anew = None

    def take(self, kind: str, content: Any, number: str | None) -> None:
        """One event; AssertionError if its number was told before."""
        if kind == "reset":
            self._anew = {}
        elif kind == "job":
            known = self.jobs if self._anew is None else self._anew
            known[content["id"]] = content["status"]
        if kind == "complete":
            assert self._anew is not None
            self.jobs, self._anew = self._anew, None
        elif self._anew is None and content.get("status") not in ("waiting", "canceling"):
            assert number is not None
            place = tuple(map(int, number.split("-")))
            assert place > max(self.numbers, default=(0, 0)), "told twice"
            self.numbers.append(place)
        self.last = number or self.last


def credentials(user: str, password: str = "secret") -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def request(
    method: str, path: str, content: bytes, user: str | None, headers: dict[str, str]
) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost"]
    if user is not None:
        lines.append(f"Authorization: {credentials(user)}")
    if content:
        lines.append(f"Content-Length: {len(content)}")
        if "Content-Type" not in headers:
            lines.append("Content-Type: application/json")
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + content


def parsed(data: bytes) -> Answer:
    head, _, body = data.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = {
        name.lower(): value.strip() for name, _, value in (one.partition(":") for one in lines)
    }
    return Answer(int(first.split()[1]), headers, body)


@asynccontextmanager
async def rest_rig(directory: Path, limits: Limits | None = None) -> AsyncIterator[RestRig]:
    """Everything, for as long as the block runs."""
    master = Master()
    place = UploadDirectory.open(directory / "uploads")
    luxi = LuxiServer(directory / "luxi", master.methods(rest_uid=os.getuid()))
    await luxi.start()
    users, audit = directory / "users", directory / "audit.log"
    users.write_text(USERS)
    certificate = directory / "rapi.pem"
    certificate.write_bytes(certificate_text())
    of_rest = MasterConnections(directory / "luxi")
    hub = EventHub(of_rest)
    known, clock = Users(users), SystemClock()
    openid = OpenId(directory / "openid.yaml", clock)
    known.refresh()
    sessions = Sessions(of_rest, known, openid, clock, lambda: hub.contacts_lost)
    ui = UiFiles(directory / "ui")
    may = partial(allowed, OPERATIONS)
    logins = Logins(known, openid, clock)
    services = Services(
        of_rest,
        logins,
        sessions,
        openid,
        ui,
        Audit(audit),
        may,
        Uploads(place, of_rest, clock),
        hub,
        clock,
    )
    server = rest_server(Application(OPERATIONS, services), limits)
    services.connections = lambda: server.connections
    services.simulations = Simulations(clock, REFUSING)
    context = ssl.create_default_context(cafile=certificate)
    following = asyncio.create_task(hub.run())
    try:
        async with serving(server, "127.0.0.1", 0, tls_context(certificate)) as port:
            rig = RestRig(master, server, services, users, audit, port, context, hub, known)
            yield rig
            await hub.close()
            for writer in rig.writers:
                # Python 3.11.2 forgets the protocol of a connection that is lost.
                with contextlib.suppress(AttributeError):
                    writer.transport.abort()
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        place.close()
        await of_rest.close()
        await luxi.close()
        await master.history.events.close()
        await asyncio.sleep(0.01)  # connections are lost in the loop's next rounds
