"""gnt-instance console: the guest's serial console on this terminal, or a picture of its screen."""

import argparse
import os
import select
import shlex
import socket
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

from ganeti.base.errors import ErrorCode, ExecError, PrereqError
from ganeti.base.paths import hostname
from ganeti.base.terminal import say
from ganeti.cli.command import option
from ganeti.cli.gnt_instance.table import table
from ganeti.clients.luxi import LuxiClient
from ganeti.model.operation import INSTANCE

ESCAPE = 0x1D
"""Ctrl-] leaves the console."""
SILENCE_S = 1.0
"""After the end of its input, a script reads the guest's output until the guest is silent for this time."""
_CONNECT = "UNIX-CONNECT:"
_CHUNK = 65536


@table.command(
    "console",
    INSTANCE,
    option("--show-cmd", dest="show_command", action="store_true",
           help="print the command for the console, and do not run it"),
    option("--screenshot", metavar="FILE.png",
           help="save a screenshot as PNG to this file; '-' is standard output"),
    option("--log", action="store_true", help="print the log of the serial console, and exit"),
)  # fmt: skip
def console(args: argparse.Namespace) -> int:
    """Connect the terminal to an instance's console; Ctrl-] leaves it.

    Scripts can send input to the guest on standard input. After the end of this input the command prints the
    guest's output until the guest is silent for one second.
    """
    if args.screenshot:
        return save_screenshot(args.instance_name, args.screenshot)
    fields = ["name", "console", "console_log", "oper_state"]
    with LuxiClient() as client:
        name, found, log, is_running = client.rows("Instances", [args.instance_name], fields)[0]
    if args.log:
        return _show_log(name, found, log)
    if not is_running:
        raise PrereqError(f"instance {name} is not running", ErrorCode.WRONG_STATE)
    if found is None:
        raise ExecError(f"the node of instance {name} does not report an address of its console")
    if found["kind"] in ("vnc", "spice"):
        say(display_text(found, plain=args.show_command))
        return 0
    if found["kind"] == "msg":
        say(found["message"])
        return 0
    if args.show_command:
        say(shlex.join(remote_words(found)))
        return 0
    path = socket_of(found["command"])
    if path is None:
        return _become(remote_words(found))
    if not is_local_socket(path) and found["host"] == hostname():
        raise ExecError(f"the console of instance {name} does not exist: {path}")
    with _connected(name, path) as connection:
        return attach(name, connection)


def save_screenshot(instance: str, file: str) -> int:
    """Write a screenshot of an instance atomically; ExecError if the file cannot be written."""
    import base64

    from ganeti.base.files import write_atomically

    with LuxiClient() as client:
        picture = base64.b64decode(client.call("InstanceScreenshot", instance))
    if file == "-":
        sys.stdout.buffer.write(picture)
        sys.stdout.buffer.flush()
        return 0
    try:
        write_atomically(Path(file), picture)
    except OSError as err:
        raise ExecError(f"cannot write the screenshot to {file}: {err.strerror}") from err
    return 0


def display_text(found: dict[str, Any], *, plain: bool) -> str:
    """Print the location of a graphical console: a sentence, or for scripts an address that viewers accept."""
    host = f"[{found['host']}]" if ":" in found["host"] else found["host"]
    address = f"{found['kind']}://{host}:{found['port']}/"
    if plain:
        return address
    display = f", display {found['display']}" if "display" in found else ""
    protocol = found["kind"].upper()
    return (
        f"Instance {found['instance']} has {protocol} on {address} (port {found['port']}{display})"
    )


def socket_of(command: list[str]) -> str | None:
    """Return the socket that the console's command connects to."""
    words = [word for word in command if word.startswith(_CONNECT)]
    return words[0].removeprefix(_CONNECT) if words else None


def is_local_socket(path: str) -> bool:
    """Return True if the console is on this host. In a virtual cluster all consoles are."""
    try:
        return stat.S_ISSOCK(Path(path).stat().st_mode)
    except OSError:
        return False


def remote_words(found: dict[str, Any]) -> list[str]:
    """Return the command that reaches the console from any node."""
    words = ["ssh", "-q", "-oEscapeChar=none", "-t", f"{found['user']}@{found['host']}"]
    return [*words, shlex.join(found["command"])]


def _show_log(name: str, found: dict[str, Any] | None, log: str | None) -> int:
    if log is None:
        raise ExecError(f"the console of instance {name} has no log")
    path = Path(log)
    if path.exists():
        return _show_bytes(path.read_bytes())
    if (found or {}).get("host", hostname()) == hostname():
        raise ExecError(f"the log of the console of instance {name} does not exist: {log}")
    from ganeti.cli.gnt_instance.remote_console import read_log

    return _show_bytes(read_log(name))


def _show_bytes(content: bytes) -> int:
    """Print the output of a guest: unchanged to a file or pipe, without escape sequences to a terminal."""
    if sys.stdout.isatty():
        say(content.decode(errors="backslashreplace").replace("\r\n", "\n"), end="")
    else:
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()
    return 0


def _become(words: list[str]) -> NoReturn:
    """Replace this process by another program."""
    try:
        os.execvp(words[0], words)  # noqa: S606 - a list of words, no shell
    except OSError as err:
        raise ExecError(f"cannot run {words[0]}: {err.strerror}") from err


def _connected(name: str, path: str) -> socket.socket:
    """Return a connection to the console: its socket on this host, or its node."""
    if not is_local_socket(path):
        from ganeti.cli.gnt_instance.remote_console import connect

        return connect(name, "serial")
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.connect(path)
    except OSError as err:
        connection.close()
        raise ExecError(f"cannot connect to {path}: {err.strerror}") from err
    return connection


def attach(name: str, connection: socket.socket) -> int:
    """Connect standard input and output with the console; raw if they are a terminal."""
    if not sys.stdin.isatty():
        return pump(connection, sys.stdin.fileno(), sys.stdout.fileno())
    import termios
    import tty

    say(f"Connected to {name}; leave with Ctrl-]", flush=True)
    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    try:
        tty.setraw(terminal)
        return pump(connection, terminal, sys.stdout.fileno(), escape=ESCAPE)
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)
        say()


def pump(connection: socket.socket, source: int, sink: int, *, escape: int | None = None) -> int:
    """Copy in both directions until the guest hangs up, the user types the escape, or both sides are silent.

    Output of the guest is read at once, so the guest never has to wait for this program.
    """
    is_open = True
    while True:
        watched: list[socket.socket | int] = [connection, source] if is_open else [connection]
        ready, _, _ = select.select(watched, [], [], None if is_open else SILENCE_S)
        if not ready:
            return 0
        if connection in ready:
            for said in _said(connection):
                if not said:
                    return 0
                _write_all(sink, said)
        if source in ready:
            typed = os.read(source, _CHUNK)
            if escape is not None and escape in typed:
                return 0
            if typed:
                connection.sendall(typed)
            else:
                is_open = False


def _said(connection: socket.socket) -> Iterator[bytes]:
    """Yield what has arrived, at last b"" if the other side has hung up.

    What TLS has read of the socket already, `select` does not see.
    """
    connection.setblocking(False)
    try:
        while said := connection.recv(_CHUNK):
            yield said
        yield b""
    except BlockingIOError:
        return
    except OSError:  # it hung up without the usual farewell
        yield b""
    finally:
        connection.setblocking(True)


def _write_all(sink: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(sink, view) :]
