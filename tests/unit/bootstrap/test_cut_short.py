"""An init, an import or a join that is killed: it can be repeated, or the error says what helps, and that helps."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from ganeti.base.errors import PrereqError
from ganeti.base.node_files import Lifetime, existing
from ganeti.base.paths import Paths
from ganeti.bootstrap import daemons, init, join_listener, membership, takeover
from ganeti.bootstrap.init import STEPS, InitContext, InitOptions, Step
from ganeti.bootstrap.membership import install
from ganeti.bootstrap.takeover import import_cluster, plan_import
from ganeti.tools import node_cleanup
from ganeti.upstream.choices import Choices
from tests.unit.bootstrap.test_membership import ADMISSION, KEY
from tests.unit.upstream import sample

HOST = "node2.example.com"


class Killed(BaseException):
    """Nothing is undone after it."""


@pytest.fixture
def paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Paths:
    """A host whose daemons only pretend to run."""

    async def pretend(*_args: object) -> None:
        await asyncio.sleep(0)

    monkeypatch.setenv("GANETI_ROOTDIR", str(tmp_path))
    monkeypatch.setattr(daemons.Daemons, "start", pretend)
    monkeypatch.setattr(daemons.Daemons, "stop", pretend)
    monkeypatch.setattr(init, "answers", pretend)
    return Paths(tmp_path)


def killed_after(number: int) -> list[Step]:
    """The steps, of which the last is the one after which the command is killed."""

    async def die(new: InitContext) -> None:
        new.undo.pop_all()
        raise Killed

    return [*STEPS[:number], die]


async def make(paths: Paths, steps: list[Step]) -> None:
    await init.init_cluster(options_for(paths), paths=paths, steps=steps)


def options_for(paths: Paths) -> InitOptions:
    """The directory of shared files is the same path on all nodes, so it is below this test's."""
    return InitOptions(
        cluster_name="c.example.com",
        node_name=HOST,
        primary_ip="192.0.2.1",
        params={"shared_file_storage_dir": str(paths.root / "shared")},
    )


async def repeated(paths: Paths, again: Callable[[], Awaitable[Any]]) -> None:
    """What an administrator does: the same again, and where it is refused what the error says."""
    refused = None
    try:
        await again()
    except PrereqError as err:
        refused = err.message
    if refused is not None:
        assert "node-cleanup --yes-do-it" in refused
        assert await asyncio.to_thread(node_cleanup.main, ["--yes-do-it", "--no-backup"]) == 0
        assert not existing(paths, Lifetime.CLUSTER)
        await again()
    assert paths.register.exists()


@pytest.mark.parametrize("number", range(len(STEPS) + 1))
async def test_an_init_that_was_killed_is_made_good(paths: Paths, number: int) -> None:
    with pytest.raises(Killed):
        await make(paths, killed_after(number))
    await repeated(paths, lambda: make(paths, list(STEPS)))


@pytest.mark.parametrize("number", range(len(STEPS) + 1))
async def test_an_import_that_was_killed_is_made_good(
    paths: Paths, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    document = sample.document()
    document["cluster"].pop("secret_of_the_future", None)
    document["cluster"]["shared_file_storage_dir"] = str(paths.root / "shared")
    plan = plan_import(sample.encoded(document), HOST, Choices())
    assert plan.report.refused == []
    for name, text in (("rapi/users", "u p write\n"), ("cluster-domain-secret", "s\n")):
        path = paths.upstream / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    with monkeypatch.context() as patched:
        patched.setattr(takeover, "STEPS", _with_make_state(killed_after(number)))
        with pytest.raises(Killed):
            await import_cluster(plan, paths=paths)
    await repeated(paths, lambda: import_cluster(plan, paths=paths))
    assert paths.rapi_users.read_text() == "u p write\n"
    assert paths.cluster_domain_secret.read_text() == "s\n"
    assert paths.imported.read_bytes() == sample.encoded(document)


def _with_make_state(steps: list[Step]) -> list[Step]:
    """An import puts a step of its own behind this one, which is never reached where it is the last."""
    return steps if init.make_state in steps else [*steps, init.make_state]


@pytest.mark.parametrize("step", ["write_identity", "allow_storage", "_join_register"])
def test_a_join_that_was_killed_names_what_helps(
    paths: Paths,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    step: str,
) -> None:
    paths.data.mkdir(parents=True)
    paths.etc.mkdir(parents=True)
    act = getattr(membership, step)

    def dying(*args: object) -> None:
        act(*args)
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(membership, step, dying)
        patched.setattr(membership, "forget_cluster", lambda *_args, **_keep: None)
        with pytest.raises(Killed):
            install(paths, ADMISSION, KEY)
    assert join_listener.main([]) != 0
    assert "ganeti-node-join --reset" in capsys.readouterr().err
    assert node_cleanup.main(["--yes-do-it", "--no-backup"]) == 0
    install(paths, ADMISSION, KEY)
