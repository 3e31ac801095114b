"""Lost nodes during a merge, which continues or rolls back without them."""

from ganeti.base.errors import ErrorCode, InputError, PrereqError
from ganeti.bootstrap.merge.journal import Journal
from ganeti.bootstrap.merge.steps import Merge, is_past_return


def leave_out(journal: Journal, name: str) -> None:
    """Continue or roll back without a node that does not return; InputError, PrereqError."""
    for cluster in journal.clusters:
        node = next((one for one in cluster.nodes if one.name == name), None)
        if node is None:
            continue
        if node.is_master and not is_past_return(journal):
            raise PrereqError(
                (
                    f"{name} is the master of {cluster.name}, which can neither be merged nor "
                    "rolled back without it: repair the node, and run the command again"
                ),
                ErrorCode.WRONG_STATE,
            )
        cluster.nodes.remove(node)
        cluster.left_out.append(name)
        journal.save()
        return
    raise InputError(f"{name!r:.80} is not a node of a merging cluster", "--without")


def said_of_left_out(m: Merge, *, back: bool) -> list[str]:
    """Return instructions for such nodes, for when they return."""
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
                f"{old} was left out: when it is back, remove the line {m.journal.mark} from "
                f"root's authorized_keys there; {then}"
            )
    return lines
