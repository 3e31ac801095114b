"""The node's register: the epoch that it has promised, and the candidate that got the promise (R2).

The rules are pure functions from a register and a request to an answer. `RegisterFile` puts the new
register on disk, file and directory synced, before it returns the answer.
"""

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from ganeti.base.errors import StoreError
from ganeti.base.files import locked_directory, sync_directory, sync_file, write_atomically
from ganeti.model.objects import NodeUuid
from ganeti.store.epochs import LEAP, is_leap
from ganeti.store.interface import MAX_EPOCH

FORMAT = 1
_NO_FILE = "none"


@dataclass(frozen=True, slots=True)
class Promise:
    """The greatest epoch that this node has granted, and the candidate that requested it."""

    epoch: int
    candidate: NodeUuid

    def excludes(self, epoch: int, master: NodeUuid) -> bool:
        """Return whether this node refuses the master of an epoch.

        It does if it has promised a greater epoch, or this one to another candidate.
        """
        return self.epoch > epoch or (self.epoch == epoch and self.candidate != master)


@dataclass(frozen=True, slots=True)
class Accepted:
    """The master that this node has last registered, with the set that holds all its writes."""

    epoch: int
    version: int
    master: NodeUuid
    sync_set: frozenset[NodeUuid]
    job_id_ceiling: int
    voters: frozenset[NodeUuid] = frozenset()
    """The voters whose majority counts from here on (R3).

    Empty in registers of clusters that had one voter.
    """
    software: str = ""
    """The master's version: older software may not understand its data; '' if unknown."""


@dataclass(frozen=True, slots=True)
class Register:
    """A node's stored promises and registrations; a node that never joined has none."""

    cluster_uuid: str
    promised: Promise
    accepted: Accepted | None = None

    def validate(self) -> None:
        """Raise StoreError where the parts contradict each other."""
        if not 0 <= self.promised.epoch <= MAX_EPOCH:
            raise StoreError(f"the promised epoch {self.promised.epoch} is out of range")
        if self.accepted and self.accepted.epoch > self.promised.epoch:
            raise StoreError("the accepted epoch is greater than the promised one")

    @property
    def job_id_ceiling(self) -> int:
        return self.accepted.job_id_ceiling if self.accepted else 0


@dataclass(frozen=True, slots=True)
class PromiseRequest:
    """A candidate's request for an epoch, or (`join`) a master's admission of a node into its cluster."""

    cluster_uuid: str
    epoch: int
    candidate: NodeUuid


@dataclass(frozen=True, slots=True)
class AcceptRequest:
    """A master's registration of itself, its sync set or its ceiling of job ids."""

    cluster_uuid: str
    accepted: Accepted


class Answer(NamedTuple):
    """Granted, or refused with a reason.

    `register` must be on disk before the answer leaves the node.
    """

    granted: bool
    register: Register | None
    reason: str = ""


def join(register: Register | None, request: PromiseRequest) -> Answer:
    """Admit a node without an epoch to a cluster; idempotent."""
    if not 0 <= request.epoch <= MAX_EPOCH:
        return Answer(False, register, f"epoch {request.epoch} is out of range")
    if register is None:
        promised = Promise(request.epoch, request.candidate)
        return Answer(True, Register(request.cluster_uuid, promised))
    if register.cluster_uuid != request.cluster_uuid:
        return _other_cluster(register, request.cluster_uuid)
    return check_epoch(register, request.epoch, request.candidate, joining=True)


def promise(register: Register | None, request: PromiseRequest) -> Answer:
    """Grant an epoch that is greater than every one granted before, and nothing else (R2)."""
    if register is None:
        return _never_joined()
    if register.cluster_uuid != request.cluster_uuid:
        return _other_cluster(register, request.cluster_uuid)
    if not register.promised.epoch < request.epoch <= MAX_EPOCH:
        return Answer(
            False,
            register,
            f"epoch {request.epoch} is not greater than {register.promised.epoch}, which is"
            f" promised to {register.promised.candidate}",
        )
    if is_leap(register.promised.epoch, request.epoch):
        return _too_far(register, request.epoch)
    return Answer(True, replace(register, promised=Promise(request.epoch, request.candidate)))


