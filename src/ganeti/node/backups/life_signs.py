"""The signs of life of a guest whose output is not trusted: text on its console, an answer of its agent. Pure."""

import json
import re
from dataclasses import dataclass, field

from ganeti.protocols.backup_proof import MOST_TEXTS, texts

KEPT = 16 * 1024
"""The last bytes of an output that are kept."""
_ESCAPE = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|[()][0-9A-Z]|[=>78cDEHMZ])")
_MARK = b"\xff"
AGENT = "the answer of the agent"


@dataclass
class ConsoleText:
    """The end of a console, and whether the awaited text was there; '' waits for nothing."""

    expect: str
    is_there: bool = False
    _raw: bytes = b""

    def take(self, data: bytes) -> None:
        """Add output of the guest."""
        self._raw = (self._raw + data)[-KEPT - len(data) :]
        wanted = self.expect.encode()
        self.is_there = self.is_there or bool(wanted and wanted in _ESCAPE.sub(b"", self._raw))
        self._raw = self._raw[-KEPT:]

    @property
    def lines(self) -> list[str]:
        """Return the last lines, escaped, without those that are empty."""
        text = _ESCAPE.sub(b"", self._raw).decode(errors="replace").replace("\r", "\n")
        found = [line.rstrip() for line in text.split("\n") if line.strip()]
        return list(texts(found[-MOST_TEXTS:]))


@dataclass
class AgentAnswer:
    """A conversation with an agent, which may begin to listen at any time."""

    is_there: bool = False
    _tokens: set[int] = field(default_factory=set)
    _raw: bytes = b""

    def question(self, token: int) -> bytes:
        """Return what to send; the answer has the token."""
        self._tokens.add(token)
        asked = {"execute": "guest-sync-delimited", "arguments": {"id": token}}
        return _MARK + json.dumps(asked).encode() + b"\n"

    def take(self, data: bytes) -> None:
        """Add what the guest has sent."""
        *lines, rest = (self._raw + data).split(b"\n")
        self._raw = rest[-KEPT:]
        self.is_there = self.is_there or any(self._answers(line) for line in lines)

    def _answers(self, line: bytes) -> bool:
        try:
            found = json.loads(line[-KEPT:].rpartition(_MARK)[2])
        except (ValueError, RecursionError):
            return False
        value = found.get("return") if isinstance(found, dict) else None
        return type(value) is int and value in self._tokens
