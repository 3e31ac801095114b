"""The QEMU program of this node: its path, its version, and its virtual hardware."""

import re
import shutil
from pathlib import Path

from ganeti.base.errors import HostError, HypervisorError
from ganeti.base.process import CLEAN_ENVIRONMENT, Run
from ganeti.hypervisor.abilities import PinsMachine
from ganeti.hypervisor.kvm.guests import complete
from ganeti.hypervisor.kvm.machine import DEFAULT_MACHINE
from ganeti.hypervisor.kvm.validation import machines
from ganeti.model.params import Params

PROGRAM = "qemu-system-x86_64"


class Programs(PinsMachine):
    """The facts that QEMU programs report about themselves."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._versions: dict[tuple[str, int, int], str] = {}

    @staticmethod
    def find(hvparams: Params) -> str:
        """Return the path of the program; HypervisorError if there is none."""
        wanted = str(hvparams.get("kvm_path") or PROGRAM)
        found = shutil.which(wanted, path=CLEAN_ENVIRONMENT["PATH"])
        if found is None:
            raise HypervisorError(
                f"the program {wanted} does not exist on this node; install qemu-system-x86 or set kvm_path"
            )
        return found

    async def version_of(self, program: str) -> str:
        """Return QEMU's version; a program is queried again only after its replacement."""
        identity = _identity(program)
        if identity not in self._versions:
            self._versions = {identity: await self._said_version(program)}
        return self._versions[identity]

    async def _said_version(self, program: str) -> str:
        try:
            text = (await self._run([program, "--version"])).text
        except HostError as err:
            raise HypervisorError(f"the version of QEMU cannot be queried: {err}") from err
        found = re.search(r"version (\d+(?:\.\d+)+)", text)
        if found is None:
            raise HypervisorError(f"{program} reports no version: {text!r:.80}")
        return found[1]

    async def pinned(self, hvparams: Params) -> Params:
        filled = complete(hvparams)
        wanted = str(filled["machine_version"]) or DEFAULT_MACHINE
        known = await machines(self._run, self.find(filled))
        return {"machine_version": known[wanted]} if wanted in known else {}


def _identity(program: str) -> tuple[str, int, int]:
    """Return a value that changes when the program is replaced."""
    try:
        status = Path(program).stat()
    except OSError:
        return program, 0, 0
    return program, status.st_ino, status.st_mtime_ns
