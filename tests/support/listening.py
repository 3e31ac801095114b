"""The TCP ports at which a process listens.

To connect to a port shows less: another process of this host may have got the port meanwhile.
"""

from pathlib import Path

_LISTENING = "0A"


def listening_ports(pid: int) -> set[int]:
    """Return the TCP ports of a process of this network namespace."""
    sockets = set[str]()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        try:
            sockets.add(str(entry.readlink()))
        except FileNotFoundError:  # closed meanwhile
            continue
    ports = set[int]()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == _LISTENING and f"socket:[{words[9]}]" in sockets:
                ports.add(int(words[1].rpartition(":")[2], 16))
    return ports
