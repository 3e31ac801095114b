"""One node as recovery sees it: silent, fenced, back again. `docs/design/recovery.md` draws the states.

    HEALTHY --silent 6 s--> SUSPECT --silent 10 s, most nodes answer--> FENCING --a method succeeds--> FENCED
    SUSPECT --it answers--> HEALTHY          FENCING --no method is left--> STUCK --an administrator--> FENCED
    STUCK --its power, tried again, is off--> FENCED       STUCK --it answers--> HEALTHY
    FENCING or STUCK, and marked offline by recovery --it answers--> RETURNING
    RETURNING --silent 10 s, most nodes answer--> FENCING
    FENCED --it answers--> RETURNING --what moved away is dropped there--> HEALTHY

Every change but those between HEALTHY and SUSPECT is committed before it counts (D12).
"""

from dataclasses import replace
from typing import NamedTuple

from ganeti.model.objects import NodeRow, NodeUuid
from ganeti.model.recovery import FenceMethod, NodeState, Token
from ganeti.recovery.facts import InstanceFacts, NodeFacts
from ganeti.recovery.messages import (
    Alarm,
    Commit,
    Fence,
    FenceEnded,
    Instruction,
    Release,
    SendBeat,
)
from ganeti.recovery.times import BEAT_S, LOST_S, SUSPECT_S, reset_by

CUT_OFF = "most nodes are silent, so this may be a fault of the network"
AROUND = "its primary address does not answer the master; its secondary address or another node reaches it"
RETRY_S = 30.0
"""After so long a stuck node is tried again, by its power and its storage; the time is doubled after each attempt."""
MOST_RETRY_S = 600.0
RETRIES = 10
"""So often: more than an hour under one master (D13)."""
RELAYS = 3
"""How many peers relay a heartbeat to a suspected node."""


_AWAY = (NodeState.FENCED, NodeState.RETURNING)


class Surroundings(NamedTuple):
    """What a node's decisions need to know of the rest."""

    epoch: int
    elected_at: float
    has_majority: bool
    """A majority has confirmed this master within MAJORITY_S: it may return tokens."""
    most_answer: bool
    """More than half of the nodes have answered lately (D11)."""
    healthy: tuple[NodeUuid, ...]
    """Nodes that can relay heartbeats to others."""
    master: NodeUuid | None = None
    """The node of this master."""


