"""The part of a merge on a node of this implementation, called by the other master or locally.

A caller with root access can do all of this manually, so only the form of requests is checked.
"""

import asyncio
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ganeti.base.errors import ErrorCode, ExecError, HostError, InputError, PrereqError
from ganeti.base.files import write_atomically
from ganeti.base.paths import Paths
from ganeti.base.process import Run, run
from ganeti.base.state_kinds import EMBEDDED
from ganeti.bootstrap.daemons import (
    CONFD,
    MASTERD,
    MOND,
    NODED,
    RAPI,
    STATE_DAEMONS,
    Daemons,
    daemon_environment,
)
from ganeti.bootstrap.init import answers
from ganeti.bootstrap.merge.messages import (
    Action,
    HostFacts,
    NodeFacts,
    Reply,
    Request,
    parse,
)
from ganeti.bootstrap.merge.states import offline_backup
from ganeti.clients.luxi import FINAL, LuxiClient
from ganeti.model.opcodes.instance import OpInstanceShutdown, OpInstanceStartup
from ganeti.rpc.procedures.mastership import MasterIpArgs

STOP_ORDER = (RAPI, MOND, CONFD, MASTERD, *STATE_DAEMONS, NODED)
MASTER_LIMIT_S = 120.0
DROP_LIMIT_S = 60.0
_BACKUP_LIMIT_S = 1800.0
_NEW = "-new"
"""Suffix of the line's mark: the file did not exist before."""
_KEY_LIMIT = 64 * 1024


class Agent:
    """The node whose files are at `paths`."""

    def __init__(self, paths: Paths, daemons: Daemons, *, runs: Run = run) -> None:
        self.paths, self.daemons, self.run = paths, daemons, runs

    async def answer(self, request: Request) -> Reply:
        """Carry out a request; a GanetiError gives the reason of a failure."""
        match request.action:
            case Action.STOP_INSTANCES:
                await asyncio.to_thread(self.stop_instances, request.names, request.timeout_s)
            case Action.START_INSTANCES:
                await asyncio.to_thread(self.start_instances, request.names)
            case Action.STOP_DAEMONS:
                await self.stop_daemons()
            case Action.START_DAEMONS:
                await self.start_daemons(request.names)
            case Action.MASTER_ANSWERS:
                await answers(self.paths, MASTER_LIMIT_S)
            case Action.DROP_ADDRESS if request.address:
                await self.drop_address(request.address)
            case Action.TAKE:
                await self.take()
            case _:
                return await self._reply(request)
        return Reply()

    async def _reply(self, request: Request) -> Reply:
        match request.action:
            case Action.FACTS:
                return Reply(facts=await asyncio.to_thread(self.facts))
            case Action.SSH_KEY:
                return Reply(text=private_key(self.paths, request.names))
            case Action.PAUSED:
                return Reply(pause=paused(self.paths))
            case Action.BACKUP:
                return Reply(data=await asyncio.to_thread(self.backup))
            case Action.STATE:
                return Reply(data=await self.state())
            case Action.DAEMONS:
                return Reply(names=self.running_daemons())
            case _:
                self._write(request)
                return Reply()

    def _write(self, request: Request) -> None:
        match request.action:
            case Action.TRUST:
                trust(self.paths, request.line)
            case Action.DISTRUST:
                distrust(self.paths, request.line)
            case Action.PAUSE:
                pause(self.paths, request.pause)
            case _:
                raise InputError(f"{request.action} lacks what it needs", "action")

    # The master

    def facts(self) -> HostFacts:
        """Return the facts of the local master; raises like `LuxiClient`."""
        with LuxiClient(self.paths) as client:
            info = client.cluster_info()
            nodes = client.rows("Nodes", [], ["name", "pip", "offline", "master"])
            instances = client.rows("Instances", [], ["name", "oper_state"])
            jobs = client.query_jobs([], ["id", "status"])
        return HostFacts(
            cluster=info["name"],
            uuid=info["uuid"],
            version=info["software_version"],
            state=info.get("state", {}).get("kind", EMBEDDED),
            nodes=[
                NodeFacts(name=name, address=address, offline=offline, master=master)
                for name, address, offline, master in nodes
            ],
            instances=sorted(name for name, _ in instances),
            running=sorted(name for name, is_running in instances if is_running is True),
            jobs=[int(row[0]) for row in jobs if row and row[1] not in FINAL],
        )

    def backup(self) -> bytes:
        """Return the state of the running master."""
        with tempfile.TemporaryDirectory(prefix="merge-", dir=self.paths.data) as directory:
            path = Path(directory) / "state"
            _let_master_write(self.paths, path.parent)
            with LuxiClient(self.paths, timeout_s=_BACKUP_LIMIT_S) as client:
                client.call("BackupState", str(path))
            return path.read_bytes()

    async def state(self) -> bytes:
        """Return the state where the master daemon is stopped."""
        return await offline_backup(self.paths)

    async def take(self) -> None:
        """Do nothing: this node has no files of upstream."""

    def stop_instances(self, names: Sequence[str], timeout_s: int) -> None:
        """Shut down the running ones.

        Their desired state stays "up" (S36). ExecError names those that did not end.
        """

        def stop(name: str) -> OpInstanceShutdown:
            return OpInstanceShutdown(instance_name=name, timeout=timeout_s, no_remember=True)

        self._all(names, is_running=True, make=stop, what="did not shut down")

    def start_instances(self, names: Sequence[str]) -> None:
        """Start the ones that do not run (S45). ExecError names those that did not start."""
        self._all(names, is_running=False, make=self.startup, what="did not start")

    def startup(self, name: str) -> object:
        """Return the opcode that starts an instance."""
        return OpInstanceStartup(instance_name=name)

    def _all(
        self,
        names: Sequence[str],
        *,
        is_running: bool,
        make: Callable[[str], object],
        what: str,
    ) -> None:
        with LuxiClient(self.paths) as client:

            def left() -> list[str]:
                rows = (
                    client.rows("Instances", list(names), ["name", "oper_state"]) if names else []
                )
                return [name for name, state in rows if (state is True) is is_running]

            wanted = left()
            submitted = client.submit_many_jobs([[make(name)] for name in wanted])
            for is_submitted, job in submitted:
                if is_submitted:
                    for _change in client.wait_for_job(int(job)):
                        pass
            failed = left()
            if failed:
                raise ExecError(
                    f"instances {what}: {', '.join(failed[:10])}; see 'gnt-job list' there"
                )

    # Daemons and addresses

    async def drop_address(self, args: MasterIpArgs) -> None:
        """Remove a cluster's own address from this host, like its node daemon; HostError."""
        own = [sys.executable, "-m", "ganeti.node.master_ip_setup"]
        words = [str(self.paths.master_ip_script)] if args.by_script else own
        variables = {
            "MASTER_IP": args.address,
            "MASTER_NETDEV": args.netdev,
            "MASTER_NETMASK": str(args.netmask),
            "CLUSTER_IP_VERSION": "6" if ":" in args.address else "4",
        }
        environment = {**daemon_environment(os.environ), **variables}
        await self.run([*words, "stop"], timeout_s=DROP_LIMIT_S, env=environment)

    def running_daemons(self) -> list[str]:
        """Return the running daemons."""
        return [name for name in STOP_ORDER if self.daemons.status(name).process]

    async def stop_daemons(self) -> None:
        """Stop all daemons (S38); HostError."""
        for name in STOP_ORDER:
            await self.daemons.stop(name)

    async def start_daemons(self, names: Sequence[str]) -> None:
        """Start these daemons; InputError for an unknown one, HostError."""
        for name in reversed(STOP_ORDER):
            if name in names:
                await self.daemons.start(name)
        unknown = set(names) - set(STOP_ORDER)
        if unknown:
            raise InputError(f"unknown daemons: {', '.join(sorted(unknown))}", "names")


