"""What clients send that is no request, too much, or too slow (A3-A18)."""

import asyncio
import contextlib
import json
import shutil
import socket
import ssl
import time
from collections.abc import AsyncIterator, Awaitable
from pathlib import Path
from typing import Any

import pytest

from ganeti.base.http_server import Limits
from ganeti.web import bodies
from ganeti.web.server import tls_context
from tests.support.rest import READER, Answer, RestRig, credentials, parsed, request, rest_rig

LOGIN = f"Authorization: {credentials('admin')}\r\n".encode()
HOST = b"Host: localhost\r\n"
HALF_OPEN = 400
NEW = {"name": "new.example.com", "__version__": 1, "mode": "create", "disk_template": "plain", "nics": [],
       "os": "noop"}  # fmt: skip
NEXT = b"GET /version HTTP/1.1\r\n" + HOST + LOGIN + b"\r\n"


def answers(data: bytes) -> int:
    """How many answers there are in what came back."""
    return data.count(b"HTTP/1.1 ")


async def serves_others(rig: RestRig) -> None:
    answer = await rig.ask("GET", "/version")
    assert (answer.status, answer.body) == (200, b"2\n")


@pytest.mark.requirement("A3")
async def test_odd_methods_are_refused(rig: RestRig) -> None:
    for method in ("get", "GET_ACCESS", "__INIT__", "OPTIONS", "TRACE", "PATCH", "HEAD", "CONNECT"):
        data = await rig.raw(request(method, "/2/nodes", b"", "admin", {"Connection": "close"}))
        assert parsed(data).status in (400, 405), method
    data = await rig.raw(b"X" * 10_240 + b" / HTTP/1.1\r\n\r\n")
    assert not data or parsed(data).status in (400, 414)
    await serves_others(rig)


@pytest.mark.requirement("A4")
async def test_two_credentials_are_one_too_many(rig: RestRig) -> None:
    head = b"GET /version HTTP/1.1\r\nConnection: close\r\n" + HOST
    assert parsed(await rig.raw(head + LOGIN * 2 + b"\r\n")).status == 400
    assert parsed(await rig.raw(head + b"Authorization: Basic !!\r\n\r\n")).status == 400
    none = b"Authorization: Basic YWRtaW46d3Jvbmc=\r\n\r\n"
    assert parsed(await rig.raw(head + none)).status == 401


@pytest.mark.requirement("A8")
@pytest.mark.parametrize(
    "head",
    [
        b"GET /version HTTP/1.1\r\n" + b"".join(b"X-%d: y\r\n" % n for n in range(10_000)),
        b"GET /version HTTP/1.1\r\nX: " + b"y" * 10_000_000 + b"\r\n",
        b"GET /" + b"y" * 1_000_000 + b" HTTP/1.1\r\n",
        b"GET /version HTTP/1.1\r\n" + b"".join(b"X-%d: %s\r\n" % (n, b"y" * 7000) for n in range(90)),
    ],
    ids=["many", "one", "line", "together"],
)  # fmt: skip
async def test_header_bombs_are_cut_off(rig: RestRig, head: bytes) -> None:
    data = await rig.raw(head + HOST + LOGIN + b"\r\n")
    assert not data or parsed(data).status in (400, 414, 431)
    await serves_others(rig)


