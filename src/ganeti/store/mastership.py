"""Decides when the master's services open and close, and when this node asks for the role (R2, R7, R9, R13).

A pure core: `MastershipCore.handle` takes an event and returns instructions. It reads no clock, starts no task and
does no input or output. `daemons/roles.py` carries the instructions out; docs/design/mastership.md has the diagram.

    CLOSED --Master(lease)--> FENCING --FencePromised--> OPENING --ServicesUp--> OPEN
    FENCING, OPENING --StartFailed--> CLOSED, and the lease is given up
    FENCING, OPENING, OPEN --any other role, Stopping--> CLOSING --ServicesClosed--> CLOSED
"""

import enum
from dataclasses import dataclass
from typing import TypeAlias

from ganeti.base.errors import GanetiError, NotMaster
from ganeti.base.transitions import TracedCore
from ganeti.model.objects import NodeUuid
from ganeti.store.interface import CampaignKind, Follower, Lease, Lost, Master, NotYet, Role

START_S = 5.0
"""Time for which a starting daemon waits for a vote before it becomes a follower."""
RETRY_S = 1.0
START_RETRY_S = 0.25
AFTER_LOSS_S = 5.0
"""Delay before a node that has lost the role asks for it again."""
TAKE_OVER_S = 45.0
"""Time for which a take-over retries while a vote may still be granted (G19: done in 60 s, refused in 90)."""
OVERTAKEN_S = 10.0
"""Time for which a take-over retries after a refusal that only another campaign can change."""

TAKEN_OVER = "another node has taken over already"
STOPPING = "this daemon is stopping"
NOT_BEGUN = "this node could not begin as the master"


class RequestKind(enum.Enum):
    """The reason for which this node asks for the role."""

    START = "start"
    """The daemon starts on the node that was the last master."""
    RESUME = "resume"
    """The node was the last master, and asks until the role is granted or another master is known."""
    TAKE_OVER = "take-over"
    """An administrator requests a hand-over; if the old master does not answer, the nodes vote."""
    FORCE = "force"
    """An administrator skips the vote (R10)."""


CAMPAIGNS = {
    RequestKind.START: CampaignKind.RESUME,
    RequestKind.RESUME: CampaignKind.RESUME,
    RequestKind.TAKE_OVER: CampaignKind.HAND_OVER,
    RequestKind.FORCE: CampaignKind.FORCE,
}


# Events


@dataclass(frozen=True, slots=True)
class RoleSeen:
    """The role that the state back end reports now; repeated reports of one role are allowed."""

    role: Role


@dataclass(frozen=True, slots=True)
class RoleRequested:
    """A caller asks for the role; `Reply` with the same number is the answer."""

    number: int
    kind: RequestKind


@dataclass(frozen=True, slots=True)
class Campaigned:
    """The campaign has ended; without an error the role was reported before."""

    error: Exception | None = None


@dataclass(frozen=True, slots=True)
class FencePromised:
    """A majority of the node registers has promised the epoch."""

    lease: Lease


@dataclass(frozen=True, slots=True)
class ServicesUp:
    """The services of the lease run."""

    lease: Lease


@dataclass(frozen=True, slots=True)
class StartFailed:
    """The epoch was not promised, or the services did not start; nothing of the lease is open."""

    lease: Lease
    error: Exception


@dataclass(frozen=True, slots=True)
class ServicesClosed:
    """Nothing of the lease is open any more, and a caller is answered as by a follower."""

    lease: Lease


@dataclass(frozen=True, slots=True)
class LeaseUnusable:
    """The services, or the fence, cannot continue in this epoch (R13)."""

    lease: Lease
    why: str


@dataclass(frozen=True, slots=True)
class TimePassed:
    """`MastershipCore.next_due` is reached."""


@dataclass(frozen=True, slots=True)
class Stopping:
    """The daemon ends."""


ServiceEvent: TypeAlias = FencePromised | ServicesUp | StartFailed | ServicesClosed
Event: TypeAlias = (
    RoleSeen | RoleRequested | Campaigned | ServiceEvent | LeaseUnusable | TimePassed | Stopping
)


# Instructions


