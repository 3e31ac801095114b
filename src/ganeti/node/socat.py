"""The words of the programs that carry a stream, pure; TLS is `socat`'s (S204).

Each end has a key that was made for this transfer, and its trust is one file with the other's
certificate: no other certificate is accepted, even one of the same authority.
"""

import re
from dataclasses import dataclass
from pathlib import Path

BLOCK = 1024 * 1024
CONNECT_S = 60
_LISTENING = re.compile(r"listening on AF=\d+ .*:(\d{1,5})$")
_ACCEPTED = "accepting connection from"


@dataclass(frozen=True)
class TlsFiles:
    """Paths of PEM files, and the name in the other's certificate."""

    certificate: Path
    key: Path
    peer: Path
    peer_name: str

    def options(self) -> list[str]:
        return [
            f"cert={self.certificate}",
            f"key={self.key}",
            f"cafile={self.peer}",
            "verify=1",
            f"openssl-commonname={self.peer_name}",
            "openssl-min-proto-version=TLS1.3",
        ]


def listener_words(address: str, port: int, tls: TlsFiles) -> list[str]:
    """`socat` for who waits; it says on standard error where it listens. Port 0: any free one."""
    family = "pf=ip6" if ":" in address else "pf=ip4"
    options = [f"bind={_bracketed(address)}", family, "reuseaddr", *tls.options()]
    where = ",".join([f"OPENSSL-LISTEN:{port}", *options])
    return ["socat", "-d", "-d", "-b", str(BLOCK), "-", where]


def connector_words(address: str, port: int, tls: TlsFiles) -> list[str]:
    """`socat` for who calls."""
    options = [f"connect-timeout={CONNECT_S}", "nodelay", *tls.options()]
    where = ",".join([f"OPENSSL:{_bracketed(address)}:{port}", *options])
    return ["socat", "-d", "-b", str(BLOCK), "-", where]


def _bracketed(address: str) -> str:
    return f"[{address}]" if ":" in address else address


def port_in(line: str) -> int | None:
    """The port, if the line says where `socat` listens."""
    found = _LISTENING.search(line.strip())
    return int(found[1]) if found else None


def has_caller(line: str) -> bool:
    """Whether the line says that somebody has called."""
    return _ACCEPTED in line
