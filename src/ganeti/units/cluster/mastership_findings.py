"""Findings about the state, its holders and their software; pure."""

from collections.abc import Collection, Iterable, Iterator

from ganeti import __version__
from ganeti.base.errors import RpcError
from ganeti.config.snapshot import Snapshot
from ganeti.jobs.pending_undo import PendingStep
from ganeti.model.objects import Node
from ganeti.rpc.procedures.form import PROTOCOL_VERSION
from ganeti.rpc.procedures.host import VerifyReport
from ganeti.store.backends import ServerFault
from ganeti.units.cluster.findings import Finding
from ganeti.units.services import RegisterState

EXCLUSION_PREFIX = "htools:iextags:"
"""Cluster tags with this prefix declare prefixes of exclusion tags: no node should run two instances with one tag."""

SLOW_S = 1.0
"""A node that confirms the master's epoch later than this is called slow; after 2 s its answer does not count."""


def degraded_findings(snapshot: Snapshot, *, is_degraded: bool) -> Iterator[Finding]:
    """Yield a warning if writes may exist in one copy only (R6, R10); the cluster works."""
    if is_degraded:
        text = (
            "degraded: the last writes may be lost with the master, because it alone holds them, or because it"
            " was forced and no majority of the nodes has registered it yet; bring other nodes back,"
            " or make more nodes candidates (gnt-node modify --master-candidate=yes)"
        )
        yield Finding("ECLUSTERCFG", "cluster", snapshot.cluster.name, text, is_error=False)


def renewal_findings(snapshot: Snapshot) -> Iterator[Finding]:
    """Yield certificates under renewal (F39); warnings, since the old ones are valid until all nodes have new ones."""
    cluster = snapshot.cluster
    behind = [
        node
        for node in snapshot.nodes.values()
        if node.certificate_generation < cluster.certificate_generation
    ]
    for node in behind:
        text = (
            "is offline and has a certificate from before the last renewal; if the master refuses it"
            f" later: gnt-node add --readd {node.name}"
            if node.offline
            else "does not have its new certificate yet; the master sends it when the node answers"
        )
        yield Finding("ECLUSTERCERT", "node", node.name, text, is_error=False)
    if len(cluster.authorities) > 1:
        names = ", ".join(sorted(node.name for node in behind if not node.offline))
        text = f"the former authority is valid until these nodes have new certificates: {names or 'none is left'}"
        yield Finding("ECLUSTERCERT", "cluster", cluster.name, text, is_error=False)


def server_findings(snapshot: Snapshot, faults: Iterable[ServerFault]) -> Iterator[Finding]:
    """Yield servers of the state that are down, behind, or full; the others may be the last healthy ones."""
    for fault in faults:
        code, kind = ("ENODESETUP", "node") if fault.node else ("ECLUSTERCFG", "cluster")
        name = fault.node or snapshot.cluster.name
        yield Finding(code, kind, name, fault.text, is_error=fault.is_error)


def register_findings(snapshot: Snapshot, states: Iterable[RegisterState]) -> Iterator[Finding]:
    """Return the nodes whose register excludes this master, and the voters that answer late."""
    for state in states:
        node = snapshot.nodes.get(state.node)
        if node is None or node.offline:
            continue
        if state.promised_to:
            loser = snapshot.nodes.get(state.promised_to)
            text = (
                f"its register has promised epoch {state.promised} to"
                f" {loser.name if loser else state.promised_to}, which lost the vote for it: until the next"
                " epoch the node refuses every changing call of this master and does not vote for it; restart"
                " ganeti-masterd on the master node, which then takes the next epoch"
            )
            yield Finding("ENODESETUP", "node", node.name, text)
        elif state.promised:
            text = (
                f"its register has promised epoch {state.promised}, which no majority of the registers has:"
                f" it refuses the calls of this master; run 'gnt-node add --readd {node.name}', which gives"
                " it a new register"
            )
            yield Finding("ENODESETUP", "node", node.name, text)
        elif state.has_vote and state.silent:
            text = (
                f"has a vote and did not confirm the master's epoch ({state.silent}); a master without"
                " answers of a majority of the voters for 10 s ends"
            )
            yield Finding("ENODESETUP", "node", node.name, text, is_error=False)
        elif state.has_vote and state.seconds > SLOW_S:
            text = (
                f"has a vote and took {state.seconds:.1f} s to confirm the master's epoch; a master without"
                " answers of a majority for 10 s ends, so make a faster node the candidate"
                " (gnt-node modify --master-candidate)"
            )
            yield Finding("ENODESETUP", "node", node.name, text, is_error=False)


def pending_undo_findings(snapshot: Snapshot, pending: Iterable[PendingStep]) -> Iterator[Finding]:
    """Undo steps that failed and are retried (G11); warnings, because no action is needed."""
    for left in pending:
        why = left.why or "it was not tried yet"
        text = (
            f"job {left.job_id} ({left.summary}) left {left.procedure} undone: {why};"
            " the master retries it each minute (gnt-job pending-undo; gnt-job abandon-undo ends the retries)"
        )
        yield Finding("ECLUSTERCFG", "cluster", snapshot.cluster.name, text, is_error=False)


def version_findings(node: Node, report: VerifyReport) -> Iterator[Finding]:
    """Yield nodes with another protocol (an error) or other software (a warning)."""
    if report.protocol != PROTOCOL_VERSION:
        text = (
            f"speaks node RPC {report.protocol} (version {report.software}), the master"
            f" {PROTOCOL_VERSION} (version {__version__}): it cannot vote or store the state reliably"
        )
        yield Finding("ENODEVERSION", "node", node.name, text)
    elif report.software != __version__:
        text = f"runs version {report.software}, the master {__version__}"
        yield Finding("ENODEVERSION", "node", node.name, text, is_error=False)


def preserved_state_findings(
    answers: Iterable[tuple[Node, VerifyReport | RpcError]],
) -> Iterator[Finding]:
    """Yield preserved states of old masters, which an administrator should check (R9)."""
    for node, report in answers:
        if isinstance(report, RpcError):
            continue
        for path in report.preserved_states:
            what = report.preserved_contents.get(path, "its content cannot be read")
            text = (
                f"has {path}, a preserved state of a former master: {what}; check whether its changes"
                " are still needed, then remove it"
            )
            yield Finding("ENODEFILECHECK", "node", node.name, text, is_error=False)


def exclusion_findings(snapshot: Snapshot, nodes: Iterable[Node]) -> Iterator[Finding]:
    """Yield nodes with two instances of one exclusion tag; warnings, since no other node may be possible."""
    tags = snapshot.cluster.tags
    prefixes = tuple(
        f"{tag.removeprefix(EXCLUSION_PREFIX)}:"
        for tag in sorted(tags)
        if tag.startswith(EXCLUSION_PREFIX) and tag != EXCLUSION_PREFIX
    )
    for node in nodes:
        twice = _shared_tags((one.tags for one in snapshot.instances_on(node.uuid)), prefixes)
        if twice:
            text = f"has more than one instance of exclusion tag {', '.join(twice)}"
            yield Finding("EEXTAGS", "node", node.name, text, is_error=False)


def _shared_tags(sets: Iterable[Collection[str]], prefixes: tuple[str, ...]) -> list[str]:
    seen: set[str] = set()
    twice: set[str] = set()
    for tags in sets:
        exclusive = {tag for tag in tags if tag.startswith(prefixes)} if prefixes else set()
        twice |= seen & exclusive
        seen |= exclusive
    return sorted(twice)