@dataclass(frozen=True, slots=True)
class StartCampaign:
    """Ask the back end for the role; `Campaigned` follows."""

    kind: CampaignKind


@dataclass(frozen=True, slots=True)
class FenceNodes:
    """Have the epoch promised, and renew the promise until `CloseServices`; FencePromised or StartFailed follows."""

    lease: Lease


@dataclass(frozen=True, slots=True)
class OpenServices:
    """Start the master's services; ServicesUp or StartFailed follows."""

    lease: Lease


@dataclass(frozen=True, slots=True)
class ServeAsMaster:
    """Answer clients as the master from now on."""

    lease: Lease


@dataclass(frozen=True, slots=True)
class CloseServices:
    """Cancel what `FenceNodes` or `OpenServices` still does, and close the services; ServicesClosed follows."""

    lease: Lease
    is_serving: bool
    """True if clients were answered as by the master; they are answered as by a follower afterwards."""


@dataclass(frozen=True, slots=True)
class StepDown:
    """Ask the back end to end the lease."""

    lease: Lease
    why: str


@dataclass(frozen=True, slots=True)
class Reply:
    """Answer a caller; without an error this node is the master, or, after START, a follower."""

    number: int
    error: Exception | None = None


@dataclass(frozen=True, slots=True)
class Notify:
    """Log a text."""

    text: str
    is_warning: bool = False


@dataclass(frozen=True, slots=True)
class EndDaemon:
    """The state is lost: the daemon must end."""

    why: str


Instruction: TypeAlias = (
    StartCampaign
    | FenceNodes
    | OpenServices
    | ServeAsMaster
    | CloseServices
    | StepDown
    | Reply
    | Notify
    | EndDaemon
)


class Phase(enum.Enum):
    """The progress of the services of a lease."""

    CLOSED = "closed"
    FENCING = "fencing"
    OPENING = "opening"
    OPEN = "open"
    CLOSING = "closing"


_UNDER_LEASE = frozenset({Phase.FENCING, Phase.OPENING, Phase.OPEN})

TRANSITIONS: dict[tuple[Phase, type[ServiceEvent]], Phase] = {
    (Phase.FENCING, FencePromised): Phase.OPENING,
    (Phase.FENCING, StartFailed): Phase.CLOSED,
    (Phase.OPENING, ServicesUp): Phase.OPEN,
    (Phase.OPENING, StartFailed): Phase.CLOSED,
    (Phase.CLOSING, FencePromised): Phase.CLOSING,
    (Phase.CLOSING, ServicesUp): Phase.CLOSING,
    (Phase.CLOSING, StartFailed): Phase.CLOSING,
    (Phase.CLOSING, ServicesClosed): Phase.CLOSED,
}
"""The effect of each report about the services; every other pair is an IllegalTransition."""


@dataclass
class _Request:
    """One caller that asks for the role, or this node's own request (number 0)."""

    number: int
    kind: RequestKind
    begun: float
    due: float


