"""How QEMU is told to give its rights up, and what becomes of user ids and directories."""

import json
import pwd
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from ganeti import ssconf, uidpool
from ganeti.base.errors import HypervisorError, PrereqError
from ganeti.base.paths import Paths
from ganeti.base.process import CommandFailed, Completed
from ganeti.hypervisor.kvm.confinement import (
    Abilities,
    Confinement,
    User,
    abilities_of,
    capability_words,
    user_problems,
    words,
)
from ganeti.hypervisor.kvm.driver import KvmHypervisor
from ganeti.hypervisor.kvm.programs import Programs
from ganeti.hypervisor.kvm.runtime import GuestFiles, Record
from ganeti.model.hypervisor_params import hypervisor_defaults
from tests.support.single_questions import SingleQuestions
from tests.unit.hypervisor.kvm.test_driver import INSTANCE, UUID, Host, no_commands

POOLED = replace(
    INSTANCE, hvparams={"accelerator": "tcg", "security_model": "pool", "use_chroot": True}
)
USER, ROOM = User(61000, 61001), Path("/run/a,b")
NEW = Abilities(run_with_user=True, run_with_chroot=True)
SANDBOX = ["-sandbox", "on,obsolete=deny,spawn=deny,resourcecontrol=deny"]


@pytest.mark.requirement("S228", "S229", "G24")
@pytest.mark.parametrize(
    ("user", "chroot", "abilities", "wanted"),
    [
        (None, None, Abilities(sandbox=False), []),
        (None, None, NEW, ["-sandbox", f"{SANDBOX[1]},elevateprivileges=deny"]),
        (USER, None, Abilities(), ["-runas", "61000:61001", *SANDBOX]),
        (USER, ROOM, Abilities(), ["-chroot", "/run/a,b", "-runas", "61000:61001", *SANDBOX]),
        (USER, None, NEW, ["-run-with", "user=61000:61001", *SANDBOX]),
        (USER, ROOM, NEW, ["-run-with", "chroot=/run/a,,b,user=61000:61001", *SANDBOX]),
        (
            USER,
            ROOM,
            Abilities(run_with_chroot=True),
            ["-runas", "61000:61001", "-run-with", "chroot=/run/a,,b", *SANDBOX],
        ),
        (
            None,
            ROOM,
            Abilities(run_with_chroot=True, sandbox=False),
            ["-run-with", "chroot=/run/a,,b"],
        ),
    ],
)
def test_each_version_of_qemu_gets_its_own_options(
    user: User | None, chroot: Path | None, abilities: Abilities, wanted: list[str]
) -> None:
    assert words(user, chroot, abilities) == wanted


def listing(**options: Sequence[str]) -> bytes:
    listed = [
        {"option": name.replace("_", "-"), "parameters": [{"name": word} for word in given]}
        for name, given in options.items()
    ]
    greeting: dict[str, object] = {"QMP": {"version": {}}}
    lines: tuple[dict[str, object], ...] = (
        greeting,
        {"return": {}},
        {"return": listed},
        {"event": "SHUTDOWN"},
    )
    return "\n".join(json.dumps(line) for line in lines).encode()


@pytest.mark.requirement("S228")
@pytest.mark.parametrize(
    ("answers", "abilities"),
    [
        (listing(sandbox=["enable"]), Abilities()),
        (listing(memory=[]), Abilities(sandbox=False)),
        (listing(sandbox=[], run_with=["async-teardown"]), Abilities()),
        (listing(sandbox=[], run_with=["chroot"]), Abilities(run_with_chroot=True)),
        (listing(sandbox=[], run_with=["chroot", "user"]), NEW),
        (b"", Abilities()),
        (b'[1]\n"x"\nnot json\n{"return": 5}', Abilities()),
    ],
)
def test_what_a_qemu_can_is_read_from_its_answers(answers: bytes, abilities: Abilities) -> None:
    assert abilities_of(answers) == abilities


class Asked:
    """A runner of QEMU that counts."""

    def __init__(self, answer: bytes) -> None:
        self.answer, self.count = answer, 0

    async def __call__(
        self, argv: Sequence[str], *, timeout_s: float = 60.0, stdin: bytes | None = None,
        env: Mapping[str, str] | None = None, check: bool = True,
    ) -> Completed:  # fmt: skip
        self.count += 1
        assert b"query-command-line-options" in (stdin or b"")
        if not self.answer:
            raise CommandFailed(Completed(tuple(argv), 1, b"", b""), "exit status 1")
        return Completed(tuple(argv), 0, self.answer, b"")


