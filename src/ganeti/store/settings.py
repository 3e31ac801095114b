"""The settings that a candidate needs before it can read the state: its back end and location.

The file `state-backend.json` (JSON, mode 0600) is on every candidate, unless the candidates' own
store has the state.
"""

from pathlib import Path
from typing import Literal, TypeVar

import msgspec

from ganeti.base.errors import ConfigurationError
from ganeti.base.files import write_atomically
from ganeti.base.paths import Paths
from ganeti.base.state_kinds import EMBEDDED, STATE_KINDS

S = TypeVar("S")


class StateSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The location of the state."""

    format: Literal[1] = 1
    kind: str = EMBEDDED
    """The key in `STATE_KINDS`."""
    endpoints: tuple[str, ...] = ()
    """URLs of the servers with the state; the node's own server first."""
    is_managed: bool = True
    """True if the candidates run the servers; otherwise an administrator does."""
    authority: str = ""
    """For unmanaged servers: the file with the certificates of their authority; '' for plain HTTP."""
    credentials: str = ""
    """For unmanaged servers: a file with user and password, one a line; '' for none."""

    def __post_init__(self) -> None:
        if self.kind not in STATE_KINDS:
            raise ValueError(f"{self.kind!r} is not a state back end")


def state_settings(paths: Paths) -> StateSettings:
    """Return this node's settings; a node without the file has the embedded store. ConfigurationError."""
    return read_settings(paths.state_settings, StateSettings) or StateSettings()


def keep_state_settings(paths: Paths, settings: StateSettings) -> None:
    """Store the location of the state."""
    write_atomically(paths.state_settings, msgspec.json.encode(settings), mode=0o600)


def read_settings(path: Path, form: type[S]) -> S | None:
    """Return the content of a settings file, None without the file; ConfigurationError."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=form)
    except FileNotFoundError:
        return None
    except OSError as err:
        raise ConfigurationError(f"{path} cannot be read: {err.strerror}") from err
    except (msgspec.DecodeError, UnicodeDecodeError) as err:
        raise ConfigurationError(f"{path} is damaged or from a newer version: {err}") from err