class MastershipCore(TracedCore):
    """The role of one candidate: events in, instructions out."""

    def __init__(self, node: NodeUuid) -> None:
        super().__init__()
        self._node = node
        self.role: Role = Follower()
        self.phase = Phase.CLOSED
        self._lease: Lease | None = None
        """The lease of the phase; None while CLOSED."""
        self._failed: tuple[Lease, Exception] | None = None
        """The last lease whose services could not be opened."""
        self._unusable: Lease | None = None
        """The last lease that the back end was asked to end."""
        self._requests: list[_Request] = []
        self._active: _Request | None = None
        """The request whose campaign, or whose lease, is waited for: one at a time."""
        self._awaited: Lease | None = None
        """The lease that the active request was granted; None while it campaigns."""
        self._is_stopping = self._has_ended = False
        self._out: list[Instruction] = []
        self.waiting_reason = ""
        """The reason why this former master is not the master again yet.

        '' if it does not ask for the role.
        """

    @property
    def is_master(self) -> bool:
        """Return whether clients are answered as by the master."""
        return self.phase is Phase.OPEN

    @property
    def next_due(self) -> float | None:
        """Return the time of the next `TimePassed`; None if no timer is needed."""
        if self._active is not None:
            return None
        return min((request.due for request in self._requests), default=None)

    def handle(self, event: Event, now: float) -> list[Instruction]:
        """Return what must be done, in this order; IllegalTransition. `now` is monotonic time in seconds."""
        if not isinstance(event, RoleSeen) or event.role != self.role:
            self._story.append(f"{now:.3f} {self.phase.value}: {event}")
        self._take(event, now)
        self._follow_role(now)
        self._follow_requests(now)
        self.validate()
        out, self._out = self._out, []
        return out

    def validate(self) -> None:
        """Raise IllegalTransition where the state contradicts itself."""
        if (self._lease is None) != (self.phase is Phase.CLOSED):
            raise self._illegal("a lease is open exactly in the phases other than CLOSED")
        if self._awaited is not None and self._active is None:
            raise self._illegal("a lease is awaited without a request")
        if self.phase in _UNDER_LEASE and self.role != Master(self._require_lease()):
            raise self._illegal("services begin or run under a lease that has ended")

    def _do(self, instruction: Instruction) -> None:
        self._out.append(instruction)

    # Events

    def _take(self, event: Event, now: float) -> None:
        match event:
            case RoleSeen(role):
                self.role = role
            case RoleRequested(number, kind):
                self._requests.append(_Request(number, kind, now, now))
            case Campaigned(error):
                self._campaigned(error, now)
            case LeaseUnusable(lease, why):
                self._step_down(lease, why)
            case Stopping():
                self._is_stopping = True
            case TimePassed():
                pass  # what is due is looked up after every event
            case _:
                self._take_service_event(event)

    def _take_service_event(self, event: ServiceEvent) -> None:
        following = TRANSITIONS.get((self.phase, type(event)))
        if following is None or event.lease != self._lease:
            raise self._illegal(
                f"{event} cannot happen in phase {self.phase.value} of {self._lease}"
            )
        if following is self.phase:
            return  # `CloseServices` was instructed meanwhile and covers this
        self.phase = following
        if following is Phase.CLOSED:
            self._lease = None
        match event:
            case FencePromised(lease):
                self._do(OpenServices(lease))
            case ServicesUp(lease):
                self._requests = [
                    one for one in self._requests if one.kind is not RequestKind.RESUME
                ]
                self.waiting_reason = ""
                # Open connections stay and now reach the master; the caller of a take-over has one.
                self._do(ServeAsMaster(lease))
            case StartFailed(lease, error):
                self._failed = lease, error
                self._do(Notify(f"{NOT_BEGUN}: {error}", is_warning=True))
                self._step_down(lease, NOT_BEGUN)

    def _require_lease(self) -> Lease:
        if self._lease is None:
            raise self._illegal("no lease is open")
        return self._lease

    # Services

    def _follow_role(self, now: float) -> None:
        """Open what the role allows, and close what it does not allow."""
        if self.phase is Phase.CLOSED:
            self._begin()
        elif self.phase in _UNDER_LEASE and (
            self._is_stopping or self.role != Master(self._require_lease())
        ):
            self._close(now)

    def _begin(self) -> None:
        if self._is_stopping:
            return
        if isinstance(self.role, Lost) and not self._has_ended:
            self._has_ended = True
            self._do(EndDaemon(self.role.reason))
        if isinstance(self.role, Master) and self.role.lease != self._unusable:
            self.phase, self._lease = Phase.FENCING, self.role.lease
            self._do(FenceNodes(self.role.lease))

    def _close(self, now: float) -> None:
        was_open = self.phase is Phase.OPEN
        if was_open and isinstance(self.role, Follower | Lost):
            self._do(Notify(f"no longer the master: {self.role.reason}", is_warning=True))
        if was_open and isinstance(self.role, Follower):
            self._resume_at(now, AFTER_LOSS_S)
        self.phase = Phase.CLOSING
        self._do(CloseServices(self._require_lease(), was_open))

    def _step_down(self, lease: Lease, why: str) -> None:
        """End a lease once; a lease that has ended already needs nothing."""
        if self.role == Master(lease) and self._unusable != lease and not self._is_stopping:
            self._unusable = lease
            self._do(StepDown(lease, why))

    # Requests

    def _was_master(self) -> bool:
        """Return whether this node was the last master, as far as it knows, and is not the master now."""
        return isinstance(self.role, Follower) and self.role.master == self._node

    def _resume_at(self, now: float, delay_s: float) -> None:
        asked = [*self._requests, *([self._active] if self._active else [])]
        if all(request.kind is not RequestKind.RESUME for request in asked):
            self._requests.append(_Request(0, RequestKind.RESUME, now, now + delay_s))

    def _follow_requests(self, now: float) -> None:
        """Finish the active request if its lease is decided, and begin the next one that is due."""
        if self._is_stopping:
            self._refuse_all()
            return
        self._look_at_awaited(now)
        while self._active is None:
            due = [request for request in self._requests if request.due <= now]
            if not due:
                return
            request = min(due, key=lambda one: one.due)
            self._requests.remove(request)
            is_resume = CAMPAIGNS[request.kind] is CampaignKind.RESUME
            if self.is_master or (is_resume and not self._was_master()):
                self.waiting_reason = "" if is_resume else self.waiting_reason
                self._finish(request)
            else:
                self._active = request
                self._do(StartCampaign(CAMPAIGNS[request.kind]))

    def _refuse_all(self) -> None:
        for request in (*self._requests, *([self._active] if self._active else [])):
            self._finish(request, NotMaster(STOPPING))
        self._requests, self._active, self._awaited = [], None, None

    def _campaigned(self, error: Exception | None, now: float) -> None:
        if self._active is None or self._awaited is not None:
            if not self._is_stopping:
                raise self._illegal("no campaign was running")
        elif error is not None:
            self._refused(error, now)
        elif isinstance(self.role, Master):
            self._awaited = self.role.lease
        else:
            self._refused(NotMaster(TAKEN_OVER), now)

    def _look_at_awaited(self, now: float) -> None:
        lease = self._awaited
        if lease is None:
            return
        if self.is_master and self._lease == lease:
            self._finish(self._pop_active())
        elif self._failed is not None and self._failed[0] == lease:
            self._refused(self._failed[1], now)
        elif self.role != Master(lease):
            self._refused(NotMaster(TAKEN_OVER), now)

    def _refused(self, error: Exception, now: float) -> None:
        """Let the active request try again later, or end with the error."""
        request = self._pop_active()
        match request.kind:
            case RequestKind.RESUME:
                self._note(error)
                self._requeue(request, now + RETRY_S)
            case RequestKind.START if isinstance(error, NotMaster):
                if now < request.begun + START_S:
                    self._note(error)
                    self._requeue(request, now + START_RETRY_S)
                else:
                    self._note(error)
                    self._finish(request)
                    self._resume_at(now, 0.0)
            case RequestKind.TAKE_OVER if isinstance(error, NotMaster):
                # A refusal may be temporary while another node, or the old master, campaigns too.
                limit_s = TAKE_OVER_S if isinstance(error, NotYet) else OVERTAKEN_S
                if now <= request.begun + limit_s:
                    self._do(Notify(f"waiting: {error}"))
                    passes_in_s = error.passes_in_s if isinstance(error, NotYet) else None
                    self._requeue(request, now + (RETRY_S if passes_in_s is None else passes_in_s))
                else:
                    self._finish(request, error)
                    # Once this node is registered, no other candidate starts on its own: keep
                    # trying.
                    self._resume_at(now, AFTER_LOSS_S)
            case _:
                self._finish(request, error)

    def _pop_active(self) -> _Request:
        request, self._active, self._awaited = self._active, None, None
        if request is None:
            raise self._illegal("no request is active")
        return request

    def _requeue(self, request: _Request, due: float) -> None:
        request.due = due
        self._requests.append(request)

    def _note(self, error: Exception) -> None:
        """Keep why this node is not the master again, and log it once."""
        why = error.message if isinstance(error, GanetiError) else str(error)
        if why != self.waiting_reason:
            self._do(Notify(f"not the master: {error}"))
        self.waiting_reason = why

    def _finish(self, request: _Request, error: Exception | None = None) -> None:
        if request.kind is not RequestKind.RESUME:
            self._do(Reply(request.number, error))