def accept(register: Register | None, request: AcceptRequest) -> Answer:
    """Register a master; its version and the ceiling of job ids never decrease (R5, R12)."""
    if register is None:
        return _never_joined()
    if register.cluster_uuid != request.cluster_uuid:
        return _other_cluster(register, request.cluster_uuid)
    new, old = request.accepted, register.accepted
    if old and not new.voters:
        new = replace(new, voters=old.voters)
    answer = check_epoch(register, new.epoch, new.master)
    if not answer.granted or answer.register is None:
        return answer
    if old and (new.epoch, new.version) < (old.epoch, old.version):
        return Answer(False, register, f"version {new.version} is older than {old.version}")
    is_repeated = old and (new.epoch, new.version) == (old.epoch, old.version)
    if old and is_repeated and (new.sync_set, new.voters) != (old.sync_set, old.voters):
        return Answer(False, register, f"version {new.version} has another sync set or voters")
    if new.master not in new.sync_set:
        return Answer(False, register, "the sync set lacks the master")
    ceiling = max(new.job_id_ceiling, register.job_id_ceiling)
    return Answer(True, replace(answer.register, accepted=replace(new, job_id_ceiling=ceiling)))


def check_epoch(
    register: Register | None, epoch: int, master_uuid: NodeUuid, *, joining: bool = False
) -> Answer:
    """Decide whether a call of this master and epoch may change the node; records a greater epoch first.

    Refuses smaller epochs, an equal one of another master (G4, A26), and one that is too far ahead.
    A node without a register accepts only a call that is part of a join; `join` then creates the
    register.
    """
    if register is None:
        return Answer(True, None) if joining else _never_joined()
    promised = register.promised
    if not 0 <= epoch <= MAX_EPOCH:
        return Answer(False, register, f"epoch {epoch} is out of range")
    if epoch < promised.epoch:
        reason = f"epoch {epoch} is over: {promised.candidate} has epoch {promised.epoch}"
        return Answer(False, register, reason)
    if epoch == promised.epoch and master_uuid != promised.candidate:
        reason = f"epoch {epoch} belongs to {promised.candidate}, not to {master_uuid}"
        return Answer(False, register, reason)
    if epoch == promised.epoch:
        return Answer(True, register)
    if is_leap(promised.epoch, epoch):
        return _too_far(register, epoch)
    return Answer(True, replace(register, promised=Promise(epoch, master_uuid)))


def _never_joined() -> Answer:
    return Answer(False, None, "this node has not joined a cluster and accepts only a join")


def _too_far(register: Register, epoch: int) -> Answer:
    reason = (
        f"epoch {epoch} is more than {LEAP} beyond epoch {register.promised.epoch}, which this node has"
        " promised; run 'gnt-node add --readd' for this node, which gives it a new register"
    )
    return Answer(False, register, reason)


def _other_cluster(register: Register, asked: str) -> Answer:
    reason = f"this node belongs to cluster {register.cluster_uuid}, not to {asked}"
    return Answer(False, register, reason)


class RegisterKeeper(Protocol):
    """Stores a register: a new one is durable before the answer is returned."""

    def read(self) -> Register | None: ...

    def decide(self, rule: Callable[[Register | None], Answer]) -> Answer:
        """Apply a rule (`lambda old: promise(old, request)`), store its register, and return its answer."""
        ...


class MemoryRegister:
    """A register in memory, for tests and simulations."""

    def __init__(self, register: Register | None = None) -> None:
        self._register = register

    def read(self) -> Register | None:
        return self._register

    def decide(self, rule: Callable[[Register | None], Answer]) -> Answer:
        answer = rule(self._register)
        if answer.granted:
            self._register = answer.register
        return answer


