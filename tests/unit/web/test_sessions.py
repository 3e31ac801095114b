"""Sessions of browsers, login links, and the files of the console."""

import asyncio
import gzip
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from ganeti.base.errors import NotMaster
from ganeti.web.openid_provider import OpenId
from ganeti.web.sessions import COOKIE, LONGEST_S, SESSIONS_LIMIT, SESSIONS_OF_USER, Sessions
from ganeti.web.ui_files import NOT_BUILT
from ganeti.web.users import Users
from tests.support.predictable import FrozenClock
from tests.support.rest import ADMIN, READER, TENANT, Answer, RestRig

HERE = {"Origin": "https://localhost", "Sec-Fetch-Site": "same-origin"}


def cookie_of(answer: Answer) -> str:
    return answer.headers["set-cookie"].partition(";")[0]


async def login(rig: RestRig, user: str = ADMIN) -> tuple[dict[str, str], Any]:
    """Headers of a browser that has logged in, and what the server told it."""
    body = {"username": user, "password": "secret"}
    answer = await rig.ask("POST", "/2/session", body, user=None, headers=HERE)
    assert answer.status == 200, answer.body
    csrf = answer.json["csrf"]
    return {**HERE, "Cookie": cookie_of(answer), "X-Csrf-Token": csrf}, answer.json


async def test_login_returns_a_cookie_that_no_script_and_no_other_site_gets(rig: RestRig) -> None:
    body = {"username": ADMIN, "password": "secret"}
    answer = await rig.ask("POST", "/2/session", body, user=None, headers=HERE)
    name, *attributes = answer.headers["set-cookie"].split("; ")
    assert name.startswith("__Host-ganeti-session=")
    assert set(attributes) == {"Path=/", "Secure", "HttpOnly", "SameSite=Strict"}
    assert answer.headers["cache-control"] == "no-store"
    assert answer.json["user"] == ADMIN
    assert answer.json["rights"] == ["known", "read", "operate", "write"]
    assert "post_instances" in answer.json["operations"]
    assert not answer.json["limited"]


@pytest.mark.requirement("A1", "A67")
async def test_wrong_login_gets_401_without_cookie_or_challenge(rig: RestRig) -> None:
    for body in (
        {"username": ADMIN, "password": "wrong"},
        {"username": "nobody", "password": "secret"},
        {"token": "secret"},
        {"link": "secret"},
    ):
        answer = await rig.ask("POST", "/2/session", body, user=None, headers=HERE)
        assert answer.status == 401
        assert not {"set-cookie", "www-authenticate"} & answer.headers.keys()
    assert not rig.audit.exists() or "wrong" not in rig.audit.read_text()
    assert rig.services.sessions.count == 0


@pytest.mark.parametrize(
    "body",
    [{}, {"username": ADMIN}, {"username": 1, "password": "x"}, {"username": "a:b", "password": "x"},
     {"token": "a", "link": "b"}, {"token": None}, [], "x"],
)  # fmt: skip
async def test_malformed_login_is_refused(rig: RestRig, body: Any) -> None:
    assert (await rig.ask("POST", "/2/session", body, user=None)).status == 400


async def test_long_login_is_refused_before_it_is_read(rig: RestRig) -> None:
    answer = await rig.ask("POST", "/2/session", {"token": "x" * 10_000}, user=None)
    assert answer.status == 413


@pytest.mark.requirement("A67")
async def test_login_by_a_page_of_another_site_is_refused(rig: RestRig) -> None:
    other = {"Origin": "https://evil.example.com", "Sec-Fetch-Site": "cross-site"}
    body = {"username": ADMIN, "password": "secret"}
    assert (await rig.ask("POST", "/2/session", body, user=None, headers=other)).status == 403


@pytest.mark.requirement("A67")
async def test_change_by_cookie_needs_the_token_and_the_own_site(rig: RestRig) -> None:
    browser, told = await login(rig)
    path = "/2/instances/web1.example.com/reboot"
    without = {name: value for name, value in browser.items() if name != "X-Csrf-Token"}
    for headers in (
        without,
        {**browser, "X-Csrf-Token": told["csrf"][:-1] + "x"},
        {**browser, "X-Csrf-Token": "\u00e9"},
        {**browser, "Origin": "https://evil.example.com", "Sec-Fetch-Site": "cross-site"},
    ):
        answer = await rig.ask("POST", path, user=None, headers=headers)
        assert answer.status == 403
    assert rig.master.queue.submitted == []
    assert (await rig.ask("POST", path, user=None, headers=browser)).status == 200
    assert rig.master.queue.submitters[0].source == "rest:admin"


