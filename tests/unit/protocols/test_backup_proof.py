"""What the results of checks and drills prove, and proofs from anywhere."""

from typing import Any

import pytest
from msgspec.structs import replace

from ganeti.base.errors import HostError
from ganeti.model import wire
from ganeti.model.names import Consistency, ProofState
from ganeti.protocols.backup_manifest import PIECE, Image, Manifest, image_file
from ganeti.protocols.backup_proof import (
    LONGEST,
    MOST_TEXTS,
    Check,
    Drill,
    Proof,
    fingerprint,
    judged,
    new_proof,
    parse_proof,
    texts,
    with_check,
)

pytestmark = pytest.mark.requirement("A51", "A42")

DISK = "11111111-0000-4000-8000-000000000000"
NAME = "20261127-080000"


def manifest(digest: str = "0", **fields: Any) -> Manifest:
    image = Image(disk=DISK, size=1 << 20, file=image_file(NAME, DISK), length=PIECE, pieces=(digest * 64,))  # fmt: skip
    known: dict[str, Any] = {
        "instance": "web1.example.com", "instance_uuid": "i", "point": NAME, "number": 1, "time": 1.0,
        "consistency": Consistency.DOWN, "disks": (image,), "description": "",
    }  # fmt: skip
    return Manifest(**{**known, **fields})


def checked(*problems: str) -> Check:
    return Check(time=5.0, images=fingerprint(manifest()), problems=problems)


def proof(**fields: Any) -> Proof:
    return replace(new_proof(manifest()), **fields)


BOOTED = Drill(time=9.0, seconds=4.0, seen="login:")
GOOD, FAILED, UNPROVEN = ProofState.GOOD, ProofState.FAILED, ProofState.UNPROVEN


@pytest.mark.parametrize(
    ("check", "drill", "state"),
    [
        (None, None, UNPROVEN),
        (checked(), None, GOOD),
        (checked("disk 0: bad"), None, FAILED),
        (None, BOOTED, GOOD),
        (checked(), BOOTED, GOOD),
        (checked(), Drill(time=0.0), UNPROVEN),
        (checked(), replace(BOOTED, problem="no login:"), FAILED),
        (checked("disk 0: bad"), BOOTED, FAILED),
        (checked("disk 0: bad"), Drill(time=0.0), FAILED),
    ],
)
def test_backup_is_good_after_its_drill_or_its_check(
    check: Check | None, drill: Drill | None, state: ProofState
) -> None:
    found = judged(proof(check=check, drill=drill), manifest())
    assert found.state is state
    assert bool(found.why) == (state is FAILED)
    assert bool(found.checked) == (check is not None and not check.problems)
    assert bool(found.drilled) == (drill == BOOTED)


def test_backup_without_a_proof_is_unproven() -> None:
    assert judged(None, manifest()).state is UNPROVEN


def test_rewritten_images_lose_their_check_and_keep_their_drill() -> None:
    rewritten = manifest("1")
    found = judged(proof(check=checked("disk 0: bad")), rewritten)
    assert (found.state, found.why) == (UNPROVEN, "")
    found = judged(proof(check=checked(), drill=BOOTED), rewritten)
    assert (found.state, found.checked, found.drilled) == (GOOD, 0.0, 9.0)
    again = with_check(proof(drill=BOOTED), rewritten, 11.0, [])
    assert judged(again, rewritten).checked == 11.0


def test_proof_is_read_as_written() -> None:
    one = proof(check=checked("x"), drill=replace(BOOTED, lines=("a", "b")))
    assert parse_proof(wire.encode(one), manifest()) == one


@pytest.mark.parametrize(
    "wrong",
    [
        {"format": "ganeti-backup-proof-2"},
        {"instance_uuid": "other"},
        {"point": "20261127-080001"},
        {"number": 2},
        {"check": checked("\x1b[2J")},
        {"check": checked("x" * (LONGEST + 1))},
        {"check": checked(*("x",) * (2 * MOST_TEXTS + 1))},
        {"check": replace(checked(), time=-1.0)},
        {"drill": replace(BOOTED, time=1e300)},
        {"drill": replace(BOOTED, seconds=-1.0)},
        {"drill": replace(BOOTED, lines=("\n",))},
        {"drill": replace(BOOTED, seen="\u202e")},
    ],
)
def test_impossible_proof_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(HostError):
        parse_proof(wire.encode(proof(**wrong)), manifest())


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b"\xff", b'{"drill":1}', b"[" * 100_000])
def test_other_documents_are_refused(content: bytes) -> None:
    with pytest.raises(HostError):
        parse_proof(content, manifest())


def test_texts_of_any_origin_fit_into_a_proof() -> None:
    found = texts(["\x1b[2J" * 500, "\ud800", *["x"] * 100])
    one = proof(check=checked(*found))
    assert parse_proof(wire.encode(one), manifest()) == one
    assert len(found) == MOST_TEXTS
