"""The client of etcd's gateway, with three real servers."""

import asyncio
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing

import pytest

from ganeti.store.etcd.gateway import Compacted, Full, Gateway, NotSent, Rejected, Unanswered
from ganeti.store.etcd.messages import Compare, delete, get, put, range_end
from ganeti.store.etcd.settings import Access
from tests.support.etcd_servers import EtcdServers, etcd_servers, free_ports
from tests.support.patience import patience

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def servers() -> Iterator[EtcdServers]:
    with etcd_servers() as running:
        yield running


@pytest.fixture
async def gateway(servers: EtcdServers) -> AsyncIterator[Gateway]:
    client = Gateway(Access(servers.endpoints))
    await client.delete(b"\0", b"\xff")
    yield client
    await client.close()


async def test_a_transaction_compares_and_reads(gateway: Gateway) -> None:
    free = [Compare(b"k", create_revision=0)]
    first = await gateway.txn(free, [put(b"k", b"one")], [get(b"k")])
    second = await gateway.txn(free, [put(b"k", b"two")], [get(b"k")])
    assert first.succeeded
    assert not second.succeeded
    (found,) = second.responses[0].response_range.kvs
    assert (found.value, found.create_revision) == (b"one", first.header.revision)
    third = await gateway.txn([Compare(b"k", value=b"one")], [delete(b"k"), get(b"k")])
    assert third.succeeded
    assert third.responses[1].response_range.kvs == ()


async def test_a_range_is_read_in_pages_at_one_revision(gateway: Gateway) -> None:
    await gateway.txn([], [put(b"p/%03d" % number, b"old") for number in range(50)])
    first = await gateway.range(b"p/", range_end(b"p/"), limit=20)
    await gateway.txn([], [put(b"p/%03d" % number, b"new") for number in range(50)])
    rest = await gateway.range(
        first.kvs[-1].key + b"\0", range_end(b"p/"), revision=first.header.revision
    )
    assert first.more
    assert not rest.more
    assert [found.value for found in (*first.kvs, *rest.kvs)] == [b"old"] * 50


async def test_a_lease_takes_its_keys_along(gateway: Gateway) -> None:
    lease = await gateway.grant_lease(5)
    await gateway.txn([], [put(b"leased", b"", lease)])
    assert await gateway.keep_alive(lease)
    await gateway.revoke_lease(lease)
    assert not (await gateway.range(b"leased")).kvs
    assert not await gateway.keep_alive(lease)
    await gateway.revoke_lease(lease)


async def test_watch_reports_each_change_and_ends_in_silence(gateway: Gateway) -> None:
    begun = (await gateway.txn([], [put(b"w/a", b"1")])).header.revision
    seen = []
    ranges = (b"w/", range_end(b"w/")), (b"v", b"v\0")
    created = 0
    async with aclosing(gateway.watch(*ranges, revision=begun, silence_s=1.0)) as watch:
        async for answer in watch:
            seen += [(event.type, event.kv.key) for event in answer.events]
            created += answer.created
            if answer.created and created == len(ranges):
                await gateway.txn([], [delete(b"w/a"), put(b"w/b", b"2"), put(b"v", b"3")])
    assert [one for one in seen if one[1] != b"v"] == [
        ("PUT", b"w/a"),
        ("DELETE", b"w/a"),
        ("PUT", b"w/b"),
    ]
    assert ("PUT", b"v") in seen


async def test_compacted_revision_is_reported(gateway: Gateway) -> None:
    old = (await gateway.txn([], [put(b"c", b"1")])).header.revision
    new = (await gateway.txn([], [put(b"c", b"2")])).header.revision
    await gateway.compact(new)
    await gateway.compact(new)
    with pytest.raises(Compacted):
        await gateway.range(b"c", revision=old)
    async with aclosing(gateway.watch((b"c", b"d"), revision=old, silence_s=5.0)) as watch:
        assert (await anext(watch)).created
        with pytest.raises(Compacted):
            await anext(watch)


async def test_members_are_listed_added_as_learners_and_removed(
    gateway: Gateway, servers: EtcdServers
) -> None:
    listed = (await gateway.members()).members
    assert {member.name for member in listed} == {"m1", "m2", "m3"}
    (port,) = free_ports("127.0.9.9", 1)
    for _ in range(40):  # etcd wants its members connected for 5 s before it changes them
        try:
            added = (await gateway.add_member(f"http://127.0.9.9:{port}", as_learner=True)).member
            break
        except Rejected:
            await asyncio.sleep(0.5)
    assert added.isLearner
    with pytest.raises(Rejected):
        await gateway.promote_member(added.ID)
    await gateway.remove_member(added.ID)
    assert len((await gateway.members()).members) == 3
    status = await gateway.status(servers.endpoints[0])
    assert status.leader in {member.ID for member in listed}


async def test_an_endpoint_that_is_down_is_passed_over(servers: EtcdServers) -> None:
    (port,) = free_ports("127.0.9.8", 1)
    dead = f"http://127.0.9.8:{port}"
    client = Gateway(Access((dead, *servers.endpoints)))
    assert (await client.txn([], [put(b"over", b"1")])).succeeded
    await client.close()
    alone = Gateway(Access((dead,)))
    with pytest.raises(NotSent):
        await alone.txn([], [put(b"over", b"2")])
    await alone.close()


@pytest.mark.requirement("G2")
async def test_a_paused_endpoint_leaves_a_write_unknown_and_the_next_goes_elsewhere(
    servers: EtcdServers,
) -> None:
    client = Gateway(Access(servers.endpoints))
    await client.txn([], [put(b"paused", b"0")])
    servers.members[0].signal(signal.SIGSTOP)
    try:
        with pytest.raises(Unanswered):
            await client.txn([], [put(b"paused", b"1")], timeout_s=0.5)
        for _ in range(20):  # the others may have to elect a leader first
            try:
                assert (await client.range(b"paused")).kvs
                break
            except Unanswered:
                await asyncio.sleep(0.1)
        else:
            pytest.fail("two of three servers do not answer")
    finally:
        servers.members[0].signal(signal.SIGCONT)
        await client.close()


async def written_for_ever(client: Gateway) -> None:
    while True:
        await client.txn([], [put(b"big", bytes(900_000))])


@pytest.mark.requirement("G16")
async def test_a_full_database_is_named_and_written_again_when_there_is_room() -> None:
    with etcd_servers(1, options=("--quota-backend-bytes", str(4 << 20))) as small:
        client = Gateway(Access(small.endpoints))
        with pytest.raises(Full):
            await asyncio.wait_for(written_for_ever(client), 30 * patience())
        await client.compact((await client.range(b"big")).header.revision)
        await client.defragment(small.endpoints[0])
        await client.disarm()
        assert (await client.txn([], [put(b"big", b"small")])).succeeded
        await client.close()


async def test_a_user_is_asked_for_a_password_and_shows_a_token() -> None:
    with etcd_servers(1) as one:
        admin = Gateway(Access(one.endpoints))
        for path, fields in (
            ("/v3/auth/user/add", {"name": "root", "password": "secret"}),
            ("/v3/auth/user/grant", {"user": "root", "role": "root"}),
            ("/v3/auth/enable", {}),
        ):
            await admin._write(path, fields, dict[str, object], 10.0)
        with pytest.raises(Rejected):
            await admin.txn([], [put(b"k", b"1")])
        await admin.close()
        user = Gateway(Access(one.endpoints, user="root", password="secret"))
        assert (await user.txn([], [put(b"k", b"1")])).succeeded
        user._token = "too-old.1"
        assert (await user.txn([], [put(b"k", b"2")])).succeeded
        await user.close()
