"""The proof of a backup: the results of its check and its drill, a JSON document beside the manifest. Pure.

A proof may come from anywhere, like a manifest. It belongs to one backup, by UUID, name and number. Its text is
limited and has no control characters; an impossible proof counts as none.
"""

import hashlib

import msgspec
from msgspec.structs import replace

from ganeti.base.errors import HostError, InputError
from ganeti.base.terminal import escaped
from ganeti.model import wire
from ganeti.model.names import ProofState
from ganeti.protocols.backup_manifest import Manifest

FORMAT = "ganeti-backup-proof-1"
SUFFIX = ".proof"
SIZE_LIMIT = 1 << 16
"""The limit of a proof in bytes."""
MOST_TEXTS, LONGEST = 20, 400
"""Limits of problems or lines of a console, and of the characters of each."""


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """The comparison of all images that a backup needs with their digests."""

    time: float
    images: str
    """The fingerprint of the backup's own images."""
    problems: tuple[str, ...] = ()


class Drill(msgspec.Struct, frozen=True, kw_only=True):
    """The start of a guest from the backup."""

    time: float
    """Its end; 0 if it began and did not end."""
    seconds: float = 0.0
    """Time until the awaited sign of life."""
    seen: str = ""
    """The sign of life."""
    problem: str = ""
    lines: tuple[str, ...] = ()
    """The last lines of the console."""


class Proof(msgspec.Struct, frozen=True, kw_only=True):
    """The results for one backup."""

    format: str = FORMAT
    instance_uuid: str
    point: str
    number: int
    check: Check | None = None
    drill: Drill | None = None


class Judgement(msgspec.Struct, frozen=True, kw_only=True):
    """What the results prove; times of good ones, else 0."""

    state: ProofState = ProofState.UNPROVEN
    checked: float = 0.0
    drilled: float = 0.0
    why: str = ""
    """The first problem."""


def proof_file(point: str) -> str:
    """Return the name of a backup's proof."""
    return point + SUFFIX


def fingerprint(point: Manifest) -> str:
    """Return the SHA-256 of what a manifest says about its own images; a merge changes it."""
    said = [(one.file, one.size, one.backing, one.length, one.pieces) for one in point.disks]
    return hashlib.sha256(wire.encode(said)).hexdigest()


def texts(found: list[str]) -> tuple[str, ...]:
    """Return texts of any origin within the limits of a proof: the first problems, escaped."""
    return tuple(escaped(text)[:LONGEST] for text in found[:MOST_TEXTS])


def new_proof(point: Manifest) -> Proof:
    """Return a proof without results."""
    return Proof(instance_uuid=point.instance_uuid, point=point.point, number=point.number)


def with_check(proof: Proof, point: Manifest, time: float, problems: list[str]) -> Proof:
    """Return the proof with the result of a check."""
    return replace(
        proof, check=Check(time=time, images=fingerprint(point), problems=texts(problems))
    )


def parse_proof(content: bytes, point: Manifest) -> Proof:
    """Return the proof of a backup; HostError unless it is one, and everything in it is possible."""
    file = proof_file(point.point)
    try:
        found = wire.decode(content, Proof, what=file)
    except InputError as err:
        raise HostError(f"{file}: {err}") from err
    if not _is_possible(found) or found != replace(new_proof(point), check=found.check, drill=found.drill):  # fmt: skip
        raise HostError(f"{file} is not the proof of this backup")
    return found


def _is_possible(found: Proof) -> bool:
    said, times = list[str](), list[float]()
    if found.check is not None:
        said += found.check.problems
        times.append(found.check.time)
    if found.drill is not None:
        said += [found.drill.seen, found.drill.problem, *found.drill.lines]
        times += [found.drill.time, found.drill.seconds]
    return (
        len(said) <= 2 * MOST_TEXTS
        and all(len(one) <= LONGEST and one.isprintable() for one in said)
        and all(0 <= one < 1 << 40 for one in times)
    )


def judged(proof: Proof | None, point: Manifest) -> Judgement:
    """Return what a proof says about a backup as it is now: the only rule about good backups.

    A backup is good after its drill if one was asked for, otherwise after its check. A problem that was found remains
    until a later result of the same kind. A merge rewrites images: their check no longer counts. It keeps the content
    of the disks, so a drill counts.
    """
    if proof is None:
        return Judgement()
    drill, check = proof.drill, proof.check
    if check is not None and check.images != fingerprint(point):
        check = None
    problems = [*(check.problems if check else ()), *([drill.problem] if drill else ())]
    why = next(filter(None, problems), "")
    has_drill = drill is not None and drill.time > 0
    if why:
        state = ProofState.FAILED
    elif has_drill or (drill is None and check is not None):
        state = ProofState.GOOD
    else:
        state = ProofState.UNPROVEN
    return Judgement(
        state=state,
        checked=check.time if check and not check.problems else 0.0,
        drilled=drill.time if drill and not drill.problem else 0.0,
        why=why,
    )