async def test_each_version_of_a_program_is_asked_once(tmp_path: Path) -> None:
    program = tmp_path / "qemu"
    program.write_text("7")
    asked = Asked(listing(sandbox=[]))
    confinement = Confinement(Paths(tmp_path), asked)
    for _ in range(3):
        assert await confinement.abilities(str(program)) == Abilities()
    assert asked.count == 1
    program.write_text("9.1")
    asked.answer = listing(sandbox=[], run_with=["chroot", "user"])
    assert await confinement.abilities(str(program)) == NEW
    assert await confinement.abilities(str(tmp_path / "gone")) == Abilities()
    assert asked.count == 2


async def test_a_qemu_that_cannot_be_asked_is_not_trusted_to_be_confined(tmp_path: Path) -> None:
    program = tmp_path / "qemu"
    program.touch()
    with pytest.raises(HypervisorError, match="cannot be queried"):
        await Confinement(Paths(tmp_path), Asked(b"")).abilities(str(program))


@pytest.mark.requirement("S228", "A44")
@pytest.mark.parametrize(
    ("model", "domain", "problem"),
    [
        ("none", "", ""),
        ("pool", "", ""),
        ("user", "nobody", ""),
        ("none", "nobody", "has no effect"),
        ("pool", "nobody", "has no effect"),
        ("user", "", "needs the name"),
        ("user", "no-such-user", "the user no-such-user does not exist"),
        ("user", "toor", "root privileges"),
        ("user", "wheel", "root privileges"),
    ],
)
def test_a_user_is_one_of_the_host_and_never_root(
    monkeypatch: pytest.MonkeyPatch, model: str, domain: str, problem: str
) -> None:
    known = {"nobody": (65534, 65534), "toor": (0, 7), "wheel": (7, 0)}

    def getpwnam(name: str) -> pwd.struct_passwd:
        uid, gid = known[name]
        return pwd.struct_passwd((name, "x", uid, gid, "", "/", "/bin/false"))

    monkeypatch.setattr(pwd, "getpwnam", getpwnam)
    params = hypervisor_defaults("kvm") | {"security_model": model, "security_domain": domain}
    found = user_problems(params)
    assert (problem in found[0]) if problem else found == []


# --- with the driver, and a pretended QEMU ----------------------------------------------------


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Host:
    monkeypatch.setattr(Programs, "find", lambda _self, _hvparams: "/nowhere/qemu")
    return Host()


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    paths = Paths(tmp_path)
    ssconf.write_set(paths, 1, {"uid_pool": "61400"})
    return paths


@pytest.fixture
def kvm(paths: Paths, host: Host) -> KvmHypervisor:
    return KvmHypervisor(paths, no_commands, processes=host, monitor=host.monitor)


def record(paths: Paths) -> Record | None:
    return GuestFiles.of(paths, UUID).read()


def check_nothing_is_left(paths: Paths) -> None:
    assert record(paths) is None
    assert not GuestFiles.of(paths, UUID).chroot.exists()
    assert list(uidpool.lock_directory(paths).glob("*")) == []


@pytest.mark.virtual_time
@pytest.mark.requirement("S229", "S230", "G11")
async def test_a_guest_of_the_pool_has_an_id_and_a_directory_until_it_ends(
    kvm: KvmHypervisor, host: Host, paths: Paths
) -> None:
    await kvm.start(POOLED, [])
    kept = record(paths)
    assert kept is not None
    assert kept.pool_uid == 61400
    assert kept.argv[-8:-4] == (
        *("-chroot", str(GuestFiles.of(paths, UUID).chroot)),
        *("-runas", "61400:61400"),
    )
    (lock_file,) = host.kept
    assert kept.argv[-2] == "-add-fd"
    assert kept.argv[-1].startswith(f"fd={lock_file},")
    lock = uidpool.lock_directory(paths) / "61400"
    assert lock.exists()
    lock.unlink()
    await kvm.start(POOLED, [])  # it runs already
    assert lock.exists(), "the hint is back"
    await kvm.stop(POOLED, 0)
    check_nothing_is_left(paths)


