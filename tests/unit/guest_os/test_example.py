"""The example of `docs/man/ganeti-os-authors.md` is a definition that works as the page says."""

import re
import subprocess
from pathlib import Path

import pytest

from ganeti.base.errors import GuestOsError
from ganeti.base.process import run
from ganeti.guest_os.scripts import DiskOfScript, OsChoice, OsScripts, ScriptCommand
from ganeti.model.instance_spec import DiskSpec, InstanceSpec
from tests.unit.guest_os.test_scripts import DirectTasks

PAGE = Path(__file__).resolve().parents[3] / "docs" / "man" / "ganeti-os-authors.md"
FILE = re.compile(r"^`([a-z_.]+)`[^\n]*:\n\n```\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture
def scripts(tmp_path: Path) -> OsScripts:
    directory = tmp_path / "os" / "stamp"
    directory.mkdir(parents=True)
    for name, text in FILE.findall(PAGE.read_text()):
        (directory / name).write_text(text)
        (directory / name).chmod(0o755 if text.startswith("#!") else 0o644)
    assert len(list(directory.iterdir())) == 10
    return OsScripts((tmp_path / "os",), tmp_path / "log", DirectTasks(), run)


def spec(disk: Path, name: str = "web1.example.com") -> InstanceSpec:
    return InstanceSpec(
        name=name, uuid="i", hypervisor="kvm", os="stamp+long", memory=128, vcpus=1, hvparams={},
        disks=(DiskSpec(uuid="d", index=0, size=1, template="file", logical_id=("loop", str(disk))),),
    )  # fmt: skip


def line(disk: Path) -> str:
    return disk.read_bytes()[:512].decode().rstrip()


def piped(out: ScriptCommand, into: ScriptCommand) -> "subprocess.CompletedProcess[bytes]":
    """Let one script write what the other reads."""
    data = subprocess.run(out.argv, check=True, env=dict(out.environment), capture_output=True)
    subprocess.run(into.argv, check=True, env=dict(into.environment), input=data.stdout)
    return data


async def test_the_example_installs_exports_imports_and_renames(
    scripts: OsScripts, tmp_path: Path
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    for disk in (first, second):
        disk.write_bytes(bytes(1 << 20))
    choice = OsChoice("stamp+long", {"greeting": "welcome"})
    await scripts.validate(choice)
    with pytest.raises(GuestOsError, match="must be one word"):
        await scripts.validate(OsChoice("stamp+long", {"greeting": "a b"}))
    done = await scripts.create("1/0/1", choice, spec(first), [str(first)], 0)
    assert done.tail == f"stamped {first}"
    assert line(first) == "welcome web1.example.com with 1 disks and 0 interfaces"
    out, into = (
        make(choice, spec(disk), [str(disk)], DiskOfScript(str(disk), 0, "1/0/2"))
        for make, disk in ((scripts.export_command, first), (scripts.import_command, second))
    )
    data = piped(out, into)
    assert (data.stderr, second.read_bytes()) == (b"disk 0\n", first.read_bytes())
    renamed = spec(second, "web2.example.com")
    await scripts.rename("1/0/3", choice, renamed, [str(second)], 0, old_name="web1.example.com")
    assert line(second) == "welcome web2.example.com with 1 disks and 0 interfaces"
    with pytest.raises(GuestOsError, match="does not belong to"):
        await scripts.rename(
            "1/0/4", choice, renamed, [str(second)], 0, old_name="web9.example.com"
        )