@pytest.mark.requirement("A9", "A10")
@pytest.mark.parametrize(
    ("headers", "body"),
    [
        (b"Content-Length: 11534336", b"x"),
        (b"Content-Length: 1000000000000000000", b"x"),
        (b"Content-Length: -5", b""),
        (b"Content-Length: +5", b"12345"),
        (b"Content-Length: 0x5", b"12345"),
        (b"Content-Length: 5\r\nContent-Length: 6", b"123456"),
        (b"Content-Length: 5\r\nTransfer-Encoding: chunked", b"0\r\n\r\n"),
        (b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity", b"0\r\n\r\n"),
        (b"Transfer-Encoding: chunked", b"zz\r\n\r\n"),
        (b"Transfer-Encoding : chunked", b"0\r\n\r\n"),
        (b"X: y\r\n folded: z\r\nContent-Length: 2", b"{}"),
    ],
)
async def test_bodies_that_lie_are_refused_and_what_follows_is_no_request(
    rig: RestRig, headers: bytes, body: bytes
) -> None:
    head = b"PUT /2/redistribute-config HTTP/1.1\r\nContent-Type: application/json\r\n"
    data = await rig.raw(head + HOST + LOGIN + headers + b"\r\n\r\n" + body + NEXT)
    assert answers(data) <= 1
    assert not data or parsed(data).status in (400, 413)
    assert rig.master.queue.submitted == []


@pytest.mark.requirement("A9")
async def test_a_chunked_body_without_end_is_cut_at_its_limit(rig: RestRig) -> None:
    head = b"PUT /2/modify HTTP/1.1\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n"
    chunk = b"10000\r\n" + b" " * 65_536 + b"\r\n"
    data = await rig.raw(head + HOST + LOGIN + b"\r\n" + chunk * 50)
    assert parsed(data).status == 413


async def answer_to(rig: RestRig, user: str, size: int) -> Answer:
    """What a client gets that reads nothing before it has sent its whole body, as most do."""
    body = b'{"comment": "' + b"x" * (size - 15) + b'"}'

    def ask() -> bytes:
        with (
            socket.create_connection(("127.0.0.1", rig.port), timeout=20) as plain,
            rig.context.wrap_socket(plain, server_hostname="localhost") as connection,
        ):
            connection.sendall(request("PUT", "/2/modify", body, user, {}))
            return connection.recv(65_536)

    return parsed(await asyncio.to_thread(ask))


@pytest.mark.requirement("A9")
async def test_a_client_that_sends_too_much_first_reads_the_refusal(
    tmp_path: Path,
) -> None:
    async with rest_rig(tmp_path, limits=Limits(linger_s=0.0)) as rig:
        for size in (600_000, 11 * 1024 * 1024):
            assert (await answer_to(rig, "admin", size)).status == 413
        assert rig.master.queue.submitted == []


@pytest.mark.requirement("A9")
async def test_unknown_client_with_a_long_body_reads_the_refusal(rig: RestRig) -> None:
    assert (await answer_to(rig, "nobody", 12_000_000)).status == 401


@pytest.mark.requirement("A9")
@pytest.mark.sampled(0)
async def test_large_body_delays_no_other_request(rig: RestRig) -> None:
    assert (await rig.ask("GET", "/version")).status == 200
    for disks, status in ((100_000, 413), (15_000, 400)):
        body = {**NEW, "disks": [{"size": 1024, "mode": "rw"}] * disks}
        content = json.dumps(body).encode()
        longest = await longest_pause(rig.ask("POST", "/2/instances", data=content), status)
        assert longest < 0.5
    assert rig.master.queue.submitted == []


async def longest_pause(asking: Awaitable[Answer], status: int) -> float:
    """For how long the loop did nothing else while a request was answered, in CPU time of this process."""
    longest, done = 0.0, False

    async def watch() -> None:
        nonlocal longest
        while not done:
            begun = time.thread_time()
            await asyncio.sleep(0)
            longest = max(longest, time.thread_time() - begun)

    watching = asyncio.create_task(watch())
    answer = await asking
    done = True
    await watching
    assert answer.status == status, answer.body
    return longest


@pytest.mark.requirement("A9")
async def test_body_of_an_unknown_client_is_not_read(rig: RestRig) -> None:
    """Who has not logged in is refused before the body is read."""
    head = (
        b"PUT /2/modify HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: 9000000\r\n"
    )
    begun = time.monotonic()
    assert parsed(await rig.raw(head + HOST + b"\r\n")).status == 401
    assert time.monotonic() - begun < 5


@pytest.mark.requirement("A11")
@pytest.mark.parametrize(
    "data",
    [
        b"[" * 65 + b"]" * 65,
        b"[" * 500_000,
        b'{"a":' * 1000 + b"1" + b"}" * 1000,
        b'{"' + b"x" * 500_000 + b'": 1}',
        b'{"priority": ' + b"9" * 5000 + b"}",
        b'{"priority": 1, "priority": 2}',
        b'{"priority": NaN}',
        b'{"priority": 1e999}',
        b'{"comment": "\\ud800"}',
        b'{"comment": "\\u0000"}',
        b"\xef\xbb\xbf{}",
        '{"comment": "x"}'.encode("utf-16"),
        b"{} trailing",
        b"\xff",
    ],
)
async def test_json_that_hides_something_is_refused_in_bounded_time(
    rig: RestRig, data: bytes
) -> None:
    begun = time.process_time()
    answer = await rig.ask("PUT", "/2/redistribute-config", data=data)
    assert answer.status == 400
    assert time.process_time() - begun < 1.5
    assert rig.master.queue.submitted == []


async def test_a_body_must_say_that_it_is_json(rig: RestRig) -> None:
    head = b"PUT /2/redistribute-config HTTP/1.1\r\nContent-Type: text/xml\r\nContent-Length: 2\r\n"
    data = await rig.raw(head + HOST + LOGIN + b"Connection: close\r\n\r\n{}")
    assert parsed(data).status == 415


async def test_expect_header_gets_a_continue(rig: RestRig) -> None:
    reader, writer = await rig.connect()
    head = b"PUT /2/redistribute-config HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: 2\r\n"
    writer.write(head + HOST + LOGIN + b"Expect: 100-continue\r\n\r\n")
    assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
    writer.write(b"{}")
    assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")


@pytest.mark.requirement("A13", "A17")
async def test_paths_are_taken_as_they_are(rig: RestRig) -> None:
    for path in (
        "/2/instances/..%2f..%2fjobs", "/2/instances/%00", "/2/instances/%2e%2e", "/2//jobs",
        "/2/jobs/", "/2/jobs;x=1", "/2/instances/../jobs", "/2/jobs/1%20", "/2/jobs/-1",
        "/2/jobs/99999999999999999999", "/2/instances/" + "x" * 254, "//2/jobs", "/2/instances/a%0d%0aXX: 1",
        "/2/instances/\u00fc", "*", "https://elsewhere/2/jobs", "/2/instances/x\\y",
    ):  # fmt: skip
        answer = await rig.raw(request("GET", path, b"", "admin", {"Connection": "close"}))
        assert parsed(answer).status in (400, 404), path
        assert b"\r\nXX" not in answer.partition(b"\r\n\r\n")[0]


@pytest.mark.requirement("A14")
async def test_queries_are_bounded(rig: RestRig) -> None:
    for query in (
        "bulk=x",
        "bulk=1.5",
        "bulk=%00",
        "bulk=" + "9" * 50,
        "a=%ff",
        "&".join("a=1" for _ in range(1500)),
    ):
        answer = await rig.ask("GET", f"/2/nodes?{query}")
        assert answer.status == 400, query[:40]


@pytest.mark.requirement("A18")
async def test_internal_error_discloses_nothing(
    rig: RestRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_args: Any) -> Any:
        raise ZeroDivisionError("/var/lib/ganeti/secret")

    monkeypatch.setattr(rig.services.master, "ask", broken)
    answer = await rig.ask("GET", "/2/nodes")
    assert answer.status == 500
    for word in (b"Traceback", b"Zero", b"/var", b".py", b"secret"):
        assert word not in answer.body
    assert set(answer.json) == {"code", "message", "explain"}


@pytest.mark.requirement("F33", "A16")
async def test_old_tls_and_weak_ciphers_are_refused(rig: RestRig) -> None:
    old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        old.maximum_version = ssl.TLSVersion.TLSv1_1
    weak = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    weak.check_hostname, weak.verify_mode = False, ssl.CERT_NONE
    weak.maximum_version = ssl.TLSVersion.TLSv1_2
    weak.set_ciphers("ECDHE+AES+SHA:AES+SHA")
    for context in (old, weak):
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await asyncio.open_connection("127.0.0.1", rig.port, ssl=context)
    context = tls_context(rig.users.with_name("rapi.pem"))
    assert context.options & ssl.OP_NO_RENEGOTIATION
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2


@pytest.fixture
async def tight(tmp_path: Path) -> AsyncIterator[RestRig]:
    limits = Limits(connections=8, connections_of_address=6, headers_s=0.3, idle_s=1.0)
    async with rest_rig(tmp_path, limits) as one:
        yield one


@pytest.mark.requirement("A7")
async def test_slow_headers_end_the_connection(tight: RestRig) -> None:
    slow = [await tight.connect() for _ in range(4)]
    for _, writer in slow:
        writer.write(b"GET /version HT")
    await serves_others(tight)
    async with asyncio.timeout(5):
        for reader, _ in slow:
            with contextlib.suppress(ConnectionError):
                assert await reader.read() == b""
    await serves_others(tight)


@pytest.fixture
async def narrow(tmp_path: Path) -> AsyncIterator[RestRig]:
    """With few connections, and time for slow handshakes on a loaded machine."""
    async with rest_rig(tmp_path, Limits(connections=8, connections_of_address=6)) as one:
        yield one


@pytest.mark.requirement("A7")
async def test_one_address_cannot_take_all_connections(narrow: RestRig) -> None:
    kept = [await narrow.connect() for _ in range(6)]
    for number in range(3):
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            reader, _writer = await narrow.connect()
            assert await reader.read() == b"", number
    assert narrow.server.refused >= 3
    assert narrow.server.connections == 6
    for _, writer in kept:
        writer.transport.abort()
    await asyncio.sleep(0.05)
    await serves_others(narrow)


@pytest.mark.requirement("A7")
async def test_slow_body_is_refused(rig: RestRig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "GRACE_S", 0.2)
    head = b"PUT /2/modify HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: 9000\r\n"
    data = await rig.raw(head + HOST + LOGIN + b"\r\n{")
    assert parsed(data).status == 408


async def test_requests_on_one_connection_follow_each_other(rig: RestRig) -> None:
    last = b"GET /2/features HTTP/1.1\r\nConnection: close\r\n" + HOST + LOGIN + b"\r\n"
    data = await rig.raw(NEXT * 5 + last)
    assert answers(data) == 6
    assert data.count(b"\r\n\r\n2\n") == 5


@pytest.mark.requirement("A15")
async def test_waiting_takes_nothing_from_others(rig: RestRig) -> None:
    from ganeti.model.names import JobStatus
    from tests.unit.query.cluster import job

    rig.master.queue.live.append(job(1, JobStatus.RUNNING))
    rig.master.queue.release = asyncio.Event()
    body = json.dumps({"fields": ["status"]}).encode()
    waits = [await rig.connect() for _ in range(12)]
    for _, writer in waits:
        writer.write(request("GET", "/2/jobs/1/wait", body, "operator", {}))
    async with asyncio.timeout(10):
        while rig.master.queue.waiting < 12:  # noqa: ASYNC110 - they come over the network
            await asyncio.sleep(0.01)
    await serves_others(rig)
    assert (await rig.ask("GET", "/2/jobs/1/wait", {"fields": []}, user=READER)).status == 403
    for _, writer in waits[:6]:
        writer.transport.abort()
    async with asyncio.timeout(10):
        while rig.master.queue.waiting > 6:  # noqa: ASYNC110 - the same
            await asyncio.sleep(0.01)
    rig.master.queue.release.set()


async def test_the_clients_right_to_guess_is_limited(rig: RestRig) -> None:
    begun = time.monotonic()
    for _ in range(3):
        await rig.raw(request("GET", "/version", b"", "nobody", {"Connection": "close"}))
    assert time.monotonic() - begun > 0.7
    await serves_others(rig)


async def test_new_user_may_log_in_at_once(rig: RestRig) -> None:
    assert (await rig.ask("GET", "/version", user="mover")).status == 401
    rig.users.write_text(rig.users.read_text() + "mover secret write\n")
    assert (await rig.ask("GET", "/version", user="mover")).status == 200


@pytest.mark.requirement("A10")
async def test_lines_that_end_with_a_line_feed_alone_are_refused(rig: RestRig) -> None:
    head = b"PUT /2/redistribute-config HTTP/1.1\r\nContent-Type: application/json\r\n"
    data = await rig.raw(
        (head + HOST + LOGIN + b"Content-Length: 2\r\n\r\n").replace(b"\r", b"") + b"{}"
    )
    assert not data or parsed(data).status == 400
    assert rig.master.queue.submitted == []


def client_hello() -> bytes:
    """The first message of a handshake."""
    received, sent = ssl.MemoryBIO(), ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        ssl.create_default_context().wrap_bio(received, sent, server_hostname="x").do_handshake()
    return sent.read()


@pytest.mark.requirement("A7", "A16")
async def test_handshakes_that_never_end_take_nothing_from_others_and_are_cut_off(
    tmp_path: Path,
) -> None:
    async with rest_rig(tmp_path, limits=Limits(handshake_s=2.0)) as rig:
        half = [await asyncio.open_connection("127.0.0.1", rig.port) for _ in range(HALF_OPEN)]
        hello = client_hello()
        for number, (_, writer) in enumerate(half):
            writer.write(hello[: number % len(hello)])
        busy_s = time.process_time()
        await serves_others(rig)
        async with asyncio.timeout(40):
            for reader, writer in half:
                with contextlib.suppress(ConnectionError):
                    await reader.read()
                writer.close()
        assert time.process_time() - busy_s < 3
        await serves_others(rig)


@pytest.mark.soak
@pytest.mark.timeout(300)
@pytest.mark.requirement("A16")
async def test_a_hundred_renegotiations_are_refused_and_cost_little(rig: RestRig) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("there is no openssl to renegotiate with")
    busy_s, refused = time.process_time(), 0
    for _ in range(100):
        client = await asyncio.create_subprocess_exec(
            *("openssl", "s_client", "-tls1_2", "-connect", f"127.0.0.1:{rig.port}"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        assert client.stdin is not None
        assert client.stdout is not None
        async with asyncio.timeout(30):
            said = await client.stdout.readuntil(b"Verify return code")
            client.stdin.write(b"R\n")
            said += await client.stdout.read()
            await client.wait()
        refused += b"no renegotiation" in said
    assert refused == 100
    assert time.process_time() - busy_s < 100 * 0.02, "of this process, which is the server"
    await serves_others(rig)
