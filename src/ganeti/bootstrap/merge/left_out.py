"""Nodes that are lost while their cluster is merged: it goes on, or back, without them."""

from ganeti.base.errors import ErrorCode, InputError, PrereqError
from ganeti.bootstrap.merge.journal import Journal
from ganeti.bootstrap.merge.steps import Merge, is_past_return


def leave_out(journal: Journal, name: str) -> None:
    """Go on, or back, without a node that does not come back; InputError, PrereqError."""
    for cluster in journal.clusters:
        node = next((one for one in cluster.nodes if one.name == name), None)
        if node is None:
            continue
        if node.is_master and not is_past_return(journal):
            raise PrereqError(
                f"{name} is the master of {cluster.name}, which can neither be merged nor taken back"
                " without it: bring it back, and run this again",
                ErrorCode.WRONG_STATE,
            )
        cluster.nodes.remove(node)
        cluster.left_out.append(name)
        journal.save()
        return
    raise InputError(f"{name!r:.80} is no node that is being merged", "--without")


def said_of_left_out(m: Merge, *, back: bool) -> list[str]:
    """What is to be done when such nodes come back, for people."""
    lines = []
    for cluster in m.journal.clusters:
        for old in cluster.left_out:
            name = m.name(cluster, "node", old)
            then = (
                "remove its watcher.pause, and start its daemons"
                if back
                else f"it is offline here until 'gnt-node add --readd {name}'"
            )
            lines.append(
                f"{old} was left out: when it is back, remove the line {m.journal.mark} from root's"
                f" authorized_keys there; {then}"
            )
    return lines