async def test_reading_by_cookie_needs_no_token(rig: RestRig) -> None:
    browser, _ = await login(rig, READER)
    only = {"Cookie": browser["Cookie"]}
    assert (await rig.ask("GET", "/2/instances", user=None, headers=only)).status == 200
    shown = await rig.ask("GET", "/2/session", user=None, headers=only)
    assert shown.json["user"] == READER
    assert shown.json["csrf"] == browser["X-Csrf-Token"]


@pytest.mark.requirement("A2", "A67")
async def test_session_has_only_the_rights_of_its_user(rig: RestRig) -> None:
    browser, told = await login(rig, READER)
    assert "post_instances" not in told["operations"]
    path = "/2/instances/web1.example.com/reboot"
    assert (await rig.ask("POST", path, user=None, headers=browser)).status == 403
    browser, told = await login(rig, TENANT)
    assert told["limited"]
    assert "get_nodes" not in told["operations"]
    assert (await rig.ask("GET", "/2/nodes", user=None, headers=browser)).status == 403
    other = "/2/instances/db1.example.com"
    assert (await rig.ask("GET", other, user=None, headers=browser)).status == 404


@pytest.mark.requirement("A67")
async def test_unknown_and_doubled_cookies_are_refused(rig: RestRig) -> None:
    for value in ("", "x", "x" * 5000, "\u00e9", "../x"):
        headers = {"Cookie": f"{COOKIE}={value}"}
        assert (await rig.ask("GET", "/2/instances", user=None, headers=headers)).status == 401
    browser, _ = await login(rig)
    twice = {"Cookie": f"{browser['Cookie']}; {COOKIE}=other"}
    assert (await rig.ask("GET", "/2/instances", user=None, headers=twice)).status == 400


async def test_logout_ends_one_session_or_all_of_the_user(rig: RestRig) -> None:
    first, _ = await login(rig)
    second, _ = await login(rig)
    third, _ = await login(rig)
    reader, _ = await login(rig, READER)
    answer = await rig.ask("DELETE", "/2/session", user=None, headers=first)
    assert "Max-Age=0" in answer.headers["set-cookie"]
    states = [await _status(rig, one) for one in (first, second, third, reader)]
    assert states == [401, 200, 200, 200]
    await rig.ask("DELETE", "/2/session?everywhere=1", user=None, headers=second)
    states = [await _status(rig, one) for one in (second, third, reader)]
    assert states == [401, 401, 200]
    assert (await rig.ask("DELETE", "/2/session")).status == 400


async def _status(rig: RestRig, headers: dict[str, str]) -> int:
    return (await rig.ask("GET", "/2/instances", user=None, headers=headers)).status


async def test_end_of_a_session_ends_its_event_stream(rig: RestRig) -> None:
    browser, _ = await login(rig)
    reader, writer = await rig.connect()
    lines = ["GET /2/events HTTP/1.1", "Host: localhost", f"Cookie: {browser['Cookie']}", "", ""]
    writer.write("\r\n".join(lines).encode())
    await reader.readuntil(b": welcome\n\n")
    await rig.ask("DELETE", "/2/session?everywhere=1", user=None, headers=browser)
    async with asyncio.timeout(20):
        await reader.read()  # until the server hangs up


async def test_session_ends_when_its_user_gets_another_password(rig: RestRig) -> None:
    browser, _ = await login(rig)
    rig.users.write_text("admin other write\n")
    rig.known_users.refresh()
    assert await _status(rig, browser) == 401


async def test_new_rights_apply_to_old_sessions(rig: RestRig) -> None:
    browser, _ = await login(rig)
    rig.users.write_text("admin secret read\n")
    rig.known_users.refresh()
    path = "/2/instances/web1.example.com/reboot"
    assert (await rig.ask("POST", path, user=None, headers=browser)).status == 403
    rig.users.write_text("reader secret read\n")
    rig.known_users.refresh()
    assert await _status(rig, browser) == 401


async def test_page_without_a_session_gets_null(rig: RestRig) -> None:
    for headers in ({}, {"Cookie": f"{COOKIE}=x"}):
        answer = await rig.ask("GET", "/2/session", user=None, headers=headers)
        assert (answer.status, answer.json) == (200, None)


# Links


