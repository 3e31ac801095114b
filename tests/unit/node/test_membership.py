from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from ganeti import ssconf
from ganeti.base.errors import InputError, PrereqError
from ganeti.base.paths import Paths
from ganeti.bootstrap.daemons import Daemons
from ganeti.node.membership import CandidateCertificates, handlers, parse_candidates
from ganeti.rpc.calls import Call, Handlers
from ganeti.rpc.procedures import host
from ganeti.rpc.procedures.files import WRITE_SSCONF, LineChange, SsconfArgs
from ganeti.rpc.procedures.host import LEAVE_CLUSTER, TEST_DELAY, LeaveArgs

A = "11111111-1111-4111-8111-111111111111=" + "ab" * 32
B = "22222222-2222-4222-8222-222222222222=" + "cd" * 32


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    made = Paths(tmp_path)
    made.data.mkdir(parents=True)
    return made


def write(paths: Paths, position: int, *lines: str) -> None:
    assert ssconf.write_set(paths, position, {"master_candidates_certs": "\n".join(lines)})


@pytest.mark.requirement("G22")
def test_the_list_follows_the_ssconf_set(paths: Paths) -> None:
    allowed = CandidateCertificates(paths)
    assert allowed() == frozenset()
    write(paths, 1, A)
    assert allowed() == {"ab" * 32}
    write(paths, 2, A, B)
    assert allowed() == {"ab" * 32, "cd" * 32}
    write(paths, 3, B)
    assert allowed() == {"cd" * 32}


@pytest.mark.requirement("A25")
@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n",
        "garbage",
        A[:-1],
        A[:36],
        A + "\n\n" + B,
        A + "\ngarbage",
        A.upper(),
        A + " ",
        " " + A,
    ],
)
def test_a_list_with_anything_else_in_it_is_none(text: str) -> None:
    with pytest.raises(InputError):
        parse_candidates(text)


@pytest.mark.requirement("A25")
def test_damaged_list_of_candidates_admits_no_caller(
    paths: Paths, caplog: pytest.LogCaptureFixture
) -> None:
    allowed = CandidateCertificates(paths)
    write(paths, 1, A)
    assert allowed()
    (paths.ssconf / "ssconf_master_candidates_certs").write_text(A[:50])
    assert not allowed()
    assert not allowed()
    assert caplog.text.count("this node accepts no callers") == 1
    write(paths, 2, B)
    assert allowed() == {"cd" * 32}


def made(paths: Paths, left: Callable[[], None] = lambda: None) -> Handlers:
    return handlers(paths, Daemons(paths), lambda: "mine", left)


@pytest.mark.requirement("A28", "F8")
async def test_a_set_is_written_and_an_older_one_refused(paths: Paths) -> None:
    write_ssconf = made(paths)[WRITE_SSCONF.name]
    await write_ssconf(SsconfArgs(position=5, values={"cluster_name": "new"}), Call())
    with pytest.raises(PrereqError, match="older"):
        await write_ssconf(SsconfArgs(position=4, values={"cluster_name": "old"}), Call())
    with pytest.raises(InputError):
        await write_ssconf(SsconfArgs(position=6, values={"../x": "y"}), Call())
    assert ssconf.SimpleStore(paths).GetClusterName() == "new"


async def test_only_its_own_cluster_makes_a_node_leave(paths: Paths) -> None:
    left: list[bool] = []
    leave = made(paths, lambda: left.append(True))[LEAVE_CLUSTER.name]
    paths.node_key.write_bytes(b"x")
    with pytest.raises(PrereqError, match="in cluster mine"):
        await leave(LeaveArgs(cluster_uuid="other"), Call())
    assert paths.node_key.exists()
    assert not left
    await leave(LeaveArgs(cluster_uuid="mine"), Call())
    assert not paths.node_key.exists()
    assert left


@pytest.mark.virtual_time
async def test_a_delay_takes_its_time(paths: Paths) -> None:
    import asyncio

    delay = made(paths)[TEST_DELAY.name]
    loop = asyncio.get_running_loop()
    before = loop.time()
    await delay(host.TestDelayArgs(duration_s=3600), Call())
    assert loop.time() - before == 3600
    with pytest.raises(InputError):
        await delay(host.TestDelayArgs(duration_s=-1), Call())


@pytest.mark.requirement("F8")
async def test_difference_is_applied_to_the_set_that_it_names(paths: Paths) -> None:
    write_ssconf = made(paths)[WRITE_SSCONF.name]
    former = {"cluster_name": "c", "instance_list": "a\nb\nc", "hvparams_fake": ""}
    later = {"cluster_name": "c", "instance_list": "a\nc\nd"}
    await write_ssconf(SsconfArgs(position=5, values=former), Call())
    args = SsconfArgs(
        position=6,
        values={},
        base=5,
        lines={"instance_list": LineChange(removed=["b"], added=["d"])},
        removed=["hvparams_fake"],
        checksum=ssconf.checksum(later),
    )
    with pytest.raises(PrereqError, match="is of position 5 and not 4"):
        await write_ssconf(replace(args, base=4), Call())
    with pytest.raises(PrereqError, match="were changed on this node"):
        await write_ssconf(replace(args, checksum="other"), Call())
    assert ssconf.read_set(paths) == (5, former)
    await write_ssconf(args, Call())
    assert ssconf.read_set(paths) == (6, later)
