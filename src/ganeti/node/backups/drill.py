"""The program that boots a backup in a throw-away guest: `python -m ganeti.node.backups.drill ORDER LOG`.

It runs as a task of the node, and prints its result as JSON. The images are compared with their digests first, as by a
restore; QEMU gets these open files. The guest writes to new images above them, which have no name. So nothing remains
of the guest, whatever dies: the kernel ends QEMU with this program, and frees its files with it.
"""

import contextlib
import errno
import fcntl
import os
import secrets
import selectors
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO

from msgspec.structs import replace

from ganeti.base.errors import GanetiError, HostError
from ganeti.base.paths import Paths
from ganeti.base.process import CLEAN_ENVIRONMENT
from ganeti.base.process import run as run_command
from ganeti.base.terminal import escaped, say
from ganeti.hypervisor.drills import BootsDrills, DrillDisk, DrillGuest, Equipment
from ganeti.hypervisor.registry import hypervisors
from ganeti.images import confined
from ganeti.images.convert import UIDS
from ganeti.model import wire
from ganeti.node.backups.ahead import all_pieces
from ganeti.node.backups.directory import BackupDirectory, opened
from ganeti.node.backups.ends import SpareSpace
from ganeti.node.backups.images import Chain, ImageWriter, open_chain
from ganeti.node.backups.key_pipe import received_keys
from ganeti.node.backups.life_signs import AGENT, AgentAnswer, ConsoleText
from ganeti.node.backups.proofs import record
from ganeti.node.carrier.progress import ProgressFile
from ganeti.protocols.backup_manifest import PIECE, Manifest
from ganeti.protocols.backup_proof import Drill, Proof, texts, with_check
from ganeti.rpc.procedures.drills import DrillArgs, DrillResult
from ganeti.rpc.procedures.form import Message
from ganeti.uidpool import ReleaseUid, RequestUnusedUid

MIB = 1 << 20
QEMU_MEMORY = 4 << 30
"""The address space that QEMU may use beside the guest's memory."""
WRITTEN_LIMIT = 8 << 30
"""The bytes of each disk that the guest may write."""
THREADS_LIMIT = 512
LEAST_MEMORY = 128
SPARE_MEMORY = 256
"""MiB of the node that a drill never uses."""
NICENESS = 10
ASK_EVERY_S, TELL_EVERY_S, END_S = 2.0, 1.0, 15.0
_SAID_BYTES = 4000
Change = Callable[[Proof, Manifest], Proof]


class DrillOrder(Message, frozen=True, kw_only=True):
    """The request, and what the node daemon knows about this node."""

    args: DrillArgs
    directory: str
    """The directory of the instance's backups."""
    root: str
    """The directory of this node's paths."""
    locks: str
    """The directory of the locks of user ids."""
    program: str
    accelerator: str
    device: str

    @property
    def work(self) -> Path:
        """The directory whose file system gets what the guest writes."""
        return Paths(Path(self.root)).image_work

    @property
    def empty(self) -> Path:
        """The directory in which QEMU runs: nothing can be made there."""
        return self.work / "empty"

    @property
    def driver(self) -> BootsDrills:
        """The hypervisor that boots the guest."""
        found = hypervisors(Paths(Path(self.root)), run_command)[
            self.args.hypervisor
        ].options.drills
        if found is None:
            raise HostError(f"hypervisor {self.args.hypervisor} cannot boot a backup")
        return found


def run(order: DrillOrder, report: ProgressFile) -> DrillResult:
    """Check the backup, boot it, and record both results. GanetiError if this node cannot do it."""
    args = order.args
    keys = received_keys()
    with opened(order.directory, keys) as directory, contextlib.ExitStack() as files:
        with directory.locked():
            contents = directory.complete()
        point = contents.find(args.point)
        unrecorded = _recorded(directory, point, _asked)
        try:
            chains = [
                files.enter_context(
                    open_chain(directory.descriptor, point, one.disk, contents.points, keys=keys)
                )
                for one in point.disks
            ]
            images = [_checked(chain, order.work, files, report) for chain in chains]
        except HostError as err:
            failed = partial(_with_check, problems=[str(err)])
            unrecorded = _recorded(directory, point, failed)
            (problem,) = texts([str(err)])
            return DrillResult(problem=problem, unrecorded=unrecorded)
        unrecorded = _recorded(directory, point, partial(_with_check, problems=[])) or unrecorded
        found = _boot(order, point, images, report)
        outcome = Drill(
            time=time.time(),
            seconds=found.seconds,
            seen=found.seen,
            problem=found.problem,
            lines=tuple(found.lines),
        )
        unrecorded = _recorded(directory, point, partial(_drilled, outcome=outcome)) or unrecorded
        return replace(found, unrecorded=unrecorded)