async def test_link_logs_in_once(rig: RestRig) -> None:
    secret = rig.master.links.make(READER, "", 600)
    answer = await rig.ask("POST", "/2/session", {"link": secret}, user=None, headers=HERE)
    assert answer.json["user"] == READER
    again = await rig.ask("POST", "/2/session", {"link": secret}, user=None, headers=HERE)
    assert again.status == 401
    assert "console-link" in again.explain


async def test_link_for_a_role_needs_no_users_file(rig: RestRig) -> None:
    rig.users.unlink()
    rig.known_users.refresh()
    secret = rig.master.links.make("", "operator", 600)
    answer = await rig.ask("POST", "/2/session", {"link": secret}, user=None, headers=HERE)
    assert answer.json["user"] == "link:operator"
    assert answer.json["rights"] == ["known", "read", "operate"]
    browser = {"Cookie": cookie_of(answer)}
    assert (await rig.ask("GET", "/2/instances", user=None, headers=browser)).status == 200


@pytest.mark.requirement("A67")
async def test_old_link_and_link_of_an_unknown_user_are_refused(rig: RestRig) -> None:
    old = rig.master.links.make(READER, "", -1)
    unknown = rig.master.links.make("nobody", "", 600)
    for secret in (old, unknown):
        answer = await rig.ask("POST", "/2/session", {"link": secret}, user=None, headers=HERE)
        assert answer.status == 401


# The table of sessions, by the clock


@dataclass
class Kept:
    """A master that stores the sessions, or not."""

    text: str = ""
    is_silent: bool = False
    stored: int = 0
    calls: list[str] = field(default_factory=list)

    async def ask(self, method: str, *_args: Any) -> Any:
        await asyncio.sleep(0)
        if self.is_silent:
            raise NotMaster("another node is the master")
        self.calls.append(method)
        return self.text

    async def submit(self, method: str, *args: Any) -> Any:
        await self.ask(method)
        (self.text,) = args
        self.stored += 1


@dataclass
class Table:
    master: Kept
    clock: FrozenClock
    users: Users
    openid: OpenId
    lost: int = 0

    def sessions(self) -> Sessions:
        return Sessions(self.master, self.users, self.openid, self.clock, lambda: self.lost)

    def user(self, name: str = ADMIN) -> Any:
        return self.users.of_name(name, self.clock.time())


@pytest.fixture
def table(tmp_path: Path) -> Table:
    (tmp_path / "users").write_text("admin secret write\nreader secret read,until=2100-01-01\n")
    users = Users(tmp_path / "users")
    users.refresh()
    clock = FrozenClock()
    return Table(Kept(), clock, users, OpenId(tmp_path / "openid.yaml", clock))


async def test_session_ends_after_idle_time_and_at_its_longest(table: Table) -> None:
    sessions = table.sessions()
    secret, session = await sessions.begin(table.user())
    for _ in range(4):
        table.clock.now += sessions.idle_s - 1
        assert await sessions.find(secret)
        sessions.use(session)
    table.clock.now += sessions.idle_s + 1
    assert await sessions.find(secret) is None
    secret, session = await sessions.begin(table.user())
    table.clock.now += LONGEST_S - 1
    sessions.use(session)
    assert await sessions.find(secret)
    table.clock.now += 2
    assert await sessions.find(secret) is None
    await sessions.look()
    assert sessions.count == 0
    assert table.master.text == "[]"


async def test_stored_sessions_have_no_secret(table: Table) -> None:
    secret, _ = await table.sessions().begin(table.user())
    assert secret not in table.master.text
    assert "secret" not in table.master.text


async def test_sessions_survive_a_restart_and_a_change_of_master(table: Table) -> None:
    first = table.sessions()
    secret, session = await first.begin(table.user())
    table.clock.now += 600
    first.use(session)
    await first.look()  # stores the later use
    table.clock.now += first.idle_s - 1
    second = table.sessions()
    found = await second.find(secret)
    assert found
    assert found[0].name == ADMIN
    await second.end(found[1], everywhere=False)
    assert await first.find(secret)  # nothing has told it yet
    table.lost += 1
    assert await first.find(secret) is None


async def test_login_fails_if_the_master_cannot_store_it(table: Table) -> None:
    sessions = table.sessions()
    table.master.is_silent = True
    with pytest.raises(NotMaster):
        await sessions.begin(table.user())
    assert sessions.count == 0


async def test_logout_holds_here_even_if_the_master_cannot_store_it(table: Table) -> None:
    sessions = table.sessions()
    secret, session = await sessions.begin(table.user())
    table.master.is_silent = True
    with pytest.raises(NotMaster):
        await sessions.end(session, everywhere=False)
    assert await sessions.find(secret) is None
    await sessions.look()  # must not end the server's round