class RegisterFile:
    """The register on disk, mode 0600; safe for many threads and processes.

    Blocks for a disk sync when the register changes. Raises StoreError if it cannot be read or
    written; then nothing was granted.
    """

    def __init__(
        self, path: Path, *, write: Callable[[Path, bytes], None] = write_atomically
    ) -> None:
        self._path = path
        self._write = write
        self._durable = ""
        """The identity of the file that is known to be synced (`_file_now`); '' before the first look."""

    def read(self) -> Register | None:
        """Return the present register; None before the node has joined."""
        with self._locked():
            return self._read()

    def decide(self, rule: Callable[[Register | None], Answer]) -> Answer:
        with self._locked():
            old = self._read()
            answer = rule(old)
            if answer.granted and answer.register is not None and answer.register != old:
                self._keep(answer.register)
            return answer

    def remove(self) -> None:
        """Forget all promises: the node has left its cluster."""
        with self._locked():
            try:
                self._path.unlink(missing_ok=True)
                sync_directory(self._path.parent)
            except OSError as error:
                raise StoreError(f"cannot remove the register {self._path}: {error}") from error

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with ExitStack() as stack:
            try:
                stack.enter_context(locked_directory(self._path.parent))
            except OSError as error:
                raise StoreError(f"cannot open the directory of the register: {error}") from error
            yield

    def _read(self) -> Register | None:
        self._settle()
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StoreError(f"cannot read the register {self._path}: {error}") from error
        try:
            return decode_register(data)
        except StoreError as error:
            raise StoreError(
                f"the register {self._path} is damaged ({error.message}); this node refuses every"
                " master until it is restored from a backup, or has left the cluster and joined again"
            ) from None

    def _keep(self, register: Register) -> None:
        register.validate()
        try:
            self._write(self._path, encode_register(register))
            self._durable = self._file_now()
        except OSError as error:
            raise StoreError(f"cannot store the register {self._path}: {error}") from error

    def _settle(self) -> None:
        """Sync the register before an answer: its writer may have died after the rename, before the sync."""
        try:
            now = self._file_now()
            if now == self._durable:
                return
            if now != _NO_FILE:
                sync_file(self._path)
            sync_directory(self._path.parent)
        except OSError as error:
            raise StoreError(f"cannot sync the register {self._path}: {error}") from error
        self._durable = now

    def _file_now(self) -> str:
        """Return a value that differs between successive files at this path."""
        try:
            found = self._path.stat()
        except FileNotFoundError:
            return _NO_FILE
        return f"{found.st_ino} {found.st_ctime_ns}"


def encode_register(register: Register) -> bytes:
    """Return JSON followed by a checksum."""
    accepted = register.accepted
    fields = {
        "format": FORMAT,
        "cluster_uuid": register.cluster_uuid,
        "promised": {"epoch": register.promised.epoch, "candidate": register.promised.candidate},
        "accepted": accepted
        and {
            "epoch": accepted.epoch,
            "version": accepted.version,
            "master": accepted.master,
            "sync_set": sorted(accepted.sync_set),
            "job_id_ceiling": accepted.job_id_ceiling,
            "voters": sorted(accepted.voters),
            "software": accepted.software,
        },
    }
    body = json.dumps(fields).encode()
    return body + b"\n" + hashlib.sha256(body).hexdigest().encode() + b"\n"


def decode_register(data: bytes) -> Register:
    """Return the register of encoded bytes; StoreError for anything else, also for a flipped bit."""
    body, _, rest = data.partition(b"\n")
    if rest != hashlib.sha256(body).hexdigest().encode() + b"\n":
        raise StoreError("its checksum does not match")
    try:
        fields = json.loads(body)
        if fields["format"] != FORMAT:
            raise StoreError(
                f"format {fields['format']} is not known: it may come from a newer release"
            )
        register = Register(
            str(fields["cluster_uuid"]),
            Promise(int(fields["promised"]["epoch"]), NodeUuid(fields["promised"]["candidate"])),
            _decode_accepted(fields["accepted"]),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise StoreError(f"a field is wrong: {error!r}") from None
    register.validate()
    return register


def _decode_accepted(fields: dict[str, Any] | None) -> Accepted | None:
    if fields is None:
        return None
    return Accepted(
        epoch=int(fields["epoch"]),
        version=int(fields["version"]),
        master=NodeUuid(fields["master"]),
        sync_set=frozenset(NodeUuid(uuid) for uuid in fields["sync_set"]),
        job_id_ceiling=int(fields["job_id_ceiling"]),
        voters=frozenset(NodeUuid(uuid) for uuid in fields.get("voters", ())),
        software=str(fields.get("software", "")),
    )