def _asked(proof: Proof, _point: Manifest) -> Proof:
    """From now on the backup is good only after a drill."""
    return proof if proof.drill else replace(proof, drill=Drill(time=0.0))


def _with_check(proof: Proof, point: Manifest, problems: list[str]) -> Proof:
    return with_check(proof, point, time.time(), problems)


def _drilled(proof: Proof, _point: Manifest, outcome: Drill) -> Proof:
    return replace(proof, drill=outcome)


def _recorded(directory: BackupDirectory, point: Manifest, change: Change) -> str:
    """Change the proof; return why it cannot be changed, for example because the target is read-only."""
    try:
        record(directory, point, change)
    except (HostError, OSError) as err:
        return str(err)
    return ""


@dataclass(frozen=True)
class _Images:
    """The images of one disk for QEMU, the newest first, and the size of the disk."""

    descriptors: list[int]
    size: int


def _checked(
    chain: Chain, work: Path, files: contextlib.ExitStack, report: ProgressFile
) -> _Images:
    """Compare all images of a disk with their digests, by the descriptors that QEMU gets; HostError.

    Encrypted images are decrypted to files without a name, because QEMU never gets a key.
    """
    descriptors = list[int]()
    for layer in chain.layers:
        plain, spare = layer.descriptor, SpareSpace("")
        if layer.cipher is not None:
            work.mkdir(mode=0o700, parents=True, exist_ok=True)
            plain = os.open(work, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
            files.callback(os.close, plain)
            spare = SpareSpace(str(work))
        for number, read in all_pieces(layer):
            piece = read.result()
            if layer.cipher is not None:
                _write(plain, piece, number * PIECE)
                _check_space(spare)
            done = min(layer.image.length, (number + 1) * PIECE)
            report.of_part(f"checking {layer.image.file}", done, layer.image.length)
        if layer.cipher is not None:
            # QEMU takes a descriptor for reading only if that is all it allows.
            plain = os.open(f"/proc/self/fd/{plain}", os.O_RDONLY | os.O_CLOEXEC)
            files.callback(os.close, plain)
        descriptors.append(plain)
    for _ in chain.extents():
        pass
    return _Images(descriptors, chain.size)


def _check_space(spare: SpareSpace) -> None:
    """Raise OSError: a lack of space is not a result of the backup, as a HostError would be."""
    try:
        spare.check()
    except HostError as err:
        raise OSError(errno.ENOSPC, "too little space for the decrypted images") from err


def _write(descriptor: int, data: memoryview, at: int) -> None:
    while data:
        count = os.pwrite(descriptor, data, at)
        data, at = data[count:], at + count


def memory_for(args: DrillArgs, free: int) -> int:
    """Return the guest's memory in MiB; HostError if this node has too little free."""
    wanted = min(args.memory, max(LEAST_MEMORY, free // 2)) if args.less_memory else args.memory
    if wanted > free - SPARE_MEMORY:
        raise HostError(
            f"this node has {free} MiB of free memory, and a drill with {wanted} MiB leaves less than {SPARE_MEMORY};"
            " choose another node that has the directory (--node), or less memory (--memory)"
        )
    return wanted


def free_memory() -> int:
    """Return the MiB that this node has free."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == "MemAvailable":
            return int(value.split()[0]) // 1024
    raise HostError("the kernel of this node does not report its free memory")


@contextlib.contextmanager
def _only_one(empty: Path) -> Iterator[None]:
    """Wait until no other drill uses memory and processors of this node; the kernel ends the turn of a dead one."""
    empty.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    empty.mkdir(exist_ok=True)
    descriptor = os.open(empty, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.fchmod(descriptor, 0o555)  # whatever the mask of a task is
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


@dataclass(frozen=True)
class _Qemu:
    """The process, the descriptors of its guest's console and of its messages, and the agent's channel."""

    process: "subprocess.Popen[bytes]"
    console: int
    errors: int
    channel: socket.socket


@dataclass
class _Output:
    """What QEMU and its guest have said."""

    console: ConsoleText
    agent: AgentAnswer
    errors: bytes = b""

    @property
    def is_alive(self) -> bool:
        return self.console.is_there or self.agent.is_there


def _boot(
    order: DrillOrder, point: Manifest, images: Sequence[_Images], report: ProgressFile
) -> DrillResult:
    """Boot the guest and wait; its end, or none of the signs in time, is a problem of the backup."""
    args = order.args
    output = _Output(ConsoleText("" if args.agent else args.expect), AgentAnswer())
    with contextlib.ExitStack() as stack:
        stack.enter_context(_only_one(order.empty))
        memory = memory_for(args, free_memory())
        descriptors = _Descriptors(stack)
        reader, writer = os.pipe2(os.O_CLOEXEC)
        for end in (reader, writer):
            stack.callback(os.close, end)
        ours, theirs = (stack.enter_context(one) for one in socket.socketpair())
        guest = _guest(order, point, images, descriptors, memory=memory, console=writer)
        process = stack.enter_context(_running(order, guest, descriptors, theirs))
        assert process.stderr is not None  # noqa: S101 - a pipe
        qemu = _Qemu(process, reader, process.stderr.fileno(), ours)
        began = time.monotonic()
        status = _watch(order, qemu, output, report)
        seconds = round(time.monotonic() - began, 1)
    found = DrillResult(
        seconds=seconds,
        lines=output.console.lines,
        memory=memory,
        accelerator=order.accelerator,
    )
    if output.is_alive:
        return replace(found, seen=AGENT if args.agent else args.expect)
    if status:
        said = escaped(output.errors.decode(errors="replace").strip())
        raise HostError(f"QEMU ended with status {status}: {said or 'it printed nothing'}")
    return replace(found, problem=_missing(args, found, ended=status is not None))


def _missing(args: DrillArgs, found: DrillResult, *, ended: bool) -> str:
    why = (
        f"the guest ended after {found.seconds:.0f} s" if ended else f"{found.seconds:.0f} s passed"
    )
    wanted = AGENT if args.agent else repr(args.expect)
    lines = found.lines
    last = f"the console ends: {lines[-1]}" if lines else "the console was empty"
    (problem,) = texts([f"{why} without {wanted}; {last}"])
    return problem


class _Descriptors:
    """Files of the guest without a name, and all that QEMU inherits."""

    def __init__(self, stack: contextlib.ExitStack) -> None:
        self._stack = stack
        self.inherited = list[int]()

    def keep(self, descriptor: int) -> int:
        """Let QEMU inherit a descriptor of its own for this one."""
        own = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 10)
        self._stack.callback(os.close, own)
        self.inherited.append(own)
        return own

    def copy(self, path: str | Path | None) -> int:
        """Return a file in memory with the content of a file of the node; 0 without a path."""
        if not path:
            return 0
        with Path(path).open("rb") as source:
            return self._memory(source)

    def _memory(self, source: IO[bytes]) -> int:
        descriptor = os.memfd_create("drill")
        try:
            while data := source.read(MIB):
                os.write(descriptor, data)
            return self.keep(descriptor)
        finally:
            os.close(descriptor)

    def overlay(self, directory: Path, size: int) -> int:
        """Return an empty image without a name."""
        descriptor = os.open(directory, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            writer = ImageWriter(descriptor, size, "")
            try:
                writer.finish()
            finally:
                writer.close()
            flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
            fcntl.fcntl(descriptor, fcntl.F_SETFL, flags & ~os.O_DIRECT)
            return self.keep(descriptor)
        finally:
            os.close(descriptor)


def _guest(
    order: DrillOrder,
    point: Manifest,
    images: Sequence[_Images],
    files: _Descriptors,
    *,
    memory: int,
    console: int,
) -> DrillGuest:
    args = order.args
    driver, equipment = order.driver, Equipment(order.program, order.accelerator, order.device)
    hvparams = driver.harmless(args.hvparams, equipment)
    disks = [
        DrillDisk(
            uuid=image.disk,
            layers=[files.keep(one) for one in disk.descriptors],
            overlay=files.overlay(order.work, disk.size),
        )
        for image, disk in zip(point.disks, images, strict=True)
    ]
    return DrillGuest(
        equipment=equipment,
        hvparams=hvparams,
        uuid=str(uuid.uuid4()),
        memory=memory,
        vcpus=min(args.vcpus, os.cpu_count() or 1),
        disks=disks,
        console=files.keep(console),
        kernel=files.copy(str(args.hvparams.get("kernel_path", ""))),
        initrd=files.copy(str(args.hvparams.get("initrd_path", ""))),
        variables=files.copy(driver.variables(hvparams)),
        agent=args.agent,
    )


@contextlib.contextmanager
def _running(
    order: DrillOrder, guest: DrillGuest, files: _Descriptors, channel: socket.socket
) -> Iterator["subprocess.Popen[bytes]"]:
    """Run QEMU, confined, until the end of the block."""
    with contextlib.ExitStack() as stack:
        uid = os.getuid()
        if uid == 0:
            locked = RequestUnusedUid(UIDS, directory=Path(order.locks))
            stack.callback(ReleaseUid, locked)
            uid = int(locked)
        limits = [
            uid,
            guest.memory * MIB + QEMU_MEMORY,
            WRITTEN_LIMIT,
            int(order.args.timeout_s + END_S) * (guest.vcpus + 1),
            THREADS_LIMIT,
            order.device,
        ]
        python = {name: value for name, value in os.environ.items() if name.startswith("PYTHON")}
        process = stack.enter_context(
            subprocess.Popen(
                [
                    sys.executable,
                    "-P",
                    "-m",
                    confined.__name__,
                    *map(str, limits),
                    *order.driver.command(guest),
                ],
                cwd=order.empty,
                env={**CLEAN_ENVIRONMENT, **python},
                stdin=channel.fileno(),
                stdout=channel.fileno(),
                stderr=subprocess.PIPE,
                pass_fds=files.inherited,
            )
        )
        stack.callback(_kill, process)
        yield process


def _kill(process: "subprocess.Popen[bytes]") -> None:
    process.kill()
    process.wait(END_S)


def _watch(order: DrillOrder, qemu: _Qemu, output: _Output, report: ProgressFile) -> int | None:
    """Read until a sign of life, QEMU's end (its status) or the time limit (None)."""
    args, spare = order.args, SpareSpace(str(order.work))
    began = ask_at = time.monotonic()
    with selectors.DefaultSelector() as waiting:
        for one in (qemu.console, qemu.errors, *([qemu.channel.fileno()] if args.agent else [])):
            os.set_blocking(one, False)
            waiting.register(one, selectors.EVENT_READ)
        while (now := time.monotonic()) < began + args.timeout_s:
            if args.agent and now >= ask_at:
                ask_at = now + ASK_EVERY_S
                with contextlib.suppress(OSError):
                    qemu.channel.send(output.agent.question(secrets.randbits(31)))
            ready = [key.fd for key, _ in waiting.select(TELL_EVERY_S)]
            for descriptor in ready:
                data = _read(descriptor)
                if not data:
                    waiting.unregister(descriptor)
                elif descriptor == qemu.console:
                    output.console.take(data)
                elif descriptor == qemu.errors:
                    output.errors = (output.errors + data)[-_SAID_BYTES:]
                else:
                    output.agent.take(data)
            if output.is_alive:
                return None
            spare.check()
            report.of_part("boot", int(now - began), int(args.timeout_s), is_time=True)
            if not ready and qemu.process.poll() is not None:
                return qemu.process.wait()
    return None


def _read(descriptor: int) -> bytes:
    """Return what is there; nothing after the end of QEMU."""
    try:
        return os.read(descriptor, 1 << 16)
    except ConnectionError:
        return b""


def main(argv: Sequence[str]) -> int:
    """Carry out a drill; print the result as JSON, or an error."""
    word, log_path = argv
    os.nice(NICENESS)
    try:
        order = wire.decode(word, DrillOrder, what="order")
        result = run(order, ProgressFile(Path(log_path)))
    except (GanetiError, OSError, subprocess.TimeoutExpired) as err:
        say(str(err), file=sys.stderr)
        return 1
    say(wire.encode(result).decode())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