@pytest.mark.virtual_time
@pytest.mark.requirement("S230", "G11")
@pytest.mark.parametrize("command", ["qom-get", "query-version", "cont"])
async def test_a_start_that_fails_at_any_step_gives_the_id_back(
    kvm: KvmHypervisor, host: Host, paths: Paths, command: str
) -> None:
    for _ in range(2):
        host.refuses = {command}
        with pytest.raises(HypervisorError, match=command):
            await kvm.start(POOLED, [])
        check_nothing_is_left(paths)
    host.refuses = set()
    await kvm.start(POOLED, [])
    assert record(paths) is not None


@pytest.mark.virtual_time
@pytest.mark.requirement("S230", "A65")
async def test_during_a_start_no_other_guest_gets_the_id(host: Host, paths: Paths) -> None:
    kvm = KvmHypervisor(paths, no_commands, processes=host, monitor=lambda _path: asked)
    asked = Watched(host, paths)
    await kvm.start(POOLED, [], paused=True)
    assert asked.seen
    assert all(asked.seen)


class Watched(SingleQuestions):
    """A monitor during whose every answer somebody else wants the only id."""

    def __init__(self, host: Host, paths: Paths) -> None:
        self._host, self._paths = host, paths
        self.seen: list[bool] = []

    async def with_files(
        self, files: Sequence[int], commands: Sequence[tuple[str, Mapping[str, Any]]]
    ) -> None:
        await self._host.with_files(files, commands)

    async def __call__(
        self, command: str, arguments: Mapping[str, Any] | None = None, *, timeout_s: float = 20.0
    ) -> Any:
        directory = uidpool.lock_directory(self._paths)
        try:
            uid = uidpool.RequestUnusedUid([61400], directory=directory, uids_in_use=lambda: {0})
        except PrereqError:
            self.seen.append(True)
        else:
            uid.Unlock()
            self.seen.append(False)
        return await self._host(command, arguments, timeout_s=timeout_s)


@pytest.mark.virtual_time
@pytest.mark.requirement("S230")
async def test_a_node_whose_pool_is_used_up_reports_it(kvm: KvmHypervisor, paths: Paths) -> None:
    lock = uidpool.RequestUnusedUid([61400], directory=uidpool.lock_directory(paths))
    with pytest.raises(HypervisorError, match="all 1 user ids of the pool are in use"):
        await kvm.start(POOLED, [])
    uidpool.ReleaseUid(lock)
    check_nothing_is_left(paths)


@pytest.mark.virtual_time
@pytest.mark.requirement("S229")
async def test_what_is_left_in_a_directory_goes_and_links_in_it_are_not_followed(
    kvm: KvmHypervisor, paths: Paths, tmp_path: Path
) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").touch()
    for _ in range(2):
        await kvm.start(POOLED, [])
        chroot = GuestFiles.of(paths, UUID).chroot
        assert list(chroot.iterdir()) == []
        chroot.chmod(0o700)
        (chroot / "link").symlink_to(precious)
        (chroot / "deep").mkdir()
        await kvm.stop(POOLED, 0)
        check_nothing_is_left(paths)
    assert (precious / "file").exists()


@pytest.mark.requirement("A65")
async def test_verify_reports_users_with_ids_of_the_pool(kvm: KvmHypervisor, paths: Paths) -> None:
    nobody = [problem for problem in await kvm.verify() if "pool" in problem]
    assert nobody == []
    service = next(user for user in pwd.getpwall() if 0 < user.pw_uid < 1000)
    ssconf.write_set(paths, 2, {"uid_pool": str(service.pw_uid)})
    found = [problem for problem in await kvm.verify() if "pool" in problem]
    assert found[0].endswith(f"user id {service.pw_uid} belongs to {service.pw_name}")


@pytest.mark.requirement("S228")
@pytest.mark.parametrize(
    ("user", "chroot", "kept"),
    [
        (None, None, "-all,+dac_override"),
        (None, Path("/r"), "-all,+dac_override,+sys_chroot"),
        (User(7, 7), None, "-all,+dac_override,+setgid,+setuid"),
        (User(7, 7), Path("/r"), "-all,+dac_override,+setgid,+setuid,+sys_chroot"),
    ],
)
def test_qemu_begins_with_the_capabilities_that_it_needs(
    user: User | None, chroot: Path | None, kept: str
) -> None:
    words = capability_words(user, chroot)
    assert words[1:] == [f"--bounding-set={kept}", "--inh-caps=-all", "--"]
