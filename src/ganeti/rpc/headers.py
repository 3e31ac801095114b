"""The wire format of a `Call`: names of HTTP headers, and names of refusals."""

EPOCH_HEADER, MASTER_HEADER, KEY_HEADER = "X-Ganeti-Epoch", "X-Ganeti-Master", "X-Ganeti-Key"

HOOKS_HEADER = "X-Ganeti-Hooks"
"""The header of an answer to a call with a key: the hook directories of the node (`rpc/hook_reports.py`)."""

EPOCH_REFUSED = "EpochError"
"""The `wire_error` of a call by a master whose epoch is over."""
ACCESS_DENIED = "AccessDenied"
"""The `wire_error` of a call by a node that is not a master candidate."""
UNREACHABLE = "Unreachable"
"""The `wire_error` of a call that was certainly not carried out, because the node never received it."""
UNKNOWN_PROCEDURE = "UnknownProcedure"
"""The `wire_error` of a call that a node of another version does not have."""
