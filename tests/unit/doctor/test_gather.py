"""The facts of a host, from files and programs that a test wrote."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from ganeti.base.paths import Paths
from ganeti.base.process import CommandFailed, Completed
from ganeti.doctor.gather import Sources, degraded_raids, host_facts, of_node
from ganeti.doctor.kernel import is_clock_synchronised, kvm_problem
from ganeti.model.host_facts import HostQuestion, Link

FILES = {
    "etc/os-release": 'NAME="Debian GNU/Linux"\nPRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\n',
    "proc/sys/kernel/osrelease": "6.1.0-18-amd64\n",
    "proc/meminfo": "MemTotal:        8192000 kB\nMemFree: 1 kB\n",
    "proc/cpuinfo": "processor\t: 0\nmodel name\t: Some CPU\nflags\t\t: vmx aes\n\nprocessor\t: 1\nflags\t\t: vmx aes\n",
    "sys/devices/system/edac/mc/mc0/ue_count": "1\n",
    "sys/devices/system/edac/mc/mc1/ue_count": "2\n",
    "proc/mdstat": "Personalities : [raid1]\nmd0 : active raid1 sda1[0]\n      1 blocks [2/1] [U_]\n",
    "proc/123/comm": "systemd-timesyn\n",
    "proc/sys/net/bridge/bridge-nf-call-iptables": "1\n",
    "sys/class/net/br0/flags": "0x1003\n",
    "sys/class/net/br0/mtu": "9000\n",
    "sys/class/net/br0/bridge/bridge_id": "x\n",
    "proc/mounts": "/dev/sda1 / ext4 rw 0 0\n",
    "proc/net/tcp": "  sl  local_address rem_address   st\n"
    "   0: 00000000:0713 00000000:0000 0A 0\n"
    "   1: 0100007F:13D8 00000000:0000 0A 0\n"
    "   2: 00000000:0016 00000000:0000 01 0\n",
    "sys/module/drbd/version": "8.4.11\n",
    "run/systemd/system/x": "",
}
OUTPUTS = {
    "qemu-system-x86_64": b"QEMU emulator version 7.2.9 (Debian)\nCopyright\n",
    "vgs": b"  xenvg|1024.00\n  other|0\n",
    "systemctl": b"enabled\nenabled\nenabled\nenabled\ndisabled\nenabled\n",
}
QUESTION = HostQuestion(
    volume_group="xenvg", uses_drbd=True, links=("br0", "br1"), ports=(1811, 5080, 22)
)


def sources(root: Path, *, missing: Sequence[str] = (), failing: Sequence[str] = ()) -> Sources:
    """A host below `root`; `missing` programs do not exist, `failing` ones end with an error."""
    for name, content in FILES.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, "utf-8")

    async def run(
        argv: Sequence[str],
        *,
        timeout_s: float = 60.0,
        stdin: bytes | None = None,
        env: Mapping[str, str] | None = None,
        check: bool = True,
    ) -> Completed:
        del timeout_s, stdin, env, check
        done = Completed(tuple(argv), 0, OUTPUTS[argv[0]], b"")
        if argv[0] in failing:
            raise CommandFailed(done, "it failed")
        return done

    def find(program: str) -> str | None:
        return None if program in missing else program

    def space(_path: Path) -> tuple[int, int]:
        return 2000 << 20, 1000 << 20

    no_problem: Callable[[Path], str] = lambda _path: ""  # noqa: E731
    return Sources(
        root=root,
        run=run,
        name=lambda: "node1.example.com",
        is_virtual=False,
        resolve=lambda _name: ["192.0.2.1"],
        find=find,
        clock=lambda: True,
        kvm=no_problem,
        space=space,
    )


async def test_facts_are_those_of_the_host(tmp_path: Path) -> None:
    found = await host_facts(QUESTION, sources(tmp_path))
    assert found.name_addresses == ("192.0.2.1",)
    assert found.system == "Debian GNU/Linux 12 (bookworm)"
    assert (found.kernel, found.memory_mib, found.cpus) == ("6.1.0-18-amd64", 8000, 2)
    assert (found.cpu_model, found.cpu_flags) == ("Some CPU", ("aes", "vmx"))
    assert found.uncorrected_memory_errors == 3
    assert found.degraded_raids == ("md0",)
    assert (found.is_clock_synchronised, found.time_service) == (True, "systemd-timesyncd")
    assert found.filters_bridges
    assert found.links == {"br0": Link(is_bridge=True, is_up=True, mtu=9000)}
    assert found.ports_in_use == (1811,), "a listener on the loopback interface does not count"
    assert (found.qemu_version, found.qemu_problem) == ("7.2.9 (Debian)", "")
    assert (found.volume_groups, found.lvm_problem) == ({"xenvg": 1024, "other": 0}, "")
    assert (found.drbd_version, found.drbd_problem) == ("8.4.11", "")
    assert found.disabled_units == ("ganeti-rapi.service",)
    assert not found.has_tun


async def test_directory_that_does_not_exist_yet_is_judged_by_the_one_above(tmp_path: Path) -> None:
    there, absent = tmp_path / "there", tmp_path / "there/not/yet"
    there.mkdir()
    question = HostQuestion(directories=(str(there), str(absent)))
    found = await host_facts(question, sources(tmp_path))
    assert [(one.total, one.free, one.kind, one.exists) for one in found.spaces.values()] == [
        (2000, 1000, "ext4", True),
        (2000, 1000, "ext4", False),
    ]


@pytest.mark.parametrize("how", ["missing", "failing"])
async def test_program_that_fails_is_a_fact_and_not_an_error(tmp_path: Path, how: str) -> None:
    programs = ("qemu-system-x86_64", "vgs", "drbdsetup")
    host = (
        sources(tmp_path, missing=programs)
        if how == "missing"
        else sources(tmp_path, failing=(*programs, "systemctl"))
    )
    found = await host_facts(QUESTION, host)
    assert found.qemu_problem
    assert found.lvm_problem
    assert (found.qemu_version, found.volume_groups) == ("", {})
    assert bool(found.drbd_problem) == (how == "missing")


async def test_unreadable_host_has_empty_facts(tmp_path: Path) -> None:
    host = sources(tmp_path)
    for name in FILES:
        (tmp_path / name).unlink()
    found = await host_facts(QUESTION, host)
    assert (found.system, found.kernel, found.memory_mib, found.cpus) == ("", "", 0, 0)
    assert found.drbd_problem == "the kernel module drbd is not loaded"
    assert (found.time_service, found.ports_in_use) == ("", ())


async def test_node_adds_the_directories_of_its_daemons(tmp_path: Path) -> None:
    paths = Paths(tmp_path)
    asked = of_node(HostQuestion(directories=("/srv/disks", "/var/lib/ganeti")), paths)
    assert asked.directories == (
        str(paths.data),
        str(paths.log),
        str(tmp_path / "srv/disks"),
    )


def test_raid_with_all_devices_is_not_degraded() -> None:
    good = "md1 : active raid1 sda1[0] sdb1[1]\n      1 blocks [2/2] [UU]\n"
    assert list(degraded_raids(good + FILES["proc/mdstat"])) == ["md0"]


def test_kernel_answers(tmp_path: Path) -> None:
    assert is_clock_synchronised() in {True, False, None}
    assert "No such file" in kvm_problem(tmp_path / "kvm")
    (tmp_path / "file").touch()
    assert kvm_problem(tmp_path / "file").startswith(str(tmp_path / "file"))
