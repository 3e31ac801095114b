"""What a candidate knows before it can read the state: which back end has the state, and where.

The file `state-backend.json` (JSON, mode 0600) is on every candidate, unless the candidates' own store has the state.
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
    """Where the state is."""

    format: Literal[1] = 1
    kind: str = EMBEDDED
    """The key in `STATE_KINDS`."""
    endpoints: tuple[str, ...] = ()
    """URLs of the servers with the state; the node's own server first."""
    is_managed: bool = True
    """Whether the candidates run the servers; otherwise an administrator does."""
    authority: str = ""
    """Of servers that are not managed: the file with the certificates that sign theirs; '' for plain HTTP."""
    credentials: str = ""
    """Of servers that are not managed: a file with user and password, a line each; '' for none."""

    def __post_init__(self) -> None:
        if self.kind not in STATE_KINDS:
            raise ValueError(f"{self.kind!r} is not a state back end")


def state_settings(paths: Paths) -> StateSettings:
    """Return this node's settings; a node without the file has the embedded store. ConfigurationError."""
    return read_settings(paths.state_settings, StateSettings) or StateSettings()


def keep_state_settings(paths: Paths, settings: StateSettings) -> None:
    """Remember where the state is."""
    write_atomically(paths.state_settings, msgspec.json.encode(settings), mode=0o600)


def read_settings(path: Path, form: type[S]) -> S | None:
    """Return what a file of settings has, None without the file; ConfigurationError."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=form)
    except FileNotFoundError:
        return None
    except OSError as err:
        raise ConfigurationError(f"{path} cannot be read: {err.strerror}") from err
    except (msgspec.DecodeError, UnicodeDecodeError) as err:
        raise ConfigurationError(f"{path} is damaged or of a newer version: {err}") from err