async def test_number_of_sessions_is_bounded(table: Table) -> None:
    sessions = table.sessions()
    first, _ = await sessions.begin(table.user())
    for _ in range(SESSIONS_OF_USER):
        table.clock.now += 1
        await sessions.begin(table.user())
    assert sessions.count == SESSIONS_OF_USER
    assert await sessions.find(first) is None
    assert SESSIONS_LIMIT * 400 < 512 * 1024  # the master's limit of the text


async def test_unreadable_sessions_are_none(table: Table) -> None:
    table.master.text = '[["x"]]'
    assert await table.sessions().find("x") is None


# Files


@pytest.fixture
def ui(rig: RestRig, tmp_path: Path) -> Path:
    del rig
    directory = tmp_path / "ui"
    (directory / "assets").mkdir(parents=True)
    (directory / "index.html").write_text("<!DOCTYPE html><title>console</title>")
    (directory / "assets" / "app-1234.js").write_text("let a = 1;\n" * 1000)
    (tmp_path / "secret.txt").write_text("secret")
    (directory / "assets" / "link.js").symlink_to(tmp_path / "secret.txt")
    return directory


async def test_page_without_console_says_how_to_get_it(rig: RestRig) -> None:
    answer = await rig.ask("GET", "/ui/", user=None)
    assert answer.status == 503
    assert answer.body.decode() == NOT_BUILT
    assert "make console" in NOT_BUILT


@pytest.mark.usefixtures("ui")
async def test_files_are_served_without_login_and_cached_by_their_kind(rig: RestRig) -> None:
    page = await rig.ask("GET", "/ui/", user=None)
    assert b"<title>console" in page.body
    assert page.headers["cache-control"] == "no-cache"
    policy = page.headers["content-security-policy"]
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    same = await rig.ask("GET", "/ui/", user=None, headers={"If-None-Match": page.headers["etag"]})
    assert same.status == 304
    deep = await rig.ask("GET", "/ui/instances/web1?tab=disks", user=None)
    assert deep.body == page.body
    script = await rig.ask("GET", "/ui/assets/app-1234.js", user=None)
    assert "immutable" in script.headers["cache-control"]
    assert script.headers["content-type"].startswith("text/javascript")
    packed = await rig.ask(
        "GET", "/ui/assets/app-1234.js", user=None, headers={"Accept-Encoding": "br, gzip"}
    )
    assert packed.headers["content-encoding"] == "gzip"
    assert gzip.decompress(packed.body) == script.body
    plain = await rig.ask(
        "GET", "/ui/assets/app-1234.js", user=None, headers={"Accept-Encoding": "gzip;q=0"}
    )
    assert "content-encoding" not in plain.headers


@pytest.mark.requirement("A13")
@pytest.mark.usefixtures("ui")
async def test_no_path_reaches_another_file(rig: RestRig) -> None:
    for path in (
        "assets/../../secret.txt", "assets/%2e%2e/%2e%2e/secret.txt", "assets/..%2f..%2fsecret.txt",
        "assets//etc/passwd", "assets/link.js", "assets/", "assets/%00",
    ):  # fmt: skip
        answer = await rig.ask("GET", f"/ui/{path}", user=None)
        assert answer.status == 404, path
    for path in ("../secret.txt", "..%2fsecret.txt", "/etc/passwd", "secret.txt"):
        assert b"<title>console" in (await rig.ask("GET", f"/ui/{path}", user=None)).body
    assert (await rig.ask("POST", "/ui/", user=None)).status == 405


async def test_new_build_is_served_without_a_restart(rig: RestRig, ui: Path) -> None:
    await rig.ask("GET", "/ui/", user=None)
    (ui / "index.html").write_text("<!DOCTYPE html><title>another</title>")
    assert b"another" in (await rig.ask("GET", "/ui/", user=None)).body


async def test_browser_at_the_root_is_sent_to_the_console(rig: RestRig) -> None:
    answer = await rig.ask("GET", "/", user=None, headers={"Accept": "text/html,*/*"})
    assert (answer.status, answer.headers["location"]) == (303, "/ui/")
    moved = await rig.ask("GET", "/ui", user=None)
    assert (moved.status, moved.headers["location"]) == (303, "/ui/")
    assert (await rig.ask("GET", "/", user=None)).status == 401
