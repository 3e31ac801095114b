"""Findings about files that nodes must share: ssconf, shared files, the cluster's authority; pure."""

import hashlib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ganeti.base.errors import RpcError
from ganeti.base.node_files import holders_of
from ganeti.base.paths import Paths
from ganeti.base.roles import NEEDED, Role, forbidden_daemons, holds_copy, may_hold
from ganeti.model.objects import Node
from ganeti.rpc.procedures.files import SharedFiles
from ganeti.rpc.procedures.host import VerifyReport
from ganeti.units.cluster.findings import CERTIFICATE_WARNING_S, Finding
from ganeti.units.shared_files import MEND

Answer = tuple[Node, VerifyReport | RpcError]


@dataclass(frozen=True)
class SsconfExpected:
    """The valid contents of ssconf, the position from which on it may be newer, and the late nodes."""

    checksums: frozenset[str]
    position: int
    late: Collection[str]


def ssconf_findings(answers: Iterable[Answer], expected: SsconfExpected) -> Iterator[Finding]:
    """Yield nodes whose ssconf files differ from the configuration (F8)."""
    for node, report in answers:
        if isinstance(report, RpcError):
            continue
        if report.ssconf_position < 0:
            yield Finding("ENODEFILECHECK", "node", node.name, "has no ssconf files")
        elif (
            report.ssconf_checksum
            and report.ssconf_checksum not in expected.checksums
            and report.ssconf_position <= expected.position
        ):
            is_late = node.name in expected.late
            text = (
                "its ssconf files are not up to date yet"
                if is_late
                else "its ssconf files differ from the configuration; run gnt-cluster redist-conf"
            )
            yield Finding("ENODEFILECHECK", "node", node.name, text, is_error=not is_late)


def shared_findings(
    answers: Iterable[Answer],
    shared: SharedFiles | None,
    master: str,
    renewed: Collection[str] = (),
) -> Iterator[Finding]:
    """Yield files that a node lacks, has in another version, or should not have (S65-S68); `master` is a UUID.

    After a renewal the master may still have the earlier version (`renewed_findings`).
    """
    if shared is None:
        return
    for problem in shared.problems:
        yield Finding("ECLUSTERFILECHECK", "cluster", "", problem, is_error=False)
    wanted = {file.path: hashlib.sha256(file.content).hexdigest() for file in shared.files}
    for node, report in answers:
        if isinstance(report, RpcError) or node.uuid == master:
            continue
        for file in shared.files:
            found = report.file_checksums.get(file.path)
            if file.candidates_only and not node.master_candidate:
                continue  # `role_findings` checks these
            if found is None:
                text = f"lacks {file.path}; run gnt-cluster redist-conf"
                yield Finding("ECLUSTERFILECHECK", "node", node.name, text)
            elif found != wanted[file.path] and file.path not in renewed:
                text = f"has another {file.path} than the master; run gnt-cluster redist-conf"
                yield Finding("ECLUSTERFILECHECK", "node", node.name, text)


def role_findings(
    answers: Iterable[Answer], master: str, *, confd_on_all: bool
) -> Iterator[Finding]:
    """Yield files and daemons that a node's role forbids, or that the node lacks (`ganeti.base.roles`)."""
    usual = Paths()
    for node, report in answers:
        if isinstance(report, RpcError) or report.role_files is None:
            continue
        role = role_of(node, is_master=node.uuid == master)
        for path in report.role_files:
            holders = holders_of(usual, Path(path))
            if may_hold(holders, role, confd_on_all=confd_on_all):
                continue
            text = (
                f"has {path}, which a {role} node must not have; run 'gnt-cluster redist-conf', which"
                " removes it"
            )
            yield Finding("ECLUSTERFILECHECK", "node", node.name, text)
        forbidden = forbidden_daemons(role, confd_on_all=confd_on_all)
        for name in sorted(set(report.role_daemons).intersection(forbidden)):
            text = (
                f"runs {name}, which a {role} node must not run; run 'gnt-cluster redist-conf', which"
                " ends it"
            )
            yield Finding("ENODESETUP", "node", node.name, text)
        found = {Path(path).name for path in report.role_files}
        for name in sorted(NEEDED - found) if role is Role.CANDIDATE else ():
            text = f"lacks {name}, which every master candidate must have; run 'gnt-cluster redist-conf'"
            yield Finding("ECLUSTERFILECHECK", "node", node.name, text)
        copy = {usual.own_confd_key.name, usual.confd_copy.name}
        for name in sorted(copy - found) if holds_copy(role, confd_on_all=confd_on_all) else ():
            text = (
                f"lacks {name}, which confd answers with there; the master sends it within a minute"
            )
            yield Finding("ECLUSTERFILECHECK", "node", node.name, text, is_error=False)


def role_of(node: Node, *, is_master: bool) -> Role:
    """Return the role that the configuration gives a node."""
    if is_master:
        return Role.MASTER
    if node.offline:
        return Role.OFFLINE
    if node.drained:
        return Role.DRAINED
    return Role.CANDIDATE if node.master_candidate else Role.REGULAR


def renewed_findings(
    answers: Iterable[Answer], renewed: Mapping[str, str], master: str
) -> Iterator[Finding]:
    """Yield nodes that missed a renewal: their file is no longer valid (F39)."""
    for node, report in answers:
        if isinstance(report, RpcError):
            continue
        for path, wanted in sorted(renewed.items()):
            found = report.file_checksums.get(path)
            if found in (None, wanted):
                continue
            how = MEND if node.uuid == master else "run gnt-cluster redist-conf"
            text = f"has another {path} than the one that was renewed last; {how}"
            yield Finding("ECLUSTERFILECHECK", "node", node.name, text)


def authority_findings(answers: Iterable[Answer], now: float) -> Iterator[Finding]:
    """Yield an authority that ends soon, and nodes with another one (G27)."""
    reports = [(node, report) for node, report in answers if isinstance(report, VerifyReport)]
    known = [(node, report) for node, report in reports if report.authority]
    if not known:
        return
    usual = Counter(report.authority for _, report in known).most_common(1)[0][0]
    for node, report in known:
        if report.authority != usual:
            text = "has another authority's certificate than the other nodes"
            yield Finding("ECLUSTERCERT", "node", node.name, text)
    ends = [one.authority_not_after for _, one in known if one.authority_not_after is not None]
    left_s = min(ends, default=now + 2 * CERTIFICATE_WARNING_S) - now
    if left_s < CERTIFICATE_WARNING_S:
        text = (
            f"the authority's certificate ends in {left_s / 86400:.0f} days"
            if left_s > 0
            else "the authority's certificate has ended"
        )
        yield Finding("ECLUSTERCERT", "cluster", "", text, is_error=left_s <= 0)
