"""The tree of errors.

    GanetiError                  an error that a user, an administrator or the environment caused, in one sentence
    +-- PrereqError              the request cannot be met; nothing was changed (carries an ErrorCode)
    |   +-- InputError           a message or argument is malformed; `field` says where
    +-- ExecError                something failed while it was being carried out
    +-- HooksAbort               an administrator's program has refused the operation
    +-- JobLost                  the job does not exist
    +-- JobQueueFull             too many live jobs
    +-- JobQueueDrained          the queue is drained
    +-- JobCanceled              raised inside a job that was cancelled
    +-- ConfigurationError       the configuration contradicts itself
    +-- LockError                a lock was used against its rules
    |   +-- LockDeleted          the lock was deleted while it was waited for
    +-- NotMaster                this daemon is not the master
    +-- StoreError               the state store
    |   +-- Refused              surely not written
    |   +-- CommitUnknown        perhaps written; stop, and read the store again (R13)
    +-- RpcError                 a call to a node; `node` names it
    |   +-- RpcOffline           the node is marked offline; nothing was sent
    |   +-- RpcFailed            the node answered with an error
    |   +-- RpcUnknown           no answer: the call may or may not have had its effect
    +-- HostError                a command or file on this host failed
    |   +-- StorageError         a storage driver failed
    |   |   +-- SplitBrain       two copies of a disk were written apart from each other
    |   +-- HypervisorError      a hypervisor driver failed
    |   +-- GuestOsError         an OS definition or script failed
    +-- ProtocolError            the peer does not speak the protocol

`wire_name` is the class name that LUXI clients know, `exit_code` what a command ends with.
"""

import enum
from collections.abc import Sequence
from typing import ClassVar


class ErrorCode(enum.StrEnum):
    """The error types that commands print."""

    RESOLVER = "resolver_error"
    NO_RESOURCES = "insufficient_resources"
    TEMP_NO_RESOURCES = "temp_insufficient_resources"
    WRONG_INPUT = "wrong_input"
    WRONG_STATE = "wrong_state"
    UNKNOWN_ENTITY = "unknown_entity"
    EXISTS = "already_exists"
    NOT_UNIQUE = "resource_not_unique"
    INTERNAL = "internal_error"
    ENVIRONMENT = "environment_error"
    FORBIDDEN = "permission_denied"
    """The REST user of the request lacks the right; upstream has no such code."""


class GanetiError(Exception):
    """The root of all errors that a user may see."""

    wire_name: ClassVar[str] = "GenericError"
    exit_code: ClassVar[int] = 1

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message

    def wire_args(self) -> list[object]:
        """Return the argument list of the error on the LUXI wire."""
        return [self.message]


class PrereqError(GanetiError):
    """The request cannot be met, and nothing was changed."""

    wire_name = "OpPrereqError"

    def __init__(self, message: str, code: ErrorCode) -> None:
        super().__init__(message)
        self.code = code

    def wire_args(self) -> list[object]:
        return [self.message, str(self.code)]


class InputError(PrereqError):
    """A message or an argument is malformed.

    `field` is the path of the wrong part, such as `disks[0].size`.
    """

    def __init__(self, message: str, field: str = "") -> None:
        super().__init__(f"{field}: {message}" if field else message, ErrorCode.WRONG_INPUT)
        self.field = field


class ExecError(GanetiError):
    """Something failed while a request was being carried out."""

    wire_name = "OpExecError"


class HooksAbort(GanetiError):
    """Hooks have refused an operation, and nothing was done; each refusal is `(node, script, output)`."""

    wire_name = "HooksAbort"

    def __init__(self, refusals: Sequence[tuple[str, str, str]]) -> None:
        said = (f"{script} on {node}: {out or '(no output)'}" for node, script, out in refusals)
        super().__init__("hooks refuse the operation: " + "; ".join(said))
        self.refusals = tuple(refusals)

    def wire_args(self) -> list[object]:
        return [[list(one) for one in self.refusals]]


class JobLost(GanetiError):
    """The job does not exist."""

    wire_name = "JobLost"


class JobQueueFull(GanetiError):
    """Too many live jobs (docs/rules.md, limits)."""

    wire_name = "JobQueueFull"


class JobQueueDrained(GanetiError):
    """The queue accepts no jobs until it is undrained."""

    wire_name = "JobQueueDrainError"


class JobCanceled(GanetiError):
    """Raised inside a job that was cancelled."""

    wire_name = "JobCanceled"


class ConfigurationError(GanetiError):
    """The configuration contradicts itself."""

    wire_name = "ConfigurationError"


class LockError(GanetiError):
    """A lock was used against its rules."""

    wire_name = "LockError"


class LockDeleted(LockError):
    """The lock was deleted while it was waited for (S26)."""


class NotMaster(GanetiError):
    """This daemon is not the master."""

    wire_name = "NotMasterError"
    exit_code = 11


class StoreError(GanetiError):
    """The state store failed."""

    wire_name = "StoreError"


class Refused(StoreError):
    """Certainly not written."""


class CommitUnknown(StoreError):
    """Perhaps written (R13): stop, take a new epoch, read the store again."""


class RpcError(GanetiError):
    """A call to a node did not succeed; `node` is its name."""

    wire_name = "RPCError"

    def __init__(self, node: str, message: str) -> None:
        super().__init__(f"node {node}: {message}")
        self.node = node
        self.reason = message


class RpcOffline(RpcError):
    """The node is marked offline: nothing was sent."""


class RpcFailed(RpcError):
    """The node answered with an error: the call has ended and `wire_error` is its kind."""

    def __init__(self, node: str, message: str, wire_error: str = "GenericError") -> None:
        super().__init__(node, message)
        self.wire_error = wire_error


class RpcUnknown(RpcError):
    """No answer: the call may or may not have had its effect; query the node before undoing anything."""


class HostError(GanetiError):
    """A command or a file on this host failed."""

    wire_name = "HostError"


class StorageError(HostError):
    """A storage driver failed."""

    wire_name = "StorageError"


class SplitBrain(StorageError):
    """Two copies of a disk were written apart from each other; both are kept."""

    wire_name = "SplitBrain"


class HypervisorError(HostError):
    """A hypervisor driver failed."""

    wire_name = "HypervisorError"


class GuestOsError(HostError):
    """An OS definition is unusable, or one of its scripts failed."""

    wire_name = "InvalidOS"


class ProtocolError(GanetiError):
    """The peer does not speak the protocol."""

    wire_name = "ProtocolError"
