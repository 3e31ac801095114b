"""The data that makes this host a node of its cluster: the ssconf set, the list of candidates.

And leaving.
"""

import asyncio
import errno
import logging
from collections.abc import Callable, Mapping

from ganeti import ssconf
from ganeti.base.errors import ConfigurationError, ErrorCode, HostError, InputError, PrereqError
from ganeti.base.identifiers import is_uuid
from ganeti.base.paths import Paths
from ganeti.base.tls import is_fingerprint
from ganeti.bootstrap.daemons import CONFD, GUARD, Daemons
from ganeti.bootstrap.destroy import forget_cluster
from ganeti.bootstrap.own_role import end_confd_copy
from ganeti.rpc.calls import Call, Checks, Handlers
from ganeti.rpc.procedures.files import WRITE_SSCONF, SsconfArgs, SsconfWritten
from ganeti.rpc.procedures.form import Nothing
from ganeti.rpc.procedures.host import LEAVE_CLUSTER, TEST_DELAY, LeaveArgs, TestDelayArgs

CANDIDATES_FILE = "ssconf_master_candidates_certs"

DISK_FAILS = (errno.EIO, errno.ENODEV, errno.ENXIO, errno.ESTALE, errno.EUCLEAN)
"""Device errors.

The last good list stays valid, so that a master can still restart a node with a failed disk (S31).
"""

log = logging.getLogger(__name__)


class CandidateCertificates:
    """The fingerprints of permitted callers, read again whenever the list changes (G22).

    A list that is missing, empty or damaged permits no caller (A25).
    """

    def __init__(self, paths: Paths) -> None:
        self._path = paths.data / CANDIDATES_FILE
        self._seen: tuple[int, ...] | None = None
        self._allowed: frozenset[str] = frozenset()

    def __call__(self) -> frozenset[str]:
        try:
            found = self._path.stat()
        except OSError as err:
            if err.errno not in DISK_FAILS:
                self._refuse_all(None, f"cannot be read: {err.strerror}")
            return self._allowed
        state = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
        if state != self._seen:
            self._read(state)
        return self._allowed

    def _read(self, state: tuple[int, ...]) -> None:
        try:
            self._allowed = parse_candidates(self._path.read_text("utf-8"))
            self._seen = state
        except InputError as err:
            self._refuse_all(state, err.message)
        except (OSError, UnicodeDecodeError) as err:
            if isinstance(err, OSError) and err.errno in DISK_FAILS:
                return
            self._refuse_all(state, f"cannot be read: {err}")

    def _refuse_all(self, state: tuple[int, ...] | None, why: str) -> None:
        if state != self._seen or self._allowed:
            log.error("this node accepts no callers: %s %s", self._path, why)
        self._allowed, self._seen = frozenset(), state


def parse_candidates(text: str) -> frozenset[str]:
    """Return the fingerprints of a list with `UUID=FINGERPRINT` lines; InputError for any other line."""
    found = set()
    for line in text.splitlines():
        uuid, _, fingerprint = line.partition("=")
        if not is_uuid(uuid) or not is_fingerprint(fingerprint):
            raise InputError(f"has a line that is not UUID=FINGERPRINT: {line!r:.120}")
        found.add(fingerprint)
    if not found:
        raise InputError("lists no candidate")
    return frozenset(found)


def checks(cluster_uuid: Callable[[], str]) -> Checks:
    """Return the checks that do not depend on the epoch: another cluster, and a negative time."""

    def check_leaving(args: LeaveArgs) -> None:
        mine = cluster_uuid()
        if args.cluster_uuid != mine:
            what = f"this node is in cluster {mine or '(none)'}, not in {args.cluster_uuid:.60}"
            raise PrereqError(what, ErrorCode.WRONG_STATE)

    def check_delay(args: TestDelayArgs) -> None:
        if args.duration_s < 0:
            raise InputError("must not be negative", "duration_s")

    return {LEAVE_CLUSTER.name: check_leaving, TEST_DELAY.name: check_delay}


def ssconf_values(paths: Paths, args: SsconfArgs) -> dict[str, str]:
    """Return the values of a whole set; PrereqError if the node does not have the set on which it is based."""
    if args.base is None:
        return args.values
    try:
        position, present = ssconf.read_set(paths)
    except ConfigurationError as err:
        raise PrereqError(err.message, ErrorCode.WRONG_STATE) from err
    return complete_set(args, position, present)


def complete_set(args: SsconfArgs, position: int, present: Mapping[str, str]) -> dict[str, str]:
    """Return the values of the set that `args` makes of the present one; PrereqError if that is another one."""
    if position != args.base:
        raise PrereqError(
            f"the ssconf set here is of position {position} and not {args.base}",
            ErrorCode.WRONG_STATE,
        )
    kept = {name: text for name, text in present.items() if name not in args.removed}
    edited = {name: one.applied(present.get(name, "")) for name, one in args.lines.items()}
    values = {**kept, **edited, **args.values}
    if ssconf.checksum(values) != args.checksum:
        raise PrereqError(
            f"the ssconf files of position {position} were changed on this node",
            ErrorCode.WRONG_STATE,
        )
    return values


def handlers(
    paths: Paths,
    daemons: Daemons,
    cluster_uuid: Callable[[], str],
    left_cluster: Callable[[], None],
) -> Handlers:
    """`cluster_uuid` returns this node's cluster; `left_cluster` is called once it is in none."""
    writing = asyncio.Lock()

    async def write_ssconf(args: SsconfArgs, _call: Call) -> SsconfWritten:
        async with writing:
            try:
                values = await asyncio.to_thread(ssconf_values, paths, args)
                is_written = await asyncio.to_thread(ssconf.write_set, paths, args.position, values)
            except OSError as err:
                what = f"cannot write the ssconf set: {err.strerror} ({err.filename})"
                raise HostError(what) from err
        if not is_written:
            what = f"the ssconf set of position {args.position} is older than the present one"
            raise PrereqError(what, ErrorCode.WRONG_STATE)
        try:
            for done in await end_confd_copy(paths, daemons):
                log.info("confd: %s", done)
        except HostError as err:
            log.warning("the data of confd remains on this node: %s", err)
        return SsconfWritten(takes_differences=True)

    own_checks = checks(cluster_uuid)

    async def leave_cluster(args: LeaveArgs, _call: Call) -> Nothing:
        await asyncio.to_thread(own_checks[LEAVE_CLUSTER.name], args)
        log.warning("leaving the cluster %s on request of its master", args.cluster_uuid)
        for name in (CONFD, GUARD):
            await daemons.stop(name)
        await asyncio.to_thread(forget_cluster, paths)
        left_cluster()
        return Nothing()

    async def delay(args: TestDelayArgs, _call: Call) -> Nothing:
        own_checks[TEST_DELAY.name](args)
        await asyncio.sleep(args.duration_s)
        return Nothing()

    return {
        WRITE_SSCONF.name: write_ssconf,
        LEAVE_CLUSTER.name: leave_cluster,
        TEST_DELAY.name: delay,
    }
