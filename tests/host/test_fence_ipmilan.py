"""A real fence agent switches off a real QEMU by a simulated management controller.

The controller is a device of the machine (QEMU's `ipmi-bmc-extern`), or stands beside it and ends its process.
"""

import asyncio
import contextlib
import shutil
import socket
import subprocess
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from ganeti.base.clock import SystemClock
from ganeti.base.ids import RandomIds
from ganeti.base.paths import Paths
from ganeti.daemons.fencing import PowerFencing
from ganeti.model.fencing import PACKAGE, stored_options
from tests.support.fake_agent import NoAudit, programs_of
from tests.support.fake_rpc import FakeRpc
from tests.support.patience import patience
from tests.unit.config.sample import NODES, sample_config

PROGRAMS = {"fence_ipmilan": PACKAGE, "ipmi_sim": "openipmi", "ipmitool": "ipmitool"}
MISSING = [package for program, package in PROGRAMS.items() if shutil.which(program) is None]

pytestmark = [
    pytest.mark.host,
    pytest.mark.in_turn,
    pytest.mark.timeout(600),
    pytest.mark.requirement("D7"),
    pytest.mark.skipif(bool(MISSING), reason=f"needs the packages {', '.join(MISSING)}"),
]

PASSWORD = "hunter2-of-bmc"
_QEMU = "qemu-system-x86_64 -machine none -nodefaults -display none -S"
_DEVICE_QEMU = (
    "qemu-system-x86_64 -machine pc -accel tcg -nodefaults -display none -S -pidfile @HERE@/pid"
    " -chardev socket,id=bmc,host=127.0.0.1,port=@SERIAL@,reconnect=1"
    " -device ipmi-bmc-extern,id=extern,chardev=bmc -device isa-ipmi-kcs,bmc=extern"
)
_CHASSIS = f"""#!/bin/sh
# The controller's wires to its machine: MC get power, or MC set power 0 or 1.
here=@HERE@
shift; verb=$1; shift
running() {{ [ -f $here/pid ] && kill -0 "$(cat $here/pid)" 2>/dev/null; }}
while [ $# -gt 0 ]; do
  case $verb-$1 in
    get-power) running && echo power:1 || echo power:0 ;;
    get-*) echo "$1:0" ;;
    set-power)
      if [ "$2" = 0 ]; then running && kill -KILL "$(cat $here/pid)"
      elif ! running; then {_QEMU} </dev/null >/dev/null 2>&1 & echo $! > $here/pid; fi ;;
  esac
  [ $verb = set ] && shift
  shift
done
exit 0
"""
_LAN = """\
name "node"
set_working_mc 0x20
startlan 1
  addr 127.0.0.1 @PORT@
  priv_limit admin
  allowed_auths_callback md5
  allowed_auths_user md5
  allowed_auths_operator md5
  allowed_auths_admin md5
  guid a123456789abcdefa123456789abcdef
endlan
@POWER@
user 1 true "" "none" user 10 md5
user 2 true "admin" "@PASSWORD@" admin 10 md5
"""
_BESIDE = """\
chassis_control "@HERE@/chassis 0x20"
startnow false
"""
_DEVICE = f"""\
serial 15 127.0.0.1 @SERIAL@ codec VM
startcmd "{_DEVICE_QEMU}"
startnow true
"""
_MC = """\
mc_setbmc 0x20
mc_add 0x20 0 no-device-sdrs 0x23 9 8 0x9f 0x1291 0xf02
mc_enable 0x20
"""


class Machine:
    """A QEMU and its management controller on loopback."""

    def __init__(self, here: Path, *, is_device: bool) -> None:
        self._here, self._is_device = here, is_device
        self.port = _free_port(socket.SOCK_DGRAM)
        texts = {"lan.conf": _LAN, "mc": _MC, "chassis": _CHASSIS}
        values = {
            "POWER": _DEVICE if is_device else _BESIDE,
            "HERE": here,
            "PORT": self.port,
            "SERIAL": _free_port(socket.SOCK_STREAM),
            "PASSWORD": PASSWORD,
        }
        for name, text in texts.items():
            for word, value in values.items():
                text = text.replace(f"@{word}@", str(value))  # noqa: PLW2901
            (here / name).write_text(text)
        (here / "chassis").chmod(0o700)
        (here / "state").mkdir()

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        words = ["ipmi_sim", "-c", "lan.conf", "-f", "mc", "-s", "state", "-n"]
        if not self._is_device:
            self._chassis("1")
        with subprocess.Popen(
            words, cwd=self._here, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        ) as simulator:
            try:
                yield
            finally:
                simulator.terminate()
                self._chassis("0")

    def _chassis(self, power: str) -> None:
        subprocess.run([self._here / "chassis", "0x20", "set", "power", power], check=True)

    def is_running(self) -> bool:
        try:
            pid = (self._here / "pid").read_text().strip()
            return b"qemu" in Path(f"/proc/{pid}/cmdline").read_bytes()
        except FileNotFoundError:
            return False


def _free_port(kind: socket.SocketKind) -> int:
    with socket.socket(socket.AF_INET, kind) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@dataclass
class Bench:
    machine: Machine
    power: PowerFencing
    set_password: Any


@pytest.fixture(params=[False, True], ids=["beside", "ipmi-bmc-extern"])
async def bench(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Bench]:
    machine = Machine(tmp_path, is_device=request.param)
    store, config = await sample_config()
    rpc = FakeRpc({"node1.example.com": programs_of(Paths())}, lambda: (1, "master"))
    power = PowerFencing(
        config, rpc, NODES[0], ids=RandomIds(), clock=SystemClock(), audit=NoAudit()
    )

    async def set_password(password: str) -> None:
        options = f"ip=127.0.0.1 ipport={machine.port} username=admin lanplus=1 cipher=3"
        params = {
            "fence_agent": "fence_ipmilan",
            "fence_options": stored_options(options, ""),
            "fence_timeout": 20,
        }
        await config.change(
            lambda draft: draft.put(
                replace(draft.nodes[NODES[1]], ndparams=params, fence_secret=password)
            )
        )

    await set_password(PASSWORD)
    with machine.running():
        yield Bench(machine, power, set_password)
    await power.close()
    await config.close()
    await store.close()


async def begun(bench: Bench) -> None:
    """Wait until the machine runs, and its controller answers."""
    async with asyncio.timeout(30 * patience()):
        while not (await bench.power.status(NODES[1], 5)).is_on or not bench.machine.is_running():  # noqa: ASYNC110 - they are processes
            await asyncio.sleep(0.2)


async def test_fence_ipmilan_switches_a_machine_off(bench: Bench) -> None:
    await begun(bench)
    result = await bench.power.cut(NODES[1])
    assert (result.is_fenced, result.detail) == (
        True, "fence_ipmilan confirms that the power is off",
    )  # fmt: skip
    assert not bench.machine.is_running()
    assert (await bench.power.status(NODES[1], 5)).is_on is False


@pytest.mark.requirement("G23")
async def test_wrong_password_switches_nothing_off(bench: Bench) -> None:
    await begun(bench)
    await bench.set_password("wrong-password")
    status = await bench.power.status(NODES[1], 10)
    assert status.is_on is None
    assert "Failed" in status.why
    assert "wrong-password" not in status.why
    assert bench.machine.is_running()