class NodeWatch:
    """The state of one node; `now` is monotonic time."""

    def __init__(self, node: NodeUuid, facts: NodeFacts, elected_at: float) -> None:
        self.node, self.facts = node, facts
        self.row = NodeRow(node, NodeState.HEALTHY, 0)
        """As it was committed last."""
        self.is_suspect = False
        self.silent_since = elected_at
        """When the last answer arrived; a new master gives every node time to answer."""
        self._direct_at = elected_at
        """When the last answer came from its primary address without a peer."""
        self._has_answered = False
        self._token: Token | None = None
        self._token_at = float("-inf")
        self.is_armed = False
        """As the last answer said."""
        self._pending: NodeRow | None = None
        """The row that is to be committed next; nothing else is decided meanwhile."""
        self._is_committing = False
        self._beat_due = elected_at
        self._is_renewed = False
        self._trying: FenceMethod | None = None
        """What is being tried, of its power and its storage."""
        self._release_due: float | None = None
        """When its storage is asked again to accept its writes."""
        self._untried: list[FenceMethod] = []
        self._failed = ""
        """Why the power could not be cut, and why the storage does not refuse its writes."""
        self._retries, self._retry_due = 0, elected_at + RETRY_S
        """How often the stuck node was tried again, and when the next attempt may come."""
        self._told = ""
        self._in_service_since = elected_at
        """When its last maintenance ended."""
        self.since = elected_at
        """When it came into its state, as far as this master has seen."""

    @property
    def state(self) -> NodeState:
        """Return the state, with SUSPECT where the row says HEALTHY."""
        is_suspect = self.is_suspect and self.row.state is NodeState.HEALTHY
        return NodeState.SUSPECT if is_suspect else self.row.state

    @property
    def is_changing(self) -> bool:
        """Return whether another state is being committed."""
        return self._pending is not None

    @property
    def is_around(self) -> bool:
        """Return whether its last answers came from its secondary address or through a peer only."""
        return self.silent_since >= self._direct_at + SUSPECT_S

    @property
    def has_lease(self) -> bool:
        """Return whether the last heartbeat has renewed its lease, so that guests can be started there."""
        return self._is_renewed and self.state is NodeState.HEALTHY

    @property
    def why(self) -> str:
        """Return the reason for the state, for people."""
        if self.facts.in_maintenance:
            return "in maintenance: it is not fenced, and its instances are not started elsewhere"
        if self.facts.stays_offline and self.row.state in _AWAY:
            return f"an administrator has marked it offline; gnt-node modify --offline=no {self.facts.name} brings it back"
        if not self._told and self.row.state is NodeState.HEALTHY and self.is_around:
            return AROUND
        return self._told or self.row.why

    @property
    def alarm(self) -> str:
        """Return what administrators must do for it, or ''."""
        if not self._told:
            return ""
        return (
            f"node {self.facts.name} is lost and not fenced: {self._told}; once it is certainly off, run:"
            f" gnt-node fenced --confirm {self.facts.name}"
        )

    def has_ended(self, uuid: str, guest: InstanceFacts) -> bool:
        """Return whether a guest that ran here certainly runs no more, or cannot write its disks (D7)."""
        return self.row.has_ended(uuid, under_lease=guest.is_under_lease)

    def next_due(self) -> float:
        """Return when `tick` has something to do."""
        return self._beat_due

    def answers(self, now: float) -> bool:
        """Return whether it has answered this master, and lately."""
        return self._has_answered and now < self.silent_since + LOST_S

    # Events

    def configure(self, facts: NodeFacts, now: float) -> None:
        """Its configuration has changed; silence during its maintenance does not count when that has ended."""
        if self.facts.in_maintenance and not facts.in_maintenance:
            self._in_service_since = now
        if facts.methods != self.facts.methods:
            self._retries, self._retry_due = 0, now
        self.facts = facts

    def listen_again(self, now: float) -> None:
        """Give it time to answer: this master stood still. Answers from before that may arrive first."""
        self.silent_since, self._has_answered = now + BEAT_S, False
        self._direct_at = now + BEAT_S

    def beat_at_once(self, now: float) -> None:
        """Send the next heartbeat at the next `tick`: it lists something new, and the answer confirms it."""
        self._beat_due = min(self._beat_due, now)

    def adopt(self, row: NodeRow, epoch: int) -> list[Instruction]:
        """Take over from an older master: what it only began is begun again in this epoch (D12)."""
        self.row = row
        if row.state is NodeState.FENCING:
            return self._commit(replace(row, epoch=epoch))
        if row.state is NodeState.STUCK:
            self._told = row.why
        return []

    def answered(
        self,
        token: Token,
        now: float,
        around: Surroundings,
        *,
        is_armed: bool,
        is_direct: bool = True,
    ) -> list[Instruction]:
        """The node has answered."""
        self.silent_since, self._has_answered = now, True
        if is_direct:
            self._direct_at = now
        if self._token is None:
            self._beat_due = (
                now  # after an election leases are about to end: return the first token at once
            )
        if self.is_suspect:
            self.is_suspect, self.since = False, now
        if self.row.state is NodeState.HEALTHY:
            self._told = ""
        self._token, self._token_at, self.is_armed = token, now, is_armed
        if self._pending is not None:
            return []
        match self.row.state:
            case NodeState.HEALTHY if self.facts.awaits_return:
                return self._move(NodeState.RETURNING, around)
            case NodeState.HEALTHY if is_armed != self.row.is_armed:
                return self._move(NodeState.HEALTHY, around)
            case NodeState.FENCING | NodeState.STUCK if self._trying is None:
                return self._move(self._back(), around)
            case NodeState.FENCED if not self.facts.stays_offline:
                return self._move(NodeState.RETURNING, around)
            case _:
                return []

    def _back(self) -> NodeState:
        """Return the state of a node that answers before it is fenced: one that was away has not dropped what moved away."""
        is_away = self.facts.awaits_return or self.row.asked_storage
        return NodeState.RETURNING if is_away else NodeState.HEALTHY

    def tick(self, now: float, around: Surroundings) -> list[Instruction]:
        """Return what is due: a heartbeat, and the next state of a node that is silent."""
        if now < self._beat_due:
            return []
        self._beat_due = now + BEAT_S
        out = self._beats(now, around)
        if self._pending is None:
            out += self._follow_silence(now, around)
        elif not self._is_committing:
            out += self._commit(self._pending)
        return out

    def committed(self, row: NodeRow, now: float, around: Surroundings) -> list[Instruction]:
        """The row is durable: it counts from now on."""
        self._pending, self._is_committing = None, False
        if row.state is not self.row.state:
            self.since = now
        before, self.row = self.row, row
        if row.asked_storage and not before.asked_storage:
            return self._ask_storage(now, around)
        if row.state is NodeState.FENCING:
            self._untried = [one for one in self.facts.methods if self._is_usable(one, around)]
            self._failed = ""
            return self._fence_on(now, around)
        if row.state is NodeState.STUCK:
            self._retries, self._retry_due = 0, now + RETRY_S
            return self._alarm(row.why)
        self._told = ""
        return []

    def commit_failed(self, row: NodeRow) -> None:
        """It is not known whether the row is durable: it is committed again when it is due."""
        if row == self._pending:
            self._is_committing = False

    def fence_ended(self, event: FenceEnded, now: float, around: Surroundings) -> list[Instruction]:
        """Its power or its storage was tried."""
        self._trying = None
        if event.method is FenceMethod.STORAGE:
            is_awaited = self.row.state in (NodeState.FENCING, NodeState.STUCK)
            if event.is_fenced and event.fenced_instances and is_awaited:
                why = f"storage: {event.detail}"
                return self._move(
                    NodeState.FENCED, around, why=why, fenced_instances=event.fenced_instances
                )
        elif event.is_fenced and self._may_be_off():
            why = f"power off: {event.detail}"
            return self._move(NodeState.FENCED, around, why=why, is_off=True)
        if self.row.state not in (NodeState.FENCING, NodeState.STUCK):
            return []
        failed = f"{event.method.value}: {event.detail}"
        is_first = event.method is FenceMethod.POWER or not self._failed
        self._failed = failed if is_first else f"{self._failed}; {failed}"
        if self.row.state is NodeState.FENCING:
            return self._fence_on(now, around)
        if event.method is FenceMethod.POWER and self._has(FenceMethod.STORAGE, around):
            return self._try(FenceMethod.STORAGE, around)
        self._retry_due = now + min(RETRY_S * 2**self._retries, MOST_RETRY_S)
        is_last = self._retries == RETRIES
        return self._alarm(f"{self._failed} (not tried again)" if is_last else self._failed)

    def _may_be_off(self) -> bool:
        """Return whether it matters that the power is off: what the watchdog has fenced may have other guests."""
        match self.row.state:
            case NodeState.FENCING | NodeState.STUCK:
                return True
            case NodeState.FENCED:
                return not self.row.is_off and self._pending is None
            case _:
                return False

    def confirmed(self, by: str, now: float, around: Surroundings) -> list[Instruction]:
        """An administrator says that it is off, which a node that answers is not."""
        name = self.facts.name
        if self.answers(now):
            return [Alarm(name, f"node {name} answers, although {by} has confirmed that it is off")]
        if self.row.state is NodeState.RETURNING or self.row.is_off:
            return []
        return self._move(NodeState.FENCED, around, why=f"confirmed by {by}", is_off=True)

    def rejoined(self, around: Surroundings) -> list[Instruction]:
        """Nothing of what moved away is left there: its storage may accept its writes again."""
        if self.row.state is not NodeState.RETURNING:
            return []
        if self.row.asked_storage:
            return [Release(self.node, self.row.fenced_instances)]
        return self._move(NodeState.HEALTHY, around)

    def release_ended(self, problem: str, now: float, around: Surroundings) -> list[Instruction]:
        """Its storage was asked to accept its writes; without that its guests would fail."""
        if self.row.state is not NodeState.RETURNING or self._pending is not None:
            return []
        if not problem:
            return self._move(NodeState.HEALTHY, around)
        self._release_due = now + RETRY_S
        return [Alarm(self.facts.name, f"node {self.facts.name} is back, but {problem}")]

    # Decisions

    def _beats(self, now: float, around: Surroundings) -> list[Instruction]:
        """Return the heartbeats. Once the primary address is silent they also go to the secondary one, and through peers.

        They do so as long as it is silent: what answers only there needs each of them for its lease.
        """
        token = self._token if self._may_have_lease(around) else None
        self._is_renewed = token is not None
        beats: list[Instruction] = [SendBeat(self.node, token)]
        if now < self._direct_at + SUSPECT_S:
            return beats
        peers = [one for one in around.healthy if one != self.node][:RELAYS]
        beats += [SendBeat(self.node, token, one) for one in peers]
        if self.facts.has_secondary:
            ways = (None, *peers)
            beats += [SendBeat(self.node, token, one, is_secondary=True) for one in ways]
        return beats

    def _may_have_lease(self, around: Surroundings) -> bool:
        """Return whether a token may be returned: what a new master will read of this node must be true already."""
        is_settled = self._pending is None and self.row.is_armed == self.is_armed
        return around.has_majority and self.row.state is NodeState.HEALTHY and is_settled

    def _follow_silence(self, now: float, around: Surroundings) -> list[Instruction]:
        silent_s = now - self.silent_since
        match self.row.state:
            case NodeState.HEALTHY if silent_s >= SUSPECT_S:
                if not self.is_suspect:
                    self.is_suspect, self.since = True, now
                if not self._is_lost(now):
                    return []
                if not around.most_answer:
                    return self._alarm(CUT_OFF)
                return self._move(NodeState.FENCING, around)
            case NodeState.RETURNING if self._is_lost(now) and around.most_answer:
                return self._move(NodeState.FENCING, around)
            case NodeState.RETURNING if self._release_due is not None and now >= self._release_due:
                self._release_due = None
                return [Release(self.node, self.row.fenced_instances)]
            case NodeState.FENCING:
                return self._fence_on(now, around)
            case NodeState.STUCK:
                return self._retry(now, around)
            case _:
                return []

    def _is_lost(self, now: float) -> bool:
        """Return whether it may be fenced. A new master first waits for an answer, as any master does."""
        silent_s = now - max(self.silent_since, self._in_service_since)
        return silent_s >= LOST_S and not self.facts.in_maintenance

    def _is_usable(self, method: FenceMethod, around: Surroundings) -> bool:
        if method is FenceMethod.WATCHDOG:
            return self.row.is_armed
        return self.node != around.master

    def _fence_on(self, now: float, around: Surroundings) -> list[Instruction]:
        """Continue with fencing: the watchdog needs only time, the power is tried once, and then the storage."""
        if not self._is_lost(now):
            return []
        if not around.most_answer:
            return self._alarm(CUT_OFF)
        has_watchdog = FenceMethod.WATCHDOG in self._untried
        if has_watchdog and now >= reset_by(self._token_at, around.elected_at):
            return self._move(NodeState.FENCED, around, why="its lease is over (watchdog)")
        ordered = (FenceMethod.POWER, FenceMethod.WATCHDOG, FenceMethod.STORAGE)
        method = next((one for one in ordered if one in self._untried), None)
        if self._trying is not None or method is FenceMethod.WATCHDOG:
            return []  # the watchdog ends the guests, too, so the storage is asked only without one
        if method is not None and not around.has_majority:
            return []  # perhaps another master has been elected, which hears the node
        if method is not None:
            self._untried.remove(method)
            return self._try(method, around)
        why = self._failed or "no fencing method can be used"
        return self._move(NodeState.STUCK, around, why=why)

    def _retry(self, now: float, around: Surroundings) -> list[Instruction]:
        """Try the power of a stuck node again, or its storage: its management controller may be back."""
        is_due = now >= self._retry_due and self._retries < RETRIES and self._trying is None
        methods = [
            one for one in (FenceMethod.POWER, FenceMethod.STORAGE) if self._has(one, around)
        ]
        if not (is_due and methods and self._is_lost(now)):
            return []
        if not (around.most_answer and around.has_majority):
            return []
        self._retries += 1
        self._failed = ""
        return self._try(methods[0], around)

    def _ask_storage(self, now: float, around: Surroundings) -> list[Instruction]:
        """It is committed that the storage may be asked to refuse the node's writes."""
        if self.row.state is NodeState.STUCK:
            return []  # with the next attempt
        self._untried = [FenceMethod.STORAGE]
        return self._fence_on(now, around)

    def _has(self, method: FenceMethod, around: Surroundings) -> bool:
        return method in self.facts.methods and self._is_usable(method, around)

    def _try(self, method: FenceMethod, around: Surroundings) -> list[Instruction]:
        """Try a method. That the storage is asked is committed first: whatever comes then, it is asked to end that."""
        if method is FenceMethod.STORAGE and not self.row.asked_storage:
            return self._move(self.row.state, around, self.row.why, asks_storage=True)
        self._trying = method
        return [Fence(self.node, method)]

    def _move(
        self,
        state: NodeState,
        around: Surroundings,
        why: str = "",
        *,
        is_off: bool = False,
        fenced_instances: tuple[str, ...] = (),
        asks_storage: bool = False,
    ) -> list[Instruction]:
        """Begin a change of state. Only a healthy node is known to be armed or not.

        What the storage refuses remains refused until the node has returned.
        """
        armed = self.is_armed if state is NodeState.HEALTHY else self.row.is_armed
        kept = () if state is NodeState.HEALTHY else self.row.fenced_instances
        row = NodeRow(
            self.node,
            state,
            around.epoch,
            armed,
            why,
            is_off,
            by_storage=bool(fenced_instances),
            fenced_instances=tuple(dict.fromkeys((*kept, *fenced_instances))),
            asked_storage=asks_storage
            or (state is not NodeState.HEALTHY and self.row.asked_storage),
        )
        return self._commit(row)

    def _commit(self, row: NodeRow) -> list[Instruction]:
        self._pending, self._is_committing = row, True
        return [Commit(row)]

    def _alarm(self, why: str) -> list[Instruction]:
        """Tell administrators once."""
        if why == self._told:
            return []
        self._told = why
        return [Alarm(self.facts.name, self.alarm)]
