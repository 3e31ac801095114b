"""Which users and groups are made and removed, by which commands."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from ganeti.base.errors import ConfigurationError, InputError, PrereqError
from ganeti.base.paths import Paths
from ganeti.base.pidfile import holding_pid_file, pid_file
from ganeti.base.process import CommandFailed, Completed
from ganeti.base.users import users_file
from ganeti.bootstrap.users_setup import (
    commands,
    main,
    names_of,
    removing_commands,
    set_up,
    tear_down,
)

NAMES = names_of("gnt")


@pytest.mark.requirement("S224")
def test_what_is_missing_is_made_and_what_exists_gets_its_groups() -> None:
    made = commands(NAMES, {"gnt-rapi"}, {"gnt-admin"})
    assert [words[0] for words in made] == ["groupadd", "useradd", "usermod", "useradd"]
    assert made[0] == ["groupadd", "--system", "gnt-daemons"]
    assert made[1][-1] == "gnt-masterd"
    assert made[1][1:6] == ["--system", "--gid", "gnt-daemons", "--groups", "gnt-admin"]
    assert "/usr/sbin/nologin" in made[1]
    assert made[2] == ["usermod", "--gid", "gnt-daemons", "--groups", "gnt-admin", "gnt-rapi"]
    assert made[3][made[3].index("--groups") + 1] == "", "confd does not ask the master"


def test_only_what_exists_is_removed() -> None:
    assert removing_commands(NAMES, {"gnt-rapi", "anna"}, {"gnt-admin"}) == [
        ["userdel", "gnt-rapi"],
        ["groupdel", "gnt-admin"],
    ]


@pytest.mark.requirement("G24")
@pytest.mark.parametrize("prefix", ["", "-x", "a b", "A", "x" * 40, "root:", "../x"])
def test_a_prefix_that_makes_no_names_is_refused(prefix: str) -> None:
    with pytest.raises(InputError) as caught:
        names_of(prefix)
    assert caught.value.field == "prefix"


class Host:
    """Runs nothing, and fails when it is told to."""

    def __init__(self, fails: str = "") -> None:
        self.fails, self.ran = fails, list[list[str]]()

    async def __call__(
        self, argv: Sequence[str], *, timeout_s: float = 60.0, stdin: bytes | None = None,
        env: Mapping[str, str] | None = None, check: bool = True,
    ) -> Completed:  # fmt: skip
        self.ran.append(list(argv))
        if argv[0] == self.fails:
            raise CommandFailed(Completed(tuple(argv), 1, b"", b""), "exit status 1")
        return Completed(tuple(argv), 0, b"", b"")


async def test_without_the_users_nothing_is_written_down(tmp_path: Path) -> None:
    paths = Paths(tmp_path)
    with pytest.raises(CommandFailed):
        await set_up(paths, "gntx", run=Host("useradd"))
    assert not users_file(paths).exists()
    # Tools that say that all went well, and made nothing:
    with pytest.raises(ConfigurationError, match="does not have"):
        await set_up(paths, "gntx", run=Host())


async def test_removing_where_nothing_was_set_up_is_harmless(tmp_path: Path) -> None:
    host = Host()
    assert await tear_down(Paths(tmp_path), run=host) == []
    assert host.ran == []


async def test_users_are_not_removed_under_a_running_master(tmp_path: Path) -> None:
    paths = Paths(tmp_path)
    with pytest.raises(ConfigurationError):
        await set_up(paths, "gntx", run=Host())
    host = Host()
    with pytest.raises(PrereqError, match="with other names"):
        await set_up(paths, "gnty", run=host)
    assert host.ran == []
    paths.run.mkdir(parents=True)
    with holding_pid_file(pid_file(paths.run, "ganeti-masterd"), "ganeti-masterd") as held:
        held.serves()
        with pytest.raises(PrereqError, match="stop it first"):
            await tear_down(paths, run=host)
    assert users_file(paths).exists()
    assert (await tear_down(paths, run=host))[0] == "removed gntx-masterd"
    assert not users_file(paths).exists()


def test_only_root_may(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert main([]) == 1
    assert "only root" in capsys.readouterr().err