def _let_master_write(paths: Paths, directory: Path) -> None:
    """Give the files to the master daemon's user, who owns the data directory."""
    owner = paths.data.stat()
    os.chown(directory, owner.st_uid, owner.st_gid)


# SSH


def private_key(paths: Paths, types: Sequence[str]) -> str:
    """Return root's key of the first of these types that exists; '' without one."""
    for name in types:
        if not name.isalnum():
            raise InputError(f"{name!r:.40} is not a type of SSH key", "names")
        try:
            with (paths.root_ssh / f"id_{name}").open(encoding="ascii") as file:
                return file.read(_KEY_LIMIT)
        except (FileNotFoundError, UnicodeDecodeError):
            continue
        except OSError as err:
            raise HostError(f"cannot read {err.filename}: {err.strerror}") from err
    return ""


def _authorized(paths: Paths) -> Path:
    return paths.root_ssh / "authorized_keys"


def _contents(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def _forms(line: str) -> tuple[bytes, ...]:
    """Return the possible forms of the added line in the file."""
    text = line.encode()
    if b"\n" in text or not text:
        raise InputError("must be one line", "line")
    return (b"\n" + text, text + b"\n", text + _NEW.encode() + b"\n")


def trust(paths: Paths, line: str) -> None:
    """Add one line to root's authorized keys, once; the rest stays unchanged byte by byte."""
    behind, plain, alone = _forms(line)
    path, old = _authorized(paths), _contents(_authorized(paths))
    if old is not None and line.encode() in old:
        return
    if old is None:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_atomically(path, alone, mode=0o600)
        return
    more = behind if old and not old.endswith(b"\n") else plain
    write_atomically(path, old + more, mode=path.stat().st_mode & 0o777)


def distrust(paths: Paths, line: str) -> None:
    """Remove that line again; remove the file if it was created for the line and has nothing else."""
    behind, plain, alone = _forms(line)
    path, old = _authorized(paths), _contents(_authorized(paths))
    if old is None:
        return
    if old == alone:
        path.unlink()
        return
    if alone in old:
        new = old.replace(alone, b"")
    elif plain in old:
        new = old.replace(plain, b"")
    elif old.endswith(behind):
        new = old.removesuffix(behind)
    else:
        return
    write_atomically(path, new, mode=path.stat().st_mode & 0o777)


# The watcher


def paused(paths: Paths) -> str | None:
    """Return the pause of this node's watcher; None without a pause."""
    try:
        return paths.watcher_pause.read_text(encoding="ascii", errors="replace")
    except OSError:
        return None


def pause(paths: Paths, text: str | None) -> None:
    """Pause the watcher of this node, or end its pause."""
    if text is None:
        paths.watcher_pause.unlink(missing_ok=True)
    else:
        write_atomically(paths.watcher_pause, text.encode(), mode=0o640)


def checked(answer: Reply, who: str) -> Reply:
    """Return the answer; PrereqError with the node's text if it is an error."""
    if answer.error:
        raise PrereqError(f"{who}: {answer.error}", ErrorCode.ENVIRONMENT)
    return answer


def parse_answer(data: bytes, who: str) -> Any:
    """Return a node's answer; PrereqError."""
    try:
        answer = parse(data, Reply, "answer")
    except InputError as err:
        raise PrereqError(
            f"{who} gave an unexpected answer: {err.message}", ErrorCode.ENVIRONMENT
        ) from err
    return checked(answer, who)
